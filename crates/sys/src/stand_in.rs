//! UDP datagrams from addresses and ports that others have: what answers in another machine's place.
//!
//! A raw socket takes whole IP packets. It holds no port, so that no name server on this machine is in its way, nor it in
//! theirs, whichever starts first and whatever options it binds with.

use std::io;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

/// `IPPROTO_RAW`: the packet has its IP header already.
const RAW: i32 = 255;

/// The number of UDP.
const UDP: u8 = 17;

/// Hop limit of what is sent.
const HOPS: u8 = 64;

/// Lengths of headers, bytes.
const IPV4: usize = 20;
const IPV6: usize = 40;
const HEADER: usize = 8;

/// Sends in the place of others.
#[derive(Debug)]
pub struct StandIn {
    ipv4: Socket,
    /// Absent where the kernel has no IPv6.
    ipv6: Option<Socket>,
}

impl StandIn {
    /// Sockets whose packets bear `mark` (0: none).
    ///
    /// # Errors
    /// CAP_NET_RAW, or CAP_NET_ADMIN for the mark, is missing; the text says so.
    pub fn open(mark: u32) -> io::Result<Self> {
        let named = |error: io::Error| {
            let text = format!("cannot open a raw socket: {error}; needs CAP_NET_RAW");
            io::Error::new(error.kind(), text)
        };
        let ipv4 = open(Domain::IPV4, mark).map_err(named)?;
        let ipv6 = match open(Domain::IPV6, mark) {
            Err(error) if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => None,
            other => Some(other.map_err(named)?),
        };
        Ok(Self { ipv4, ipv6 })
    }

    /// Sends one datagram as if it came from `from`.
    ///
    /// # Errors
    /// The kernel's: no room now, no route, too large for the link; or the families differ.
    pub fn send(&self, from: SocketAddr, to: SocketAddr, content: &[u8]) -> io::Result<()> {
        let packet = packet(from, to, content).ok_or(io::ErrorKind::InvalidInput)?;
        let (socket, to) = match to {
            SocketAddr::V4(_) => (&self.ipv4, SockAddr::from(to)),
            SocketAddr::V6(to) => {
                let socket = self.ipv6.as_ref();
                // A raw socket of IPv6 takes no port.
                let to = SocketAddrV6::new(*to.ip(), 0, 0, to.scope_id());
                let none = io::ErrorKind::AddrNotAvailable;
                (socket.ok_or(none)?, SockAddr::from(to))
            }
        };
        socket.send_to(&packet, &to).map(drop)
    }
}

fn open(domain: Domain, mark: u32) -> io::Result<Socket> {
    let socket = Socket::new(domain, Type::RAW, Some(Protocol::from(RAW)))?;
    socket.set_nonblocking(true)?;
    if mark != 0 {
        socket.set_mark(mark)?;
    }
    Ok(socket)
}

/// The whole IP packet; `None` if the families differ or it is too long.
fn packet(from: SocketAddr, to: SocketAddr, content: &[u8]) -> Option<Vec<u8>> {
    let length = u16::try_from(HEADER + content.len()).ok()?;
    let mut datagram = Vec::with_capacity(IPV6 + usize::from(length));
    for field in [from.port(), to.port(), length, 0] {
        datagram.extend_from_slice(&field.to_be_bytes());
    }
    datagram.extend_from_slice(content);
    let mut head = Vec::with_capacity(IPV6);
    let addresses = match (from, to) {
        (SocketAddr::V4(from), SocketAddr::V4(to)) => {
            let whole = u16::try_from(IPV4 + datagram.len()).ok()?;
            head.extend_from_slice(&[0x45, 0]);
            head.extend_from_slice(&whole.to_be_bytes());
            // The kernel fills in the identifier and the checksum.
            head.extend_from_slice(&[0, 0, 0, 0, HOPS, UDP, 0, 0]);
            [from.ip().octets().to_vec(), to.ip().octets().to_vec()]
        }
        (SocketAddr::V6(from), SocketAddr::V6(to)) => {
            head.extend_from_slice(&[0x60, 0, 0, 0]);
            head.extend_from_slice(&length.to_be_bytes());
            head.extend_from_slice(&[UDP, HOPS]);
            let octets = |ip: &Ipv6Addr| ip.octets().to_vec();
            [octets(from.ip()), octets(to.ip())]
        }
        _ => return None,
    };
    head.extend(addresses.concat());
    let pseudo = [
        addresses.concat(),
        vec![0, UDP],
        length.to_be_bytes().to_vec(),
    ]
    .concat();
    let sum = checksum(&[pseudo, datagram.clone()].concat());
    datagram
        .get_mut(6..HEADER)?
        .copy_from_slice(&sum.to_be_bytes());
    head.extend(datagram);
    Some(head)
}

/// The internet checksum (RFC 1071); all ones instead of zero, which stands for "none" in UDP.
fn checksum(bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| {
        let high = u32::from(pair.first().copied().unwrap_or(0)) << 8;
        high | u32::from(pair.get(1).copied().unwrap_or(0))
    };
    // At most 2^15 words of 16 bits: no overflow.
    let mut sum: u32 = bytes.chunks(2).map(word).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    match !(sum as u16) {
        0 => 0xffff,
        sum => sum,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_whole_and_its_sum_is_right() {
        for (from, to, head) in [
            ("192.0.2.53:53", "10.1.0.2:4000", IPV4),
            ("[2001:db8::53]:53", "[fd00::2]:4000", IPV6),
        ] {
            let (from, to) = (from.parse().unwrap(), to.parse().unwrap());
            for content in [&b"hello"[..], b"hello!"] {
                let packet = packet(from, to, content).unwrap();
                assert_eq!(packet.len(), head + HEADER + content.len());
                let addresses = if head == IPV4 { 12 } else { 8 };
                let length = &packet[head + 4..head + 6];
                let pseudo = [&packet[addresses..head], &[0, UDP], length].concat();
                // With the sum in it, all words add up to ones.
                let mut all = [pseudo.as_slice(), &packet[head..]].concat();
                all.resize(all.len().next_multiple_of(2), 0);
                assert_eq!(checksum(&all), 0xffff, "{from}");
            }
        }
        let (v4, v6) = ("192.0.2.1:1".parse().unwrap(), "[::1]:1".parse().unwrap());
        assert!(packet(v4, v6, b"").is_none());
        assert!(packet(v4, v4, &[0; 65_508]).is_none());
    }
}
