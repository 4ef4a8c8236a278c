//! Alarm of a long queue: how often it may lower the rate.

use std::time::{Duration, Instant};

/// Where round trips are long, a path that became much slower lowers the rate again after this part of one.
const AGAIN_AFTER: u32 = 2;

/// A queue that is so long that the rate is lowered without waiting for the round's end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Alarm {
    /// Instant at which it last lowered the rate.
    cut_at: Instant,
    /// The last ACK came behind such a queue.
    raised: bool,
    /// The round before the first such ACK saw a short one.
    sudden: bool,
}

impl Alarm {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            cut_at: now,
            raised: false,
            sudden: false,
        }
    }

    /// Takes whether an ACK came behind an `alarming` queue. True if it is the first one.
    pub(super) fn on_ack(&mut self, alarming: bool) -> bool {
        let before = std::mem::replace(&mut self.raised, alarming);
        alarming && !before
    }

    /// Notes whether the round before the first such ACK saw a short queue.
    pub(super) fn set_sudden(&mut self, sudden: bool) {
        self.sudden = sudden;
    }

    /// True if what left after the last cut is answered by now.
    pub(super) fn is_answered(&self, newest_sent: Instant) -> bool {
        newest_sent >= self.cut_at
    }

    /// True if a queue that came at a stroke may lower the rate again before that, on a path with round trips of `base`.
    pub(super) fn is_pressing(&self, now: Instant, base: Duration) -> bool {
        self.sudden && now >= self.cut_at + base / AGAIN_AFTER
    }

    /// Notes that the rate was lowered.
    pub(super) fn cut(&mut self, now: Instant) {
        self.cut_at = now;
    }
}
