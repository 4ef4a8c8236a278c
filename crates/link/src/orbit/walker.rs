//! A Walker constellation: circular orbits in evenly spread planes, with or without inter-satellite links.
//!
//! Satellites move in an inertial frame and the Earth turns below them. Both stations attach to the highest satellite they
//! see; between the two the shortest way over inter-satellite links is taken (Dijkstra), or, as a bent pipe, both use the
//! one satellite that stands highest for the lower of the two. The route is worked out anew every `refresh`, and holds
//! until the next: the delay is a staircase.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::f64::consts::{PI, TAU};
use std::time::Duration;

use super::geometry::{EARTH_RADIUS, Point, Site, travel_time};

/// Gravitational parameter of the Earth, m³/s².
const EARTH_GRAVITY: f64 = 3.986_004_418e14;
/// Rotation of the Earth, rad/s.
const EARTH_ROTATION: f64 = 7.292_115_9e-5;

/// Number of routes that are kept.
const KEPT: usize = 8;

/// T/P/F in Walker's notation, and how the planes spread.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Constellation {
    pub(crate) planes: u32,
    pub(crate) per_plane: u32,
    /// Walker's F: satellites of the next plane are ahead by F × 360° / T.
    pub(crate) phasing: u32,
    /// m
    pub(crate) altitude: f64,
    /// rad
    pub(crate) inclination: f64,
    /// Ascending nodes over 180° (star) instead of 360° (delta).
    pub(crate) star: bool,
    /// Satellites pass packets on to their neighbours: two in the plane, one in each adjacent plane; none across the seam
    /// of a star.
    pub(crate) links: bool,
    /// Sine of the lowest elevation at which stations attach.
    pub(crate) sin_minimum_elevation: f64,
    /// Delay that each satellite on the way adds.
    pub(crate) hop_delay: Duration,
    /// Time for which it has been moving when the link starts: it decides where the satellites are then.
    pub(crate) offset: Duration,
}

/// A way from the terminal to the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) one_way_delay: Duration,
    /// The satellites that terminal and gateway are attached to.
    pub(crate) attached: [usize; 2],
}

/// A step, and the route that there is then.
type Known = (u64, Option<Route>);

#[derive(Debug, Clone)]
pub(crate) struct Walker {
    constellation: Constellation,
    terminal: Site,
    gateway: Site,
    refresh: Duration,
    /// The routes of a few steps, each in its place: those who send ask for now, those who plan ask for later.
    known: [Cell<Option<Known>>; KEPT],
}

impl Walker {
    pub(crate) fn new(
        constellation: Constellation,
        [terminal, gateway]: [Site; 2],
        refresh: Duration,
    ) -> Self {
        Self {
            constellation,
            terminal,
            gateway,
            refresh: refresh.max(Duration::from_millis(1)),
            known: [const { Cell::new(None) }; KEPT],
        }
    }

    /// The route at `at`; `None` where a station sees no satellite, or none that the other can be reached from.
    pub(crate) fn at(&self, at: Duration) -> Option<Route> {
        let step = u64::try_from(at.as_nanos() / self.refresh.as_nanos()).unwrap_or(u64::MAX);
        let place = &self.known[(step % KEPT as u64) as usize];
        match place.get() {
            Some((known, route)) if known == step => route,
            _ => {
                let since_start = step as f64 * self.refresh.as_secs_f64();
                let route = self.route(since_start + self.constellation.offset.as_secs_f64());
                place.set(Some((step, route)));
                route
            }
        }
    }

    /// Up to a satellite overhead and down again.
    pub(crate) fn shortest_delay(&self) -> Duration {
        travel_time(2.0 * self.constellation.altitude)
    }

    fn route(&self, seconds: f64) -> Option<Route> {
        let satellites = self.constellation.positions(seconds);
        let looks = |site: &Site| -> Vec<(f64, f64)> {
            satellites
                .iter()
                .map(|satellite| site.look_at(*satellite))
                .collect()
        };
        let [terminal, gateway] = [looks(&self.terminal), looks(&self.gateway)];
        if self.constellation.links {
            let from = self.highest(terminal.iter().map(|(_, sine)| *sine))?;
            let to = self.highest(gateway.iter().map(|(_, sine)| *sine))?;
            let (metres, hops) = self.constellation.shortest(&satellites, from, to)?;
            let metres = terminal[from].0 + metres + gateway[to].0;
            Some(self.along(metres, hops + 1, [from, to]))
        } else {
            let both = terminal.iter().zip(&gateway);
            let common = self.highest(both.map(|(one, other)| one.1.min(other.1)))?;
            let metres = terminal[common].0 + gateway[common].0;
            Some(self.along(metres, 1, [common, common]))
        }
    }

