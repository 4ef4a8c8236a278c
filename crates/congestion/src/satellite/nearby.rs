//! Nearby: on paths shorter than a few milliseconds `satellite` leaves the sending to BBR.
//!
//! Cruise reads the queue from round-trip times and aims at one of a few milliseconds. Where a round
//! trip takes less than that, queues of common size hold less, single packets take as long as a round
//! trip, and timers are too coarse. There is nothing to gain there either: a wrong guess is mended
//! within a millisecond. BBR's model of rate and losses needs no queue.

use std::time::{Duration, Instant};

use crate::ablation::Part;

use super::super::{AckSample, Bbr3, Config};
use super::path::Path;

/// Smallest round-trip time below which a path is nearby.
const NEARBY: Duration = Duration::from_millis(6);
/// Smallest round-trip time from which on a path is nearby no more; what lies between is as it was.
const AWAY: Duration = Duration::from_millis(10);
/// Round-trip time of the last ACKs at which nobody waits for the smallest one to be forgotten: a nearby
/// path's queue is not so long, so the path is another one.
const ELSEWHERE: Duration = Duration::from_millis(80);

/// The controller that sends while the path is nearby.
pub(super) type Nearby = Box<Bbr3>;

/// A controller for `path`, if that is nearby.
pub(super) fn enter(path: &Path, config: &Config, mtu: u64, now: Instant) -> Option<Nearby> {
    let rtt = path.measured().filter(|rtt| *rtt < NEARBY);
    let rtt = Part::Nearby.or(rtt, None)?;
    let config = Config {
        initial_rtt: rtt.max(Duration::from_millis(1)),
        mtu: u16::try_from(mtu).unwrap_or(u16::MAX),
        ..*config
    };
    Some(Box::new(Bbr3::new(&config, now).sparing_stray_losses()))
}

/// True if `path` is nearby no more, after `ack`.
pub(super) fn is_left(path: &Path, ack: &AckSample) -> bool {
    let gone = path.measured().is_some_and(|rtt| rtt >= AWAY);
    gone || ack.rtt.is_some() && path.rtt_least() >= ELSEWHERE
}
