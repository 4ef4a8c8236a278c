//! Packets of every class, and some that only look like one.

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
    let word = |kind: u8, code: u8, quoted: &[u8]| {
        let mut packet = Vec::new();
        ipv4([10, 20, 0, 1], [10, 20, 0, 2], 64)
            .icmpv4_raw(kind, code, [0; 4])
            .write(&mut packet, quoted)
            .unwrap();
        packet
    };
    let error = |quoted: &[u8]| word(3, 3, quoted);
    // A redirect for a host (RFC 792).
    let about = word(5, 1, &udp(40_000, PORT));
    assert_eq!(classify(V4, &about, TUNNEL), Class::TunnelError);
    let other = word(5, 1, &udp(40_000, 53));
    assert_eq!(classify(V4, &other, TUNNEL), Class::Clear);
    let asked = word(8, 0, &udp(40_000, PORT));
    assert_eq!(classify(V4, &asked, TUNNEL), Class::Clear);
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
    // The resolver's answer came when nobody waited for it any more.
    let mut answer = Vec::new();
    let builder = ipv4(RESOLVER.octets(), [10, 10, 0, 2], 63).udp(53, 40_000);
    builder.write(&mut answer, b"answer").unwrap();
    let beside = ExpectedPackets {
        names_beside: true,
        ..TUNNEL.into()
    };
    assert_eq!(classify(V4, &error(&answer), beside), Class::Name);
    assert_eq!(classify(V4, &error(&answer), TUNNEL), Class::Clear);
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
