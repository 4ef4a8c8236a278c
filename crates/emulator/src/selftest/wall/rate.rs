//! Rate: more than the link can carry, and what arrives.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::Measured;
use super::traffic::{Arrived, Load, Sent, count, send_paced};
use super::wire::Wire;
use crate::selftest::model::constant;
use crate::selftest::row::Row;

/// By how much the link is overloaded.
const OVERLOAD: f64 = 1.1;
/// Load that is left of that on a machine that cannot keep up, and still fills the link.
const FULL: f64 = 1.03;
/// Time that the link's queue holds: it is full from the beginning, and a source that is late by less does not show.
const QUEUE: Duration = Duration::from_millis(50);

/// One measurement.
#[derive(Debug, Clone, Copy)]
pub(super) struct Case {
    megabits: u64,
    /// IP bytes per packet.
    bytes: usize,
    time: Duration,
    /// The most that the figure may be off, as a share.
    tolerance: f64,
}

/// Cases to measure: all rates with all sizes for a while, and once for a minute, in which a drift would add up.
pub(super) fn cases(quick: bool) -> Vec<Case> {
    let case = |megabits, bytes, seconds, tolerance| Case {
        megabits,
        bytes,
        time: Duration::from_secs(seconds),
        tolerance,
    };
    if quick {
        return vec![case(10, 576, 2, 0.005), case(50, 1400, 2, 0.005)];
    }
    let rates = [1, 5, 10, 50, 178].into_iter();
    rates
        .flat_map(|rate| [100, 576, 1400].map(|bytes| case(rate, bytes, 10, 0.005)))
        .chain([case(10, 1400, 60, 0.0005)])
        .collect()
}

impl Case {
    /// Title that the case is found by.
    pub(super) fn title(self) -> String {
        format!("rate {} Mbit/s, {} B", self.megabits, self.bytes)
    }
}

pub(super) fn measure(case: Case) -> Result<Measured> {
    let rate = case.megabits as f64 * 1e6;
    let queue = (rate * QUEUE.as_secs_f64() / 8.0).max(64e3);
    let wire = Wire::start(&constant(
        &format!("{} Mbit/s", case.megabits),
        "5 ms",
        &format!("[queue]\nlimit = \"{queue:.0} B\"\n"),
    ))?;
    let load = Load {
        rate: rate * OVERLOAD,
        bytes: case.bytes,
        time: case.time,
        head: QUEUE,
    };
    let start = Instant::now();
    let (arrived, sent, took) = carry(&wire, load, start)?;
    // A link that is not full says nothing of its rate.
    let offered = (sent.packets * case.bytes as u64 * 8) as f64 / took.as_secs_f64();
    let unfit = if offered < rate * FULL {
        let offered = offered / 1e6;
        Some(format!(
            "this machine sends no more than {offered:.1} Mbit/s of such packets"
        ))
    } else if sent.latest > QUEUE {
        let late = sent.latest;
        Some(format!("this machine let the source be {late:.0?} late"))
    } else {
        None
    };
    ensure!(arrived.packets > 1, "nothing crossed the link");
    let measured = arrived.rate().context("all came at once")? / 1e6;
    let nominal = case.megabits as f64;
    let range = nominal * (1.0 - case.tolerance)..=nominal * (1.0 + case.tolerance);
    let name = format!(
        "packets of {} B, {} s of UDP",
        case.bytes,
        case.time.as_secs()
    );
    let digits = if case.tolerance < 0.001 { 4 } else { 3 };
    let mut rows = vec![Row::within("rate", name, measured, range, "Mbit/s", digits)];
    if !arrived.ordered {
        rows.push(Row::new("rate", "order", "changed", "kept", false));
    }
    let stats = vec![wire.finish()?];
    Ok(Measured { rows, stats, unfit })
}

/// Sends the load forward: what arrived, what was sent, and how long sending took.
fn carry(wire: &Wire, load: Load, start: Instant) -> Result<(Arrived, Sent, Duration)> {
    let (gateway, terminal) = wire.sockets()?;
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let counter = scope.spawn(|| count(&terminal, &done));
        let sent = send_paced(&gateway, start, load);
        let took = start.elapsed();
        done.store(true, Ordering::Relaxed);
        let arrived = counter
            .join()
            .map_err(|_| anyhow::anyhow!("the sink panicked"))??;
        Ok((arrived, sent?, took))
    })
}
