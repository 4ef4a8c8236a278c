//! Cost of the bytes on the link.

use std::fmt::{self, Display, Formatter};

use serde::{Deserialize, Serialize};

use super::format::size;
use crate::config::Period;

/// Bytes on the link in both directions, IP packets whole, in the present period.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Metering {
    /// Period that is counted as one: a month, a day or the time since the daemon started.
    #[serde(default)]
    pub period: Period,
    /// Used so far.
    pub used_bytes: u64,
    /// Most that may be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cap_bytes: Option<u64>,
    /// Price of what was used, in the currency of the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// The cap is reached.
    pub used_up: bool,
    /// Reason why the count would begin anew after a restart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

impl Display for Metering {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&size(self.used_bytes))?;
        if let Some(cap) = self.cap_bytes {
            write!(f, " of {}", size(cap))?;
        }
        f.write_str(match self.period {
            Period::Run => " since the client started",
            Period::Day => " today (UTC)",
            Period::Month => " this month (UTC)",
        })?;
        if let Some(cap) = self.cap_bytes {
            write!(f, ", {} left", size(cap.saturating_sub(self.used_bytes)))?;
        }
        if let Some(cost) = self.cost {
            write!(f, ", costs {cost:.2}")?;
        }
        match &self.fault {
            Some(fault) => write!(f, "; {fault}, and counts anew after a restart"),
            None => Ok(()),
        }
    }
}
