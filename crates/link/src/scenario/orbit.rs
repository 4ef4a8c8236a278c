//! `[orbit]`: where the propagation delay comes from.

use std::path::{Path as FilePath, PathBuf};
use std::time::Duration;

use bentpipe_units::{Angle, Distance, Ratio, Seed, TimeSpan};
use serde::{Deserialize, Serialize};

use super::{Files, ScenarioError};
use crate::orbit::{Constellation, Epochs, Path, Station, Walker};
use crate::series::{Interpolation, Series, Times};

/// The longest delay that a trace may have: light to the Moon and back, and room.
const LONGEST_MILLISECONDS: f64 = 10_000.0;
/// More satellites than anybody has asked for.
const MOST_SATELLITES: u32 = 20_000;

/// `[orbit]`: where the propagation delay comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "model", rename_all = "snake_case", deny_unknown_fields)]
pub enum Orbit {
    /// A delay that is always the same in both directions, but for a jitter.
    Constant {
        /// Ground to ground, through the satellite.
        one_way_delay: TimeSpan,
        /// Up to so much is added, anew each 20 ms, evenly distributed.
        #[serde(default)]
        jitter: TimeSpan,
    },
    /// A geostationary satellite, from coordinates.
    Geo(Geo),
    /// Delays from a file.
    Trace(Trace),
    /// A Walker constellation.
    Walker(Constellations),
    /// Starlink's epochs of 15 s.
    Starlink(StarlinkEpochs),
}

/// `model = "geo"`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Geo {
    /// East positive.
    pub satellite_longitude: Angle,
    /// Place of terminals that do not say it themselves.
    pub terminal: Station,
    /// Place of the gateway.
    pub gateway: Station,
    /// Delay that modems and the ground add.
    #[serde(default)]
    pub extra_delay: TimeSpan,
}

/// `model = "trace"`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trace {
    /// Lines of time and one-way delay in milliseconds, or of the delay alone with `every`.
    pub file: PathBuf,
    /// Unit in which the times are counted.
    #[serde(default = "second")]
    pub time_unit: TimeSpan,
    /// Time from one line to the next, in a file without times.
    #[serde(default)]
    pub every: Option<TimeSpan>,
    /// Added to each delay.
    #[serde(default)]
    pub extra_delay: TimeSpan,
    /// Interpolation between two lines.
    #[serde(default)]
    pub interpolation: Interpolation,
    /// Begin again after the last line.
    #[serde(default)]
    pub repeat: bool,
    /// Let packets overtake each other when the delay shrinks.
    #[serde(default)]
    pub allow_reordering: bool,
}

/// `model = "walker"`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Constellations {
    /// All of them (T in Walker's notation).
    pub satellites: u32,
    /// Over so many planes (P).
    pub planes: u32,
    /// Lead of the next plane, in T-ths of a circle (F).
    pub phasing: u32,
    /// Above the equator.
    pub altitude: Distance,
    /// Of the planes.
    pub inclination: Angle,
    /// Spread of the planes.
    pub pattern: Pattern,
    /// True if satellites pass packets on; else both stations use the same one.
    pub inter_satellite_links: bool,
    /// Stations attach to nothing lower.
    #[serde(default = "ten_degrees")]
    pub minimum_elevation: Angle,
    /// Delay that each satellite on the way adds.
    #[serde(default)]
    pub hop_delay: TimeSpan,
    /// Delay that modems and the ground add.
    #[serde(default)]
    pub extra_delay: TimeSpan,
    /// Time for which the satellites have been moving when the link starts.
    #[serde(default)]
    pub start: TimeSpan,
    /// Time after which the way is worked out anew.
    #[serde(default = "second")]
    pub refresh: TimeSpan,
    /// Place of terminals that do not say it themselves.
    pub terminal: Station,
    /// Place of the gateway.
    pub gateway: Station,
    /// Let packets overtake each other when the delay shrinks.
    #[serde(default)]
    pub allow_reordering: bool,
}

