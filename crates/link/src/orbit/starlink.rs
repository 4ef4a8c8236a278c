//! Delay as users of Starlink see it: every 15 s the network assigns satellites anew, and nothing is as it was.
//!
//! In an epoch the delay is a base, drawn from the geometry of satellites at random elevations, plus jitter that changes
//! from one 20 ms slot to the next. At the boundary traffic is held for 20 to 100 ms and then goes on (queued, not
//! dropped); after some boundaries a burst of packets is lost. Figures: Huston, APNIC, May 2024; Michel et al., IMC 2022.
//! Everything is a function of time and seed, whatever was sent.

use std::cell::Cell;
use std::time::Duration;

use bentpipe_units::{Ratio, Seed};

use super::PathState;
use super::geometry::slant_range;
use crate::random::Random;

/// For how long one value of the jitter lasts.
const JITTER_SLOT: Duration = Duration::from_millis(20);
/// Shell that serves most users, m.
const ALTITUDE: f64 = 550e3;
/// Terminals attach above this, degrees.
const MINIMUM_ELEVATION: f64 = 25.0;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Epochs {
    pub(crate) period: Duration,
    /// The first boundary.
    pub(crate) phase: Duration,
    /// One-way delay with both satellites overhead, and with both at the lowest elevation.
    pub(crate) delay: [Duration; 2],
    /// Standard deviation of the normal distribution whose absolute value the jitter is.
    pub(crate) jitter: Duration,
    pub(crate) hold: [Duration; 2],
    /// After how many of the boundaries packets are lost, and for how long.
    pub(crate) burst_probability: Ratio,
    pub(crate) burst: [Duration; 2],
    /// The epoch's rate as a multiple of the configured one.
    pub(crate) capacity: [f64; 2],
}

#[derive(Debug, Clone)]
pub(crate) struct Starlink {
    epochs: Epochs,
    seed: Seed,
    /// The epoch last asked for.
    latest: Cell<Option<(u64, Epoch)>>,
}

#[derive(Debug, Clone, Copy)]
struct Epoch {
    base: Duration,
    /// From the boundary on.
    hold: Duration,
    /// After the hold; zero where nothing is lost.
    burst: Duration,
    capacity: f64,
}

impl Starlink {
    pub(crate) const fn new(epochs: Epochs, seed: Seed) -> Self {
        Self {
            epochs,
            seed,
            latest: Cell::new(None),
        }
    }

    pub(crate) fn at(&self, at: Duration) -> PathState {
        let (index, since_boundary) = self.position(at);
        let epoch = self.epoch(index);
        let slot = at.as_nanos() / JITTER_SLOT.as_nanos();
        let slot = u64::try_from(slot).unwrap_or(u64::MAX);
        let mut random = Random::new(self.seed.stream("jitter").nth(slot));
        let jitter = random.half_normal(self.epochs.jitter.as_secs_f64());
        // Three sigma, and the bound of `longest_delay` holds.
        let jitter = Duration::from_secs_f64(jitter).min(self.epochs.jitter * 3);
        // The first epoch began before the start: no boundary, no hold.
        let since_boundary = since_boundary.unwrap_or(Duration::MAX);
        PathState {
            one_way_delay: epoch.base + jitter,
            held_until: epoch
                .hold
                .checked_sub(since_boundary)
                .filter(|left| !left.is_zero())
                .map(|left| at + left),
            outage: since_boundary >= epoch.hold && since_boundary < epoch.hold + epoch.burst,
            capacity: epoch.capacity,
        }
    }

    pub(crate) const fn shortest_delay(&self) -> Duration {
        self.epochs.delay[0]
    }

    pub(crate) fn longest_delay(&self) -> Duration {
        self.epochs.delay[1] + self.epochs.jitter * 3
    }

    /// The epoch's number, and how long ago its boundary was; the first has none.
    fn position(&self, at: Duration) -> (u64, Option<Duration>) {
        let Some(since_phase) = at.checked_sub(self.epochs.phase) else {
            return (0, None);
        };
        let period = self.epochs.period.max(Duration::from_millis(1)).as_nanos();
        let index = u64::try_from(since_phase.as_nanos() / period).unwrap_or(u64::MAX - 1);
        let into = u64::try_from(since_phase.as_nanos() % period).unwrap_or(u64::MAX);
        (index + 1, Some(Duration::from_nanos(into)))
    }

    fn epoch(&self, index: u64) -> Epoch {
        if let Some((known, epoch)) = self.latest.get()
            && known == index
        {
            return epoch;
        }
        let epoch = self.draw(index);
        self.latest.set(Some((index, epoch)));
        epoch
    }

    fn draw(&self, index: u64) -> Epoch {
        let mut random = Random::new(self.seed.stream("epoch").nth(index));
        let mut span = |[low, high]: [Duration; 2]| {
            Duration::from_secs_f64(random.between(low.as_secs_f64(), high.as_secs_f64()))
        };
        let hold = span(self.epochs.hold);
        let burst = span(self.epochs.burst);
        let [low, high] = self.epochs.delay;
        let far = (remoteness(&mut random) + remoteness(&mut random)) / 2.0;
        let lost = random.chance(self.epochs.burst_probability.as_f64());
        let [least, most] = self.epochs.capacity;
        Epoch {
            base: low + high.saturating_sub(low).mul_f64(far),
            hold,
            burst: if lost { burst } else { Duration::ZERO },
            capacity: random.between(least, most),
        }
    }
}

/// Relative length of the way to a satellite at a random place in the visible part of its shell: 0
/// overhead, 1 at the minimum elevation.
fn remoteness(random: &mut Random) -> f64 {
    let elevation = random.between(MINIMUM_ELEVATION, 90.0).to_radians();
    let furthest = slant_range(ALTITUDE, MINIMUM_ELEVATION.to_radians());
    (slant_range(ALTITUDE, elevation) - ALTITUDE) / (furthest - ALTITUDE)
}
