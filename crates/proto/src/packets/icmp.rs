//! The ICMP errors that the server writes itself, with whatever they say about the packet that they quote. The others come from
//! kernels.

use std::net::IpAddr;

use bytes::{BufMut as _, Bytes, BytesMut};

use super::Header;
use super::build::{self, Head, Pair};
use super::ip::{ICMP, ICMPV6};

/// Most of the offending packet that is quoted: an error stays below every MTU (RFC 1812 §4.3.2.3, RFC 4443 §2.4).
const QUOTED: [usize; 2] = [548, 1232 - 48];

/// Hops that the error may take.
const HOPS: u8 = 64;

/// Source of the error, for either family.
#[derive(Clone, Copy, Debug, Default)]
pub struct Prohibited {
    /// An IPv4 address of the server on the tunnel's device.
    pub ipv4: Option<std::net::Ipv4Addr>,
    /// Source of errors of IPv6.
    pub ipv6: Option<std::net::Ipv6Addr>,
}

impl Prohibited {
    /// The one of the same family as `to`.
    pub(crate) fn like(&self, to: IpAddr) -> Option<IpAddr> {
        match to {
            IpAddr::V4(_) => self.ipv4.map(IpAddr::V4),
            IpAddr::V6(_) => self.ipv6.map(IpAddr::V6),
        }
    }
}

/// Content of an error: type, code, and the word after the checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) kind: u8,
    pub(crate) code: u8,
    pub(crate) word: u32,
}

impl Said {
    const fn new(kind: u8, code: u8) -> Self {
        Self {
            kind,
            code,
            word: 0,
        }
    }
}

/// The answer to `packet`, whose head is `header`: its destination may not be reached (RFC 1812 §5.2.7.1, RFC 4443 §3.1).
/// `None` where there must be none: to an ICMP error, a later fragment, or without an address to answer from.
#[must_use]
pub fn prohibited(packet: &[u8], header: &Header, from: Prohibited) -> Option<Bytes> {
    answer(packet, header, from, [Said::new(3, 13), Said::new(1, 1)])
}

/// Error that says that the hops of `packet` are used up.
pub(crate) fn expired(packet: &[u8], header: &Header, from: Prohibited) -> Option<Bytes> {
    answer(packet, header, from, [Said::new(11, 0), Said::new(3, 0)])
}

/// An answer that says the first of `said` over IPv4, the other over IPv6.
fn answer(packet: &[u8], header: &Header, from: Prohibited, said: [Said; 2]) -> Option<Bytes> {
    if header.is_icmp_error(packet) || header.later_fragment || header.destination.is_multicast() {
        return None;
    }
    let said = said[usize::from(header.source.is_ipv6())];
    error(said, from.like(header.source)?, header.source, packet)
}

/// An error about the packet `quoted`, which `to` has sent.
pub(crate) fn error(said: Said, from: IpAddr, to: IpAddr, quoted: &[u8]) -> Option<Bytes> {
    let pair = Pair::new(from, to)?;
    let (protocol, most) = match pair {
        Pair::V4(..) => (ICMP, QUOTED[0]),
        Pair::V6(..) => (ICMPV6, QUOTED[1]),
    };
    let head = Head {
        pair,
        protocol,
        hops: HOPS,
        traffic_class: 0,
        number: 0,
    };
    let mut front = BytesMut::with_capacity(8);
    front.put_slice(&[said.kind, said.code, 0, 0]);
    front.put_u32(said.word);
    build::packet(&head, &[&front, &quoted[..quoted.len().min(most)]], 2)
}
