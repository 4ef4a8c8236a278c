//! The one ICMP error that the server writes itself: "administratively prohibited". The others come from kernels.

use std::net::IpAddr;

use bytes::{BufMut as _, Bytes, BytesMut};

use super::Header;

/// Most of the offending packet that is quoted: an error stays below every MTU (RFC 1812 §4.3.2.3, RFC 4443 §2.4).
const QUOTED: [usize; 2] = [548, 1232];

/// Hops that the error may take.
const HOPS: u8 = 64;

/// Whom the error comes from, for either family.
#[derive(Clone, Copy, Debug, Default)]
pub struct Prohibited {
    /// An IPv4 address of the server on the tunnel's device.
    pub ipv4: Option<std::net::Ipv4Addr>,
    /// The same for IPv6.
    pub ipv6: Option<std::net::Ipv6Addr>,
}

/// The answer to `packet`, whose head is `header`: its destination may not be reached (RFC 1812 §5.2.7.1, RFC 4443 §3.1).
/// `None` where there must be none: to an ICMP error, a later fragment, or without an address to answer from.
#[must_use]
pub fn prohibited(packet: &[u8], header: &Header, from: Prohibited) -> Option<Bytes> {
    if header.is_icmp_error(packet) || header.later_fragment || header.destination.is_multicast() {
        return None;
    }
    match header.source {
        IpAddr::V4(to) => {
            let quoted = &packet[..packet.len().min(QUOTED[0])];
            let mut out = BytesMut::with_capacity(28 + quoted.len());
            let length = u16::try_from(28 + quoted.len()).ok()?;
            out.put_slice(&[0x45, 0]);
            out.put_u16(length);
            out.put_slice(&[0, 0, 0, 0, HOPS, 1, 0, 0]);
            out.put_slice(&from.ipv4?.octets());
            out.put_slice(&to.octets());
            let sum = checksum(0, &out);
            out[10..12].copy_from_slice(&sum.to_be_bytes());
            out.put_slice(&[3, 13, 0, 0, 0, 0, 0, 0]);
            out.put_slice(quoted);
            let sum = checksum(0, &out[20..]);
            out[22..24].copy_from_slice(&sum.to_be_bytes());
            Some(out.freeze())
        }
        IpAddr::V6(to) => {
            let quoted = &packet[..packet.len().min(QUOTED[1] - 48)];
            let mut out = BytesMut::with_capacity(48 + quoted.len());
            let length = u16::try_from(8 + quoted.len()).ok()?;
            out.put_slice(&[0x60, 0, 0, 0]);
            out.put_u16(length);
            out.put_slice(&[58, HOPS]);
            out.put_slice(&from.ipv6?.octets());
            out.put_slice(&to.octets());
            out.put_slice(&[1, 1, 0, 0, 0, 0, 0, 0]);
            out.put_slice(quoted);
            // The pseudo-header: addresses, length, next header.
            let sum = checksum(u32::from(length) + 58, &out[8..]);
            out[42..44].copy_from_slice(&sum.to_be_bytes());
            Some(out.freeze())
        }
    }
}

/// The Internet checksum (RFC 1071) of `bytes`, beginning with `sum`.
fn checksum(sum: u32, bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|word| match *word {
        [high, low] => u32::from(u16::from_be_bytes([high, low])),
        [high] => u32::from(high) << 8,
        _ => 0,
    });
    let mut sum = words.fold(sum, |sum, word| sum + word);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(u16::MAX)
}
