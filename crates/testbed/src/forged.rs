//! ICMP errors that no router has sent. The kernel believes them if they quote a datagram's addresses and ports, which whoever is on
//! the way sees, and anybody may guess.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bentpipe_sys::capture::PacketSocket;
use bentpipe_sys::netns::NetNs;
use socket2::{Domain, Protocol, Socket, Type};

/// Types of ICMPv4 errors, with as many codes as Linux knows: destination unreachable, time exceeded, parameter problem.
const ERRORS4: [(u8, u8); 3] = [(3, 16), (11, 2), (12, 3)];

/// Types of ICMPv6 errors, with as many codes as RFC 4443 and its successors have, and one that nobody has: destination unreachable,
/// packet too big, time exceeded, parameter problem.
const ERRORS6: [(u8, u8); 4] = [(1, 9), (2, 1), (3, 2), (4, 4)];

/// MTU that an error about a packet's size names.
const MTU: u32 = 1400;

/// Time between two errors: the daemon takes each by itself.
const APART: Duration = Duration::from_millis(40);

/// Time in which a datagram is overheard.
const PATIENCE: Duration = Duration::from_secs(20);

const UDP: u8 = 17;

/// Eavesdropper on the datagrams that come to one end of a link.
pub struct Overhearing(PacketSocket);

impl Overhearing {
    /// Begins to listen at `device` in `place`.
    pub fn start(place: &NetNs, device: &str) -> Result<Self> {
        Ok(Self(place.enter(|| PacketSocket::open(device))??))
    }

    /// Ends of the first datagram that came from `port` or was for it: source and destination.
    pub fn datagram(&self, port: u16) -> Result<[SocketAddr; 2]> {
        let deadline = Instant::now() + PATIENCE;
        let mut buffer = vec![0; 1 << 16];
        loop {
            match self.0.receive(&mut buffer) {
                Ok(packet) => {
                    let ends = ends(&buffer[..packet.length]).filter(|_| !packet.outgoing);
                    let known = |ends: &[SocketAddr; 2]| ends.iter().any(|end| end.port() == port);
                    if let Some(ends) = ends.filter(known) {
                        return Ok(ends);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    ensure!(Instant::now() < deadline, "no datagram of port {port}");
                    thread::sleep(Duration::from_millis(10));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Source and destination of a UDP datagram over IPv4; `None`: the packet is none.
fn ends(packet: &[u8]) -> Option<[SocketAddr; 2]> {
    let head = usize::from(packet.first()? & 0xf) * 4;
    if packet[0] >> 4 != 4 || *packet.get(9)? != UDP {
        return None;
    }
    let end = |address: usize, port: usize| {
        let address: [u8; 4] = *packet.get(address..)?.first_chunk()?;
        let port: [u8; 2] = *packet.get(head + port..)?.first_chunk()?;
        let address = Ipv4Addr::from(address);
        Some(SocketAddr::new(address.into(), u16::from_be_bytes(port)))
    };
    Some([end(12, 0)?, end(16, 2)?])
}

/// Sends from `place`, to the source of the datagram between these `ends`, each error that there is about it, and behind each a datagram
/// that means nothing: a socket reports an error in place of what comes next.
pub fn forge_errors(place: &NetNs, ends: [SocketAddr; 2]) -> Result<()> {
    let [victim, _] = ends;
    let (domain, protocol, errors) = match victim.is_ipv4() {
        true => (Domain::IPV4, Protocol::ICMPV4, &ERRORS4[..]),
        false => (Domain::IPV6, Protocol::ICMPV6, &ERRORS6[..]),
    };
    let socket = place.enter(|| Socket::new(domain, Type::RAW, Some(protocol)))??;
    let any = match victim.is_ipv4() {
        true => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        false => Ipv6Addr::UNSPECIFIED.into(),
    };
    let datagrams = place.enter(|| UdpSocket::bind((any, 0)))??;
    let to = SocketAddr::new(victim.ip(), 0).into();
    for (kind, codes) in errors {
        for code in 0..*codes {
            let error = message(*kind, code, ends)?;
            socket.send_to(&error, &to)?;
            // Of errors that come together the last is reported.
            thread::sleep(APART / 2);
            // An earlier one may be told as unreachable.
            let _ = datagrams.send_to(b"nothing", victim);
            thread::sleep(APART / 2);
        }
    }
    Ok(())
}

/// ICMP error of this type and code about a datagram between these `ends`.
fn message(kind: u8, code: u8, ends: [SocketAddr; 2]) -> io::Result<Vec<u8>> {
    let mut message = vec![kind, code, 0, 0];
    let about_size = matches!(
        (ends[0].is_ipv4(), kind, code),
        (true, 3, 4) | (false, 2, _)
    );
    let more = if about_size { MTU } else { 0 };
    message.extend(more.to_be_bytes());
    message.extend(datagram(ends)?);
    if ends[0].is_ipv4() {
        // That of ICMPv6 is the kernel's work.
        let sum = checksum(&message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
    }
    Ok(message)
}

/// Datagram between these `ends`, as it is quoted.
fn datagram([from, to]: [SocketAddr; 2]) -> io::Result<Vec<u8>> {
    const CONTENT: [u8; 32] = [0x40; 32];
    const LENGTH: u16 = 8 + CONTENT.len() as u16;
    let mut packet = match (from.ip(), to.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let mut head = vec![0x45, 0];
            head.extend((20 + LENGTH).to_be_bytes());
            head.extend([0, 0, 0x40, 0, 64, UDP, 0, 0]);
            head.extend(source.octets());
            head.extend(destination.octets());
            let sum = checksum(&head);
            head[10..12].copy_from_slice(&sum.to_be_bytes());
            head
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let mut head = vec![0x60, 0, 0, 0];
            head.extend(LENGTH.to_be_bytes());
            head.extend([UDP, 64]);
            head.extend(source.octets());
            head.extend(destination.octets());
            head
        }
        _ => return Err(io::Error::other("ends of two families")),
    };
    for word in [from.port(), to.port(), LENGTH, 0] {
        packet.extend(word.to_be_bytes());
    }
    packet.extend(CONTENT);
    Ok(packet)
}

/// The Internet checksum (RFC 1071) of an even number of bytes.
fn checksum(bytes: &[u8]) -> u16 {
    let (words, _) = bytes.as_chunks::<2>();
    let mut sum: u32 = words
        .iter()
        .map(|word| u32::from(u16::from_be_bytes(*word)))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
