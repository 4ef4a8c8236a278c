//! Runs the rows' experiments on all cores and hands back what they measured, in the order of the table.

use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use bentpipe_congestion::Kind;

use crate::row::{Row, Sample};

/// Runs every row with every controller and its seeds; calls `done` row by row.
pub(crate) fn run(
    rows: &[Row],
    controllers: &[Kind],
    seeds: impl Fn(&Row) -> Range<u64>,
    mut done: impl FnMut(&Row, Kind, Vec<Sample>),
) {
    let pairs: Vec<_> = rows
        .iter()
        .flat_map(|row| controllers.iter().map(move |kind| (row, *kind)))
        .collect();
    let jobs: Vec<_> = (0..pairs.len())
        .flat_map(|pair| seeds(pairs[pair].0).map(move |seed| (pair, seed)))
        .collect();
    let next = AtomicUsize::new(0);
    let (sender, results) = mpsc::channel();
    thread::scope(|scope| {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        for _ in 0..cores.min(jobs.len()) {
            let (sender, next, jobs, pairs) = (sender.clone(), &next, &jobs, &pairs);
            scope.spawn(move || {
                while let Some(&(pair, seed)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (row, kind) = pairs[pair];
                    let sample = attempt(row, kind, seed);
                    if sender.send((pair, seed, sample)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut waiting: BTreeMap<usize, BTreeMap<u64, Sample>> = BTreeMap::new();
        let mut turn = 0;
        for (pair, seed, sample) in results {
            waiting.entry(pair).or_default().insert(seed, sample);
            while let Some((row, kind)) = pairs.get(turn)
                && waiting.get(&turn).map_or(0, BTreeMap::len) == seeds(row).count()
            {
                let samples = waiting.remove(&turn).unwrap_or_default();
                done(row, *kind, samples.into_values().collect());
                turn += 1;
            }
        }
    });
}

/// One run; one that panics has measured nothing good.
pub(crate) fn attempt(row: &Row, controller: Kind, seed: u64) -> Sample {
    let run = || (row.experiment)(controller, seed);
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
        eprintln!("{}, {controller}, seed {seed}: see above", row.title());
        Sample {
            values: vec![f64::NAN; row.figures.len()],
            note: format!("seed {seed} failed"),
        }
    })
}
