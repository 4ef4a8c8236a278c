//! How much the path was used, and when last: what is learned of one that was not says little.

use std::time::{Duration, Instant};

/// Use of the path by this connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Usage {
    /// Bytes that arrived.
    delivered: u64,
    /// Instant at which the path was last busy for a round.
    busy_at: Instant,
}

impl Usage {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            delivered: 0,
            busy_at: now,
        }
    }

    pub(super) fn on_delivered(&mut self, bytes: u64) {
        self.delivered += bytes;
    }

    pub(super) fn on_busy(&mut self, now: Instant) {
        self.busy_at = now;
    }

    /// Bytes that arrived since the connection began.
    pub(super) fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Time since the path was last busy.
    pub(super) fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.busy_at)
    }
}
