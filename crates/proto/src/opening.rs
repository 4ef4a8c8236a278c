//! The IP packet that opens a TCP connection: who wants to talk to whom.
//!
//! Read from a packet socket at the client, so the bytes are a stranger's.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const TCP: u8 = 6;
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

/// Source and destination of a TCP connection (RFC 9293 §3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Opening {
    /// Address that opens it.
    pub source: SocketAddr,
    /// With whom.
    pub destination: SocketAddr,
}

impl Opening {
    /// Reads an IP packet, from its header on. `None`: anything but a whole TCP header with SYN and without ACK; IPv6
    /// extension headers are not looked through.
    #[must_use]
    pub fn decode(packet: &[u8]) -> Option<Self> {
        let (from, to, segment) = match packet.first()? >> 4 {
            4 => ipv4(packet)?,
            6 => ipv6(packet)?,
            _ => return None,
        };
        let flags = *segment.get(13)?;
        let port = |at| Some(u16::from_be_bytes(*segment.get(at..)?.first_chunk()?));
        (segment.len() >= 20 && flags & (SYN | ACK) == SYN).then_some(Self {
            source: SocketAddr::new(from, port(0)?),
            destination: SocketAddr::new(to, port(2)?),
        })
    }
}

/// Addresses and TCP segment of an IPv4 packet (RFC 791 §3.1) that is no fragment.
fn ipv4(packet: &[u8]) -> Option<(IpAddr, IpAddr, &[u8])> {
    let header = usize::from(packet.first()? & 0x0f) * 4;
    let fragment = u16::from_be_bytes(*packet.get(6..)?.first_chunk()?) & 0x3fff;
    let address = |at| Some(Ipv4Addr::from(*packet.get(at..)?.first_chunk::<4>()?).into());
    let whole = header >= 20 && fragment == 0 && *packet.get(9)? == TCP;
    whole.then_some((address(12)?, address(16)?, packet.get(header..)?))
}

/// Addresses and TCP segment of an IPv6 packet (RFC 8200 §3).
fn ipv6(packet: &[u8]) -> Option<(IpAddr, IpAddr, &[u8])> {
    let address = |at| Some(Ipv6Addr::from(*packet.get(at..)?.first_chunk::<16>()?).into());
    (*packet.get(6)? == TCP).then_some((address(8)?, address(24)?, packet.get(40..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(flags: u8) -> Vec<u8> {
        let mut segment = vec![0; 20];
        segment[..4].copy_from_slice(&[0x80, 1, 0, 25]);
        segment[13] = flags;
        segment
    }

    fn ipv4_packet(flags: u8) -> Vec<u8> {
        let mut packet = vec![0; 24];
        packet[0] = 0x46;
        packet[9] = TCP;
        packet[12..20].copy_from_slice(&[10, 10, 0, 2, 10, 30, 0, 2]);
        [packet, segment(flags)].concat()
    }

    fn ipv6_packet(flags: u8) -> Vec<u8> {
        let mut packet = vec![0; 40];
        packet[0] = 0x60;
        packet[6] = TCP;
        packet[23] = 1;
        packet[39] = 2;
        [packet, segment(flags)].concat()
    }

    #[test]
    fn openings_are_read_and_nothing_else() {
        let text = |packet: &[u8]| {
            Opening::decode(packet).map(|it| format!("{} {}", it.source, it.destination))
        };
        assert_eq!(
            text(&ipv4_packet(SYN)).as_deref(),
            Some("10.10.0.2:32769 10.30.0.2:25")
        );
        assert_eq!(
            text(&ipv6_packet(SYN | 0xc0)).as_deref(),
            Some("[::1]:32769 [::2]:25")
        );
        for packet in [ipv4_packet(SYN | ACK), ipv6_packet(ACK), ipv6_packet(0x04)] {
            assert_eq!(text(&packet), None);
        }
        for whole in [ipv4_packet(SYN), ipv6_packet(SYN)] {
            for end in 0..whole.len() {
                assert_eq!(text(&whole[..end]), None, "{end}");
            }
        }
        let mut fragment = ipv4_packet(SYN);
        fragment[7] = 1;
        assert_eq!(text(&fragment), None);
    }
}
