//! How long nothing was heard of the path.

use std::time::{Duration, Instant};

use super::super::AckSample;
use super::path;

/// Time since the last answer, and what an answer takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Silence {
    /// When the last ACK came, or the flight began that nothing has answered yet.
    heard: Instant,
    /// Round-trip time of the last answer.
    answered: Duration,
}

impl Silence {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            heard: now,
            answered: Duration::ZERO,
        }
    }

    /// Notes that a flight begins, and nothing else is in flight.
    pub(super) fn begin_flight(&mut self, now: Instant) {
        self.heard = now;
    }

    /// Ends the silence; true if it was an outage of a path with round trips of `base`. A queue that others keep full delays every
    /// answer: that is no silence, however short the round trip once was.
    pub(super) fn end(&mut self, ack: &AckSample, base: Duration) -> bool {
        let silence = ack.now.saturating_duration_since(self.heard);
        self.heard = ack.now;
        let slowest = base.max(self.answered);
        self.answered = ack.rtt.unwrap_or(self.answered);
        path::is_outage(silence, slowest)
    }
}
