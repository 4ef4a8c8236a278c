//! A scenario: the file that says what the emulated link is like, and the presets.
//!
//! Serde types and what they mean; whoever reads the file chooses the parser (TOML everywhere here). Quantities are
//! strings with units and unknown keys are errors. Nothing is read here: files that a scenario names are handed to
//! [`Scenario::build`] by the caller. A table has a file of this directory.
//!
//! ```text
//!  TOML ──serde──► Scenario ──build(files)──► Model ──► Link       all of it
//!                           ──link_config()─► LinkConfig ─► Duplex  one terminal, constant bit rates
//! ```

mod acm;
mod attenuation;
mod background;
mod build;
mod change;
mod error;
mod errors;
mod network;
mod orbit;
mod presets;
mod queue;
mod return_link;
mod standard;
mod terminal;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bentpipe_units::{BitRate, Seed, TimeSpan};
use serde::{Deserialize, Serialize};

use crate::series::SeriesError;

pub use acm::Acm;
pub use attenuation::{Attenuations, Fade, LinkBudget};
pub use background::Background;
pub use change::PlannedChange;
pub use error::ScenarioError;
pub use errors::{Direction, ErrorUnit, Errors};
pub use network::{Network, Networks};
pub use orbit::{Constellations, Geo, Orbit, Pattern, StarlinkEpochs, Trace};
pub use presets::{PRESETS, preset};
pub use queue::{Discipline, Queue, QueueClass, Queues};
pub use return_link::{AccessMode, DvbRcs2, Logon, Protection};
pub use standard::{CodingMode, DvbS2, Standard, Timing};
pub use terminal::Terminal;

/// The texts of files that a scenario names, by the path it names them with.
pub type Files = BTreeMap<PathBuf, String>;

/// A whole scenario file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// `[scenario]`
    #[serde(rename = "scenario")]
    pub general: General,
    /// `[orbit]`
    pub orbit: Orbit,
    /// `[forward]`: gateway to terminal.
    #[serde(rename = "forward")]
    pub forward_link: Standard,
    /// `[return]`: terminal to gateway.
    #[serde(rename = "return")]
    pub return_link: Standard,
    /// `[link_budget]`; noise is no matter if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_budget: Option<LinkBudget>,
    /// `[attenuation.HOP]`; clear sky if absent.
    #[serde(default)]
    pub attenuation: Attenuations,
    /// `[errors]`; what noise destroys if absent.
    #[serde(default)]
    pub errors: Errors,
    /// `[[change]]`; none if absent.
    #[serde(rename = "change", default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<PlannedChange>,
    /// `[queue]` or `[[queue]]`, of each direction and terminal; one BDP if absent.
    #[serde(rename = "queue", default)]
    pub queues: Queues,
    /// `[[terminal]]`; one if absent.
    #[serde(rename = "terminal", default, skip_serializing_if = "Vec::is_empty")]
    pub terminals: Vec<Terminal>,
    /// `[acm]`
    #[serde(default)]
    pub acm: Acm,
    /// `[background]`; none if absent.
    #[serde(default)]
    pub background: Background,
    /// `[probes]`
    #[serde(default)]
    pub probes: Probes,
    /// `[network]`
    #[serde(default)]
    pub network: Network,
}

/// `[scenario]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct General {
    /// Name that results call it by.
    pub name: String,
    /// The root of every random number of a run.
    pub seed: Seed,
}

/// `[probes]`: what whoever runs the link writes down about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Probes {
    /// Time between two snapshots.
    pub period: TimeSpan,
}

impl Default for Probes {
    fn default() -> Self {
        Self {
            period: Duration::from_millis(100).into(),
        }
    }
}

impl Scenario {
    /// A link with one terminal and nothing but a bit rate in each direction and a delay: no errors, queues of one
    /// BDP, seed 1.
    pub fn constant(
        name: &str,
        one_way_delay: impl Into<TimeSpan>,
        forward_link: BitRate,
        return_link: BitRate,
    ) -> Self {
        let cbr = |bit_rate| Standard::Cbr { bit_rate };
        Self {
            general: General {
                name: name.to_owned(),
                seed: Seed::new(1),
            },
            orbit: Orbit::constant(one_way_delay),
            forward_link: cbr(forward_link),
            return_link: cbr(return_link),
            link_budget: None,
            attenuation: Attenuations::default(),
            errors: Errors::default(),
            changes: Vec::new(),
            queues: Queues::default(),
            terminals: Vec::new(),
            acm: Acm::default(),
            background: Background::default(),
            probes: Probes::default(),
            network: Network::default(),
        }
    }
}

/// Result of `parse` for one of the files; `key` names it.
fn parsed<T>(
    key: &str,
    path: &Path,
    files: &Files,
    parse: impl Fn(&str) -> Result<T, SeriesError>,
) -> Result<T, ScenarioError> {
    let text = files.get(path).ok_or_else(|| {
        ScenarioError::new(key, format!("names {}, which was not read", path.display()))
    })?;
    parse(text)
        .map_err(|error| ScenarioError::new(key, format!("names {}: {error}", path.display())))
}
