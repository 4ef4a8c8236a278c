//! Two directories of results, cell by cell: what became slower, by how much, and how sure that is.
//!
//! A cell is a contender over a link doing a task. What counts is the ratio of medians, after to before. With six figures and
//! more on both sides its interval is that of the percentile bootstrap, drawn from a fixed seed. With three to five there is
//! none; then figures that do not even touch are taken for different, which chance makes of three and three in one case of
//! twenty. With fewer nothing is said.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use bentpipe_units::Seed;
use rand_core::Rng as _;

use super::{Figures, Manifest, Record, Status};
use crate::experiment::RunKey;
use crate::workload::generator;

/// For an interval.
const MANY: usize = 6;
/// For any verdict.
const FEW: usize = 3;
const RESAMPLES: usize = 4000;

/// All cells.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// What must be exceeded to count as a change, as a share.
    pub threshold: f64,
    /// Why the two should not be compared at all: other machines, another experiment.
    pub caveats: Vec<String>,
    /// By link, task and contender, in the order of the experiment.
    pub cells: Vec<Cell>,
}

/// A contender over a link doing a task.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// Contender, link and task.
    pub names: [String; 3],
    /// Before and after.
    pub figures: [Option<Figures>; 2],
    /// Of the medians, after to before.
    pub ratio: Option<f64>,
    /// Holds the ratio with 95 %.
    pub interval: Option<[f64; 2]>,
    /// What it comes to.
    pub change: Change,
}

/// What became of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Surely slower by more than the threshold.
    Worse,
    /// There were valid figures, and are none.
    Lost,
    /// Surely faster by more than the threshold.
    Better,
    /// No more than the threshold, or it may be chance.
    None,
    /// Too few figures.
    Unknown,
    /// There were none before.
    New,
}

/// A directory's results.
type Results = (Manifest, BTreeMap<RunKey, Record>);

impl Comparison {
    /// Of results before and after; `threshold` is a share, 0.1 for a tenth.
    #[must_use]
    pub fn new(before: &Results, after: &Results, threshold: f64) -> Self {
        let keys = [before, after].map(|(_, records)| {
            let names = records.keys().map(|key| key.names().map(str::to_owned));
            names.collect::<BTreeSet<_>>()
        });
        // What was not run this time is not lost.
        let cells = ordered(&after.0, &keys[1]).into_iter().map(|names| {
            let [old, new] = [before, after].map(|(_, records)| seconds(records, &names));
            Cell::new(names, old, new, threshold)
        });
        Self {
            threshold,
            caveats: caveats(&before.0, &after.0),
            cells: cells.collect(),
        }
    }

    /// Whether anything became worse.
    #[must_use]
    pub fn is_worse(&self) -> bool {
        let bad = |cell: &Cell| matches!(cell.change, Change::Worse | Change::Lost);
        self.cells.iter().any(bad)
    }
}

/// In the order of the experiment, then what is not in its outline.
fn ordered(manifest: &Manifest, names: &BTreeSet<[String; 3]>) -> Vec<[String; 3]> {
    let outline = &manifest.outline;
    let place = |list: &[String], name: &String| {
        list.iter()
            .position(|known| known == name)
            .unwrap_or(usize::MAX)
    };
    let mut names: Vec<_> = names.iter().cloned().collect();
    names.sort_by_key(|[contender, scenario, task]| {
        (
            place(&outline.scenarios, scenario),
            place(&outline.tasks, task),
            place(&outline.contenders, contender),
        )
    });
    names
}

/// The valid figures of a cell.
fn seconds(records: &BTreeMap<RunKey, Record>, names: &[String; 3]) -> Vec<f64> {
    let own = records
        .values()
        .filter(|record| record.key.names() == names.each_ref().map(String::as_str));
    let valid = own.filter(|record| record.status() == Status::Valid);
    valid
        .flat_map(|record| record.seconds().iter().copied())
        .collect()
}

fn caveats(before: &Manifest, after: &Manifest) -> Vec<String> {
    let pairs = [
        ("experiment", &before.experiment, &after.experiment),
        ("experiment's file", &before.text, &after.text),
        ("size", &before.extent, &after.extent),
        ("kernel", &before.machine.kernel, &after.machine.kernel),
        ("processor", &before.machine.cpu, &after.machine.cpu),
    ];
    let differs = pairs.iter().filter(|(_, before, after)| before != after);
    differs
        .map(|(what, ..)| format!("the {what} is not the same"))
        .collect()
}

impl Cell {
    fn new(names: [String; 3], old: Vec<f64>, new: Vec<f64>, threshold: f64) -> Self {
        let interval = (old.len().min(new.len()) >= MANY).then(|| bootstrap(&old, &new));
        let change = change(&old, &new, interval, 1.0 + threshold);
        let figures = [old, new].map(Figures::of);
        let [before, after] = figures.map(|figures| figures.map(|figures| figures.median));
        Self {
            names,
            ratio: before.zip(after).map(|(before, after)| after / before),
            figures,
            interval,
            change,
        }
    }
}

