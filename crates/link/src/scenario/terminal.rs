//! `[[terminal]]`: who shares the link.

use bentpipe_units::{BitRate, ByteCount, Decibel};
use serde::{Deserialize, Serialize};

use super::ScenarioError;
use crate::orbit::Station;

/// `[[terminal]]`: one of those that share the link. Terminals without tables of their own are like each other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Terminal {
    /// Name that results call it by.
    pub name: String,
    /// Place of the terminal, if elsewhere than `[orbit]` says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub station: Option<Station>,
    /// Decibels that its hop of both directions lacks besides: a small dish, the edge of the beam.
    #[serde(default)]
    pub extra_attenuation: Decibel,
    /// Constant rate of the terminal, where `[return]` says another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cra: Option<BitRate>,
    /// The most that it gets by requests for a rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rbdc_max: Option<BitRate>,
    /// The most that it gets by one request for a volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vbdc_max: Option<ByteCount>,
    /// MODCOD that it is sent to with where `mode` is `"vcm"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modcod: Option<u8>,
}

/// More terminals than a file can mean.
const MOST: usize = 256;

/// The names of all terminals; one without a name if the file has none.
pub(super) fn names(terminals: &[Terminal]) -> Result<Vec<String>, ScenarioError> {
    if terminals.len() > MOST {
        let problem = format!(
            "has {} entries; at most {MOST} are possible",
            terminals.len()
        );
        return Err(ScenarioError::new("terminal", problem));
    }
    for (index, terminal) in terminals.iter().enumerate() {
        let same = |other: &Terminal| other.name == terminal.name;
        if terminals[..index].iter().any(same) {
            let problem = format!("`{}` names two terminals; rename one", terminal.name);
            return Err(ScenarioError::new(
                format!("terminal.{index}.name"),
                problem,
            ));
        }
    }
    let names = terminals.iter().map(|terminal| terminal.name.clone());
    let mut names: Vec<_> = names.collect();
    if names.is_empty() {
        names.push("terminal".to_owned());
    }
    Ok(names)
}
