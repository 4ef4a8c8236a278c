//! Dips of cruising: when one round is sent slower, and how much.
//!
//! The queue empties, which shows the round-trip time without it, and what is lost then is the path's own. Others see it too:
//! in company a dip that did not empty the queue is repeated soon, and when it is empty all begin to count anew.

use std::time::Duration;

use crate::ablation::Part;

use super::super::super::whole;
use super::super::pulse::{SLOWEST, proportion};
use super::SPREAD;

/// Rounds between two dips, at least; tunnels are not to do it in step.
const BETWEEN: u64 = 16;
/// Rounds until a dip is repeated that, in company, did not empty the queue.
const AGAIN: u64 = 4;
/// Time between such dips in seconds, where round trips are shorter: all are to wait as long.
const BETWEEN_SECONDS: f64 = 9.6;
const AGAIN_SECONDS: f64 = 2.4;
/// Rounds after a dip in which losses call for no other one.
const SETTLED: u64 = 4;
/// Rounds until a dip while the path's own losses are not known.
const SOON: u64 = 2;
/// How much slower a dip is, in permille: deep if the losses are to tell congestion from a lossy path.
const SHALLOW: u64 = 50;
const DEEP: u64 = 250;

/// Rounds until the next dip.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dips {
    until: u64,
}

impl Dips {
    /// `noise` is any number that differs between tunnels.
    pub(super) fn new(noise: u64) -> Self {
        Self {
            until: BETWEEN + noise % SPREAD,
        }
    }

    pub(super) fn end_round(&mut self) {
        self.until = self.until.saturating_sub(1);
    }

    /// Begins to count anew behind the empty queue of all who share a path with round trips of `base`: the next dips come together.
    pub(super) fn fall_in(&mut self, base: Duration) {
        self.until = rounds(BETWEEN, BETWEEN_SECONDS, base);
    }

    /// Waits no longer than while the path's own losses are not known.
    pub(super) fn hasten(&mut self) {
        self.until = self.until.min(SOON);
    }

    /// True if it is time, or if losses are `suspicious` and the last dip was not just now.
    pub(super) fn is_due(&self, suspicious: bool) -> bool {
        self.until == 0 || suspicious && self.until <= BETWEEN - SETTLED
    }

    /// Begins a dip behind `queue` on a path with round trips of `base`, and returns how much slower it is, in permille. `deep`: the
    /// losses are to tell; `spread`: rounds by which tunnels are out of step.
    pub(super) fn begin(
        &mut self,
        queue: Duration,
        base: Duration,
        deep: bool,
        shared: bool,
        spread: u64,
    ) -> u64 {
        self.until = if Part::RepeatedDips.or(shared, false) {
            rounds(AGAIN, AGAIN_SECONDS, base)
        } else {
            BETWEEN + spread
        };
        let least = if deep { DEEP } else { SHALLOW };
        let deepest = if shared { SLOWEST } else { DEEP };
        proportion(queue, base, 1500).clamp(least, deepest)
    }
}

/// Number of `rounds`, or as many as last `seconds` on a path with round trips of `base`.
fn rounds(rounds: u64, seconds: f64, base: Duration) -> u64 {
    rounds.max(whole(seconds / base.as_secs_f64().max(0.01)))
}
