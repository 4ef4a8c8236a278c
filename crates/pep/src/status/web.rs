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
    /// Pages of which objects were promised.
    pub pages_total: u64,
    /// Pages of which not all was fetched ahead that could be.
    #[serde(flatten)]
    pub bounded: PagesBounded,
    /// Objects that were promised.
    pub promised_total: u64,
    /// Objects that answered a browser (client).
    pub used_total: u64,
    /// Bytes of objects that answered a browser (client).
    pub used_bytes_total: u64,
    /// Bytes of objects that have crossed the link and answered nobody (client).
    pub wasted_bytes_total: u64,
    /// Objects that came whole and were not used, because the browser asked otherwise than was assumed (client).
    pub unequal_total: u64,
    /// Objects that no browser asked for in time (client).
    pub expired_total: u64,
    /// Objects that were promised and did not come whole.
    pub failed_total: u64,
    /// Causes of that, as far as this end knows them (server).
    pub failed_causes: ObjectsFailed,
    /// Connections over TLS that were answered in the place of a listed host (client).
    pub trusted_total: u64,
    /// Times that an origin's TLS was not believed (server).
    pub refused_total: u64,
    /// Sessions of DSSL.
    pub sealed: SealedPages,
    /// Bytes of objects that wait for a browser (client).
    pub bytes_held: u64,
}

/// Pages of a client that had its share of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PagesBounded {
    /// Pages that came without objects, or without some, for others of the client were being fetched or had taken its memory for reading (server).
    pub crowded_total: u64,
    /// Pages that were read no further, because reading the client's pages had taken its share of the processor (server).
    pub unread_total: u64,
}

/// Sessions of DSSL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SealedPages {
    /// Connections to origins by which objects may come (client), or sessions whose key was given (server).
    pub sessions_total: u64,
    /// Sealed objects, and at a server links, that were dropped because they were not what the origin has sealed.
    pub dropped_total: u64,
    /// Sessions for which the hub brought no key (client), or the origin gave none (server).
    pub keyless_total: u64,
    /// Connections to origins that refused this server, because they do not list its key (server).
    pub unlisted_total: u64,
    /// Sessions for which this server had no connection to the origin: it is not to be reached, or not by this client (server).
    pub unreached_total: u64,
}

/// Objects that were promised and did not come whole, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ObjectsFailed {
    /// Objects whose origin could not be reached, or ended its connection too early.
    pub unreached: u64,
    /// Objects whose origin said nothing for too long.
    pub silent: u64,
    /// Objects whose origin's TLS was not believed.
    pub untrusted: u64,
    /// Objects that may answer no other request, or are too long.
    pub unfit: u64,
}

impl ObjectsFailed {
    /// Objects of all causes.
    pub(crate) fn all(&self) -> u64 {
        self.unreached + self.silent + self.untrusted + self.unfit
    }
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
            (self.bounded.crowded_total, "pages too many at once"),
            (self.bounded.unread_total, "pages too long to read"),
            (self.refused_total, "without trust in the origin"),
            (self.sealed.dropped_total, "sealed and false"),
            (self.sealed.keyless_total, "sessions without a key"),
            (self.sealed.unlisted_total, "times not listed by an origin"),
            (self.sealed.unreached_total, "times no way to an origin"),
        ];
        if ends.iter().any(|(count, _)| *count > 0) {
            write!(f, "; {}", counted(&ends))?;
        }
        if self.trusted_total > 0 {
            let trusted = quantity(self.trusted_total, "connection");
            write!(f, "; {trusted} over TLS")?;
        }
        if self.sealed.sessions_total > 0 {
            write!(
                f,
                "; {} of DSSL",
                quantity(self.sealed.sessions_total, "session")
            )?;
        }
        if self.used_bytes_total + self.wasted_bytes_total > 0 {
            let (used, wasted) = (size(self.used_bytes_total), size(self.wasted_bytes_total));
            write!(f, "; {used} of use, {wasted} in vain")?;
        }
        if self.bytes_held > 0 {
            write!(f, "; {} held", size(self.bytes_held))?;
        }
        Ok(())
    }
}
