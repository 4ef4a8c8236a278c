//! Points around the Earth: stations on the WGS 84 ellipsoid, slant ranges, elevations.
//!
//! Earth-fixed Cartesian coordinates in metres: x through longitude 0 on the equator, z through the north pole.

use std::ops::{Add, Mul, Sub};
use std::time::Duration;

use bentpipe_units::Angle;
use serde::{Deserialize, Serialize};

/// m/s
const SPEED_OF_LIGHT: f64 = 299_792_458.0;
/// Semi-major axis of WGS 84, m.
pub(crate) const EARTH_RADIUS: f64 = 6_378_137.0;
/// First eccentricity of WGS 84, squared.
const ECCENTRICITY_SQUARED: f64 = 6.694_379_990_14e-3;

/// Place of a terminal or a gateway, at sea level.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Station {
    /// North positive.
    pub latitude: Angle,
    /// East positive.
    pub longitude: Angle,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) z: f64,
}

impl Add for Point {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            x: self.x + other.x,
            y: self.y + other.y,
            z: self.z + other.z,
        }
    }
}

impl Sub for Point {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self + other * -1.0
    }
}

impl Mul<f64> for Point {
    type Output = Self;

    fn mul(self, factor: f64) -> Self {
        Self {
            x: self.x * factor,
            y: self.y * factor,
            z: self.z * factor,
        }
    }
}

impl Point {
    pub(crate) fn dot(self, other: Self) -> f64 {
        self.x * other.x + self.y * other.y + self.z * other.z
    }

    pub(crate) fn distance(self, other: Self) -> f64 {
        let way = self - other;
        way.dot(way).sqrt()
    }
}

impl Station {
    pub(crate) fn position(self) -> Point {
        let (sin, cos) = self.latitude.as_radians().sin_cos();
        let normal = EARTH_RADIUS / (1.0 - ECCENTRICITY_SQUARED * sin * sin).sqrt();
        let (east, prime) = self.longitude.as_radians().sin_cos();
        Point {
            x: normal * cos * prime,
            y: normal * cos * east,
            z: normal * (1.0 - ECCENTRICITY_SQUARED) * sin,
        }
    }

    /// Perpendicular to the ellipsoid, length 1.
    fn up(self) -> Point {
        let (sin, cos) = self.latitude.as_radians().sin_cos();
        let (east, prime) = self.longitude.as_radians().sin_cos();
        Point {
            x: cos * prime,
            y: cos * east,
            z: sin,
        }
    }
}

/// A station with what does not change about it worked out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Site {
    pub(crate) position: Point,
    up: Point,
}

impl From<Station> for Site {
    fn from(station: Station) -> Self {
        Self {
            position: station.position(),
            up: station.up(),
        }
    }
}

impl Site {
    /// Slant range in metres and sine of the elevation at which `satellite` stands.
    pub(crate) fn look_at(&self, satellite: Point) -> (f64, f64) {
        let way = satellite - self.position;
        let range = way.dot(way).sqrt();
        (range, way.dot(self.up) / range)
    }
}

/// Time that light takes for so many metres in vacuum.
pub(crate) fn travel_time(metres: f64) -> Duration {
    Duration::from_secs_f64((metres / SPEED_OF_LIGHT).max(0.0))
}

/// The slant range in metres to a satellite `altitude` metres above a spherical Earth, seen at `elevation` (radians).
pub(crate) fn slant_range(altitude: f64, elevation: f64) -> f64 {
    let (sin, cos) = elevation.sin_cos();
    let radius = EARTH_RADIUS + altitude;
    (radius * radius - (EARTH_RADIUS * cos).powi(2)).sqrt() - EARTH_RADIUS * sin
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slant_ranges_match_published_delays() {
        for (altitude, elevation, milliseconds) in [
            (35_786e3, 90.0, 119.4),
            (35_786e3, 40.0, 126.0),
            (35_786e3, 30.0, 128.8),
            (35_786e3, 10.0, 135.4),
            (550e3, 90.0, 1.8),
            (550e3, 25.0, 3.8),
            (780e3, 40.0, 3.8),
            (1200e3, 40.0, 5.6),
            (1200e3, 25.0, 7.4),
        ] {
            let range = slant_range(altitude, f64::to_radians(elevation));
            let delay = travel_time(range).as_secs_f64() * 1e3;
            assert!(
                (delay - milliseconds).abs() < 0.2,
                "{altitude} {elevation}: {delay}"
            );
        }
    }

    #[test]
    fn stations_stand_on_the_ellipsoid() {
        let pole = Station {
            latitude: Angle::new(90.0),
            longitude: Angle::ZERO,
        };
        // Semi-minor axis of WGS 84.
        assert!((pole.position().z - 6_356_752.314).abs() < 0.01);
        let equator = Station {
            latitude: Angle::ZERO,
            longitude: Angle::new(90.0),
        };
        let overhead = Point {
            x: 0.0,
            y: EARTH_RADIUS + 780e3,
            z: 0.0,
        };
        let (range, sine) = Site::from(equator).look_at(overhead);
        assert!((range - 780e3).abs() < 1e-3 && (sine - 1.0).abs() < 1e-9);
    }
}
