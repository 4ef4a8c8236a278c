//! Compete: beside somebody who fills the queue whatever its length, as CUBIC does.
//!
//! A sender that keeps the queue short loses all its share to one that does not. So the window is CUBIC's as well, and the
//! shares are those of two CUBICs; only losses in excess of the path's own count. Now and then the window shrinks for a
//! moment. If the queue shrinks by all that was taken from it, it is ours alone: the other one has left. If it shrinks by
//! a part, that is our part of the path's rate.

use std::time::{Duration, Instant};

use crate::ablation::Part;

use super::super::LossBased;
use super::super::{AckSample, Config, LossSample, bytes_in, scaled, time_of};
use super::losses::Losses;
use super::path::{Path, Round};

/// Rounds that a check takes, and what it leaves of the window at most, in permille.
const CHECK: u32 = 2;
const LESS: u64 = 750;
/// Rounds after a cut, ours and that of the other, in which the queue settles.
const SETTLED: u32 = 4;
/// Rounds before the losses are judged, and before an empty queue is.
const TRIAL: u32 = 8;
/// Rounds between checks otherwise, and how many must agree.
const PATIENCE: u32 = 32;
const AGREED: u32 = 2;
/// Share of what a check takes from the window by which the queue shrinks at least if it is ours, and at most if there is
/// none.
const OURS: f64 = 0.75;
const NONE: f64 = 0.1;

/// Less in flight for a moment.
#[derive(Clone, Copy, Debug)]
struct Check {
    /// Rounds left.
    rounds: u32,
    window: u64,
    /// The round-trip time before, and by how much it becomes shorter if the queue is all ours.
    rtt: Duration,
    expected: Duration,
}

/// State of competing.
#[derive(Clone, Debug)]
pub(super) struct Compete {
    cubic: LossBased,
    /// Rate with which the competition began.
    rate: u64,
    /// Rounds since it began, or since the last check.
    rounds: u32,
    /// Rounds since the last cut.
    uncut: u32,
    check: Option<Check>,
    /// Checks in a row that found nobody else.
    alone: u32,
}

impl Compete {
    pub(super) fn new(config: &Config, window: u64, rate: u64, now: Instant) -> Self {
        Self {
            cubic: LossBased::avoiding(config, window, now),
            rate,
            rounds: 0,
            uncut: 0,
            check: None,
            alone: 0,
        }
    }

    pub(super) fn window(&self) -> u64 {
        let window = self.cubic.window();
        self.check.map_or(window, |check| window.min(check.window))
    }

    /// Bytes per second.
    pub(super) fn pace(&self) -> u64 {
        self.cubic.pacing_rate().as_u64() / 8
    }

    pub(super) fn on_ack(&mut self, ack: &AckSample) {
        // A check is our own doing and says nothing of the window.
        if self.check.is_none() {
            self.cubic.on_ack(ack);
        }
    }

    pub(super) fn on_loss(&mut self, loss: &LossSample, losses: &Losses) {
        if loss.ecn || losses.is_congestion() {
            let before = self.cubic.window();
            self.cubic.on_loss(loss);
            if self.cubic.window() < before {
                self.uncut = 0;
            }
        }
    }

    /// Losses took more than any competitor would have: they were the path's, and `rate` was right.
    pub(super) fn is_losing(&self, rate: u64) -> Option<u64> {
        let losing = self.rounds > TRIAL && rate > 0 && rate < self.rate / 2;
        Part::Losing.or(losing, false).then_some(self.rate)
    }

    /// True if nobody else is there any more. A queue of `empty` is none.
    pub(super) fn end_round(&mut self, round: Round, empty: Duration, path: &Path) -> bool {
        self.rounds += 1;
        self.uncut += 1;
        let Some(rtt) = round.rtt.filter(|_| round.rate > 0) else {
            self.check = None;
            return false;
        };
        let queue = path.queue(rtt);
        if let Some(check) = &mut self.check {
            if check.rounds > 0 {
                check.rounds -= 1;
                return false;
            }
            let shrunk = check.rtt.saturating_sub(rtt).as_secs_f64();
            let part = shrunk / check.expected.as_secs_f64().max(1e-6);
            self.check = None;
            if part >= OURS || queue <= empty && (part < NONE || path.is_far()) {
                self.alone += 1;
                self.rounds = PATIENCE - SETTLED;
            } else {
                self.alone = 0;
                self.rounds = 0;
            }
            return self.alone >= AGREED;
        }
        let short = queue <= empty / 2 && self.rounds > TRIAL;
        // Of several of our kind, each asks when the queue overflowed for all.
        let after_cut = path.is_far() && self.uncut == 1 && queue <= path.base() / 2;
        let after_cut = Part::CheckAfterCut.or(after_cut, false);
        if after_cut || self.uncut >= SETTLED && (short || self.rounds >= PATIENCE) {
            let held = self.cubic.window();
            let window = scaled(held, LESS).min(bytes_in(round.rate, path.base() / 8 * 9));
            self.check = Some(Check {
                rounds: CHECK,
                window,
                rtt,
                expected: time_of(held - window, round.rate),
            });
        }
        false
    }
}
