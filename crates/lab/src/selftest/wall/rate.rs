//! Rate: more than the link can carry, and what arrives.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::Measured;
use super::wire::{Wire, receive, send_paced};
use crate::selftest::model::constant;
use crate::selftest::row::Row;

/// By how much the link is overloaded.
const OVERLOAD: f64 = 1.1;
/// What is left of that on a machine that cannot keep up, and still fills the link.
const FULL: f64 = 1.03;

/// Mbit/s and IP bytes per packet.
pub(super) fn cases(quick: bool) -> Vec<(u64, usize)> {
    if quick {
        return vec![(10, 576), (50, 1400)];
    }
    let rates = [1, 5, 10, 50, 178];
    rates
        .into_iter()
        .flat_map(|rate| [100, 576, 1400].map(|bytes| (rate, bytes)))
        .collect()
}

pub(super) fn measure(megabits: u64, bytes: usize, quick: bool) -> Result<Measured> {
    let time = Duration::from_secs(if quick { 2 } else { 10 });
    // Short, so that it is full at once.
    let wire = Wire::start(&constant(
        &format!("{megabits} Mbit/s"),
        "5 ms",
        "[queue]\nlimit = \"64 kB\"\n",
    ))?;
    let (gateway, terminal) = wire.sockets()?;
    let rate = megabits as f64 * 1e6;
    let start = Instant::now();
    let (received, offered) = thread::scope(|scope| -> std::io::Result<_> {
        let receiver = scope.spawn(|| receive(&terminal, start, u64::MAX));
        let sent = send_paced(&gateway, start, rate * OVERLOAD, bytes, time)?;
        let offered = (sent * bytes as u64 * 8) as f64 / start.elapsed().as_secs_f64();
        let received = receiver.join().unwrap_or_else(|_| Ok(Vec::new()))?;
        Ok((received, offered))
    })?;
    // A link that is not full says nothing of its rate.
    let unfit = (offered < rate * FULL).then(|| {
        let offered = offered / 1e6;
        format!("this machine sends no more than {offered:.1} Mbit/s of such packets")
    });
    ensure!(received.len() > 1, "nothing crossed the link");
    let first = received[0];
    let last = received[received.len() - 1];
    let bits: usize = received[1..].iter().map(|packet| packet.bytes * 8).sum();
    let measured = bits as f64 / (last.at - first.at).as_secs_f64();
    let tolerance = 0.005;
    let range = megabits as f64 * (1.0 - tolerance)..=megabits as f64 * (1.0 + tolerance);
    let seconds = time.as_secs();
    let case = format!("packets of {bytes} B, {seconds} s of UDP");
    let mut rows = vec![Row::within(
        "rate",
        case,
        measured / 1e6,
        range,
        "Mbit/s",
        3,
    )];
    let ordered = received
        .windows(2)
        .all(|pair| pair[0].number < pair[1].number);
    if !ordered {
        rows.push(Row::new("rate", "order", "changed", "kept", false));
    }
    let stats = vec![wire.finish()?];
    Ok(Measured { rows, stats, unfit })
}
