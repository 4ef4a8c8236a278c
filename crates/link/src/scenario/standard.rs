//! `[forward]` and `[return]`: how a direction carries bits.

use bentpipe_units::BitRate;
use serde::{Deserialize, Serialize};

use super::ScenarioError;
use crate::channel::Carriage;

/// `[forward]`, `[return]`: how a direction carries bits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "standard", rename_all = "snake_case", deny_unknown_fields)]
pub enum Standard {
    /// A constant bit rate.
    Cbr {
        /// IP-layer bit/s.
        bit_rate: BitRate,
    },
}

impl Standard {
    /// The rate of a direction that has one; `table` is `forward` or `return`.
    pub(super) fn constant_rate(&self, table: &str) -> Result<BitRate, ScenarioError> {
        let Self::Cbr { bit_rate } = self;
        if bit_rate.as_u64() == 0 {
            return Err(ScenarioError::new(
                format!("{table}.bit_rate"),
                "is zero; for a link that is down use an outage",
            ));
        }
        Ok(*bit_rate)
    }

    pub(super) fn carriage(&self, table: &str) -> Result<Carriage, ScenarioError> {
        match self {
            Self::Cbr { .. } => Ok(Carriage::Constant(self.constant_rate(table)?)),
        }
    }
}
