//! What sockets carry of a packet, and packets of what sockets bring.

use std::net::IpAddr;
use std::ops::Range;

use bytes::Bytes;

use super::{Failure, Inner, Kind};
use crate::packets::build::{self, Head, Pair, is_intact, udp_head};
use crate::packets::icmp::{Said, error};
use crate::packets::ip::{ICMP, ICMPV6, UDP};
use crate::packets::{Header, Prohibited};

/// Length of the header of UDP, and of ICMP echo.
const HEADER: usize = 8;

/// Types of ICMP echo, request and reply, over IPv4 and IPv6.
const ECHO: [[u8; 2]; 2] = [[8, 0], [128, 129]];

/// Content that a socket sends.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) kind: Kind,
    /// The client's port or identifier.
    pub(crate) from: u16,
    /// The destination's port.
    pub(crate) to: u16,
    /// Place of the content in the packet.
    pub(crate) place: Range<usize>,
}

impl Content {
    /// Reads a whole `packet`. `Ok(None)`: it is nothing that a socket could send; an error: a length or a checksum is wrong.
    pub(crate) fn parse(packet: &[u8], header: &Header) -> Result<Option<Self>, ()> {
        let kind = match header.protocol {
            UDP => Kind::Udp,
            ICMP | ICMPV6 if is_request(packet, header) => Kind::Echo,
            _ => return Ok(None),
        };
        let at = header.offset;
        let head: &[u8; HEADER] = packet.get(at..).and_then(<[u8]>::first_chunk).ok_or(())?;
        let word = |place: usize| u16::from_be_bytes([head[place], head[place + 1]]);
        let (end, place) = match kind {
            Kind::Udp => (at + usize::from(word(4)), at + HEADER),
            Kind::Echo => (packet.len(), at),
        };
        let unsummed = kind == Kind::Udp && word(6) == 0;
        if end < at + HEADER || !is_intact(packet, header, end, unsummed) {
            return Err(());
        }
        let (from, to) = match kind {
            Kind::Udp => (word(0), word(2)),
            Kind::Echo => (word(4), 0),
        };
        // Nobody can be answered at port 0, nor is anybody there.
        if kind == Kind::Udp && (from == 0 || to == 0) {
            return Err(());
        }
        Ok(Some(Self {
            kind,
            from,
            to,
            place: place..end,
        }))
    }
}

/// An echo request of the family's own protocol.
fn is_request(packet: &[u8], header: &Header) -> bool {
    let v6 = header.source.is_ipv6();
    let protocol = if v6 { ICMPV6 } else { ICMP };
    header.protocol == protocol
        && packet.get(header.offset..header.offset + 2) == Some(&[ECHO[usize::from(v6)][0], 0])
}

/// The protocol of what a mapping carries.
pub(super) const fn protocol(inner: Inner) -> u8 {
    match (inner.kind, inner.address) {
        (Kind::Udp, _) => UDP,
        (Kind::Echo, IpAddr::V4(_)) => ICMP,
        (Kind::Echo, IpAddr::V6(_)) => ICMPV6,
    }
}

/// The transport's header of an answer from `port`, without its checksum, and the rest of it.
pub(super) fn answer(inner: Inner, port: u16, content: &[u8]) -> Option<([u8; HEADER], &[u8])> {
    match inner.kind {
        Kind::Udp => Some((udp_head(port, inner.port, content.len())?, content)),
        Kind::Echo => {
            let (head, rest) = content.split_first_chunk::<HEADER>()?;
            let reply = ECHO[usize::from(inner.address.is_ipv6())][1];
            let mut head = *head;
            (head[..2] == [reply, 0]).then_some(())?;
            head[4..6].copy_from_slice(&inner.port.to_be_bytes());
            Some((head, rest))
        }
    }
}

/// The ICMP error that tells of `failure`; `own` speaks for this machine. `None`: it is none that the client has to hear of.
pub(super) fn failure(inner: Inner, failure: &Failure<'_>, own: Prohibited) -> Option<Bytes> {
    let v6 = inner.address.is_ipv6();
    let from = match failure.from {
        Some(from) => from,
        None => own.like(inner.address)?,
    };
    let (kind, code) = failure.said;
    let word = match (v6, kind, code) {
        // The next hop's MTU is the lower half of the word; zero is no size.
        (false, 3, 4) => failure.mtu.clamp(68, 0xffff),
        (false, 3 | 11 | 12, _) | (true, 1 | 3 | 4, _) => 0,
        (true, 2, _) => failure.mtu.max(1280),
        _ => return None,
    };
    let quoted = sent(inner, failure)?;
    error(Said { kind, code, word }, from, inner.address, &quoted)
}

/// The packet that failed, as the client had sent it, as far as that is known.
fn sent(inner: Inner, failure: &Failure<'_>) -> Option<Bytes> {
    let head = Head {
        pair: Pair::new(inner.address, failure.to.ip())?,
        protocol: protocol(inner),
        hops: 1,
        traffic_class: 0,
        number: 0,
    };
    match inner.kind {
        Kind::Udp => {
            let front = udp_head(inner.port, failure.to.port(), failure.content.len())?;
            build::packet(&head, &[&front, failure.content], 6)
        }
        Kind::Echo => {
            let request = ECHO[usize::from(inner.address.is_ipv6())][0];
            let mut front = [request, 0, 0, 0, 0, 0, 0, 0];
            // The sequence number, if so much has been said.
            if let Some(number) = failure.content.get(6..8) {
                front[6..].copy_from_slice(number);
            }
            front[4..6].copy_from_slice(&inner.port.to_be_bytes());
            let rest = failure.content.get(HEADER..).unwrap_or_default();
            build::packet(&head, &[&front, rest], 2)
        }
    }
}
