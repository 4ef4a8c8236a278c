//! How the return link is shared, as configured, and its clock.

use std::time::Duration;

use bentpipe_units::Ratio;

use super::controller::{Contract, Sharing};

/// Way in which the return link is shared, as configured.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AccessModel {
    pub(crate) sharing: Sharing,
    pub(crate) contracts: Vec<Contract>,
    /// Superframes from one request to the next.
    pub(crate) period: u64,
    /// Superframes from a request to the first slot granted for it, at the terminal (minimum scheduling latency).
    pub(crate) msl: u64,
    /// Requests that get lost whatever the weather.
    pub(crate) request_loss: Ratio,
    /// Terminals have to log on when the link starts.
    pub(crate) cold: bool,
}

impl AccessModel {
    /// Superframes between the one at whose beginning the gateway decides and the one it decides about.
    pub(super) fn lead(&self) -> u64 {
        self.msl.saturating_sub(1)
    }

    /// Time at which the gateway begins to receive superframe `index`.
    pub(super) fn beginning(&self, index: u64) -> Duration {
        let nanos = self
            .sharing
            .superframe
            .as_nanos()
            .saturating_mul(u128::from(index));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}
