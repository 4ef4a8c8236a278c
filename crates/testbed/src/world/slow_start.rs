//! Slow start of a destination that is some way from the server: what it may have sent by an instant.

use std::time::{Duration, Instant};

/// First window of a destination in bytes: ten segments (RFC 6928).
const INITIAL_WINDOW: u64 = 14_600;
/// Rounds of slow start after which a destination sends as fast as it is read.
const ROUNDS: u32 = 20;

/// Bytes that a destination has sent, and how many it may: a window that doubles every round trip, without a loss (RFC 5681 §3.1).
#[derive(Debug)]
pub(super) struct SlowStart {
    /// Zero: the destination is where the server is.
    rtt: Duration,
    began: Instant,
    sent: u64,
}

impl SlowStart {
    /// A destination `rtt` away that is connected to at `now` and asked then, a round trip each.
    pub(super) fn new(rtt: Duration, now: Instant) -> Self {
        Self {
            rtt,
            began: now + 2 * rtt,
            sent: 0,
        }
    }

    /// Windows that the destination may have sent by `now`; `None` once slow start bounds nothing.
    fn rounds(&self, now: Instant) -> Option<u32> {
        let Some(since) = now.checked_duration_since(self.began) else {
            return Some(0);
        };
        let rounds = 1 + since.as_nanos().checked_div(self.rtt.as_nanos())?;
        u32::try_from(rounds).ok().filter(|rounds| *rounds < ROUNDS)
    }

    /// Bytes that the destination may send at `now`.
    pub(super) fn room(&self, now: Instant) -> u64 {
        self.rounds(now).map_or(u64::MAX, |rounds| {
            let permitted = INITIAL_WINDOW * ((1 << rounds) - 1);
            permitted.saturating_sub(self.sent)
        })
    }

    /// The destination has sent `bytes`.
    pub(super) fn on_sent(&mut self, bytes: u64) {
        self.sent += bytes;
    }

    /// Instant after `now` at which the window grows next; `None` once slow start bounds nothing.
    pub(super) fn grows_at(&self, now: Instant) -> Option<Instant> {
        let rounds = self.rounds(now)?;
        Some(self.began + self.rtt * rounds)
    }
}
