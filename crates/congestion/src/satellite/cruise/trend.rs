//! Trend of the last rounds: whether they count, and what they have in common.

use crate::ablation::Part;

use super::super::super::float;

/// Share by which more may be sent than delivered while the queue neither grows nor shrinks.
const STEADY: f64 = 0.03;

/// Record of what the last rounds have shown of the rate.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Trend {
    /// By what share more was sent than delivered lately: a queue of ours grows, or shrinks.
    growth: f64,
    /// Rounds in a row that lost more than the path does by itself.
    excessive: u32,
    /// Rounds whose samples are of before the rate was cut.
    stale: u32,
}

impl Trend {
    /// Lets the next `rounds` not count, and no fewer than before.
    pub(super) fn skip_at_least(&mut self, rounds: u32) {
        self.stale = self.stale.max(rounds);
    }

    /// Lets the next `rounds` not count.
    pub(super) fn skip(&mut self, rounds: u32) {
        self.stale = rounds;
    }

    /// Ends a round; true if it counts.
    pub(super) fn end_round(&mut self) -> bool {
        self.stale = self.stale.saturating_sub(1);
        !Part::StaleRounds.or(self.stale > 0, false)
    }

    /// Takes a round that counts, in which `sent` and `delivered` bytes a second were, and more lost than usual if `excessive`.
    pub(super) fn add(&mut self, sent: u64, delivered: u64, excessive: bool) {
        self.excessive = if excessive { self.excessive + 1 } else { 0 };
        let growth = float(sent) / float(delivered) - 1.0;
        self.growth += (growth - self.growth) / 8.0;
    }

    /// True if the queue neither grows nor shrinks.
    pub(super) fn is_steady(&self) -> bool {
        self.growth.abs() <= STEADY
    }

    /// Rounds in a row that lost more than the path does by itself.
    pub(super) fn excessive(&self) -> u32 {
        self.excessive
    }
}
