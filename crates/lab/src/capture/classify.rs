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
        Some(TransportSlice::Icmpv4(icmp)) if icmp.type_u8() == 3 => {
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
    match LaxSlicedPacket::from_ip(quoted) {
        Ok(quoted) if own(&quoted, expected).is_some() => Class::TunnelError,
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
mod tests {
    use etherparse::PacketBuilder;

    use super::*;

    const V4: u16 = 0x0800;
    const V6: u16 = 0x86dd;
    const PORT: u16 = 4433;
    const TUNNEL: Tunnel = Tunnel::Udp(PORT);

    fn ipv4(
        from: [u8; 4],
        to: [u8; 4],
        ttl: u8,
    ) -> etherparse::PacketBuilderStep<etherparse::IpHeaders> {
        PacketBuilder::ipv4(from, to, ttl)
    }

    fn udp(from: u16, to: u16) -> Vec<u8> {
        let builder = ipv4([10, 20, 0, 2], [10, 20, 0, 1], 64).udp(from, to);
        let mut packet = Vec::new();
        builder.write(&mut packet, b"payload").unwrap();
        packet
    }

    fn icmp6(kind: u8, hop_limit: u8) -> Vec<u8> {
        let mut packet = Vec::new();
        let mut to = [0; 16];
        to[..2].copy_from_slice(&[0xff, 0x02]);
        PacketBuilder::ipv6([0; 16], to, hop_limit)
            .icmpv6_raw(kind, 0, [0; 4])
            .write(&mut packet, &[0; 20])
            .unwrap();
        packet
    }

    #[test]
    fn the_tunnel_is_known_by_its_port_in_either_place() {
        assert_eq!(classify(V4, &udp(40_000, PORT), TUNNEL), Class::Tunnel);
        assert_eq!(classify(V4, &udp(PORT, 40_000), TUNNEL), Class::Tunnel);
        let other = udp(40_000, 53);
        assert_eq!(classify(V4, &other, TUNNEL), Class::Clear);
        assert_eq!(
            describe(V4, &other),
            "UDP 10.20.0.2:40000 > 10.20.0.1:53, 35 bytes"
        );
    }

    #[test]
    fn esp_is_the_tunnel_of_ipsec_and_of_nobody_else() {
        let mut packet = Vec::new();
        let builder = ipv4([10, 20, 0, 2], [10, 20, 0, 1], 64);
        let esp = IpNumber::ENCAPSULATING_SECURITY_PAYLOAD;
        builder.write(&mut packet, esp, &[7; 64]).unwrap();
        assert_eq!(classify(V4, &packet, Tunnel::Ipsec), Class::Tunnel);
        assert_eq!(classify(V4, &packet, TUNNEL), Class::Clear);
        // More fragments follow.
        packet[6] = 0x20;
        assert_eq!(classify(V4, &packet, Tunnel::Ipsec), Class::Clear);
    }

    #[test]
    fn names_pass_beside_a_tunnel_for_tcp_and_no_other() {
        let ask = |to: [u8; 4], port: u16| {
            let mut packet = Vec::new();
            let builder = ipv4([10, 10, 0, 2], to, 64).udp(40_000, port);
            builder.write(&mut packet, b"query").unwrap();
            packet
        };
        let beside = ExpectedPackets {
            tunnel: Tunnel::Tcp(PORT),
            idle: [None; 3],
            names_beside: true,
        };
        let resolver = RESOLVER.octets();
        assert_eq!(classify(V4, &ask(resolver, 53), beside), Class::Name);
        assert_eq!(classify(V4, &ask(resolver, 53), TUNNEL), Class::Clear);
        for (to, port) in [(resolver, 5353), ([10, 30, 0, 2], 53)] {
            assert_eq!(classify(V4, &ask(to, port), beside), Class::Clear);
        }
    }

    #[test]
    fn a_fragment_of_the_tunnel_is_not_the_tunnel() {
        let mut fragment = udp(40_000, PORT);
        // More fragments follow. The checksum is nobody's business here.
        fragment[6] = 0x20;
        assert_eq!(classify(V4, &fragment, TUNNEL), Class::Clear);
        assert!(describe(V4, &fragment).starts_with("fragment of IP protocol 17"));
    }

    #[test]
    fn tcp_is_in_clear_whatever_its_port() {
        let mut packet = Vec::new();
        ipv4([10, 10, 0, 2], [10, 30, 0, 2], 64)
            .tcp(40_000, PORT, 1, 1000)
            .syn()
            .write(&mut packet, &[])
            .unwrap();
        assert_eq!(classify(V4, &packet, TUNNEL), Class::Clear);
        // Unless the tunnel is TCP; then UDP is.
        assert_eq!(classify(V4, &packet, Tunnel::Tcp(PORT)), Class::Tunnel);
        assert_eq!(
            classify(V4, &udp(40_000, PORT), Tunnel::Tcp(PORT)),
            Class::Clear
        );
        let text = describe(V4, &packet);
        assert!(
            text.starts_with("TCP SYN 10.10.0.2:40000 > 10.30.0.2:4433"),
            "{text}"
        );
    }

    #[test]
    fn neighbours_business_is_told_by_kind_and_hop_limit() {
        for (kind, hop_limit, class) in [
            (133, 255, Class::LinkScope),
            (135, 255, Class::LinkScope),
            (143, 1, Class::LinkScope),
            (135, 64, Class::Clear),
            (143, 64, Class::Clear),
            (128, 255, Class::Clear),
        ] {
            assert_eq!(
                classify(V6, &icmp6(kind, hop_limit), TUNNEL),
                class,
                "{kind} {hop_limit}"
            );
        }
        let igmp = |to| {
            let mut packet = Vec::new();
            ipv4([10, 20, 0, 2], to, 1)
                .write(
                    &mut packet,
                    IpNumber::IGMP,
                    &[0x16, 0, 0, 0, 224, 0, 0, 251],
                )
                .unwrap();
            packet
        };
        assert_eq!(
            classify(V4, &igmp([224, 0, 0, 22]), TUNNEL),
            Class::LinkScope
        );
        assert_eq!(classify(V4, &igmp([239, 1, 1, 1]), TUNNEL), Class::Clear);
        assert_eq!(classify(ARP, &[0; 28], TUNNEL), Class::LinkScope);
    }

    #[test]
    fn an_error_is_judged_by_what_it_quotes() {
        let error = |quoted: &[u8]| {
            let mut packet = Vec::new();
            ipv4([10, 20, 0, 1], [10, 20, 0, 2], 64)
                .icmpv4_raw(3, 3, [0; 4])
                .write(&mut packet, quoted)
                .unwrap();
            packet
        };
        let about = error(&udp(40_000, PORT));
        assert_eq!(classify(V4, &about, TUNNEL), Class::TunnelError);
        // Quotes are cut short.
        let about = error(&udp(40_000, PORT)[..28]);
        assert_eq!(classify(V4, &about, TUNNEL), Class::TunnelError);
        let other = error(&udp(40_000, 53));
        assert_eq!(classify(V4, &other, TUNNEL), Class::Clear);
        let idle = ExpectedPackets {
            idle: [Some(Tunnel::Udp(7)), None, Some(Tunnel::Udp(53))],
            ..TUNNEL.into()
        };
        assert_eq!(classify(V4, &other, idle), Class::TunnelError);
    }

    #[test]
    fn what_is_no_packet_is_in_clear() {
        for bytes in [&[][..], &[0x45], &[0xff; 60]] {
            assert_eq!(classify(V4, bytes, TUNNEL), Class::Clear);
            assert_eq!(classify(V6, bytes, TUNNEL), Class::Clear);
            assert!(describe(V4, bytes).contains("0x0800"));
        }
        assert_eq!(classify(0x88cc, &[0; 40], TUNNEL), Class::Clear);
    }
}
