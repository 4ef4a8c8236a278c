//! PROXY protocol, version 2: the header that tells a host who has connected to it through us.
//!
//! Written only, and of its many forms only two, so it needs no library. Specification: haproxy's `proxy-protocol.txt`, §2.2.

use std::net::SocketAddr;

const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// Version 2, command PROXY.
const PROXY: u8 = 0x21;
/// Version 2, command LOCAL: nothing is known of who has connected.
const LOCAL: u8 = 0x20;
const TCP_IPV4: u8 = 0x11;
const TCP_IPV6: u8 = 0x21;

/// The header for a connection of `source` to `destination`: 28 bytes for IPv4, 52 for IPv6, 16 if either is unknown or
/// they are of different families.
#[must_use]
pub fn announce(source: Option<SocketAddr>, destination: Option<SocketAddr>) -> Vec<u8> {
    let mut header = SIGNATURE.to_vec();
    match (source, destination) {
        (Some(SocketAddr::V4(source)), Some(SocketAddr::V4(destination))) => {
            header.extend([PROXY, TCP_IPV4, 0, 12]);
            header.extend(source.ip().octets());
            header.extend(destination.ip().octets());
            put_ports(source.port(), destination.port(), &mut header);
        }
        (Some(SocketAddr::V6(source)), Some(SocketAddr::V6(destination))) => {
            header.extend([PROXY, TCP_IPV6, 0, 36]);
            header.extend(source.ip().octets());
            header.extend(destination.ip().octets());
            put_ports(source.port(), destination.port(), &mut header);
        }
        _ => header.extend([LOCAL, 0, 0, 0]),
    }
    header
}

fn put_ports(source: u16, destination: u16, header: &mut Vec<u8>) {
    header.extend(source.to_be_bytes());
    header.extend(destination.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(source: &str, destination: &str) -> String {
        let address = |text: &str| text.parse().ok();
        let header = announce(address(source), address(destination));
        header.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn headers_are_those_of_the_specification() {
        let signature = "0d0a0d0a000d0a515549540a";
        assert_eq!(
            header("198.51.100.7:40000", "192.0.2.1:443"),
            format!("{signature}2111000cc6336407c00002019c4001bb")
        );
        assert_eq!(
            header("[2001:db8::7]:40000", "[2001:db8::1]:443"),
            format!(
                "{signature}2121002420010db800000000000000000000000720010db80000000000000000000000019c4001bb"
            )
        );
        for (source, destination) in [("", "192.0.2.1:443"), ("198.51.100.7:1", "[::1]:1")] {
            assert_eq!(header(source, destination), format!("{signature}20000000"));
        }
    }
}