    fn along(&self, metres: f64, satellites: u32, attached: [usize; 2]) -> Route {
        let processing = self.constellation.hop_delay * satellites;
        Route {
            one_way_delay: travel_time(metres) + processing,
            attached,
        }
    }

    /// The highest above the minimum elevation.
    fn highest(&self, sines: impl Iterator<Item = f64>) -> Option<usize> {
        let visible = sines
            .enumerate()
            .filter(|(_, sine)| *sine >= self.constellation.sin_minimum_elevation);
        let (index, _) = visible.max_by(|(_, one), (_, other)| one.total_cmp(other))?;
        Some(index)
    }
}

impl Constellation {
    /// Earth-fixed positions, plane by plane.
    fn positions(&self, seconds: f64) -> Vec<Point> {
        let radius = EARTH_RADIUS + self.altitude;
        let motion = (EARTH_GRAVITY / radius.powi(3)).sqrt();
        let spread = if self.star { PI } else { TAU };
        let total = f64::from(self.planes * self.per_plane);
        let (sin_inclination, cos_inclination) = self.inclination.sin_cos();
        let mut positions = Vec::with_capacity((self.planes * self.per_plane) as usize);
        for plane in 0..self.planes {
            let node =
                spread * f64::from(plane) / f64::from(self.planes) - EARTH_ROTATION * seconds;
            let ahead = TAU * f64::from(self.phasing * plane) / total;
            let (sin_node, cos_node) = node.sin_cos();
            for slot in 0..self.per_plane {
                let place = TAU * f64::from(slot) / f64::from(self.per_plane);
                let (sin, cos) = (place + ahead + motion * seconds).sin_cos();
                let across = sin * cos_inclination;
                positions.push(
                    Point {
                        x: cos * cos_node - across * sin_node,
                        y: cos * sin_node + across * cos_node,
                        z: sin * sin_inclination,
                    } * radius,
                );
            }
        }
        positions
    }

    fn neighbours(&self, satellite: usize) -> impl Iterator<Item = usize> {
        let (planes, per_plane) = (self.planes as usize, self.per_plane as usize);
        let (plane, slot) = (satellite / per_plane, satellite % per_plane);
        let within = [(slot + 1) % per_plane, (slot + per_plane - 1) % per_plane];
        // In a star the first and the last plane run in opposite directions.
        let seam = |edge: bool| self.star && edge;
        let next = (!seam(plane + 1 == planes)).then_some((plane + 1) % planes);
        let previous = (!seam(plane == 0)).then_some((plane + planes - 1) % planes);
        // Going round all planes of a delta shifts the phase by F places.
        let shift = self.phasing as usize % per_plane;
        let over = |other: usize, wrapped: bool, back: bool| {
            let slot = match (wrapped, back) {
                (false, _) => slot,
                (true, false) => (slot + shift) % per_plane,
                (true, true) => (slot + per_plane - shift) % per_plane,
            };
            other * per_plane + slot
        };
        let next = next.map(|other| over(other, other == 0, false));
        let previous = previous.map(|other| over(other, plane == 0, true));
        let across = [next, previous].into_iter().flatten();
        within
            .into_iter()
            .map(move |slot| plane * per_plane + slot)
            .chain(across)
            .filter(move |other| *other != satellite)
    }

    /// Length in metres and number of links of the shortest way between two satellites. Each hop counts with what it
    /// adds, so that of two ways of equal length that with fewer hops is taken.
    fn shortest(&self, satellites: &[Point], from: usize, to: usize) -> Option<(f64, u32)> {
        // Whole centimetres have an order, which the heap needs.
        let hop = travel_metres(self.hop_delay);
        let mut best = vec![u64::MAX; satellites.len()];
        let mut heap = BinaryHeap::from([Reverse((0u64, 0u32, from))]);
        while let Some(Reverse((length, hops, at))) = heap.pop() {
            if at == to {
                let metres = length as f64 / 100.0 - hop * f64::from(hops);
                return Some((metres, hops));
            }
            if length > best[at] {
                continue;
            }
            for other in self.neighbours(at) {
                let link = (satellites[at].distance(satellites[other]) + hop) * 100.0;
                let length = length + link as u64;
                if length < best[other] {
                    best[other] = length;
                    heap.push(Reverse((length, hops + 1, other)));
                }
            }
        }
        None
    }
}

/// Metres that light travels meanwhile.
fn travel_metres(time: Duration) -> f64 {
    time.as_secs_f64() * 299_792_458.0
}
