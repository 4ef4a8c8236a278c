//! What a packet is. Everything that is not recognised for certain is in clear.

use std::net::IpAddr;

use etherparse::{
    EtherType, Icmpv6Slice, IpNumber, LaxNetSlice, LaxSlicedPacket, TransportSlice, UdpSlice,
};

use super::{ExpectedPackets, Tunnel};
use crate::workload::DNS_PORT;
use bentpipe_emulator::topology::{RESOLVER, RESOLVER6};

const ARP: u16 = 0x0806;
/// Router and neighbour solicitations and advertisements, redirects (RFC 4861).
const NEIGHBOUR_DISCOVERY: std::ops::RangeInclusive<u8> = 133..=137;
/// Multicast listener queries, reports and dones (RFC 2710, RFC 3810).
const LISTENER_DISCOVERY: [u8; 4] = [130, 131, 132, 143];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Tunnel,
    Idle,
    TunnelError,
    LinkScope,
    Name,
    Clear,
}

/// Judges one packet without its link-layer header.
pub(super) fn classify(
    ether_type: u16,
    bytes: &[u8],
    expected: impl Into<ExpectedPackets>,
) -> Class {
    let expected = expected.into();
    if ether_type == ARP {
        return Class::LinkScope;
    }
    let packet = LaxSlicedPacket::from_ether_type(EtherType(ether_type), bytes);
    if let Some(own) = own(&packet, &expected) {
        return own;
    }
    let Some(ends) = Ends::of(&packet) else {
        return Class::Clear;
    };
    match &packet.transport {
        // Unreachable, or redirect: a host whose address has gone forwards what comes for it.
        Some(TransportSlice::Icmpv4(icmp)) if matches!(icmp.type_u8(), 3 | 5) => {
            about_own(icmp.payload(), &expected)
        }
        Some(TransportSlice::Icmpv6(icmp)) if matches!(icmp.type_u8(), 1 | 2) => {
            about_own(icmp.payload(), &expected)
        }
        Some(TransportSlice::Icmpv6(icmp)) if is_link_scope(icmp, &ends) => Class::LinkScope,
        Some(TransportSlice::Igmp(_)) if ends.is_to_local_group() => Class::LinkScope,
        Some(TransportSlice::Udp(udp)) if expected.names_beside && is_name(udp, &ends) => {
            Class::Name
        }
        _ => Class::Clear,
    }
}

/// One line about a packet.
pub(super) fn describe(ether_type: u16, bytes: &[u8]) -> String {
    let packet = LaxSlicedPacket::from_ether_type(EtherType(ether_type), bytes);
    let length = bytes.len();
    let Some(Ends { from, to, .. }) = Ends::of(&packet) else {
        return format!("link-layer protocol {ether_type:#06x}, {length} bytes");
    };
    let ports = |from_port, to_port| {
        let (from, to) = (
            std::net::SocketAddr::new(from, from_port),
            std::net::SocketAddr::new(to, to_port),
        );
        format!("{from} > {to}")
    };
    match &packet.transport {
        Some(TransportSlice::Tcp(tcp)) => {
            let flags = [
                (tcp.syn(), " SYN"),
                (tcp.fin(), " FIN"),
                (tcp.rst(), " RST"),
            ];
            let flags: String = flags
                .iter()
                .filter_map(|(set, name)| set.then_some(*name))
                .collect();
            let ends = ports(tcp.source_port(), tcp.destination_port());
            format!("TCP{flags} {ends}, {length} bytes")
        }
        Some(TransportSlice::Udp(udp)) => {
            let ends = ports(udp.source_port(), udp.destination_port());
            format!("UDP {ends}, {length} bytes")
        }
        Some(TransportSlice::Icmpv4(icmp)) => {
            let (kind, code) = (icmp.type_u8(), icmp.code_u8());
            format!("ICMP type {kind} code {code} {from} > {to}, {length} bytes")
        }
        Some(TransportSlice::Icmpv6(icmp)) => {
            let (kind, code) = (icmp.type_u8(), icmp.code_u8());
            format!("ICMPv6 type {kind} code {code} {from} > {to}, {length} bytes")
        }
        Some(TransportSlice::Igmp(_)) => format!("IGMP {from} > {to}, {length} bytes"),
        None => {
            let payload = packet.net.as_ref().and_then(LaxNetSlice::ip_payload_ref);
            let fragment = payload.is_some_and(|payload| payload.fragmented);
            let kind = if fragment { "fragment of " } else { "" };
            let number = payload.map_or(0, |payload| payload.ip_number.0);
            format!("{kind}IP protocol {number} {from} > {to}, {length} bytes")
        }
    }
}

