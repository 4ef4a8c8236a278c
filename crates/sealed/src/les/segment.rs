//! Inner packets: the headers that become the header zone, and which of their fields belong to the
//! payload (`PROTOCOL.md` §20.3).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bentpipe_proto::packets::tidy_syn;

use super::{NotCarried, Spi, Toward};

/// MTU of the road, bytes: an inner packet of this size fills 1500 bytes of IPv6, and 1480 of IPv4. Ends
/// that speak IPv4 may be joined by IPv6 on the way (RFC 6877), and then none is cut or lost.
pub const MTU: usize = 1404;

/// Longest header zone, bytes: IPv6, and TCP with all its options.
pub(super) const MAX_HEADER: usize = IPV6 + 60;

const IPV4: usize = 20;
const IPV6: usize = 40;
const TCP_HEADER: usize = 20;
const UDP_HEADER: usize = 8;

/// Bits of TCP's flags (RFC 9293 §3.1).
const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const URG: u8 = 0x20;

/// Reserved bits of TCP beside its data offset, without AE, which is one of ECN (RFC 9768).
const RESERVED: u8 = 0x0e;

/// Transport protocol of an inner packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Transport {
    Tcp,
    Udp,
}

/// Addresses and ports of one direction of a TCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowId {
    /// Address and port of the sender.
    pub source: (IpAddr, u16),
    /// Address and port of the receiver.
    pub destination: (IpAddr, u16),
}

/// Lengths of an inner packet's parts, checked against each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// Length of the IP header.
    ip: usize,
    /// Length of both headers: the header zone.
    pub(super) header: usize,
    /// Length of the payload.
    pub(super) payload: usize,
    pub(super) transport: Transport,
}

impl Layout {
    /// Layout of a whole inner packet.
    pub(super) fn of_packet(packet: &[u8]) -> Result<Self, NotCarried> {
        Self::read(packet, packet.len())
    }

    /// Layout of the packet that consists of this `header` and `payload` bytes.
    pub(super) fn of_header(header: &[u8], payload: usize) -> Result<Self, NotCarried> {
        let layout = Self::read(header, header.len() + payload)?;
        if layout.header == header.len() {
            Ok(layout)
        } else {
            Err(NotCarried::Length {
                named: layout.header,
                length: header.len(),
            })
        }
    }

    /// Layout of a packet of `length` bytes, of which the first are `bytes`.
    fn read(bytes: &[u8], length: usize) -> Result<Self, NotCarried> {
        if length > MTU {
            return Err(NotCarried::Long(length));
        }
        let short = NotCarried::Short(bytes.len());
        let (ip, protocol, named) = match bytes.first().ok_or(short)? >> 4 {
            4 => read_ipv4(bytes.first_chunk().ok_or(short)?)?,
            6 => read_ipv6(bytes.first_chunk().ok_or(short)?),
            version => return Err(NotCarried::Version(version)),
        };
        if named != length {
            return Err(NotCarried::Length { named, length });
        }
        let rest = &bytes[ip..];
        let (transport, own) = match protocol {
            6 => (Transport::Tcp, read_tcp(rest.first_chunk().ok_or(short)?)?),
            17 => (
                Transport::Udp,
                read_udp(rest.first_chunk().ok_or(short)?, length - ip)?,
            ),
            protocol => return Err(NotCarried::Protocol(protocol)),
        };
        let header = ip + own;
        if bytes.len() < header {
            return Err(short);
        }
        Ok(Self {
            ip,
            header,
            payload: length - header,
            transport,
        })
    }

    /// Flags of TCP that belong to the payload, or end it; 0 for UDP.
    fn flags(self, header: &[u8]) -> u8 {
        match self.transport {
            Transport::Tcp => header[self.ip + 13],
            Transport::Udp => 0,
        }
    }

    /// Says whether the packet begins a connection.
    pub(super) fn is_syn(self, header: &[u8]) -> bool {
        self.flags(header) & SYN != 0
    }

    /// Says whether the packet aborts a connection.
    pub(super) fn is_rst(self, header: &[u8]) -> bool {
        self.flags(header) & RST != 0
    }

    /// Says whether an end has to seal a payload zone for this packet, be it empty.
    pub(super) fn is_end_to_end(self, header: &[u8]) -> bool {
        self.needs_zone(header) || self.is_rst(header)
    }

    /// Says whether the packet counts for nothing without a payload zone. An RST without one says
    /// that a PEP has given up.
    pub(super) fn needs_zone(self, header: &[u8]) -> bool {
        let flags = self.flags(header) & (SYN | FIN | URG);
        self.transport == Transport::Udp || self.payload > 0 || flags != 0
    }

    /// Addresses and ports.
    pub(super) fn flow(self, header: &[u8]) -> FlowId {
        let port = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let both = self.addresses(header);
        let (source, destination) = both.split_at(both.len() / 2);
        FlowId {
            source: (address(source), port(self.ip)),
            destination: (address(destination), port(self.ip + 2)),
        }
    }

