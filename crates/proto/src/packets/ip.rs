//! What the tunnel reads of IP packets: who speaks to whom, how urgent it is, and whether it may be marked.
//!
//! On every packet of both directions, and on hostile input: nothing here panics, loops without bound or allocates. It
//! checks form, not checksums; those are the kernel's business.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::IpAddr;

pub(crate) const ICMP: u8 = 1;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
const ESP: u8 = 50;
pub(crate) const ICMPV6: u8 = 58;
const DCCP: u8 = 33;
const SCTP: u8 = 132;
const UDP_LITE: u8 = 136;

/// IPv6 extension headers (RFC 8200 §4).
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
pub(crate) const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION: u8 = 60;

/// Extension headers of one packet; more are no packet that anybody sends.
const MOST_EXTENSIONS: usize = 8;

/// Options with which the sender chooses the way (RFC 791 §3.1): the destination checked would not be the last.
const LOOSE_ROUTE: u8 = 131;
const STRICT_ROUTE: u8 = 137;

/// Urgency of a packet, by its DSCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// EF, VOICE-ADMIT, CS5 and above: voice, and what holds networks together.
    Voice,
    /// Everything that does not say otherwise.
    Default,
    /// CS1 and LE: what may wait.
    Low,
}

/// The head of an IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Address that claims to have sent it.
    pub source: IpAddr,
    /// Address that is to have it.
    pub destination: IpAddr,
    /// The transport protocol, by its IANA number.
    pub protocol: u8,
    /// Source and destination port; for ICMP echo its identifier, for ESP its SPI, in both halves. `None`: the protocol
    /// has nothing of the kind, or this is a fragment.
    pub ports: Option<(u16, u16)>,
    /// Byte at which the transport header begins.
    pub offset: usize,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// True if the packet is a fragment of a packet, be it the first.
    pub fragment: bool,
    /// True if the packet is a fragment of a packet, and not the first.
    pub later_fragment: bool,
}

impl Header {
    /// Reads `packet`. `None`: it is not one whole IP packet, or its sender wants to choose its way (source routes).
    #[must_use]
    pub fn parse(packet: &[u8]) -> Option<Self> {
        match packet.first()? >> 4 {
            4 => Self::parse_v4(packet),
            6 => Self::parse_v6(packet),
            _ => None,
        }
    }

    fn parse_v4(packet: &[u8]) -> Option<Self> {
        let head: &[u8; 20] = packet.first_chunk()?;
        let length = usize::from(head[0] & 0xf) * 4;
        let total = usize::from(u16::from_be_bytes([head[2], head[3]]));
        if length < 20 || total != packet.len() || routed(packet.get(20..length)?) {
            return None;
        }
        let fragment = u16::from_be_bytes([head[6], head[7]]);
        let source: [u8; 4] = *head[12..].first_chunk()?;
        let destination: [u8; 4] = *head[16..].first_chunk()?;
        let whole = fragment & 0x3fff == 0;
        Some(Self {
            source: source.into(),
            destination: destination.into(),
            protocol: head[9],
            ports: ports(head[9], &packet[length..]).filter(|_| whole),
            offset: length,
            traffic_class: head[1],
            fragment: !whole,
            later_fragment: fragment & 0x1fff != 0,
        })
    }

    fn parse_v6(packet: &[u8]) -> Option<Self> {
        let head: &[u8; 40] = packet.first_chunk()?;
        if usize::from(u16::from_be_bytes([head[4], head[5]])) + 40 != packet.len() {
            return None;
        }
        let source: [u8; 16] = *head[8..].first_chunk()?;
        let destination: [u8; 16] = *head[24..].first_chunk()?;
        let mut protocol = head[6];
        let mut at = 40;
        let (mut whole, mut later_fragment) = (true, false);
        for _ in 0..MOST_EXTENSIONS {
            let length = match protocol {
                ROUTING => return None,
                HOP_BY_HOP | DESTINATION => 8 + usize::from(*packet.get(at + 1)?) * 8,
                AUTHENTICATION => 8 + usize::from(*packet.get(at + 1)?) * 4,
                FRAGMENT => {
                    let place = u16::from_be_bytes(*packet.get(at + 2..)?.first_chunk()?);
                    whole &= place & !0b110 == 0;
                    later_fragment = place >> 3 != 0;
                    8
                }
                _ => break,
            };
            protocol = *packet.get(at)?;
            at += length;
            if later_fragment {
                break;
            }
        }
        let ports = ports(protocol, packet.get(at..)?).filter(|_| whole);
        Some(Self {
            source: source.into(),
            destination: destination.into(),
            protocol,
            ports,
            offset: at,
            traffic_class: (head[0] << 4) | (head[1] >> 4),
            fragment: !whole,
            later_fragment,
        })
    }

