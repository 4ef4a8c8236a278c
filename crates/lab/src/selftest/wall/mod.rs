//! The emulator on the real clock, with real sockets in namespaces.
//!
//! Each measurement has an emulator of its own, and counts only if that one's run is VALID and the machine was fit to
//! measure on; else it is repeated, and what remains says INVALID.

mod canary;
mod cpu;
mod propagation;
mod rate;
mod tcp;
mod traffic;
mod wire;

use std::time::Duration;

use anyhow::Result;

use self::canary::Canary;
use super::row::Row;
use crate::Stop;
use crate::emulator::{EmulatorStats, Verdict};

/// How often a measurement is tried on a machine that disturbs it.
const ATTEMPTS: usize = 3;

/// What was measured, and the emulator's own account of the run.
struct Measured {
    rows: Vec<Row>,
    stats: Vec<EmulatorStats>,
    /// Why the figures are not the emulator's, if whoever measured knows.
    unfit: Option<String>,
}

/// A measurement: its rows, whatever became of it.
type Measure<'a> = &'a dyn Fn() -> Result<Measured>;

/// Runs all of them, saying rows as they come.
pub(super) fn run(
    quick: bool,
    stop: &Stop,
    add: &mut dyn FnMut(Vec<Row>) -> Result<()>,
) -> Result<()> {
    let propagation = || propagation::measure(quick);
    add(valid(stop, &propagation)?)?;
    for case in rate::cases(quick) {
        let measure = || rate::measure(case);
        add(valid(stop, &measure)?)?;
    }
    for megabits in cpu::rates(quick) {
        let measure = || cpu::measure(megabits, quick);
        add(valid(stop, &measure)?)?;
    }
    for flow in tcp::flows(quick) {
        let measure = || tcp::measure(&flow);
        add(valid(stop, &measure)?)?;
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
        let noise = canary.finish()?.or_else(|| stats.iter().find_map(slow));
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
            // What fails on a machine that is late itself says nothing.
            return Ok(match unsound.or(noise) {
                Some(reason) => rows.into_iter().map(|row| row.invalid(&reason)).collect(),
                None => rows,
            });
        }
        attempt += 1;
    }
}

/// Why a run that may be believed is not fit for the tolerances here, a third of those of a run: three wake-ups make a
/// round trip.
fn slow(stats: &EmulatorStats) -> Option<String> {
    const MEDIAN: Duration = Duration::from_micros(90);
    const P99: Duration = Duration::from_micros(330);
    let (median, p99) = (
        stats.emulator.lateness.p50.get(),
        stats.emulator.lateness.p99.get(),
    );
    (median > MEDIAN || p99 > P99)
        .then(|| format!("this machine woke the emulator {median:.0?} (p99 {p99:.0?}) late"))
}
