//! Two directories of results, cell by cell: what became slower, by how much, and how sure that is.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::sample::Sample;
use super::{Cell, Change, Manifest, Record};
use crate::experiment::RunKey;

/// All cells.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// Share that must be exceeded to count as a change.
    pub threshold: f64,
    /// Reason why the two should not be compared at all: other machines, another experiment.
    pub caveats: Vec<String>,
    /// By link, task and contender, in the order of the experiment.
    pub cells: Vec<Cell>,
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
            let [old, new] = [before, after].map(|(_, records)| sample(records, &names));
            Cell::new(names, old, new, threshold)
        });
        Self {
            threshold,
            caveats: caveats(&before.0, &after.0),
            cells: cells.collect(),
        }
    }

    /// True if anything became worse.
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

/// The figures of a cell.
fn sample(records: &BTreeMap<RunKey, Record>, names: &[String; 3]) -> Sample {
    let own = records
        .values()
        .filter(|record| record.key.names() == names.each_ref().map(String::as_str));
    Sample::seconds(&own.collect::<Vec<_>>())
}

fn caveats(before: &Manifest, after: &Manifest) -> Vec<String> {
    let pairs = [
        ("experiment", &before.experiment, &after.experiment),
        ("experiment's file", &before.text, &after.text),
        ("size", &before.extent, &after.extent),
    ];
    let differs = pairs.iter().filter(|(_, before, after)| before != after);
    let differs = differs.map(|(what, ..)| *what);
    // Another build is what one compares for.
    let place = before.differences(after).into_iter();
    let place = place.filter(|what| !what.contains("bentpipe"));
    let all = differs.chain(place);
    let all = all.map(|what| format!("not the same on both sides: {what}"));
    all.chain(before.caveats()).chain(after.caveats()).collect()
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
            let [before, after] = cell
                .figures
                .map(|figures| figures.map_or("-".into(), |figures| figures.median.seconds()));
            let ratio = cell.ratio.map_or("-".into(), |ratio| ratio.ratio(3));
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
    use bentpipe_units::Seed;

    use super::super::{Known, Outcome};
    use super::*;

    #[test]
    fn runs_that_are_doubted_are_not_compared() {
        let mut manifest = Manifest::example("e");
        manifest.outline.contenders = vec!["x".into()];
        let records = |doubted: f64| {
            let record = |repeat: u32| {
                let key = RunKey {
                    contender: "x".into(),
                    scenario: "geo".into(),
                    task: "get".into(),
                    repeat,
                };
                let mut seconds = vec![20.0];
                let doubts = match repeat {
                    1 => vec!["late".to_owned()],
                    _ => Vec::new(),
                };
                if repeat == 1 {
                    seconds = vec![doubted];
                }
                let outcome = Outcome::Measured { seconds, bytes: 1 };
                let record = Record {
                    doubts,
                    ..Record::new(key.clone(), Seed::new(1), outcome)
                };
                (key, record)
            };
            (manifest.clone(), (1..=4).map(record).collect())
        };
        let comparison = Comparison::new(&records(20.0), &records(5000.0), 0.1);
        let [Some(before), Some(after)] = comparison.cells[0].figures else {
            panic!("{comparison}");
        };
        assert_eq!((before.count, after.count), (3, 3));
        assert_eq!(after.p95, Known::exactly(20.0));
    }
}