    /// Class of the packet.
    #[must_use]
    pub const fn class(&self) -> Class {
        match self.traffic_class >> 2 {
            40.. => Class::Voice,
            1 | 8 => Class::Low,
            _ => Class::Default,
        }
    }

    /// A number that packets of one flow share, and others hardly; `seed` keeps outsiders from finding some that do.
    #[must_use]
    pub fn flow(&self, seed: u64) -> u64 {
        let mut hasher = DefaultHasher::new();
        (seed, self.source, self.destination).hash(&mut hasher);
        (self.protocol, self.ports).hash(&mut hasher);
        hasher.finish()
    }

    /// Hops that it may still take.
    #[must_use]
    pub fn hops(&self, packet: &[u8]) -> u8 {
        let place = if self.source.is_ipv4() { 8 } else { 7 };
        packet.get(place).copied().unwrap_or(0)
    }

    /// Whoever sent it forbids that it is cut on its way, as IPv6 always does.
    #[must_use]
    pub fn is_whole(&self, packet: &[u8]) -> bool {
        self.source.is_ipv6() || packet.get(6).is_some_and(|flags| flags & 0x40 != 0)
    }

    /// True for ICMP errors: no error is answered with another.
    #[must_use]
    pub fn is_icmp_error(&self, packet: &[u8]) -> bool {
        let kind = packet.get(self.offset).copied();
        match self.protocol {
            ICMP => kind.is_some_and(|kind| matches!(kind, 3 | 4 | 5 | 11 | 12)),
            ICMPV6 => kind.is_some_and(|kind| kind < 128),
            _ => false,
        }
    }
}

/// True if the options of an IPv4 header choose the way.
fn routed(mut options: &[u8]) -> bool {
    while let Some((&option, rest)) = options.split_first() {
        match option {
            0 => return false,
            1 => options = rest,
            LOOSE_ROUTE | STRICT_ROUTE => return true,
            _ => {
                let length = usize::from(rest.first().copied().unwrap_or(0));
                // Shorter than itself: nobody can read on.
                if length < 2 {
                    return true;
                }
                options = options.get(length..).unwrap_or_default();
            }
        }
    }
    false
}

fn ports(protocol: u8, transport: &[u8]) -> Option<(u16, u16)> {
    let pair = |at: usize| {
        let [a, b, c, d] = *transport.get(at..)?.first_chunk()?;
        Some((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])))
    };
    match protocol {
        TCP | UDP | DCCP | SCTP | UDP_LITE | ESP => pair(0),
        ICMP if matches!(transport.first()?, 0 | 8) => pair(4).map(|(id, _)| (id, id)),
        ICMPV6 if matches!(transport.first()?, 128 | 129) => pair(4).map(|(id, _)| (id, id)),
        _ => None,
    }
}

/// Marks a packet "congestion experienced"; false if its sender did not say that it understands (RFC 3168).
pub fn set_congestion_experienced(packet: &mut [u8]) -> bool {
    match packet {
        [first, class, rest @ ..] if *first >> 4 == 4 && rest.len() >= 18 => {
            if *class & 0b11 == 0 {
                return false;
            }
            let (old, new) = (*class, *class | 0b11);
            *class = new;
            let sum = u16::from_be_bytes([rest[8], rest[9]]);
            // RFC 1624: the checksum follows the one word that has changed.
            let changed = u32::from(!sum) + u32::from(!u16::from(old)) + u32::from(new);
            let folded = (changed & 0xffff) + (changed >> 16);
            let folded = (folded & 0xffff) + (folded >> 16);
            let sum = !u16::try_from(folded).unwrap_or(u16::MAX);
            [rest[8], rest[9]] = sum.to_be_bytes();
            true
        }
        [first, class, ..] if *first >> 4 == 6 => {
            let able = *class & 0b0011_0000 != 0;
            if able {
                *class |= 0b0011_0000;
            }
            able
        }
        _ => false,
    }
}
