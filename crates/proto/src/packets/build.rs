//! IP packets written from their parts, with checksums, and cut where they are larger than a device takes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bytes::{BufMut as _, Bytes, BytesMut};

use super::ip::{FRAGMENT, ICMP, TCP, UDP};
use super::{Header, MTU};

/// Length of the IPv4 and of the IPv6 header that is written here, and of a fragment's extension to the latter.
const HEADS: [usize; 2] = [20, 40];
const EXTENSION: usize = 8;

/// Length of a UDP header.
const UDP_HEAD: usize = 8;

/// Both addresses, of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pair {
    V4(Ipv4Addr, Ipv4Addr),
    V6(Ipv6Addr, Ipv6Addr),
}

impl Pair {
    /// `None`: they are of different families.
    pub(crate) const fn new(source: IpAddr, destination: IpAddr) -> Option<Self> {
        match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => Some(Self::V4(source, destination)),
            (IpAddr::V6(source), IpAddr::V6(destination)) => Some(Self::V6(source, destination)),
            _ => None,
        }
    }

    /// The sum of the pseudo-header (RFC 768, RFC 8200 §8.1), with which the checksum of a transport begins.
    pub(crate) fn sum(self, protocol: u8, length: usize) -> u32 {
        let addresses = match self {
            Self::V4(source, destination) => {
                sum(0, &source.octets()) + sum(0, &destination.octets())
            }
            Self::V6(source, destination) => {
                sum(0, &source.octets()) + sum(0, &destination.octets())
            }
        };
        // No packet has more than 65,535 bytes.
        addresses + u32::from(protocol) + u32::try_from(length & 0xffff).unwrap_or(0)
    }
}

/// The head of a packet that is to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(crate) pair: Pair,
    pub(crate) protocol: u8,
    pub(crate) hops: u8,
    pub(crate) traffic_class: u8,
    /// Number of the packet among those of its source, for who has to cut it (IPv4) or for its parts (IPv6).
    pub(crate) number: u32,
}

/// A whole packet with the transport's `content`, whose checksum, at `place` in it, is computed here. `None`: it is too long to be one.
pub(crate) fn packet(head: &Head, content: &[&[u8]], place: usize) -> Option<Bytes> {
    let length: usize = content.iter().map(|part| part.len()).sum();
    let mut out = BytesMut::with_capacity(HEADS[1] + length);
    put_head(head, length, 0, &mut out)?;
    let at = out.len();
    content.iter().for_each(|part| out.put_slice(part));
    out.get_mut(at + place..at + place + 2)?.fill(0);
    let pseudo = match (head.pair, head.protocol) {
        (Pair::V4(..), ICMP) => 0,
        _ => head.pair.sum(head.protocol, length),
    };
    // 0 would say that there is none (RFC 768).
    let sum = match checksum(pseudo, &out[at..]) {
        0 => 0xffff,
        sum => sum,
    };
    out[at + place..at + place + 2].copy_from_slice(&sum.to_be_bytes());
    Some(out.freeze())
}

/// A UDP header without its checksum, before so much content. `None`: it is too much.
pub(crate) fn udp_head(from: u16, to: u16, length: usize) -> Option<[u8; UDP_HEAD]> {
    let length = u16::try_from(UDP_HEAD + length).ok()?;
    let mut head = [0; UDP_HEAD];
    for (place, word) in [from, to, length].into_iter().enumerate() {
        head[place * 2..place * 2 + 2].copy_from_slice(&word.to_be_bytes());
    }
    Some(head)
}

/// An IP header; `place` is where a fragment lies in the packet, and whether more follow, as on the wire (IPv4).
fn put_head(head: &Head, length: usize, place: u16, out: &mut BytesMut) -> Option<()> {
    match head.pair {
        Pair::V4(source, destination) => {
            let begin = out.len();
            out.put_slice(&[0x45, head.traffic_class]);
            out.put_u16(u16::try_from(HEADS[0] + length).ok()?);
            out.put_u16(u16::try_from(head.number & 0xffff).ok()?);
            out.put_u16(place);
            out.put_slice(&[head.hops, head.protocol, 0, 0]);
            out.put_slice(&source.octets());
            out.put_slice(&destination.octets());
            let sum = checksum(0, &out[begin..]);
            out[begin + 10..begin + 12].copy_from_slice(&sum.to_be_bytes());
        }
        Pair::V6(source, destination) => {
            out.put_u32(0x6000_0000 | u32::from(head.traffic_class) << 20);
            out.put_u16(u16::try_from(length).ok()?);
            out.put_slice(&[head.protocol, head.hops]);
            out.put_slice(&source.octets());
            out.put_slice(&destination.octets());
        }
    }
    Some(())
}

