//! Ablation: what each part of `satellite` is for. Every row is run without one part after the other, and those figures are
//! printed that leave the spread of the whole controller's.
//!
//! A part that decided nothing in a run would not change it, and is left out there. One seed comes first; only where that leaves
//! the spread are the others run as well, unless all of them are asked for.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use bentpipe_congestion::Kind;
use bentpipe_congestion::ablation::{self, Part};

use crate::row::{Figure, Goal, Row};
use crate::run::attempt;

/// Part of a figure by which it may differ from the spread and be the same, and the least that can be read off.
const SAME: f64 = 0.005;
const LEAST: f64 = 0.002;

/// One run of a row: what it measured, and the parts that decided anything in it.
struct Run {
    values: Vec<f64>,
    used: Vec<Part>,
}

fn measure(row: &Row, seed: u64, off: Option<Part>) -> Run {
    let (sample, used) = ablation::run(off, || attempt(row, Kind::Satellite, seed));
    Run {
        values: sample.values,
        used,
    }
}

/// Runs `rows` without each of `parts`, and prints what moves. `thorough`: with all seeds at once.
pub(crate) fn run(rows: &[Row], seeds: &Range<u64>, parts: &[Part], thorough: bool) {
    println!("row\tfigure\tpart\twhole\tleast\tmost\twithout\tgoal");
    let next = AtomicUsize::new(0);
    let moved: Mutex<BTreeMap<&str, u32>> = Mutex::default();
    let cores = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while let Some(row) = rows.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let found = without_each(row, seeds, parts, thorough);
                    let mut moved = moved.lock().expect("no thread panics");
                    for part in found {
                        *moved.entry(part.name()).or_default() += 1;
                    }
                    println!("done\t{}", row.title());
                }
            });
        }
    });
    let moved = moved.into_inner().expect("no thread panics");
    for part in parts {
        let count = moved.get(part.name()).copied().unwrap_or_default();
        println!("rows\t{}\t{count}", part.name());
    }
}

/// Prints what moves in one row; returns the parts that move anything.
fn without_each(row: &Row, seeds: &Range<u64>, parts: &[Part], thorough: bool) -> Vec<Part> {
    let whole: Vec<Run> = seeds.clone().map(|seed| measure(row, seed, None)).collect();
    print_used(row, &whole);
    let mut found = Vec::new();
    for part in parts {
        let mut runs: Vec<Vec<f64>> = whole.iter().map(|run| run.values.clone()).collect();
        for (index, seed) in seeds.clone().enumerate() {
            if whole[index].used.contains(part) {
                runs[index] = measure(row, seed, Some(*part)).values;
            }
            let leaves = |figure: usize| Spread::of(&whole, figure).is_left(runs[index][figure]);
            if !thorough && !(0..row.figures.len()).any(leaves) && whole[index].used.contains(part)
            {
                break;
            }
        }
        let mut moves = false;
        for (index, figure) in row.figures.iter().enumerate() {
            let spread = Spread::of(&whole, index);
            let without = median(runs.iter().map(|run| run[index]));
            if spread.is_left(without) {
                moves = true;
                print(row, figure, *part, &spread, without);
            }
        }
        if moves {
            found.push(*part);
        }
    }
    found
}

/// Prints the parts that decided anything with any seed.
fn print_used(row: &Row, whole: &[Run]) {
    let all = Part::NAMES.into_iter();
    let used = all.filter(|(part, _)| whole.iter().any(|run| run.used.contains(part)));
    let names: Vec<_> = used.map(|(_, name)| name).collect();
    println!("used\t{}\t{}", row.title(), names.join(" "));
}

fn print(row: &Row, figure: &Figure, part: Part, spread: &Spread, without: f64) {
    let short = match figure.goal {
        Goal::Shown => "-",
        goal if goal.is_met(spread.median) && !goal.is_met(without) => "SHORT",
        goal if !goal.is_met(spread.median) && goal.is_met(without) => "MET",
        Goal::AtMost(_) if without > spread.median => "worse",
        Goal::AtLeast(_) if without < spread.median => "worse",
        Goal::AtMost(_) | Goal::AtLeast(_) => "better",
    };
    println!(
        "{}\t{}\t{}\t{:.4}\t{:.4}\t{:.4}\t{without:.4}\t{short}",
        row.title(),
        figure.name,
        part.name(),
        spread.median,
        spread.least,
        spread.most,
    );
}

/// What the whole controller measures, over the seeds.
struct Spread {
    least: f64,
    median: f64,
    most: f64,
}

impl Spread {
    fn of(runs: &[Run], figure: usize) -> Self {
        let values = || runs.iter().map(|run| run.values[figure]);
        Self {
            least: values().fold(f64::INFINITY, f64::min),
            median: median(values()),
            most: values().fold(f64::NEG_INFINITY, f64::max),
        }
    }

    /// True if `value` is outside by more than can be read off the table. A run that failed is.
    fn is_left(&self, value: f64) -> bool {
        if value.is_infinite() {
            return value != self.most;
        }
        let same = LEAST.max(SAME * self.median.abs());
        !(self.least - same..=self.most + same).contains(&value)
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    values[(values.len() - 1) / 2]
}
