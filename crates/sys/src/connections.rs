//! TCP connections of this machine, as `/proc/net` lists them.
//!
//! Conntrack tells replies from requests only for connections whose beginning it saw, and it may not have been running. So
//! who needs to know asks here. It reads `/proc/net`, no packets.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const ESTABLISHED: &str = "01";
const LISTEN: &str = "0A";

/// A connection to a local port: the peer, and that port.
pub type Inbound = (SocketAddr, u16);

/// Established connections whose local port has a listener, in the calling thread's namespace.
///
/// # Errors
/// `/proc` cannot be read.
pub fn inbound() -> io::Result<Vec<Inbound>> {
    let mut table = fs::read_to_string("/proc/thread-self/net/tcp")?;
    // Absent when the kernel has no IPv6.
    table.push_str(&fs::read_to_string("/proc/thread-self/net/tcp6").unwrap_or_default());
    Ok(inbound_of(&table))
}

fn inbound_of(table: &str) -> Vec<Inbound> {
    let rows: Vec<_> = table.lines().filter_map(row).collect();
    let listens = |port| {
        rows.iter()
            .any(|(local, _, state)| *state == LISTEN && local.port() == port)
    };
    rows.iter()
        .filter(|(local, _, state)| *state == ESTABLISHED && listens(local.port()))
        .map(|(local, peer, _)| (*peer, local.port()))
        .collect()
}

/// Local address, peer and state of a row such as `0: 0100007F:0016 00000000:0000 0A …`.
fn row(line: &str) -> Option<(SocketAddr, SocketAddr, &str)> {
    let mut words = line.split_whitespace().skip(1);
    let (local, peer, state) = (words.next()?, words.next()?, words.next()?);
    Some((address(local)?, address(peer)?, state))
}

/// Addresses are printed as native 32-bit words of what lies in memory in network order.
fn address(text: &str) -> Option<SocketAddr> {
    let (hex, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let mut bytes = [0; 16];
    let (words, rest) = hex.as_bytes().as_chunks::<8>();
    if !rest.is_empty() || !matches!(words.len(), 1 | 4) {
        return None;
    }
    for (word, place) in words.iter().zip(bytes.as_chunks_mut::<4>().0) {
        *place = u32::from_str_radix(std::str::from_utf8(word).ok()?, 16)
            .ok()?
            .to_ne_bytes();
    }
    let [a, b, c, d, ..] = bytes;
    let ip = match words.len() {
        1 => IpAddr::V4(Ipv4Addr::new(a, b, c, d)),
        // A dual-stack listener shows its IPv4 peers as mapped addresses.
        _ => Ipv6Addr::from(bytes).to_canonical(),
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(all(test, target_endian = "little"))]
mod tests {
    use super::*;

    const TABLE: &str = "
  sl  local_address rem_address   st
   0: 00000000:0016 00000000:0000 0A 00000000:00000000
   1: 0100000A:0016 076433C6:C350 01 00000000:00000000
   2: 0100000A:C351 010200C0:0050 01 00000000:00000000
   3: 0000000000000000FFFF00000100000A:0016 0000000000000000FFFF0000086433C6:C350 01 0
   4: B80D0120000000000000000001000000:0016 B80D0120000000000000000002000000:0400 01 0
";

    #[test]
    fn only_connections_to_listening_ports_are_inbound() {
        let found: Vec<String> = inbound_of(TABLE)
            .iter()
            .map(|(peer, port)| format!("{peer} {port}"))
            .collect();
        let expected = [
            "198.51.100.7:50000 22",
            "198.51.100.8:50000 22",
            "[2001:db8::2]:1024 22",
        ];
        assert_eq!(found, expected);
    }
}
