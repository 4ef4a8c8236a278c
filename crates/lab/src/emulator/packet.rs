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

/// What the link and the choice of the terminal need.
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
        for garbage in [&v4[..19], &v6[..39], &[0; 60][..], &[]] {
            assert_eq!(ip_header(garbage), None);
        }
    }
}
