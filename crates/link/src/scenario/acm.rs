//! `[acm]`: how a sender learns what its receivers can receive.

use std::time::Duration;

use bentpipe_units::{Decibel, TimeSpan};
use serde::{Deserialize, Serialize};

use super::ScenarioError;
use crate::dvbs2::{AcmConfig, ModcodSet, Reported, Select};

/// `[acm]`: the reporting loop of adaptive coding, in both directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Acm {
    /// Comes off what was reported.
    pub margin: Decibel,
    /// A better MODCOD is taken only this far above its threshold.
    pub hysteresis: Decibel,
    /// Time between two reports of a terminal.
    pub report_period: TimeSpan,
    /// Quantity that is reported.
    pub report: Reported,
    /// Choice among the possible MODCODs.
    pub select: Select,
}

impl Default for Acm {
    fn default() -> Self {
        Self {
            margin: Decibel::ZERO,
            hysteresis: Decibel::new(0.3),
            report_period: Duration::from_secs(1).into(),
            report: Reported::Cn,
            select: Select::Efficiency,
        }
    }
}

/// More often than every burst nobody reports.
const SHORTEST: Duration = Duration::from_millis(1);

impl Acm {
    pub(super) fn config(&self) -> Result<AcmConfig, ScenarioError> {
        for (key, level) in [("margin", self.margin), ("hysteresis", self.hysteresis)] {
            if level < Decibel::ZERO {
                let problem = format!("is {level}; it must not be negative");
                return Err(ScenarioError::new(format!("acm.{key}"), problem));
            }
        }
        if self.report_period.get() < SHORTEST {
            let problem = format!("is {}; it must be 1 ms or more", self.report_period);
            return Err(ScenarioError::new("acm.report_period", problem));
        }
        Ok(AcmConfig {
            modcods: ModcodSet::ALL,
            pilots: false,
            margin: self.margin,
            hysteresis: self.hysteresis,
            report_period: self.report_period.get(),
            report: self.report,
            select: self.select,
        })
    }
}
