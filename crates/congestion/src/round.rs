//! Counts round trips by send times, because quinn shows a controller no packet numbers.
//!
//! Used by the controllers on every ACK. It does not measure the round-trip time.

use std::time::Instant;

/// A round ends when a packet sent after its start is acknowledged (as in RFC 9406 §4.2).
#[derive(Clone, Copy, Debug)]
pub struct RoundCounter {
    started: Instant,
    count: u64,
}

impl RoundCounter {
    /// The first round starts at `now`.
    pub fn new(now: Instant) -> Self {
        Self {
            started: now,
            count: 0,
        }
    }

    /// The newest packet of an ACK that arrived at `now` left at `newest_sent`; true if that ends the round.
    pub fn on_ack(&mut self, now: Instant, newest_sent: Instant) -> bool {
        let ended = newest_sent >= self.started;
        if ended {
            self.started = now;
            self.count += 1;
        }
        ended
    }

    /// Rounds that ended so far.
    pub fn count(&self) -> u64 {
        self.count
    }
}
