//! TCP connections of a tunnel, and their volumes.

use std::fmt::{self, Display, Formatter};

use serde::{Deserialize, Serialize};

use super::format::counted;

/// TCP connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flows {
    /// Open now.
    pub active: u64,
    /// Opened so far: at a client since the daemon started, at a server since the tunnel began.
    pub opened_total: u64,
    /// Refused so far, likewise.
    pub refused_total: u64,
    /// Flows that were refused, by cause.
    #[serde(default)]
    pub refused: Refused,
    /// Reset so far because they held most of a memory that was used up.
    #[serde(default)]
    pub shed_total: u64,
    /// Waiting for the tunnel now.
    pub waiting: u64,
}

/// Connections that were refused, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Refused {
    /// The server's policy forbids the destination.
    pub denied: u64,
    /// The destination refused.
    pub refused: u64,
    /// No route to it, or no answer in time.
    pub unreachable: u64,
    /// The name does not exist, or no resolver could tell.
    pub name: u64,
    /// A limit on flows was reached.
    pub limit: u64,
    /// The server has no route of the address family.
    pub family: u64,
    /// Anything else.
    pub other: u64,
}

/// Volumes in bytes: at a client since the daemon started, at a server since the tunnel began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volumes {
    /// Payload read from TCP connections.
    pub lan_in: u64,
    /// Payload written to TCP connections.
    pub lan_out: u64,
    /// Received from the link: UDP payload, or TCP payload with `transport = "plain"`.
    pub wire_in: u64,
    /// Sent to the link, likewise.
    pub wire_out: u64,
}

impl Volumes {
    /// As the other end of the link has them.
    #[must_use]
    pub fn turned(self) -> Self {
        Self {
            lan_in: self.lan_out,
            lan_out: self.lan_in,
            wire_in: self.wire_out,
            wire_out: self.wire_in,
        }
    }
}

impl Display for Refused {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let causes = [
            (self.denied, "denied"),
            (self.refused, "by the destination"),
            (self.unreachable, "unreachable"),
            (self.name, "without such a name"),
            (self.limit, "beyond a limit"),
            (self.family, "of a missing family"),
            (self.other, "for other reasons"),
        ];
        f.write_str(&counted(&causes))
    }
}
