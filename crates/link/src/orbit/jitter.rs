//! A constant delay with jitter: what modems' schedulers add to it, a little more or less from one moment to the next.
//! A function of time and seed; the order of packets is the channel's business.

use std::time::Duration;

use bentpipe_units::Seed;

use crate::random::Random;

/// For how long one value of the jitter lasts.
const SLOT: Duration = Duration::from_millis(20);

#[derive(Debug, Clone)]
pub(super) struct Jittery {
    least: Duration,
    jitter: Duration,
    seed: Seed,
}

impl Jittery {
    pub(super) const fn new(least: Duration, jitter: Duration, seed: Seed) -> Self {
        Self {
            least,
            jitter,
            seed,
        }
    }

    /// The one-way delay at an instant, counted from the link's start.
    pub(super) fn at(&self, at: Duration) -> Duration {
        let slot = u64::try_from(at.as_nanos() / SLOT.as_nanos()).unwrap_or(u64::MAX);
        let share = Random::new(self.seed.stream("jitter").nth(slot)).fraction();
        self.least + self.jitter.mul_f64(share)
    }

    pub(super) const fn shortest_delay(&self) -> Duration {
        self.least
    }

    pub(super) const fn longest_delay(&self) -> Duration {
        self.least.saturating_add(self.jitter)
    }
}
