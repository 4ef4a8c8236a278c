//! Figures of `status` about packets that are sealed beside the tunnel.

use std::fmt::{self, Display, Formatter};

use serde::{Deserialize, Serialize};

use super::format::{counted, quantity, size, span};

/// Packets that are sealed beside the tunnel (LES): at a client since the daemon started, at a server since the tunnel
/// began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Les {
    /// True if an association stands, by which packets are sealed.
    pub stands: bool,
    /// Reason why none stands, or why nothing comes by it (client).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// True if the keys are those of a laboratory, pre-shared.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub laboratory: bool,
    /// Associations that have stood.
    pub associations_total: u64,
    /// Packets that were received and opened.
    pub packets_in: u64,
    /// Packets that were sealed and sent.
    pub packets_out: u64,
    /// Bytes of packets that were received and opened, without their IP and UDP headers.
    pub bytes_in: u64,
    /// Bytes of packets that were sealed and sent, without their IP and UDP headers.
    pub bytes_out: u64,
    /// Packets of the device that were dropped in place of being sealed, by cause.
    pub dropped_total: LesDropped,
    /// Packets that came and were refused, by cause.
    pub refused_total: LesRefused,
    /// Operator's PEPs that may read headers (client).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub peps: Vec<LesPepStatus>,
}

/// Operator's PEP that may read headers of a client's packets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LesPepStatus {
    /// Name in the configuration.
    pub name: String,
    /// Address in the configuration.
    pub address: String,
    /// True if it has taken this client in.
    pub connected: bool,
    /// Seconds since it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connected_s: Option<u64>,
    /// Number by which it writes in the newest association; absent while it has no keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub writer: Option<u8>,
    /// Reason why it is not connected, or has no keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Display for LesPepStatus {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}: ", self.name, self.address)?;
        match self.connected_s {
            Some(seconds) => write!(f, "connected for {}", span(seconds))?,
            None => f.write_str("not connected")?,
        }
        match self.writer {
            Some(writer) => write!(f, ", writer {writer}")?,
            None => f.write_str(", without keys")?,
        }
        match &self.reason {
            Some(reason) => write!(f, "; {reason}"),
            None => Ok(()),
        }
    }
}

/// Packets of the device that were dropped in place of being sealed, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LesDropped {
    /// Packets that came while no association stood.
    pub no_association: u64,
    /// Packets that the socket did not take.
    pub no_room: u64,
}

/// Packets that came and were refused, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LesRefused {
    /// Packets of an association that is not there, or not any more.
    pub association: u64,
    /// Packets that are no LES, or carry what LES does not carry.
    pub malformed: u64,
    /// Packets that somebody has altered or made up.
    pub forged: u64,
    /// Packets that were there before, or might have been.
    pub replayed: u64,
    /// Packets of addresses that the association is not for.
    pub selector: u64,
    /// Packets for which there was no room.
    pub crowded: u64,
}

impl Les {
    /// True if nothing has come of it so far, and nothing hinders it.
    pub(super) fn is_idle(&self) -> bool {
        *self == Self::default()
    }
}

impl Display for Les {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.laboratory {
            f.write_str("pre-shared key of a laboratory; ")?;
        }
        match (&self.reason, self.stands) {
            (Some(reason), _) => write!(f, "{reason}; ")?,
            (None, true) => f.write_str("stands; ")?,
            (None, false) => {}
        }
        let associations = quantity(self.associations_total, "association");
        let (packets_in, packets_out) = (self.packets_in, self.packets_out);
        let (received, sent) = (size(self.bytes_in), size(self.bytes_out));
        write!(
            f,
            "{associations}; {packets_in} packets ({received}) received, {packets_out} ({sent}) sent"
        )?;
        if self.dropped_total != LesDropped::default() {
            write!(f, "; dropped {}", self.dropped_total)?;
        }
        if self.refused_total != LesRefused::default() {
            write!(f, "; refused {}", self.refused_total)?;
        }
        Ok(())
    }
}

impl Display for LesDropped {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let causes = [
            (self.no_association, "without an association"),
            (self.no_room, "for want of room"),
        ];
        f.write_str(&counted(&causes))
    }
}

impl Display for LesRefused {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let causes = [
            (self.association, "of unknown associations"),
            (self.malformed, "malformed"),
            (self.forged, "forged"),
            (self.replayed, "repeated"),
            (self.selector, "of other addresses"),
            (self.crowded, "for want of room"),
        ];
        f.write_str(&counted(&causes))
    }
}
