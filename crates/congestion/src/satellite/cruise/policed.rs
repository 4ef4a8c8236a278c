//! Cruise before a policer: somebody who drops what exceeds a rate, and queues nothing.
//!
//! No queue shows that the path is full, so only a pulse that is lost does. From then on the rate creeps up and falls by
//! half of what is lost beyond the path's own losses, until there is a queue again. Pulses are lost all alike, so they
//! become rare; one that arrives is repeated before it is believed, for a policer saves what was not used. If the losses
//! stay the same however slow the rate, there is no policer. It sends nothing and judges no losses.

use crate::ablation::Part;

use super::super::losses::Losses;
use super::super::pulse::share_of;

/// By how much the rate grows in a round without losses, as a share.
const CREEP: f64 = 0.0025;
/// Part of what is lost in a round by which the rate falls.
const PART: f64 = 0.5;
/// Each lost pulse doubles the rounds until the next, but no more often than that.
const DOUBLINGS: u32 = 3;
/// Losses that last at this share of the first rate are the path's own.
const REFUTED: f64 = 0.8;
/// Rounds in a row behind a queue after which the queue is what limits.
const QUEUED: u32 = 4;

/// What is known of a policer. Rates are bytes per second.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Policed {
    /// Pulses in a row that were lost.
    lost: u32,
    /// The rate after the first of them.
    first: u64,
    /// The last one arrived.
    passed: bool,
    /// Rounds in a row behind a queue.
    queued: u32,
    /// What arrived in the last round.
    seen: u64,
}

impl Policed {
    /// True if a policer was found.
    pub(super) fn is_found(&self) -> bool {
        Part::Policed.or(self.lost > 0, false)
    }

    /// Forgets the policer: none is there any more.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// A pulse was lost; the rate of what the policer lets pass is the first one, if it was below `rate`.
    pub(super) fn on_lost_pulse(&mut self, rate: u64, passed: u64) -> u64 {
        let rate = rate.min(passed);
        if !self.is_found() {
            self.first = rate;
        }
        self.lost += 1;
        self.passed = false;
        self.queued = 0;
        rate
    }

    /// What arrived in the last round.
    pub(super) fn seen(&self) -> u64 {
        self.seen
    }

    /// A pulse arrived; whether that is to be believed.
    pub(super) fn on_passed_pulse(&mut self) -> bool {
        let believed = !self.is_found() || self.passed;
        self.passed = !believed;
        believed
    }

    /// Rounds until the next pulse, when they are `rounds` elsewhere.
    pub(super) fn patience(&self, rounds: u64) -> u64 {
        rounds << self.lost.saturating_sub(1).min(DOUBLINGS)
    }

    /// A round ended in which `seen` arrived.
    pub(super) fn end_round(&mut self, seen: u64, queued: bool) {
        self.seen = seen;
        self.queued = if queued { self.queued + 1 } else { 0 };
        if self.queued >= QUEUED {
            self.forget();
        }
    }

    /// The rate after a round at `rate` before a policer, without a queue; the first one again if there is no policer.
    pub(super) fn after_round(&mut self, rate: u64, losses: &mut Losses) -> u64 {
        let lost = losses.share_of_last().unwrap_or(losses.baseline());
        let next = share_of(rate, 1.0 + CREEP - PART * (lost - losses.baseline()));
        if next >= share_of(self.first, REFUTED) {
            return next;
        }
        let first = self.first;
        self.forget();
        losses.learn_last();
        first
    }
}
