//! `[[change]]`: what becomes of a link at planned instants.

use bentpipe_units::{BitRate, Ratio, TimeSpan};
use serde::{Deserialize, Serialize};

use super::{Direction, ScenarioError, Standard};
use crate::ids::Way;
use crate::loss::LossModel;
use crate::schedule::{Change, Schedule};

/// `[[change]]`: a change that takes effect with the packets that leave from then on.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedChange {
    /// Counted from the link's start.
    pub at: TimeSpan,
    /// Directions that change.
    #[serde(default)]
    pub direction: Direction,
    /// The rate from then on, of a constant bit rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bit_rate: Option<BitRate>,
    /// The probability of losing a packet by chance from then on, instead of that of `[errors]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<Ratio>,
}

/// The changes of one direction.
pub(super) fn schedule(
    changes: &[PlannedChange],
    way: Way,
    standard: &Standard,
) -> Result<Schedule, ScenarioError> {
    let mut planned = Vec::new();
    for (index, change) in changes.iter().enumerate() {
        if !change.direction.covers(way) {
            continue;
        }
        let error = |key: &str, problem: &str| {
            Err(ScenarioError::new(format!("change.{index}{key}"), problem))
        };
        match (change.bit_rate, standard) {
            (None, _) if change.loss.is_none() => {
                return error("", "changes nothing; write bit_rate or loss");
            }
            (Some(rate), _) if rate.as_u64() == 0 => {
                return error(
                    ".bit_rate",
                    "is zero; for a link that is down write loss = \"100 %\"",
                );
            }
            (None, _) | (Some(_), Standard::Cbr { .. }) => {}
            (Some(_), _) => {
                let problem = "has no effect on this standard, whose rate follows from the carrier";
                return error(".bit_rate", problem);
            }
        }
        let at = change.at.get();
        planned.extend(change.bit_rate.map(|rate| (at, Change::Rate(rate))));
        let loss = change.loss.map(|loss| match loss {
            Ratio::ZERO => LossModel::None,
            _ => LossModel::Iid(loss),
        });
        planned.extend(loss.map(|loss| (at, Change::Loss(loss))));
    }
    Ok(Schedule::new(planned))
}
