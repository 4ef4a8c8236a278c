//! `[link_budget]` and `[attenuation]`: how much carrier stands out of the noise.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bentpipe_units::{Decibel, DecibelSlope, TimeSpan};
use serde::{Deserialize, Serialize};

use super::{Files, ScenarioError};
use crate::attenuation::Attenuation;
use crate::budget::{Budget, Hop};
use crate::ids::Way;
use crate::series::{Interpolation, Series, SeriesError, Times};

/// No fade is deeper.
const DEEPEST: f64 = 100.0;

/// `[link_budget]`: clear sky.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkBudget {
    /// C/N of the uplink, of both directions.
    pub clear_sky_uplink_cn: Decibel,
    /// C/N of the downlink, of both directions.
    pub clear_sky_downlink_cn: Decibel,
    /// C/N of the return link's uplink, where it differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub return_uplink_cn: Option<Decibel>,
    /// C/N of the return link's downlink, where it differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub return_downlink_cn: Option<Decibel>,
    /// Decibels that real receivers need beyond what the tables say.
    #[serde(default)]
    pub implementation_loss: Decibel,
}

/// `[attenuation]`: how much is missing on each hop. Hops without a table have clear sky.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Attenuations {
    /// Gateway to satellite.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forward_uplink: Option<Fade>,
    /// Satellite to terminal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forward_downlink: Option<Fade>,
    /// Terminal to satellite.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub return_uplink: Option<Fade>,
    /// Satellite to gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub return_downlink: Option<Fade>,
}

/// `[attenuation.HOP]`: attenuation over time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "model", rename_all = "snake_case", deny_unknown_fields)]
pub enum Fade {
    /// Always the same.
    Constant {
        /// Attenuation at all times.
        value: Decibel,
    },
    /// Attenuation that comes and goes, again and again.
    OnOff {
        /// Attenuation while it is there.
        peak: Decibel,
        /// Time at which it comes first.
        #[serde(default)]
        start: TimeSpan,
        /// For how long it is there.
        on: TimeSpan,
        /// For how long it is gone.
        off: TimeSpan,
    },
    /// Up and down in straight lines.
    Triangular {
        /// At the top.
        peak: Decibel,
        /// Time at which it begins to rise first.
        #[serde(default)]
        start: TimeSpan,
        /// From one rise to the next.
        period: TimeSpan,
    },
    /// Up in steps, and there to the end.
    Staircase {
        /// At the top.
        peak: Decibel,
        /// Height of a step.
        step: Decibel,
        /// Length of a step.
        dwell: TimeSpan,
        /// The time before the first.
        #[serde(default)]
        start: TimeSpan,
    },
    /// A shower.
    Rain {
        /// At its heaviest.
        peak: Decibel,
        /// Time at which it begins.
        #[serde(default)]
        start: TimeSpan,
        /// Slope at which it gets heavier.
        slope: DecibelSlope,
        /// For how long it stays at its heaviest.
        hold: TimeSpan,
        /// Slope at which it gets lighter; that of getting heavier if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fall: Option<DecibelSlope>,
        /// From one shower to the next; only one if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        every: Option<TimeSpan>,
    },
    /// Recorded.
    File {
        /// Lines of time in seconds and attenuation in dB.
        file: PathBuf,
        /// Interpolation between two lines.
        #[serde(default = "linear")]
        interpolation: Interpolation,
        /// Begin again after the last line.
        #[serde(default)]
        repeat: bool,
    },
}

const fn linear() -> Interpolation {
    Interpolation::Linear
}

