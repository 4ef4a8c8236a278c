//! Compete: beside somebody who fills the queue whatever its length, as CUBIC does.
//!
//! A sender that keeps the queue short loses all its share to one that does not. So the window is CUBIC's as well, and the
//! shares are those of two CUBICs; only losses in excess of the path's own count. After each cut the window shrinks for a
//! moment to what the path holds without a queue: if the round-trip time then shows no queue, the other one has left.

use std::time::{Duration, Instant};

use super::super::LossBased;
use super::super::{AckSample, Config, LossSample, bytes_in};
use super::losses::Losses;
use super::path::Path;

/// Rounds that a check takes.
const CHECK: u32 = 2;
/// Rounds before the losses are judged.
const TRIAL: u32 = 8;
/// Rounds without a cut after which a check is made anyway.
const PATIENCE: u32 = 64;

/// State of competing.
#[derive(Clone, Debug)]
pub(super) struct Compete {
    cubic: LossBased,
    /// Rate with which the competition began.
    rate: u64,
    /// Rounds since it began, or since the last check.
    rounds: u32,
    /// Rounds left of a check, and the window meanwhile.
    check: Option<(u32, u64)>,
    cut: Option<u64>,
}

impl Compete {
    pub(super) fn new(config: &Config, window: u64, rate: u64, now: Instant) -> Self {
        Self {
            cubic: LossBased::avoiding(config, window, now),
            rate,
            rounds: 0,
            check: None,
            cut: None,
        }
    }

    pub(super) fn window(&self) -> u64 {
        let window = self.cubic.window();
        self.check.map_or(window, |(_, small)| window.min(small))
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
                self.cut = Some(before);
            }
        }
    }

    /// Losses took more than any competitor would have: they were the path's, and `rate` was right.
    pub(super) fn is_losing(&self, rate: u64) -> Option<u64> {
        (self.rounds > TRIAL && rate > 0 && rate < self.rate / 2).then_some(self.rate)
    }

    /// True if nobody else is there any more.
    pub(super) fn end_round(
        &mut self,
        rate: u64,
        queue: Duration,
        empty: Duration,
        path: &Path,
    ) -> bool {
        self.rounds += 1;
        match &mut self.check {
            Some((0, _)) => {
                self.check = None;
                self.rounds = 0;
                queue <= empty
            }
            Some((rounds, _)) => {
                *rounds -= 1;
                false
            }
            None => {
                let short = queue <= path.base() / 2;
                if self.cut.take().is_some() && short || self.rounds >= PATIENCE {
                    let small = bytes_in(rate, path.base() + path.base() / 8);
                    self.check = Some((CHECK, small));
                }
                queue <= empty / 2 && self.rounds > CHECK
            }
        }
    }
}
