//! The way through space: what delay it has when, and where it comes from.
//!
//! A [`Path`] tells the state of one terminal's way to the gateway at an instant; both directions go the same way. It is a
//! function of time and seed alone, and applies to packets as they enter the hop. Constant and geostationary delays never
//! change; a trace, a Walker constellation and Starlink's epochs do. Nothing here holds packets.

mod geometry;
mod jitter;
mod starlink;
mod walker;

use std::time::Duration;

use bentpipe_units::Seed;

pub use geometry::Station;
use geometry::{Point, Site, travel_time};
use jitter::Jittery;
pub(crate) use starlink::{Epochs, Starlink};
pub(crate) use walker::{Constellation, Walker};

use crate::series::Series;

/// Radius of the geostationary orbit, m.
const GEOSTATIONARY_RADIUS: f64 = 42_164_172.0;

/// The state of a path at one instant.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct PathState {
    /// For packets whose last bit leaves now.
    pub(crate) one_way_delay: Duration,
    /// Nothing leaves before this, counted from the link's start: a handover holds it back.
    pub(crate) held_until: Option<Duration>,
    /// Packets that leave now are lost.
    pub(crate) outage: bool,
    /// The rate now as a multiple of the configured one, for links of constant bit rate.
    pub(crate) capacity: f64,
}

impl PathState {
    const fn steady(one_way_delay: Duration) -> Self {
        Self {
            one_way_delay,
            held_until: None,
            outage: false,
            capacity: 1.0,
        }
    }
}

/// One terminal's way to the gateway.
#[derive(Debug, Clone)]
pub(crate) struct Path(PathModel);

#[derive(Debug, Clone)]
enum PathModel {
    Constant(Duration),
    Jittery(Jittery),
    /// Milliseconds, one way, and what is added to them.
    Trace(Series, Duration),
    Walker {
        walker: Box<Walker>,
        extra: Duration,
        longest: Duration,
    },
    Starlink(Starlink),
}

impl Path {
    /// A delay that is always the same.
    pub(crate) const fn constant(one_way_delay: Duration) -> Self {
        Self(PathModel::Constant(one_way_delay))
    }

    /// A delay that varies by up to `jitter`.
    pub(crate) const fn jittery(one_way_delay: Duration, jitter: Duration, seed: Seed) -> Self {
        Self(PathModel::Jittery(Jittery::new(
            one_way_delay,
            jitter,
            seed,
        )))
    }

    /// Over a geostationary satellite, and `extra`; `None` if it stands below the horizon of either station.
    pub(crate) fn geostationary(
        satellite_longitude: bentpipe_units::Angle,
        terminal: Station,
        gateway: Station,
        extra: Duration,
    ) -> Option<Self> {
        let (y, x) = satellite_longitude.as_radians().sin_cos();
        let satellite = Point { x, y, z: 0.0 } * GEOSTATIONARY_RADIUS;
        let range = |station: Station| {
            let (range, sine) = Site::from(station).look_at(satellite);
            (sine > 0.0).then_some(range)
        };
        let metres = range(terminal)? + range(gateway)?;
        Some(Self::constant(travel_time(metres) + extra))
    }

    /// The delays of a trace in milliseconds, and `offset`.
    pub(crate) const fn trace(milliseconds: Series, offset: Duration) -> Self {
        Self(PathModel::Trace(milliseconds, offset))
    }

    pub(crate) fn walker(walker: Walker, extra: Duration) -> Self {
        // Nothing shorter than a day's look shows how long the way gets; every six minutes is enough for a bound.
        let delays = (0..240u64).filter_map(|step| walker.at(Duration::from_secs(360 * step)));
        let longest = delays.map(|route| route.one_way_delay).max();
        let longest = longest.unwrap_or_default().mul_f64(1.1) + extra;
        Self(PathModel::Walker {
            walker: Box::new(walker),
            extra,
            longest,
        })
    }

    pub(crate) const fn starlink(epochs: Epochs, seed: Seed) -> Self {
        Self(PathModel::Starlink(Starlink::new(epochs, seed)))
    }

    /// The state `since_start`, counted from the link's start.
    pub(crate) fn at(&self, since_start: Duration) -> PathState {
        match &self.0 {
            PathModel::Constant(delay) => PathState::steady(*delay),
            PathModel::Jittery(path) => PathState::steady(path.at(since_start)),
            PathModel::Trace(series, offset) => {
                let milliseconds = series.at(since_start);
                PathState::steady(Duration::from_secs_f64(milliseconds / 1e3) + *offset)
            }
            PathModel::Walker {
                walker,
                extra,
                longest,
            } => match walker.at(since_start) {
                Some(route) => PathState::steady(route.one_way_delay + *extra),
                None => PathState {
                    outage: true,
                    ..PathState::steady(*longest)
                },
            },
            PathModel::Starlink(starlink) => starlink.at(since_start),
        }
    }

    /// A delay that is never less.
    pub(crate) fn shortest_delay(&self) -> Duration {
        match &self.0 {
            PathModel::Constant(delay) => *delay,
            PathModel::Jittery(path) => path.shortest_delay(),
            PathModel::Trace(series, offset) => {
                Duration::from_secs_f64(series.min() / 1e3) + *offset
            }
            PathModel::Walker { walker, extra, .. } => walker.shortest_delay() + *extra,
            PathModel::Starlink(starlink) => starlink.shortest_delay(),
        }
    }
    /// A delay that is not exceeded, at any time.
    pub(crate) fn longest_delay(&self) -> Duration {
        match &self.0 {
            PathModel::Constant(delay) => *delay,
            PathModel::Jittery(path) => path.longest_delay(),
            PathModel::Trace(series, offset) => {
                Duration::from_secs_f64(series.max() / 1e3) + *offset
            }
            PathModel::Walker { longest, .. } => *longest,
            PathModel::Starlink(starlink) => starlink.longest_delay(),
        }
    }
}

#[cfg(test)]
mod tests;
