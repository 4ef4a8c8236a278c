//! Whether a window is still justified by use (RFC 7661).
//!
//! Fed by every ACK frame on the data path and asked before a packet leaves and after a loss. A window that is not used
//! does not grow in any case (RFC 9002 §7.8, `mod.rs`); this is about how long it is believed.

use std::time::{Duration, Instant};

/// Time for which an unused window is kept (RFC 7661 §4.4.3).
const NON_VALIDATED: Duration = Duration::from_secs(300);
/// Round trips over which the most that was acknowledged in one counts (RFC 7661 §4.2).
const ROUNDS: usize = 3;

/// What the sender made of its window lately.
#[derive(Clone, Copy, Debug)]
pub(super) struct Validation {
    /// Bytes acknowledged in this round trip and in the last ones.
    acked: u64,
    rounds: [u64; ROUNDS],
    /// Instant at which at least half of the window was last in use.
    used_at: Instant,
    initial_window: u64,
}

impl Validation {
    pub(super) fn new(initial_window: u64, now: Instant) -> Self {
        Self {
            acked: 0,
            rounds: [0; ROUNDS],
            used_at: now,
            initial_window,
        }
    }

    pub(super) fn on_ack(&mut self, now: Instant, acked: u64, round_ended: bool, window: u64) {
        self.acked += acked;
        if self.is_valid(window) {
            self.used_at = now;
        }
        if round_ended {
            self.rounds.rotate_right(1);
            self.rounds[0] = std::mem::take(&mut self.acked);
        }
    }

    /// pipeACK: the most that was acknowledged in one of the last round trips.
    fn pipe_ack(&self) -> u64 {
        self.rounds.into_iter().fold(self.acked, u64::max)
    }

    fn is_valid(&self, window: u64) -> bool {
        self.pipe_ack() >= window / 2
    }

    /// What of `window` was in use when a packet was lost with `flight` bytes under way.
    pub(super) fn used(&self, window: u64, flight: u64) -> u64 {
        if self.is_valid(window) {
            window
        } else {
            self.pipe_ack().max(flight)
        }
    }

    /// The window and the threshold of slow start after each five minutes without use; `None` when they stay.
    pub(super) fn expire(
        &mut self,
        now: Instant,
        window: u64,
        threshold: u64,
    ) -> Option<(u64, u64)> {
        if now.saturating_duration_since(self.used_at) < NON_VALIDATED
            || window <= self.initial_window
        {
            return None;
        }
        self.used_at += NON_VALIDATED;
        Some((
            (window / 2).max(self.initial_window),
            threshold.max(window / 4 * 3),
        ))
    }
}