/// Hands on what [`packet`] has made of `head`, in parts if it is longer than [`MTU`].
pub(crate) fn emit(head: &Head, whole: Bytes, mut emit: impl FnMut(Bytes)) {
    if whole.len() <= MTU {
        return emit(whole);
    }
    let (extension, from) = match head.pair {
        Pair::V4(..) => (0, HEADS[0]),
        Pair::V6(..) => (EXTENSION, HEADS[1]),
    };
    let step = (MTU - from - extension) & !7;
    let content = &whole[from..];
    for (index, part) in content.chunks(step).enumerate() {
        let at = index * step;
        let more = at + part.len() < content.len();
        if let Some(fragment) = fragment(head, part, at, more) {
            emit(fragment);
        }
    }
}

/// The part of a packet's content that begins `at`.
fn fragment(head: &Head, part: &[u8], at: usize, more: bool) -> Option<Bytes> {
    let eighths = u16::try_from(at / 8).ok()?;
    let mut out = BytesMut::with_capacity(MTU);
    match head.pair {
        Pair::V4(..) => put_head(head, part.len(), eighths | u16::from(more) << 13, &mut out)?,
        Pair::V6(..) => {
            let outer = Head {
                protocol: FRAGMENT,
                ..*head
            };
            put_head(&outer, EXTENSION + part.len(), 0, &mut out)?;
            out.put_slice(&[head.protocol, 0]);
            out.put_u16(eighths << 3 | u16::from(more));
            out.put_u32(head.number);
        }
    }
    out.put_slice(part);
    Some(out.freeze())
}

/// Whether the checksums of a whole UDP or ICMP packet are right: of IPv4's header, and of what follows until `end`.
pub(crate) fn is_intact(packet: &[u8], header: &Header, end: usize, optional: bool) -> bool {
    let Some(pair) = Pair::new(header.source, header.destination) else {
        return false;
    };
    let Some(content) = packet.get(header.offset..end) else {
        return false;
    };
    let pseudo = match (pair, header.protocol) {
        (Pair::V4(..), ICMP) => 0,
        _ => pair.sum(header.protocol, content.len()),
    };
    let v4 = matches!(pair, Pair::V4(..));
    let head = !v4 || checksum(0, &packet[..header.offset]) == 0;
    head && ((optional && v4) || checksum(pseudo, content) == 0)
}

/// True if the checksums of a whole TCP packet are right: of the IPv4 header, and of the segment.
#[must_use]
pub fn is_true_tcp(packet: &[u8]) -> bool {
    let header = Header::parse(packet).filter(|header| header.protocol == TCP && !header.fragment);
    header.is_some_and(|header| is_intact(packet, &header, packet.len(), false))
}

/// Writes the checksums of a whole TCP or UDP packet: of the IPv4 header, and of the transport.
///
/// `false`: this is no such packet, or only a part of one; nothing has been written.
pub fn write_checksums(packet: &mut [u8]) -> bool {
    let Some(header) = Header::parse(packet).filter(|header| !header.fragment) else {
        return false;
    };
    let place = match header.protocol {
        TCP => 16,
        UDP => 6,
        _ => return false,
    };
    let at = header.offset + place;
    let pair = Pair::new(header.source, header.destination);
    let (Some(pair), true) = (pair, packet.len() >= at + 2) else {
        return false;
    };
    packet[at..at + 2].fill(0);
    let content = &packet[header.offset..];
    let sum = match checksum(pair.sum(header.protocol, content.len()), content) {
        // 0 would say that there is none (RFC 768).
        0 if header.protocol == UDP => 0xffff,
        sum => sum,
    };
    packet[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    if matches!(pair, Pair::V4(..)) {
        packet[10..12].fill(0);
        let sum = checksum(0, &packet[..header.offset]);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    true
}

/// The Internet checksum (RFC 1071) of `bytes`, beginning with the sum `begin`.
pub(crate) fn checksum(begin: u32, bytes: &[u8]) -> u16 {
    let mut sum = sum(begin, bytes);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(u16::MAX)
}

fn sum(begin: u32, bytes: &[u8]) -> u32 {
    // Words of four bytes in the machine's order, which compilers add several at a time; the carries of the sum of 16-bit
    // words, folded in later, are the same, and its bytes stand as those of the words do (RFC 1071 §2).
    let (words, rest) = bytes.as_chunks::<4>();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    let words = words
        .iter()
        .map(|word| u64::from(u32::from_ne_bytes(*word)));
    let mut sum = words.sum::<u64>() + u64::from(u32::from_ne_bytes(last));
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    begin + u32::from(u16::from_be(u16::try_from(sum).unwrap_or(u16::MAX)))
}