impl Attenuations {
    const fn hops(&self) -> [(&'static str, Option<&Fade>); 4] {
        [
            ("forward_uplink", self.forward_uplink.as_ref()),
            ("forward_downlink", self.forward_downlink.as_ref()),
            ("return_uplink", self.return_uplink.as_ref()),
            ("return_downlink", self.return_downlink.as_ref()),
        ]
    }

    /// The files that the tables name.
    pub(super) fn files(&self) -> impl Iterator<Item = &Path> {
        let fades = self.hops().into_iter().filter_map(|(_, fade)| fade);
        fades.filter_map(|fade| match fade {
            Fade::File { file, .. } => Some(file.as_path()),
            _ => None,
        })
    }

    /// An error if a fade is described without the clear sky that it takes from.
    pub(super) fn without_budget(&self) -> Result<(), ScenarioError> {
        match self.hops().iter().find(|(_, fade)| fade.is_some()) {
            Some((hop, _)) => Err(ScenarioError::new(
                format!("attenuation.{hop}"),
                "has no effect without a table [link_budget]; add one",
            )),
            None => Ok(()),
        }
    }

    /// Uplink and downlink of a direction.
    fn of(&self, way: Way, files: &Files) -> Result<[Attenuation; 2], ScenarioError> {
        let [forward_up, forward_down, return_up, return_down] = self.hops();
        let [up, down] = match way {
            Way::Forward => [forward_up, forward_down],
            Way::Return => [return_up, return_down],
        };
        let build = |(hop, fade): (&str, Option<&Fade>)| {
            let key = format!("attenuation.{hop}");
            fade.map_or(Ok(Attenuation::None), |fade| fade.build(&key, files))
        };
        Ok([build(up)?, build(down)?])
    }
}

impl LinkBudget {
    /// One direction's budget.
    pub(super) fn of(
        &self,
        way: Way,
        fades: &Attenuations,
        files: &Files,
    ) -> Result<Budget, ScenarioError> {
        let [up, down] = match way {
            Way::Forward => [None; 2],
            Way::Return => [self.return_uplink_cn, self.return_downlink_cn],
        };
        let [up_fade, down_fade] = fades.of(way, files)?;
        Ok(Budget {
            uplink: Hop {
                clear_sky: up.unwrap_or(self.clear_sky_uplink_cn),
                attenuation: up_fade,
            },
            downlink: Hop {
                clear_sky: down.unwrap_or(self.clear_sky_downlink_cn),
                attenuation: down_fade,
            },
            implementation_loss: self.implementation_loss,
        })
    }
}

impl Fade {
    fn build(&self, table: &str, files: &Files) -> Result<Attenuation, ScenarioError> {
        let depth = |key, value| depth(table, key, value);
        let slope = |key, value| slope(table, key, value);
        let length = |key, span| length(table, key, span);
        Ok(match self {
            Self::Constant { value } => Attenuation::Constant(depth("value", *value)?),
            Self::OnOff {
                peak,
                start,
                on,
                off,
            } => Attenuation::OnOff {
                peak: depth("peak", *peak)?,
                start: start.get(),
                on: length("on", *on)?,
                off: length("off", *off)?,
            },
            Self::Triangular {
                peak,
                start,
                period,
            } => Attenuation::Triangular {
                peak: depth("peak", *peak)?,
                start: start.get(),
                period: length("period", *period)?,
            },
            Self::Staircase {
                peak,
                step,
                dwell,
                start,
            } => Attenuation::Staircase {
                peak: depth("peak", *peak)?,
                step: depth("step", *step)?,
                start: start.get(),
                dwell: length("dwell", *dwell)?,
            },
            Self::Rain {
                peak,
                start,
                slope: rise,
                hold,
                fall,
                every,
            } => Attenuation::Rain {
                peak: depth("peak", *peak)?,
                start: start.get(),
                rise: slope("slope", *rise)?,
                hold: hold.get(),
                fall: slope("fall", fall.unwrap_or(*rise))?,
                every: every.map(|every| length("every", every)).transpose()?,
            },
            Self::File {
                file,
                interpolation,
                repeat,
            } => {
                let series = super::parsed(&format!("{table}.file"), file, files, depths)?;
                Attenuation::File(series.with(*interpolation, *repeat))
            }
        })
    }
}

/// Depths of a fade in dB, as a file has them, second by second or with times of its own.
fn depths(text: &str) -> Result<Series, SeriesError> {
    Series::parse(text, Times::Written(Duration::from_secs(1)), 0.0..=DEEPEST)
}

/// Depth of a fade in dB, as `key` of `table` gives it.
fn depth(table: &str, key: &str, value: Decibel) -> Result<f64, ScenarioError> {
    let fits = (0.0..=DEEPEST).contains(&value.as_f64());
    let problem = format!("is {value}; a fade has 0 to {DEEPEST} dB");
    let error = || ScenarioError::new(format!("{table}.{key}"), problem);
    fits.then(|| value.as_f64()).ok_or_else(error)
}

/// Change of a fade in dB/s, as `key` of `table` gives it.
fn slope(table: &str, key: &str, value: DecibelSlope) -> Result<f64, ScenarioError> {
    let problem = format!("is {value}; write how fast it changes, as in \"1 dB/s\"");
    let error = || ScenarioError::new(format!("{table}.{key}"), problem);
    let value = value.as_f64();
    (value > 0.0).then_some(value).ok_or_else(error)
}

/// Length of a part of a fade, as `key` of `table` gives it.
fn length(table: &str, key: &str, span: TimeSpan) -> Result<Duration, ScenarioError> {
    let error = || ScenarioError::new(format!("{table}.{key}"), "is zero");
    let span = span.get();
    (!span.is_zero()).then_some(span).ok_or_else(error)
}