fn change(old: &[f64], new: &[f64], interval: Option<[f64; 2]>, most: f64) -> Change {
    match (old.len(), new.len()) {
        (0, 0) => return Change::Unknown,
        (0, _) => return Change::New,
        (_, 0) => return Change::Lost,
        (old, new) if old.min(new) < FEW => return Change::Unknown,
        _ => {}
    }
    let least = |seconds: &[f64]| seconds.iter().copied().fold(f64::INFINITY, f64::min);
    let largest = |seconds: &[f64]| seconds.iter().copied().fold(0.0, f64::max);
    let apart = || [least(new) / largest(old), largest(new) / least(old)];
    let [low, high] = interval.unwrap_or_else(apart);
    if low > most {
        Change::Worse
    } else if high < 1.0 / most {
        Change::Better
    } else {
        Change::None
    }
}

/// 95 % of the ratios of medians of resampled figures. The same figures give the same interval.
fn bootstrap(old: &[f64], new: &[f64]) -> [f64; 2] {
    let mut numbers = generator(Seed::new(1));
    let mut median = |from: &[f64]| {
        let mut draw = || from[(numbers.next_u64() % from.len() as u64) as usize];
        let mut drawn: Vec<f64> = from.iter().map(|_| draw()).collect();
        drawn.sort_by(f64::total_cmp);
        (drawn[(drawn.len() - 1) / 2] + drawn[drawn.len() / 2]) / 2.0
    };
    let mut ratios: Vec<f64> = (0..RESAMPLES).map(|_| median(new) / median(old)).collect();
    ratios.sort_by(f64::total_cmp);
    [
        ratios[RESAMPLES / 40],
        ratios[RESAMPLES - 1 - RESAMPLES / 40],
    ]
}

impl Change {
    fn text(self) -> &'static str {
        match self {
            Self::Worse => "WORSE",
            Self::Lost => "LOST: no valid figures any more",
            Self::Better => "better",
            Self::None => "",
            Self::Unknown => "too few figures to tell",
            Self::New => "new",
        }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for caveat in &self.caveats {
            writeln!(f, "note: {caveat}")?;
        }
        let mut heading = None;
        for cell in &self.cells {
            let [contender, scenario, task] = &cell.names;
            if heading != Some((scenario, task)) {
                heading = Some((scenario, task));
                let (place, columns) = (format!("{scenario}, {task}"), ["before", "after"]);
                let [before, after] = columns;
                let interval = "95 % interval";
                writeln!(
                    f,
                    "\n{place:<34}{before:>10}{after:>10}{:>8}  {interval:<16}",
                    "ratio"
                )?;
            }
            let [before, after] = cell.figures.map(|figures| {
                figures.map_or("-".into(), |figures| format!("{:.2} s", figures.median))
            });
            let ratio = cell.ratio.map_or("-".into(), |ratio| format!("{ratio:.3}"));
            let interval = cell
                .interval
                .map_or("-".into(), |[low, high]| format!("{low:.3} to {high:.3}"));
            let line = format!(
                "  {contender:<32}{before:>10}{after:>10}{ratio:>8}  {interval:<16} {}",
                cell.change.text()
            );
            writeln!(f, "{}", line.trim_end())?;
        }
        let count = |change| {
            self.cells
                .iter()
                .filter(|cell| cell.change == change)
                .count()
        };
        let percent = self.threshold * 100.0;
        write!(
            f,
            "\n{} cells: {} worse by more than {percent} %, {} lost, {} better",
            self.cells.len(),
            count(Change::Worse),
            count(Change::Lost),
            count(Change::Better)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(old: &[f64], new: &[f64]) -> Cell {
        let names = ["x", "geo", "get"].map(str::to_owned);
        Cell::new(names, old.to_vec(), new.to_vec(), 0.1)
    }

    #[test]
    fn what_is_surely_slower_is_worse_and_what_may_be_chance_is_not() {
        let old = [1.0, 1.01, 1.02, 1.03, 1.04, 1.05, 1.06];
        let slower = old.map(|seconds| seconds * 1.3);
        let worse = cell(&old, &slower);
        assert_eq!(worse.change, Change::Worse);
        assert!((worse.ratio.unwrap() - 1.3).abs() < 1e-9);
        let [low, high] = worse.interval.unwrap();
        assert!(
            low > 1.25 && low < 1.3 && high > 1.3 && high < 1.35,
            "{low} {high}"
        );
        assert_eq!(cell(&slower, &old).change, Change::Better);
        // Within the threshold, however sure.
        assert_eq!(
            cell(&old, &old.map(|seconds| seconds * 1.05)).change,
            Change::None
        );
        // Half of them slower: the median may be either.
        let mixed = [1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0];
        assert_eq!(cell(&old, &mixed).change, Change::None);
    }

    #[test]
    fn few_figures_are_believed_only_where_they_do_not_touch() {
        assert_eq!(
            cell(&[1.0, 1.1, 1.2], &[1.4, 1.5, 1.6]).change,
            Change::Worse
        );
        assert_eq!(
            cell(&[1.0, 1.1, 1.5], &[1.4, 1.5, 1.6]).change,
            Change::None
        );
        assert_eq!(cell(&[1.0, 1.0], &[9.0, 9.0]).change, Change::Unknown);
        assert_eq!(cell(&[1.0], &[]).change, Change::Lost);
        assert_eq!(cell(&[], &[1.0]).change, Change::New);
        assert_eq!(cell(&[1.0, 1.1, 1.2], &[1.4, 1.5, 1.6]).interval, None);
    }
}
