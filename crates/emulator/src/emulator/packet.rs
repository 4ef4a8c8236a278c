//! A packet inside the emulator, and what its IP header says.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bytes::Bytes;

/// A packet that crosses the link. Its bytes are copied once, from the buffer that the kernel wrote.
#[derive(Debug, Clone)]
pub(super) struct Packet {
    /// Counted from 1 over both directions, in the order of arrival.
    pub(super) number: u64,
    /// All of it, with what stands before the IP header.
    pub(super) bytes: Bytes,
}

/// Fields of an IP header that the link and the choice of the terminal need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IpHeader {
    /// Differentiated-services code point (RFC 2474).
    pub(super) dscp: u8,
    pub(super) destination: IpAddr,
}

/// The header of an IP packet; `None` for anything else.
pub(super) fn ip_header(packet: &[u8]) -> Option<IpHeader> {
    match packet.first()? >> 4 {
        4 => {
            let destination: [u8; 4] = packet.get(16..20)?.try_into().ok()?;
            Some(IpHeader {
                dscp: packet[1] >> 2,
                destination: Ipv4Addr::from(destination).into(),
            })
        }
        6 => {
            let destination: [u8; 16] = packet.get(24..40)?.try_into().ok()?;
            Some(IpHeader {
                dscp: (packet[0] << 2 | packet[1] >> 6) & 0x3f,
                destination: Ipv6Addr::from(destination).into(),
            })
        }
        _ => None,
    }
}

/// A TCP segment with data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment {
    /// Addresses and ports, as they stand in the headers; behind IPv4 addresses zeros.
    flow: [u8; 36],
    sequence: u32,
    /// Bytes of data.
    pub(super) length: usize,
}

impl Segment {
    #[cfg(test)]
    pub(super) const fn new(flow: [u8; 36], sequence: u32, length: usize) -> Self {
        Self {
            flow,
            sequence,
            length,
        }
    }

    /// Reads what an IP packet holds; `None` if that is something else, in fragments, or behind extension headers.
    pub(super) fn read(packet: &[u8]) -> Option<Self> {
        const TCP: u8 = 6;
        let (addresses, header, whole) = match packet.first()? >> 4 {
            4 => {
                // More fragments, or not the first one.
                let fragment = packet.get(6)? & 0x3f | packet.get(7)?;
                let whole = packet.get(9) == Some(&TCP) && fragment == 0;
                (12..20, usize::from(packet[0] & 0xf) * 4, whole)
            }
            6 => (8..40, 40, packet.get(6) == Some(&TCP)),
            _ => return None,
        };
        let tcp = packet
            .get(header..)
            .filter(|tcp| whole && tcp.len() >= 20)?;
        let mut flow = [0; 36];
        let addresses = packet.get(addresses)?;
        flow[..addresses.len()].copy_from_slice(addresses);
        flow[32..].copy_from_slice(&tcp[..4]);
        let length = tcp.len().checked_sub(usize::from(tcp[12] >> 4) * 4)?;
        (length > 0).then_some(Self {
            flow,
            sequence: u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]),
            length,
        })
    }

    /// True if this segment begins where `other` of the same connection ends.
    pub(super) fn follows(&self, other: &Self) -> bool {
        let length = u32::try_from(other.length).unwrap_or(0);
        self.flow == other.flow && self.sequence == other.sequence.wrapping_add(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_and_garbage_is_not() {
        let mut v4 = [0; 20];
        (v4[0], v4[1]) = (0x45, 46 << 2 | 1);
        v4[16..20].copy_from_slice(&[10, 0, 0, 7]);
        let header = ip_header(&v4).unwrap();
        assert_eq!(
            (header.dscp, header.destination),
            (46, "10.0.0.7".parse().unwrap())
        );
        let mut v6 = [0; 40];
        // Traffic class 46 << 2: its upper half stands in the first byte.
        (v6[0], v6[1]) = (0x60 | 0xb, 0x8f);
        v6[39] = 1;
        let header = ip_header(&v6).unwrap();
        assert_eq!(
            (header.dscp, header.destination),
            (46, "::1".parse().unwrap())
        );
        // A segment of 10 bytes behind a TCP header of 20, and the next one.
        let mut segment = [0; 50];
        (segment[0], segment[9], segment[32]) = (0x45, 6, 5 << 4);
        let first = Segment::read(&segment).unwrap();
        assert_eq!(first.length, 10);
        segment[27] = 10;
        let second = Segment::read(&segment).unwrap();
        assert!(second.follows(&first) && !first.follows(&second));
        segment[21] = 1;
        assert!(
            !Segment::read(&segment).unwrap().follows(&first),
            "another port"
        );
        assert_eq!(Segment::read(&segment[..40]), None, "no data");
        segment[7] = 1;
        assert_eq!(Segment::read(&segment), None, "a fragment");
        let mut segment = [0; 61];
        (segment[0], segment[6], segment[52]) = (0x60, 6, 5 << 4);
        assert_eq!(
            Segment::read(&segment).map(|segment| segment.length),
            Some(1)
        );
        for garbage in [&v4[..19], &v6[..39], &[0; 60][..], &[]] {
            assert_eq!((ip_header(garbage), Segment::read(garbage)), (None, None));
        }
    }
}
