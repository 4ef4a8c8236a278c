//! `[errors]`: what does not arrive.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bentpipe_units::{Ratio, TimeSpan};
use serde::{Deserialize, Serialize};

use super::{Files, ScenarioError};
use crate::channel::{Chance, Curve, ErrorModel, Unit};
use crate::ids::Way;
use crate::loss::{GilbertElliott, LossModel};

/// `[errors]`: what does not arrive.
///
/// Where noise matters, the chance of `iid`, `gilbert_elliott`, `periodic` and `trace` comes on top of `per_curve`; `bits` is
/// what codes have left, so that nothing comes on top.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "model", rename_all = "snake_case", deny_unknown_fields)]
pub enum Errors {
    /// All arrive. (Braces, because serde lets a unit variant pass with unknown keys.)
    None {},
    /// Frames whose C/N is below the threshold of their MODCOD are lost, and no others.
    Gate {},
    /// Frames are lost with the probability that their C/N gives them; the usual where there is a link budget.
    PerCurve {},
    /// Independent losses.
    Iid {
        /// Loss probability of a unit.
        rate: Ratio,
        /// Unit that is lost.
        #[serde(default)]
        unit: ErrorUnit,
        /// Directions that lose.
        #[serde(default)]
        direction: Direction,
    },
    /// Bit errors that the link's codes leave: a packet is lost with the more certainty the longer it is.
    Bits {
        /// Probability of a wrong bit.
        rate: Ratio,
        /// Directions that lose.
        #[serde(default)]
        direction: Direction,
    },
    /// Losses in bursts.
    GilbertElliott {
        /// Mean loss probability of a unit.
        rate: Ratio,
        /// Mean number of units lost in a row.
        mean_burst: f64,
        /// Bursts pass in time: one unit's share of them is over after this, sent or not. With units alone if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        slot: Option<TimeSpan>,
        /// Unit that is lost.
        #[serde(default)]
        unit: ErrorUnit,
        /// Directions that lose.
        #[serde(default)]
        direction: Direction,
    },
    /// One unit in so many, at equal distances and from the first on.
    Periodic {
        /// The distance from one lost unit to the next, in units.
        every: u32,
        /// Unit that is lost.
        #[serde(default)]
        unit: ErrorUnit,
        /// Directions that lose.
        #[serde(default)]
        direction: Direction,
    },
    /// Losses as in a record: one digit per unit, `1` for a lost one; spaces and lines do not matter, `#` begins a
    /// comment. It begins again at its end.
    Trace {
        /// The record, relative to the scenario.
        file: PathBuf,
        /// Unit that is lost.
        #[serde(default)]
        unit: ErrorUnit,
        /// Directions that lose.
        #[serde(default)]
        direction: Direction,
    },
}

/// `unit`: what chance hits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorUnit {
    /// BBFRAMEs, or bursts, with all that they carry.
    Bbframe,
    /// GSE packets, or fragments of the return link.
    Gse,
    /// IP packets.
    #[default]
    Ip,
    /// Packets that segmentation offload leaves in one piece, as `netem` on a router does: TCP segments of a connection that come at
    /// once. Other packets are lost one by one.
    Offload,
}

/// The directions that something applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Gateway to terminal.
    Forward,
    /// Terminal to gateway.
    Return,
    /// Each, independently.
    #[default]
    Both,
}

impl Direction {
    pub(crate) fn covers(self, way: Way) -> bool {
        match self {
            Self::Both => true,
            Self::Forward => way == Way::Forward,
            Self::Return => way == Way::Return,
        }
    }
}

impl Default for Errors {
    fn default() -> Self {
        Self::PerCurve {}
    }
}

impl Errors {
    /// The file that it names.
    pub(super) fn file(&self) -> Option<&Path> {
        match self {
            Self::Trace { file, .. } => Some(file),
            _ => None,
        }
    }

    /// Losses of whole packets in one direction, where there is nothing but packets.
    pub(super) fn of_packets(&self, way: Way) -> Result<LossModel, ScenarioError> {
        let trace = || ScenarioError::new("errors", "has a trace, which only the general link has");
        if self.file().is_some() {
            return Err(trace());
        }
        match self.model(way, false, &Files::new())?.chance {
            Chance::Model(loss) => Ok(loss),
            Chance::Trace(_) => Err(trace()),
        }
    }

