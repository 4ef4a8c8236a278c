//! Company: whether somebody at the bottleneck takes what this tunnel gives way to.
//!
//! Two tunnels that keep the queue short come to equal shares. Somebody who fills it takes all there is, little by little,
//! without the queue ever being long. It shows in two ways: dips no longer empty the queue, and most of the rate is gone.
//! It decides nothing.

use std::time::{Duration, Instant};

use super::super::float;

/// Seconds in which the memory of the highest rate fades to a third.
const MEMORY: f64 = 90.0;
/// Share of the highest rate below which this tunnel has yielded enough: less than one of two equals has.
const YIELDED: f64 = 0.45;
/// A dip that leaves more than this part of the queue had company.
const LEFT: u32 = 4;
/// Dips in a row after which others are taken to be there.
const CROWDED: u32 = 2;

/// What is known of others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Company {
    /// Highest rate lately, and when it was last looked at.
    peak: f64,
    peak_at: Instant,
    /// Rounds until the last dip is answered, and the queue before it.
    dipped: Option<(u32, Duration)>,
    /// Dips in a row that left a queue.
    crowded: u32,
}

impl Company {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            peak: 0.0,
            peak_at: now,
            dipped: None,
            crowded: 0,
        }
    }

    /// A dip begins behind `queue`; its packets are answered in the round after it.
    pub(super) fn on_dip(&mut self, queue: Duration) {
        self.dipped = Some((1, queue));
    }

    /// A round ended whose smallest queue was `queue`; `target` is what it is to be.
    pub(super) fn end_round(&mut self, queue: Duration, target: Duration) {
        match self.dipped {
            Some((0, before)) => {
                let left = before > target / 2 && queue > before / LEFT;
                self.crowded = if left { self.crowded + 1 } else { 0 };
                self.dipped = None;
            }
            Some((rounds, before)) => self.dipped = Some((rounds - 1, before)),
            None => {}
        }
    }

    /// The rate is `rate` bytes per second now.
    pub(super) fn remember(&mut self, now: Instant, rate: u64) {
        let passed = now.saturating_duration_since(self.peak_at).as_secs_f64();
        self.peak = float(rate).max(self.peak * (-passed / MEMORY).exp());
        self.peak_at = now;
    }

    /// The path itself became slower.
    pub(super) fn forget_peak(&mut self) {
        self.peak = 0.0;
    }

    /// Nothing was in flight.
    pub(super) fn rest(&mut self) {
        self.dipped = None;
    }

    /// True if a sender that dips make no room for has taken most of the rate, of which `rate` is left.
    pub(super) fn pushes_out(&self, rate: u64) -> bool {
        self.crowded >= CROWDED && float(rate) < self.peak * YIELDED
    }
}