/// Sort of thing that a packet is, for counting; one of some dozens.
pub(super) fn kind(ether_type: u16, bytes: &[u8]) -> String {
    let packet = LaxSlicedPacket::from_ether_type(EtherType(ether_type), bytes);
    let Some(ends) = Ends::of(&packet) else {
        return "no IP".to_owned();
    };
    let version = if ends.from.is_ipv6() { "IPv6 " } else { "" };
    let multicast = if ends.to.is_multicast() {
        " multicast"
    } else {
        ""
    };
    let name = match &packet.transport {
        Some(TransportSlice::Tcp(_)) => "TCP".to_owned(),
        Some(TransportSlice::Udp(udp)) if udp.destination_port() == 53 => "DNS".to_owned(),
        Some(TransportSlice::Udp(_)) => "UDP".to_owned(),
        Some(TransportSlice::Icmpv4(_) | TransportSlice::Icmpv6(_)) => "ICMP".to_owned(),
        Some(TransportSlice::Igmp(_)) => "IGMP".to_owned(),
        None => {
            let payload = packet.net.as_ref().and_then(LaxNetSlice::ip_payload_ref);
            match payload {
                Some(payload) if payload.fragmented => "fragment".to_owned(),
                other => {
                    let number = other.map_or(0, |payload| payload.ip_number.0);
                    format!("protocol {number}")
                }
            }
        }
    };
    format!("{version}{name}{multicast}")
}

/// Source, destination, and how many routers the packet may still pass.
struct Ends {
    from: IpAddr,
    to: IpAddr,
    hop_limit: u8,
}

impl Ends {
    fn of(packet: &LaxSlicedPacket<'_>) -> Option<Self> {
        match packet.net.as_ref()? {
            LaxNetSlice::Ipv4(ip) => Some(Self {
                from: ip.header().source_addr().into(),
                to: ip.header().destination_addr().into(),
                hop_limit: ip.header().ttl(),
            }),
            LaxNetSlice::Ipv6(ip) => Some(Self {
                from: ip.header().source_addr().into(),
                to: ip.header().destination_addr().into(),
                hop_limit: ip.header().hop_limit(),
            }),
            LaxNetSlice::Arp(_) => None,
        }
    }

    /// 224.0.0.0/24, which no router forwards.
    fn is_to_local_group(&self) -> bool {
        matches!(self.to, IpAddr::V4(to) if to.octets()[..3] == [224, 0, 0])
    }
}

fn is_tunnel(packet: &LaxSlicedPacket<'_>, tunnel: Tunnel) -> bool {
    // Fragments have no transport here, so they are in clear: the tunnel sends none.
    match (&packet.transport, tunnel) {
        (Some(TransportSlice::Udp(udp)), Tunnel::Udp(port)) => {
            [udp.source_port(), udp.destination_port()].contains(&port)
        }
        (Some(TransportSlice::Udp(udp)), Tunnel::Ipsec) => {
            let ports = [udp.source_port(), udp.destination_port()];
            ports.contains(&500) || ports.contains(&4500)
        }
        (Some(TransportSlice::Tcp(tcp)), Tunnel::Tcp(port)) => {
            [tcp.source_port(), tcp.destination_port()].contains(&port)
        }
        (Some(TransportSlice::Tcp(_)), Tunnel::EveryTcp) => true,
        (None, Tunnel::Ipsec) => {
            let payload = packet.net.as_ref().and_then(LaxNetSlice::ip_payload_ref);
            payload.is_some_and(|payload| {
                !payload.fragmented && payload.ip_number == IpNumber::ENCAPSULATING_SECURITY_PAYLOAD
            })
        }
        _ => false,
    }
}

/// To the web's resolver, or from it.
fn is_name(udp: &UdpSlice<'_>, ends: &Ends) -> bool {
    let resolves = |end: (IpAddr, u16)| {
        [IpAddr::V4(RESOLVER), IpAddr::V6(RESOLVER6)]
            .map(|own| (own, DNS_PORT))
            .contains(&end)
    };
    resolves((ends.from, udp.source_port())) || resolves((ends.to, udp.destination_port()))
}

/// Which of the contender's own tunnels a packet is of.
fn own(packet: &LaxSlicedPacket<'_>, expected: &ExpectedPackets) -> Option<Class> {
    if is_tunnel(packet, expected.tunnel) {
        return Some(Class::Tunnel);
    }
    let mut idle = expected.idle.into_iter().flatten();
    idle.any(|idle| is_tunnel(packet, idle))
        .then_some(Class::Idle)
}

/// For errors that quote a packet.
fn about_own(quoted: &[u8], expected: &ExpectedPackets) -> Class {
    let Ok(quoted) = LaxSlicedPacket::from_ip(quoted) else {
        return Class::Clear;
    };
    if own(&quoted, expected).is_some() {
        return Class::TunnelError;
    }
    // A browser gives up sockets that it asked from, and answers come later.
    match (&quoted.transport, Ends::of(&quoted)) {
        (Some(TransportSlice::Udp(udp)), Some(ends))
            if expected.names_beside && is_name(udp, &ends) =>
        {
            Class::Name
        }
        _ => Class::Clear,
    }
}

/// The hop limit is what keeps these on the link: 255 cannot have passed a router, 1 cannot pass one.
fn is_link_scope(icmp: &Icmpv6Slice<'_>, ends: &Ends) -> bool {
    let kind = icmp.type_u8();
    NEIGHBOUR_DISCOVERY.contains(&kind) && ends.hop_limit == 255
        || LISTENER_DISCOVERY.contains(&kind) && ends.hop_limit == 1
}

#[cfg(test)]
mod tests;
