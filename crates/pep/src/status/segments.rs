//! Figures of `status` about TCP that an operator's PEP relays.

use std::fmt::{self, Display, Formatter};
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::Session;
use super::format::{counted, quantity, size};

/// Figures of an operator's PEP.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PepSide {
    /// UDP address at which this PEP waits for the other one, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
    /// Tunnel to the other PEP, and what crosses it since it began.
    #[serde(flatten)]
    pub session: Session,
    /// Reasons why hosts reach each other less, or flows are relayed less, than they could be.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
    /// Flows that are relayed, and packets that are not.
    pub segments: Segments,
    /// Keys of headers that clients of LES have handed over, where the file has `[les]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<PepKeys>,
}

/// Keys of headers that a PEP has of clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PepKeys {
    /// Clients that may hand keys over.
    pub listed: u64,
    /// Clients that are connected.
    pub connected: u64,
    /// Associations whose keys are held.
    pub associations: u64,
}

/// TCP flows of a PEP; totals since it started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Segments {
    /// Flows that have a place among those that are relayed now: offered, relayed, or just over.
    pub relayed: u64,
    /// Flows that are known now, relayed or not.
    pub known: u64,
    /// Flows that have been relayed.
    pub relayed_total: u64,
    /// Bytes held for relayed flows.
    pub memory_bytes: u64,
    /// Flows that pass untouched although a PEP has offered or might have relayed them, by cause.
    pub refused_total: SegmentsRefused,
    /// Flows that were reset, by cause.
    pub reset_total: SegmentsReset,
    /// Packets that passed without a look at the flows, by cause.
    pub passed_total: SegmentsPassed,
}

/// Flows that pass untouched, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SegmentsRefused {
    /// The other PEP could not be asked.
    pub no_tunnel: u64,
    /// The table has no room for another flow.
    pub room: u64,
    /// One of the two PEPs has not seen the flow from its beginning.
    pub unknown: u64,
    /// The keys of its headers were about to go.
    pub no_key: u64,
    /// The state directory's disk is full or cannot be written, so a successor would not know of the flow.
    pub no_disk: u64,
}

/// Flows that were reset, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SegmentsReset {
    /// One of the ends has reset the connection.
    pub end: u64,
    /// One of the ends has not answered for minutes.
    pub silent: u64,
    /// Nothing has crossed for hours.
    pub idle: u64,
    /// The tunnel to the other PEP was lost, and with it what had been acknowledged.
    pub tunnel: u64,
    /// An earlier process had relayed the flow.
    pub earlier: u64,
    /// The other PEP has broken a rule.
    pub fault: u64,
    /// Anything else.
    pub other: u64,
}

/// Packets that passed untouched, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SegmentsPassed {
    /// Beginnings of flows while there was no tunnel.
    pub no_tunnel: u64,
    /// Packets of LES for which nobody has granted a key.
    pub no_key: u64,
    /// Segments with a wrong checksum.
    pub damaged: u64,
    /// Fragments, and packets with IP options.
    pub other: u64,
}

impl Display for PepKeys {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let held = quantity(self.associations, "association");
        let (connected, listed) = (self.connected, self.listed);
        write!(
            f,
            "{held}; {connected} clients connected of {listed} listed"
        )
    }
}

impl Display for Segments {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let relayed = quantity(self.relayed_total, "flow");
        let (now, known) = (self.relayed, self.known);
        let memory = size(self.memory_bytes);
        write!(
            f,
            "{relayed} relayed so far, {now} now of {known} known; {memory} held"
        )
    }
}

impl Segments {
    /// Labels and texts of the lines below the first, where there is something to tell.
    pub(super) fn causes(&self) -> [(&'static str, String); 3] {
        let refused = [
            (self.refused_total.no_tunnel, "without a tunnel"),
            (self.refused_total.room, "for want of room"),
            (self.refused_total.unknown, "not seen from their beginning"),
            (self.refused_total.no_key, "without a key"),
            (self.refused_total.no_disk, "for want of a disk"),
        ];
        let reset = [
            (self.reset_total.end, "by an end"),
            (self.reset_total.silent, "as an end was silent"),
            (self.reset_total.idle, "idle for hours"),
            (self.reset_total.tunnel, "as the tunnel was lost"),
            (self.reset_total.earlier, "of an earlier process"),
            (self.reset_total.fault, "as the other PEP broke a rule"),
            (self.reset_total.other, "else"),
        ];
        let passed = [
            (self.passed_total.no_tunnel, "SYNs without a tunnel"),
            (self.passed_total.no_key, "of LES without a key"),
            (self.passed_total.damaged, "damaged"),
            (self.passed_total.other, "in parts or with options"),
        ];
        [
            ("untouched", counted(&refused)),
            ("reset", counted(&reset)),
            ("passed", counted(&passed)),
        ]
    }
}
