//! Faults: reasons why a packet does not go by LES, and why one that came is discarded.

use super::{MAX_NUMBER, MTU, Spi, Writer};
use crate::window::Stale;

/// Reason why an inner packet has no form that LES carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotCarried {
    /// The packet ends before its headers do.
    #[error("inner packet: {0} bytes, shorter than its headers")]
    Short(usize),
    /// The packet is larger than the device takes.
    #[error("inner packet: {0} bytes, more than {MTU}")]
    Long(usize),
    /// The packet is neither IPv4 nor IPv6.
    #[error("inner packet: IP version {0}")]
    Version(u8),
    /// The IPv4 header has options.
    #[error("inner packet: IPv4 options")]
    Options,
    /// The packet is a part of a larger one.
    #[error("inner packet: a fragment")]
    Fragment,
    /// The transport is neither TCP nor UDP, or IPv6 extension headers stand before it.
    #[error("inner packet: protocol {0}, only TCP (6) and UDP (17) are carried")]
    Protocol(u8),
    /// A length field contradicts the length of the packet.
    #[error("inner packet: {named} bytes by its length field, {length} in truth")]
    Length {
        /// Length by the field, bytes.
        named: usize,
        /// Length of the packet, bytes.
        length: usize,
    },
    /// The TCP data offset is below the shortest header.
    #[error("inner packet: TCP header of {0} bytes")]
    Offset(usize),
}

/// Reason why a packet was not sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unwritten {
    /// The inner packet has a form that is not carried: it goes through the tunnel.
    #[error(transparent)]
    NotCarried(#[from] NotCarried),
    /// No number is left: a new association is due.
    #[error("{MAX_NUMBER} packets have been sealed with one key: a new association is due")]
    Spent,
    /// The payload zone is missing where the header asks for one, or stands where it cannot.
    #[error(transparent)]
    Zone(#[from] ZoneFault),
}

/// Contradiction between a header and the payload zone behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ZoneFault {
    /// Payload, SYN, FIN, URG and UDP need a payload zone.
    #[error("no payload zone, but the header has payload, SYN, FIN or URG")]
    Missing,
    /// The payload zone is shorter than its number and tag.
    #[error("payload zone of {0} bytes, shorter than its number and tag")]
    Short(usize),
}

/// Reason why a packet that came is discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Discarded {
    /// No packet is so short, or so long.
    #[error("packet of {0} bytes")]
    Size(usize),
    /// The packet is of another version, or a reserved bit is set.
    #[error("first bytes {0:#04x} {1:#04x} {2:#04x}: another version, or reserved bits")]
    Form(u8, u8, u8),
    /// The packet belongs to another association.
    #[error("association {0} is unknown")]
    Spi(Spi),
    /// The writer does not write in this direction.
    #[error("writer {0:?} does not write in this direction")]
    Writer(Writer),
    /// No packet has this number.
    #[error("number {0} is not between 1 and {MAX_NUMBER}")]
    Number(u32),
    /// The header's tag does not fit.
    #[error("header zone: its tag does not fit: altered or forged")]
    HeaderTag,
    /// The packet is a copy of one that came.
    #[error("packet {0}")]
    Packet(Stale),
    /// The header has a form that is not carried.
    #[error(transparent)]
    NotCarried(#[from] NotCarried),
    /// The header and the payload zone contradict each other.
    #[error(transparent)]
    Zone(#[from] ZoneFault),
    /// The payload's tag does not fit.
    #[error("payload zone: its tag does not fit: a PEP has altered it, or a field bound to it")]
    PayloadTag,
    /// The payload opens a flow, or is of no flow, and is a copy of one that came.
    #[error("payload {0}")]
    Payload(Stale),
    /// The payload belongs to a connection before the present one of its flow, or is too old.
    #[error("payload {0} is older than its flow's SYN, or {1} or more below its newest")]
    OldPayload(u32, u32),
}