/// Spread of the planes of a constellation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// Ascending nodes over half a circle, as Iridium and OneWeb.
    Star,
    /// Ascending nodes over a whole circle, as Starlink.
    Delta,
}

/// `model = "starlink"`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StarlinkEpochs {
    /// Of an epoch.
    pub period: TimeSpan,
    /// Time at which the first boundary comes.
    pub phase: TimeSpan,
    /// One way, both satellites overhead.
    pub minimum_delay: TimeSpan,
    /// One way, both satellites low.
    pub maximum_delay: TimeSpan,
    /// Added anew each 20 ms: the absolute value of a normal variable of this standard deviation.
    pub jitter: TimeSpan,
    /// For how long traffic is held at a boundary: at least.
    pub minimum_hold: TimeSpan,
    /// At most.
    pub maximum_hold: TimeSpan,
    /// The part of the boundaries after which packets are lost.
    pub burst_probability: Ratio,
    /// For how long, at least.
    pub minimum_burst: TimeSpan,
    /// At most.
    pub maximum_burst: TimeSpan,
    /// Share of the configured bit rates that an epoch has at least: 0.5 is half.
    pub minimum_capacity: f64,
    /// At most.
    pub maximum_capacity: f64,
    /// Let packets overtake each other when the delay shrinks.
    pub allow_reordering: bool,
}

impl Default for StarlinkEpochs {
    fn default() -> Self {
        let millis = |count| TimeSpan::new(Duration::from_millis(count));
        Self {
            period: millis(15_000),
            phase: millis(12_000),
            minimum_delay: millis(10),
            maximum_delay: millis(22),
            jitter: millis(5),
            minimum_hold: millis(20),
            maximum_hold: millis(100),
            burst_probability: Ratio::new(0.3).unwrap_or_default(),
            minimum_burst: millis(50),
            maximum_burst: millis(300),
            minimum_capacity: 1.0,
            maximum_capacity: 1.0,
            allow_reordering: false,
        }
    }
}

const fn second() -> TimeSpan {
    TimeSpan::new(Duration::from_secs(1))
}

const fn ten_degrees() -> Angle {
    Angle::new(10.0)
}

fn error(key: &str, problem: impl Into<String>) -> ScenarioError {
    ScenarioError::new(format!("orbit.{key}"), problem)
}

impl Orbit {
    /// A delay that is always the same, ground to ground.
    pub fn constant(one_way_delay: impl Into<TimeSpan>) -> Self {
        Self::Constant {
            one_way_delay: one_way_delay.into(),
            jitter: TimeSpan::default(),
        }
    }

    /// The files that the table names.
    pub(super) fn file(&self) -> Option<&FilePath> {
        match self {
            Self::Trace(trace) => Some(&trace.file),
            _ => None,
        }
    }

    pub(super) const fn allow_reordering(&self) -> bool {
        match self {
            Self::Constant { .. } | Self::Geo(_) => false,
            Self::Trace(trace) => trace.allow_reordering,
            Self::Walker(walker) => walker.allow_reordering,
            Self::Starlink(starlink) => starlink.allow_reordering,
        }
    }

    /// The way of one terminal, which may stand elsewhere than the table says.
    pub(super) fn path(
        &self,
        station: Option<Station>,
        files: &Files,
        seed: Seed,
    ) -> Result<Path, ScenarioError> {
        match self {
            Self::Constant {
                one_way_delay,
                jitter,
            } if jitter.get().is_zero() => Ok(Path::constant(one_way_delay.get())),
            Self::Constant {
                one_way_delay,
                jitter,
            } => Ok(Path::jittery(one_way_delay.get(), jitter.get(), seed)),
            Self::Geo(geo) => geo.path(station.unwrap_or(geo.terminal)),
            Self::Trace(trace) => trace.path(files),
            Self::Walker(walker) => walker.path(station.unwrap_or(walker.terminal)),
            Self::Starlink(starlink) => starlink.path(seed),
        }
    }
}

