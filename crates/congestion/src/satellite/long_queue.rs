//! A queue that stays long: whether it is ours, or the path became longer, or somebody else fills it.
//!
//! Two detectors look at it, of single ACKs (`stuck.rs`) and of rounds (`standing.rs`). What was cut while it stood is given back if
//! it was none. It decides nothing: that is for `phases.rs`.

use std::time::Duration;

use crate::ablation::Part;

use super::standing::{Standing, Verdict};
use super::stuck::Stuck;

/// Rounds without a long queue after which the rate is not in doubt.
const CALM: u32 = 4;
/// A second "longer path" within so many rounds is somebody who fills the queue.
const SUSPICION: u64 = 24;

/// Watch over a queue that is longer than it should be.
#[derive(Clone, Debug, Default)]
pub(super) struct LongQueue {
    standing: Standing,
    stuck: Stuck,
    /// Rounds in a row without a long queue, and the rate when there were enough of them, in bytes per second.
    calm: u32,
    rate_before: u64,
    /// When the path was last taken to be longer (in rounds), and its round-trip time before.
    longer: Option<(u64, Duration)>,
}

impl LongQueue {
    /// Rate before the queue was long, in bytes per second; 0 if it always was.
    pub(super) fn rate_before(&self) -> u64 {
        self.rate_before
    }

    /// Most bytes in flight while the queue has been long.
    pub(super) fn most_in_flight(&self) -> u64 {
        self.standing.most_in_flight()
    }

    /// Notes an ACK behind a long queue.
    pub(super) fn on_ack(&mut self, in_flight: u64) {
        self.standing.on_ack(in_flight);
    }

    /// Forgets the rounds of a long queue.
    pub(super) fn forget_rounds(&mut self) {
        self.standing.reset();
    }

    /// Forgets the ACKs of a long queue.
    pub(super) fn forget_acks(&mut self) {
        self.stuck.reset();
    }

    /// Takes a packet that left behind `in_flight` bytes at `rate` and took `rtt`. True if what looks like a queue cannot be one,
    /// since `enough` of it was taken away.
    pub(super) fn is_stuck(
        &mut self,
        rtt: Duration,
        in_flight: u64,
        enough: Duration,
        rate: u64,
        noise: Duration,
    ) -> bool {
        let rate = self.rate_before.max(rate);
        self.stuck.on_ack(rtt, in_flight, enough, rate, noise)
    }

    /// Ends a round at `rate` whose queue was short.
    pub(super) fn end_short_round(&mut self, rate: u64) {
        self.calm = if self.stuck.is_watching() {
            0
        } else {
            self.calm + 1
        };
        if self.calm >= CALM {
            self.rate_before = rate;
        }
        self.standing.reset();
    }

    /// Ends a round whose queue was long; the verdict, once there is one. The watch begins anew then.
    pub(super) fn end_long_round(
        &mut self,
        rtt: Duration,
        in_flight: u64,
        rate: u64,
    ) -> Option<Verdict> {
        self.calm = 0;
        let verdict = self.standing.end_round(rtt, in_flight, rate)?;
        self.standing.reset();
        Some(match verdict {
            Verdict::Shared => Part::StandingShared.or(verdict, Verdict::Ours),
            Verdict::Longer => Part::StandingLonger.or(verdict, Verdict::Ours),
            Verdict::Ours => verdict,
        })
    }

    /// Notes that the path is taken to be longer in `round`, with `base` until then. If it was not long ago, somebody fills the
    /// queue: returns the round-trip time before that.
    pub(super) fn on_longer(&mut self, round: u64, base: Duration) -> Option<Duration> {
        let again = self.longer.filter(|(at, _)| round - at <= SUSPICION);
        if let Some((_, before)) = again {
            self.longer = None;
            return Some(before);
        }
        self.longer = Some((round, base));
        self.standing.reset();
        self.stuck.reset();
        None
    }
}
