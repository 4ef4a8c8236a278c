//! Part of `status` about pages whose objects are fetched ahead.

use std::fmt::{self, Display, Formatter};

use serde::{Deserialize, Serialize};

use super::format::{counted, quantity, size};

/// Pages and their objects; totals since the client started, at a server since its tunnel began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PagesAhead {
    /// Requests that were made by a stream of their own.
    pub requests_total: u64,
    /// Objects that were promised.
    pub promised_total: u64,
    /// Objects that answered a browser (client).
    pub used_total: u64,
    /// Objects that came whole and were not used, because the browser asked otherwise than was assumed (client).
    pub unequal_total: u64,
    /// Objects that no browser asked for in time (client).
    pub expired_total: u64,
    /// Objects that were promised and did not come whole.
    pub failed_total: u64,
    /// Connections over TLS that were answered in the place of a listed host (client).
    pub trusted_total: u64,
    /// Times that an origin's TLS was not believed (server).
    pub refused_total: u64,
    /// Bytes of objects that wait for a browser (client).
    pub bytes_held: u64,
}

impl PagesAhead {
    /// True if nothing has come of it so far.
    pub(super) fn is_idle(&self) -> bool {
        *self == Self::default()
    }
}

impl Display for PagesAhead {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let requests = quantity(self.requests_total, "request");
        let promised = quantity(self.promised_total, "object");
        write!(f, "{requests}, {promised} ahead")?;
        let ends = [
            (self.used_total, "used"),
            (self.unequal_total, "asked for otherwise"),
            (self.expired_total, "not asked for"),
            (self.failed_total, "failed"),
            (self.refused_total, "without trust in the origin"),
        ];
        if ends.iter().any(|(count, _)| *count > 0) {
            write!(f, "; {}", counted(&ends))?;
        }
        if self.trusted_total > 0 {
            let trusted = quantity(self.trusted_total, "connection");
            write!(f, "; {trusted} over TLS")?;
        }
        if self.bytes_held > 0 {
            write!(f, "; {} held", size(self.bytes_held))?;
        }
        Ok(())
    }
}
