//! The emulator on the real clock, with real sockets in namespaces.
//!
//! Each measurement has an emulator of its own, and counts only if that one's run is VALID and the machine was fit to
//! measure on; else it is repeated, and what remains says INVALID.

mod canary;
mod cpu;
mod outside;
mod propagation;
mod rate;
mod tcp;
mod traffic;
mod wire;

use std::time::Duration;

use anyhow::Result;

use self::canary::Canary;
use super::Selection;
use super::row::Row;
use crate::Stop;
use crate::emulator::{EmulatorStats, Verdict};

/// Times that a measurement is tried on a machine that disturbs it.
const ATTEMPTS: usize = 3;

/// Figures that were measured, and the emulator's own account of the run.
struct Measured {
    rows: Vec<Row>,
    stats: Vec<EmulatorStats>,
    /// Reason why the figures are not the emulator's, if whoever measured knows one.
    unfit: Option<String>,
}

/// A measurement: its rows, whatever became of it.
type Measure<'a> = &'a dyn Fn() -> Result<Measured>;

/// Runs all of them, saying rows as they come.
pub(super) fn run(
    selection: &Selection,
    stop: &Stop,
    add: &mut dyn FnMut(Vec<Row>) -> Result<()>,
) -> Result<()> {
    let quick = selection.quick;
    let mut make = |title: &str, measure: Measure<'_>| -> Result<()> {
        if selection.wants(title) {
            add(valid(stop, measure)?)?;
        }
        Ok(())
    };
    make("propagation and asymmetry", &|| propagation::measure(quick))?;
    for case in rate::cases(quick) {
        make(&case.title(), &|| rate::measure(case))?;
    }
    for megabits in cpu::rates(quick) {
        let title = format!("CPU {megabits} Mbit/s");
        make(&title, &|| cpu::measure(megabits, quick))?;
    }
    for flow in tcp::flows(quick) {
        make(&flow.title(), &|| tcp::measure(&flow))?;
    }
    for check in outside::checks(quick) {
        make(&check.title(), &|| outside::measure(check))?;
    }
    Ok(())
}

/// The rows of the first sound run in which all hold; of the last one else, without figures if it was not sound.
fn valid(stop: &Stop, measure: Measure<'_>) -> Result<Vec<Row>> {
    let mut attempt = 1;
    loop {
        // Between two measurements only: they are short.
        stop.sleep(Duration::ZERO)?;
        let canary = Canary::start()?;
        let Measured { rows, stats, unfit } = measure()?;
        let noise = canary.finish()?;
        let reasons = stats.into_iter().filter_map(|stats| match stats.verdict {
            Verdict::Valid => None,
            Verdict::Invalid(reasons) => Some(reasons),
        });
        let unsound = reasons.flatten().chain(unfit).next();
        let all_hold = rows.iter().all(Row::holds);
        if unsound.is_none() && all_hold {
            return Ok(rows);
        }
        if attempt == ATTEMPTS {
            // What fails on a machine that is late where the emulator has no part says nothing.
            return Ok(match unsound.or(noise) {
                Some(reason) => rows.into_iter().map(|row| row.invalid(&reason)).collect(),
                None => rows,
            });
        }
        attempt += 1;
    }
}