    /// Model of what is lost in one direction, which may have frames.
    pub(super) fn model(
        &self,
        way: Way,
        framed: bool,
        files: &Files,
    ) -> Result<ErrorModel, ScenarioError> {
        let (chance, unit, direction) = self.chance(files)?;
        let here = direction.covers(way);
        if here && !framed && matches!(unit, ErrorUnit::Bbframe | ErrorUnit::Gse) {
            let problem = format!(
                "needs frames, which [{}] has not; keep unit = \"ip\", or limit direction",
                way.name()
            );
            return Err(ScenarioError::new("errors.unit", problem));
        }
        if here && framed && matches!(self, Self::Bits { .. }) {
            let problem = format!(
                "are bits, and [{}] has frames whose code corrects them; use standard = \"cbr\" there, or limit direction",
                way.name()
            );
            return Err(ScenarioError::new("errors.model", problem));
        }
        Ok(ErrorModel {
            curve: match self {
                Self::None {} => Curve::None,
                Self::Gate {} => Curve::Gate,
                _ => Curve::Steep,
            },
            chance: if here {
                chance
            } else {
                Chance::Model(LossModel::None)
            },
            unit: match unit {
                ErrorUnit::Bbframe => Unit::Frame,
                ErrorUnit::Gse => Unit::Piece,
                ErrorUnit::Ip => Unit::Packet,
                ErrorUnit::Offload => Unit::Train,
            },
        })
    }

    fn chance(&self, files: &Files) -> Result<(Chance, ErrorUnit, Direction), ScenarioError> {
        match self {
            Self::None {} | Self::Gate {} | Self::PerCurve {} => {
                let nothing = Chance::Model(LossModel::None);
                Ok((nothing, ErrorUnit::Ip, Direction::Both))
            }
            Self::Iid {
                rate,
                unit,
                direction,
            } => Ok((Chance::Model(LossModel::Iid(*rate)), *unit, *direction)),
            Self::Bits { rate, direction } => {
                let chance = Chance::Model(LossModel::Bits(*rate));
                Ok((chance, ErrorUnit::Ip, *direction))
            }
            Self::GilbertElliott {
                rate,
                mean_burst,
                slot,
                unit,
                direction,
            } => {
                let mut chain = GilbertElliott::with_mean(*rate, *mean_burst)
                    .map_err(|error| ScenarioError::new("errors", error.to_string()))?;
                chain.slot = slot.map(TimeSpan::get);
                let chance = Chance::Model(LossModel::GilbertElliott(chain));
                Ok((chance, *unit, *direction))
            }
            Self::Periodic { every: 0, .. } => Err(ScenarioError::new(
                "errors.every",
                "is 0; write 64 for one loss in 64 units",
            )),
            Self::Periodic {
                every,
                unit,
                direction,
            } => Ok((
                Chance::Model(LossModel::Periodic(*every)),
                *unit,
                *direction,
            )),
            Self::Trace {
                file,
                unit,
                direction,
            } => Ok((Chance::Trace(record(file, files)?), *unit, *direction)),
        }
    }
}

/// The most units that a record may have.
const LONGEST: usize = 1 << 24;

/// Reads the record of a trace.
fn record(file: &Path, files: &Files) -> Result<Arc<[bool]>, ScenarioError> {
    let error = |problem: String| ScenarioError::new("errors.file", problem);
    let text = files
        .get(file)
        .ok_or_else(|| error(format!("{} was not read", file.display())))?;
    let mut units = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        for sign in line.chars().filter(|sign| !sign.is_whitespace()) {
            let lost = match sign {
                '0' => false,
                '1' => true,
                _ => {
                    let place = format!("{}:{}", file.display(), number + 1);
                    let mend = "write 0 for what arrives and 1 for what is lost";
                    return Err(error(format!("{place} has `{sign}`; {mend}")));
                }
            };
            units.push(lost);
        }
    }
    if units.is_empty() || units.len() > LONGEST {
        let problem = format!(
            "{} has {} units; it must have 1 to {LONGEST}",
            file.display(),
            units.len()
        );
        return Err(error(problem));
    }
    Ok(units.into())
}
