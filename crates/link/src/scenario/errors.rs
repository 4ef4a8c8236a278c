//! `[errors]`: what does not arrive.

use bentpipe_units::Ratio;
use serde::{Deserialize, Serialize};

use super::ScenarioError;
use crate::channel::Way;
use crate::loss::{GilbertElliott, LossModel};

/// `[errors]`: packets that do not arrive.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "model", rename_all = "snake_case", deny_unknown_fields)]
pub enum Errors {
    /// All arrive. (Braces, because serde lets a unit variant pass with unknown keys.)
    None {},
    /// Independent losses.
    Iid {
        /// Loss probability of a packet.
        rate: Ratio,
        /// Where.
        #[serde(default)]
        direction: Direction,
    },
    /// Losses in bursts.
    GilbertElliott {
        /// Mean loss probability of a packet.
        rate: Ratio,
        /// Mean number of packets lost in a row.
        mean_burst: f64,
        /// Where.
        #[serde(default)]
        direction: Direction,
    },
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
        Self::None {}
    }
}

impl Errors {
    /// Losses of whole packets in one direction.
    pub(super) fn of_packets(&self, way: Way) -> Result<LossModel, ScenarioError> {
        let (model, applies_to) = match self {
            Self::None {} => return Ok(LossModel::None),
            Self::Iid { rate, direction } => (LossModel::Iid(*rate), direction),
            Self::GilbertElliott {
                rate,
                mean_burst,
                direction,
            } => {
                let chain = GilbertElliott::with_mean(*rate, *mean_burst);
                let chain =
                    chain.map_err(|error| ScenarioError::new("errors", error.to_string()))?;
                (LossModel::GilbertElliott(chain), direction)
            }
        };
        let hit = applies_to.covers(way);
        Ok(if hit { model } else { LossModel::None })
    }
}
