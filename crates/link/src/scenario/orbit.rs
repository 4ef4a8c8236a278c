//! `[orbit]`: where the propagation delay comes from.

use bentpipe_units::TimeSpan;
use serde::{Deserialize, Serialize};

/// `[orbit]`: where the propagation delay comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "model", rename_all = "snake_case", deny_unknown_fields)]
pub enum Orbit {
    /// The same delay always, in both directions.
    Constant {
        /// Ground to ground, through the satellite.
        one_way_delay: TimeSpan,
    },
}
