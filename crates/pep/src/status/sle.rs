//! What `status` says of flows that are sealed beside the tunnel.

use std::fmt::{self, Display, Formatter};

use serde::{Deserialize, Serialize};

use super::format::{counted, quantity, size};

/// Flows that are sealed beside the tunnel (SLE); totals since the daemon started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sle {
    /// Reason why flows are not sealed now, or not as they are to be (client).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Open now.
    pub flows_active: u64,
    /// Opened so far.
    pub flows_total: u64,
    /// Flows that went through the tunnel, for no outer connection could be had (client).
    pub fell_back_total: u64,
    /// Flows that broke: their outer connection was altered, cut off or lost, and the hosts' connections were reset.
    pub broken_total: u64,
    /// Outer connections that were refused before anything was dialled, by cause (server).
    pub refused_total: SleRefused,
    /// Bytes of outer connections that were received.
    pub bytes_in: u64,
    /// Bytes of outer connections that were sent.
    pub bytes_out: u64,
}

/// Outer connections that were refused before anything was dialled, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SleRefused {
    /// Connections whose first bytes are not those of SLE.
    pub preface: u64,
    /// Connections of a tunnel that is not there, or not any more.
    pub association: u64,
    /// Connections of an epoch that is over, or has not begun.
    pub epoch: u64,
    /// Connections whose number was used before, or might have been.
    pub replayed: u64,
    /// Connections whose first record cannot be opened, or is no request.
    pub record: u64,
    /// Connections that were made to another destination than the one that they seal.
    pub redirected: u64,
    /// Connections whose request did not come in time, or that ended before it.
    pub incomplete: u64,
    /// Too many were under way.
    pub crowded: u64,
}

impl Sle {
    /// True if nothing has come of it so far.
    pub(super) fn is_idle(&self) -> bool {
        *self == Self::default()
    }

    /// Adds the flows of another client.
    pub(crate) fn add(&mut self, other: &Self) {
        self.flows_active += other.flows_active;
        self.flows_total += other.flows_total;
        self.fell_back_total += other.fell_back_total;
        self.broken_total += other.broken_total;
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
    }
}

impl Display for Sle {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(reason) = &self.reason {
            write!(f, "{reason}; ")?;
        }
        let flows = quantity(self.flows_total, "flow");
        let active = self.flows_active;
        let (received, sent) = (size(self.bytes_in), size(self.bytes_out));
        write!(
            f,
            "{flows}, {active} open; {received} received, {sent} sent"
        )?;
        if self.broken_total > 0 {
            write!(f, "; {} broken", self.broken_total)?;
        }
        if self.fell_back_total > 0 {
            write!(f, "; {} through the tunnel instead", self.fell_back_total)?;
        }
        let refused = self.refused_total;
        if refused != SleRefused::default() {
            write!(f, "; refused {refused}")?;
        }
        Ok(())
    }
}

impl Display for SleRefused {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let causes = [
            (self.preface, "that are no SLE"),
            (self.association, "of unknown tunnels"),
            (self.epoch, "of other epochs"),
            (self.replayed, "repeated"),
            (self.record, "that cannot be opened"),
            (self.redirected, "redirected"),
            (self.incomplete, "incomplete"),
            (self.crowded, "for want of room"),
        ];
        f.write_str(&counted(&causes))
    }
}