impl Geo {
    fn path(&self, terminal: Station) -> Result<Path, ScenarioError> {
        let extra = self.extra_delay.get();
        Path::geostationary(self.satellite_longitude, terminal, self.gateway, extra).ok_or_else(
            || {
                let problem = format!(
                    "is {}, where terminal or gateway have the satellite below the horizon",
                    self.satellite_longitude
                );
                error("satellite_longitude", problem)
            },
        )
    }
}

impl Trace {
    fn path(&self, files: &Files) -> Result<Path, ScenarioError> {
        let times = match self.every {
            Some(every) if every.get().is_zero() => {
                return Err(error("every", "must be above 0; \"10 ms\" is usual"));
            }
            Some(every) => Times::Every(every.get()),
            None => Times::Written(self.time_unit.get()),
        };
        let series = super::parsed("orbit.file", &self.file, files, |text| {
            Series::parse(text, times, 0.0..=LONGEST_MILLISECONDS)
        })?;
        let series = series.with(self.interpolation, self.repeat);
        Ok(Path::trace(series, self.extra_delay.get()))
    }
}

impl Constellations {
    fn path(&self, terminal: Station) -> Result<Path, ScenarioError> {
        if self.satellites == 0 || self.satellites > MOST_SATELLITES {
            let problem = format!(
                "is {}; 1 to {MOST_SATELLITES} are possible",
                self.satellites
            );
            return Err(error("satellites", problem));
        }
        if self.planes == 0 || !self.satellites.is_multiple_of(self.planes) {
            let problem = format!(
                "is {}, over which {} satellites cannot be spread evenly",
                self.planes, self.satellites
            );
            return Err(error("planes", problem));
        }
        if self.phasing >= self.planes {
            return Err(error("phasing", "must be less than planes"));
        }
        if self.altitude < Distance::metres(100_000) {
            return Err(error(
                "altitude",
                "is not in space; an orbit begins at 100 km",
            ));
        }
        if self.refresh < TimeSpan::new(Duration::from_millis(10)) {
            return Err(error("refresh", "is below 10 ms, in which nothing moves"));
        }
        let constellation = Constellation {
            planes: self.planes,
            per_plane: self.satellites / self.planes,
            phasing: self.phasing,
            altitude: self.altitude.as_u64() as f64,
            inclination: self.inclination.as_radians(),
            star: self.pattern == Pattern::Star,
            links: self.inter_satellite_links,
            sin_minimum_elevation: self.minimum_elevation.as_radians().sin(),
            hop_delay: self.hop_delay.get(),
            offset: self.start.get(),
        };
        let sites = [terminal.into(), self.gateway.into()];
        let walker = Walker::new(constellation, sites, self.refresh.get());
        Ok(Path::walker(walker, self.extra_delay.get()))
    }
}

impl StarlinkEpochs {
    fn path(&self, seed: Seed) -> Result<Path, ScenarioError> {
        let range = |key: &str, low: TimeSpan, high: TimeSpan| {
            if low > high {
                return Err(error(key, "is above its maximum"));
            }
            Ok([low.get(), high.get()])
        };
        let capacity = [self.minimum_capacity, self.maximum_capacity];
        if !(0.01..=capacity[1]).contains(&capacity[0]) || capacity[1] > 100.0 {
            let problem = "must be between 0.01 and maximum_capacity, which is at most 100.0";
            return Err(error("minimum_capacity", problem));
        }
        if self.period < second() {
            return Err(error("period", "is below a second; epochs are 15 s long"));
        }
        let epochs = Epochs {
            period: self.period.get(),
            phase: self.phase.get(),
            delay: range("minimum_delay", self.minimum_delay, self.maximum_delay)?,
            jitter: self.jitter.get(),
            hold: range("minimum_hold", self.minimum_hold, self.maximum_hold)?,
            burst_probability: self.burst_probability,
            burst: range("minimum_burst", self.minimum_burst, self.maximum_burst)?,
            capacity,
        };
        Ok(Path::starlink(epochs, seed))
    }
}