    /// Bytes of both addresses, one after the other.
    fn addresses(self, header: &[u8]) -> &[u8] {
        if self.ip == IPV4 {
            &header[12..IPV4]
        } else {
            &header[8..IPV6]
        }
    }

    /// Clears both checksums, which the receiving end writes anew.
    pub(super) fn clear_checksums(self, header: &mut [u8]) {
        if self.ip == IPV4 {
            header[10..12].fill(0);
        }
        let place = match self.transport {
            Transport::Tcp => 16,
            Transport::Udp => 6,
        };
        header[self.ip + place..self.ip + place + 2].fill(0);
    }

    /// Takes from a SYN what PEPs cannot keep: timestamps and ECN; bounds its MSS. Other packets
    /// stay as they are.
    pub(super) fn tidy_syn(self, header: &mut [u8]) {
        if self.transport == Transport::Tcp {
            tidy_syn(&mut header[self.ip..], (MTU - self.ip - TCP_HEADER) as u16);
        }
    }

    /// Fields that belong to the payload, as additional data of its zone.
    pub(super) fn bound(self, header: &[u8], spi: Spi, psn: u32) -> BoundFields {
        let mut bound = BoundFields::default();
        bound.put(&spi.get().to_be_bytes());
        bound.put(&psn.to_be_bytes());
        let tcp = self.transport == Transport::Tcp;
        let version = if self.ip == IPV4 { 4 } else { 6 };
        bound.put(&[version, if tcp { 6 } else { 17 }]);
        bound.put(self.addresses(header));
        let own = &header[self.ip..];
        bound.put(&own[..4]);
        if tcp {
            bound.put(&own[4..8]);
            bound.put(&[own[12] & RESERVED, own[13] & (FIN | SYN | RST | URG)]);
            bound.put(&own[18..20]);
        } else {
            bound.put(&[0; 8]);
        }
        bound.put(&(self.payload as u16).to_be_bytes());
        if self.is_syn(header) {
            bound.put(&own[TCP_HEADER..]);
        }
        bound
    }
}

/// Address at B's side of a whole inner packet, to which selectors apply: its destination toward B,
/// its source toward A.
pub(super) fn selected(packet: &[u8], toward: Toward) -> Result<IpAddr, NotCarried> {
    let flow = Layout::of_packet(packet)?.flow(packet);
    Ok(match toward {
        Toward::B => flow.destination.0,
        Toward::A => flow.source.0,
    })
}

/// Bytes that a payload zone's tag covers beside the payload.
pub(super) struct BoundFields {
    bytes: [u8; Self::MOST],
    used: usize,
}

impl BoundFields {
    /// SPI, number, version and protocol, addresses, ports, sequence number, flags, urgent pointer,
    /// length, options of a SYN.
    const MOST: usize = 8 + 2 + 32 + 4 + 4 + 2 + 2 + 2 + 40;

    fn put(&mut self, part: &[u8]) {
        self.bytes[self.used..self.used + part.len()].copy_from_slice(part);
        self.used += part.len();
    }
}

impl Default for BoundFields {
    fn default() -> Self {
        Self {
            bytes: [0; Self::MOST],
            used: 0,
        }
    }
}

impl AsRef<[u8]> for BoundFields {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.used]
    }
}

/// Length of an IPv4 header, protocol, and length of the packet.
fn read_ipv4(header: &[u8; IPV4]) -> Result<(usize, u8, usize), NotCarried> {
    if header[0] != 0x45 {
        return Err(NotCarried::Options);
    }
    // Reserved bit, more fragments, fragment offset; "don't fragment" may be set.
    if u16::from_be_bytes([header[6], header[7]]) & 0xbfff != 0 {
        return Err(NotCarried::Fragment);
    }
    let length = u16::from_be_bytes([header[2], header[3]]);
    Ok((IPV4, header[9], usize::from(length)))
}

/// Length of an IPv6 header, protocol, and length of the packet.
fn read_ipv6(header: &[u8; IPV6]) -> (usize, u8, usize) {
    let length = u16::from_be_bytes([header[4], header[5]]);
    (IPV6, header[6], IPV6 + usize::from(length))
}

/// Length of a TCP header.
fn read_tcp(header: &[u8; TCP_HEADER]) -> Result<usize, NotCarried> {
    match usize::from(header[12] >> 4) * 4 {
        length if length < TCP_HEADER => Err(NotCarried::Offset(length)),
        length => Ok(length),
    }
}

/// Length of a UDP header, whose datagram has `length` bytes.
fn read_udp(header: &[u8; UDP_HEADER], length: usize) -> Result<usize, NotCarried> {
    match usize::from(u16::from_be_bytes([header[4], header[5]])) {
        named if named != length => Err(NotCarried::Length { named, length }),
        _ => Ok(UDP_HEADER),
    }
}

/// Address with these bytes, 4 or 16.
fn address(bytes: &[u8]) -> IpAddr {
    match bytes.first_chunk::<16>() {
        Some(bytes) => Ipv6Addr::from(*bytes).into(),
        None => bytes
            .first_chunk::<4>()
            .map_or(Ipv4Addr::UNSPECIFIED, |bytes| Ipv4Addr::from(*bytes))
            .into(),
    }
}
