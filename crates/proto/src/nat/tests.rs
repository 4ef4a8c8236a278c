//! The translator alone: what leaves, what comes back, who is kept out, and what is forgotten when.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use super::*;
use crate::packets::MTU;
use crate::packets::ip::{ICMP, ICMPV6};

const CLIENT: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(100, 96, 0, 2)),
    IpAddr::V6(Ipv6Addr::new(0xfd62, 0, 0, 0, 0, 0, 0, 2)),
];
const FAR: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(198, 51, 100, 7)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7)),
];
const OTHER: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(198, 51, 100, 8)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 8)),
];

#[expect(
    clippy::disallowed_methods,
    reason = "an arbitrary origin; all else is virtual"
)]
fn origin() -> Instant {
    Instant::now()
}

fn nat() -> Nat {
    Nat::new(Prohibited {
        ipv4: Some([100, 96, 0, 1].into()),
        ipv6: Some(Ipv6Addr::new(0xfd62, 0, 0, 0, 0, 0, 0, 1)),
    })
}

fn head(from: IpAddr, to: IpAddr, protocol: u8) -> Head {
    Head {
        pair: Pair::new(from, to).expect("one family"),
        protocol,
        hops: 64,
        traffic_class: 0xb9,
        number: 0,
    }
}

fn udp(from: (IpAddr, u16), to: (IpAddr, u16), content: &[u8]) -> Bytes {
    let length = u16::try_from(8 + content.len()).expect("short");
    let words = [from.1, to.1, length, 0].map(u16::to_be_bytes);
    build::packet(
        &head(from.0, to.0, UDP),
        &[words.as_flattened(), content],
        6,
    )
    .expect("a packet")
}

fn ping(from: IpAddr, to: IpAddr, identifier: u16, content: &[u8]) -> Bytes {
    let (protocol, kind) = match from {
        IpAddr::V4(_) => (ICMP, 8),
        IpAddr::V6(_) => (ICMPV6, 128),
    };
    let [high, low] = identifier.to_be_bytes();
    let front = [kind, 0, 0, 0, high, low, 0, 1];
    build::packet(&head(from, to, protocol), &[&front, content], 2).expect("a packet")
}

fn sent(outcome: Outcome) -> Datagram {
    match outcome {
        Outcome::Send(datagram) => datagram,
        other => panic!("{other:?}"),
    }
}

fn told(outcome: Outcome) -> Bytes {
    match outcome {
        Outcome::Answer(error) => error,
        other => panic!("{other:?}"),
    }
}

/// Packet that the client gets when `from` says `content` to a mapping.
fn got(
    nat: &mut Nat,
    now: Instant,
    at: MappingId,
    from: (IpAddr, u16),
    content: &[u8],
) -> Vec<Bytes> {
    let mut got = Vec::new();
    nat.on_datagram(now, at, from.into(), content, (50, 0xb8), |packet| {
        got.push(packet);
    });
    got
}

/// A packet is whole, its checksums are right: where its transport begins.
fn checked(packet: &[u8]) -> Header {
    let header = Header::parse(packet).expect("a packet");
    assert!(
        build::is_intact(packet, &header, packet.len(), false),
        "{packet:02x?}"
    );
    header
}

#[test]
fn a_question_and_its_answer_cross() {
    for family in [0, 1] {
        let (now, mut nat) = (origin(), nat());
        let packet = udp((CLIENT[family], 5000), (FAR[family], 53), b"who?");
        let left = sent(nat.on_packet(now, &packet, true));
        assert_eq!(left.to, (FAR[family], 53).into());
        assert_eq!((&left.content[..], left.hops), (&b"who?"[..], 63));
        assert_eq!((left.traffic_class, left.whole), (0xb8, family == 1));
        let came = got(
            &mut nat,
            now,
            left.mapping,
            (FAR[family], 53),
            b"me, of course",
        );
        let header = checked(&came[0]);
        assert_eq!(
            (header.source, header.destination),
            (FAR[family], CLIENT[family])
        );
        assert_eq!(
            (header.ports, header.traffic_class),
            (Some((53, 5000)), 0xb8)
        );
        assert_eq!(header.hops(&came[0]), 49);
        assert_eq!(&came[0][header.offset + 8..], b"me, of course");
    }
}

#[test]
fn one_mapping_serves_all_destinations_and_admits_only_them() {
    let (now, mut nat) = (origin(), nat());
    let to = |far, port| udp((CLIENT[0], 5000), (far, port), b"x");
    let first = sent(nat.on_packet(now, &to(FAR[0], 1), true)).mapping;
    assert!(got(&mut nat, now, first, (OTHER[0], 1), b"unasked").is_empty());
    let second = sent(nat.on_packet(now, &to(OTHER[0], 2), true)).mapping;
    assert_eq!(first, second);
    // From another port too: addresses are filtered, ports are not.
    assert_eq!(got(&mut nat, now, first, (OTHER[0], 9), b"asked").len(), 1);
    let another = udp((CLIENT[0], 5001), (FAR[0], 1), b"x");
    assert_ne!(first, sent(nat.on_packet(now, &another, true)).mapping);
    assert_eq!(nat.len(), 2);
}

#[test]
fn only_the_last_peers_are_remembered() {
    let (now, mut nat) = (origin(), nat());
    let peer = |n: usize| IpAddr::from([198, 51, 100, u8::try_from(n).expect("few")]);
    let mut at = None;
    for n in 0..=PEERS {
        at = Some(
            sent(nat.on_packet(now, &udp((CLIENT[0], 5000), (peer(n), 9), b"x"), true)).mapping,
        );
    }
    let at = at.expect("a mapping");
    assert!(got(&mut nat, now, at, (peer(0), 9), b"x").is_empty());
    assert_eq!(got(&mut nat, now, at, (peer(1), 9), b"x").len(), 1);
}

#[test]
fn pings_keep_their_identifier() {
    for family in [0, 1] {
        let (now, mut nat) = (origin(), nat());
        let packet = ping(CLIENT[family], FAR[family], 0x1234, b"are you there?");
        let left = sent(nat.on_packet(now, &packet, true));
        assert_eq!(left.kind, Kind::Echo);
        // What the kernel makes of it: an identifier of its own.
        let mut reply = left.content.to_vec();
        reply[0] = [0, 129][family];
        reply[4..6].copy_from_slice(&[0xab, 0xcd]);
        let came = got(&mut nat, now, left.mapping, (FAR[family], 0), &reply);
        let header = checked(&came[0]);
        assert_eq!(header.ports, Some((0x1234, 0x1234)));
        assert_eq!(&came[0][header.offset + 6..], &packet[header.offset + 6..]);
        reply[0] = [13, 135][family];
        assert!(got(&mut nat, now, left.mapping, (FAR[family], 0), &reply).is_empty());
        let refused = told(nat.on_packet(now, &packet, false));
        assert!(checked(&refused).is_icmp_error(&refused));
    }
}

#[test]
fn other_protocols_are_refused_and_wrong_sums_dropped() {
    let (now, mut nat) = (origin(), nat());
    for family in [0, 1] {
        let other = build::packet(&head(CLIENT[family], FAR[family], 132), &[&[0; 20]], 8);
        let error = told(nat.on_packet(now, &other.expect("a packet"), true));
        let header = checked(&error);
        assert_eq!(&error[header.offset..][..2], [[3, 13], [1, 1]][family]);
        let packet = udp((CLIENT[family], 5000), (FAR[family], 53), b"who?");
        for place in 0..packet.len() {
            let mut wrong = packet.to_vec();
            wrong[place] ^= 0x10;
            let outcome = nat.on_packet(now, &wrong.into(), true);
            // Of IPv6's header the class, the label and the hop limit are in no sum.
            let unsummed = family == 1 && matches!(place, 0..=3 | 7);
            let dropped = matches!(outcome, Outcome::Drop(_) | Outcome::Answer(_));
            assert!(dropped || unsummed, "byte {place}: {outcome:?}");
        }
    }
    let mut none = udp((CLIENT[0], 5000), (FAR[0], 53), b"who?").to_vec();
    none[26..28].fill(0);
    sent(nat.on_packet(now, &none.into(), true));
}

#[test]
fn hops_end_here() {
    for family in [0, 1] {
        let (now, mut nat) = (origin(), nat());
        let last = Head {
            hops: 1,
            ..head(CLIENT[family], FAR[family], UDP)
        };
        let packet = build::packet(&last, &[&[19, 136, 0, 53, 0, 8, 0, 0]], 6).expect("a packet");
        let error = told(nat.on_packet(now, &packet, true));
        let header = checked(&error);
        assert_eq!(&error[header.offset..][..2], [[11, 0], [3, 0]][family]);
        assert!(nat.is_empty());
    }
}

#[test]
fn failures_are_told_about_the_packet_as_it_was() {
    for family in [0, 1] {
        let (now, mut nat) = (origin(), nat());
        let packet = udp((CLIENT[family], 5000), (FAR[family], 9), b"hello?");
        let left = sent(nat.on_packet(now, &packet, true));
        let mut failure = Failure {
            from: Some(OTHER[family]),
            said: [(3, 3), (1, 4)][family],
            mtu: 0,
            to: left.to,
            content: &left.content,
        };
        let error = nat.on_failure(left.mapping, &failure).expect("an error");
        let header = checked(&error);
        assert_eq!(
            (header.source, header.destination),
            (OTHER[family], CLIENT[family])
        );
        let quoted = &error[header.offset + 8..];
        let inside = checked(quoted);
        assert_eq!(
            (inside.source, inside.destination),
            (CLIENT[family], FAR[family])
        );
        assert_eq!(inside.ports, Some((5000, 9)));
        // This machine's own: too large for the link.
        failure.from = None;
        failure.said = [(3, 4), (2, 0)][family];
        failure.mtu = 1400;
        let error = nat.on_failure(left.mapping, &failure).expect("an error");
        let at = checked(&error).offset;
        assert_eq!(error[at + 4..at + 8], 1400_u32.to_be_bytes());
        failure.to = (OTHER[family], 9).into();
        assert_eq!(nat.on_failure(left.mapping, &failure), None);
        let packet = ping(CLIENT[family], FAR[family], 77, b"hello?");
        let left = sent(nat.on_packet(now, &packet, true));
        failure.to = left.to;
        failure.content = &left.content;
        let error = nat.on_failure(left.mapping, &failure).expect("an error");
        let inside = checked(&error[checked(&error).offset + 8..]);
        assert_eq!(inside.ports, Some((77, 77)));
    }
}

#[test]
fn what_is_longer_than_the_device_comes_in_parts() {
    for family in [0, 1] {
        let (now, mut nat) = (origin(), nat());
        let packet = udp((CLIENT[family], 5000), (FAR[family], 9), b"all of it");
        let at = sent(nat.on_packet(now, &packet, true)).mapping;
        let long: Vec<u8> = (0..4000_u32).map(|n| n as u8).collect();
        let parts = got(&mut nat, now, at, (FAR[family], 9), &long);
        assert_eq!(parts.len(), 3);
        let mut whole = Vec::new();
        for (index, part) in parts.iter().enumerate() {
            let header = Header::parse(part).expect("a packet");
            assert!(part.len() <= MTU && header.fragment);
            assert_eq!(header.later_fragment, index > 0);
            let place = match family {
                0 => usize::from(u16::from_be_bytes([part[6], part[7]]) & 0x1fff) * 8,
                _ => usize::from(u16::from_be_bytes([part[42], part[43]]) & !7),
            };
            assert_eq!(place, whole.len());
            whole.extend_from_slice(&part[header.offset..]);
        }
        assert_eq!(whole[8..], long);
        let pseudo = Pair::new(FAR[family], CLIENT[family]).expect("one family");
        assert_eq!(build::checksum(pseudo.sum(UDP, whole.len()), &whole), 0);
        // A part of what the client sends cannot be carried.
        assert_eq!(
            nat.on_packet(now, &parts[0], true),
            Outcome::Drop(Dropped::Kind)
        );
    }
}

#[test]
fn mappings_last_as_long_as_they_must() {
    let second = Duration::from_secs(1);
    let lives: [(u16, bool, Duration); 3] = [
        (53, true, Duration::from_secs(30)),
        (443, false, UNANSWERED_LIFE),
        (443, true, UDP_LIFE),
    ];
    for (port, answered, life) in lives {
        let (mut now, mut nat) = (origin(), nat());
        let packet = udp((CLIENT[0], 5000), (FAR[0], port), b"x");
        let at = sent(nat.on_packet(now, &packet, true)).mapping;
        if answered {
            now += second;
            assert_eq!(got(&mut nat, now, at, (FAR[0], port), b"y").len(), 1);
        }
        nat.handle_timeout(now + life - second);
        assert_eq!(nat.len(), 1, "{port} {answered}");
        nat.handle_timeout(now + life);
        assert_eq!(
            (nat.len(), nat.poll_closed()),
            (0, Some(at)),
            "{port} {answered}"
        );
        assert!(got(&mut nat, now + life, at, (FAR[0], port), b"late").is_empty());
    }
    let (now, mut nat) = (origin(), nat());
    sent(nat.on_packet(now, &ping(CLIENT[0], FAR[0], 1, b""), true));
    nat.handle_timeout(now + ECHO_LIFE - second);
    assert_eq!(nat.len(), 1);
    nat.handle_timeout(now + ECHO_LIFE);
    assert!(nat.is_empty());
}

#[test]
fn the_table_is_bounded_and_the_unanswered_give_way() {
    let (now, mut nat) = (origin(), nat());
    let open = |nat: &mut Nat, port: usize, now| {
        let port = u16::try_from(port).expect("a port");
        nat.on_packet(now, &udp((CLIENT[0], port), (FAR[0], 9), b"x"), true)
    };
    let answered = sent(open(&mut nat, 1, now)).mapping;
    assert_eq!(got(&mut nat, now, answered, (FAR[0], 9), b"y").len(), 1);
    let oldest = sent(open(&mut nat, 2, now)).mapping;
    for port in 3..=MAPPINGS {
        sent(open(&mut nat, port, now));
    }
    assert_eq!((nat.len(), nat.poll_closed()), (MAPPINGS, None));
    sent(open(&mut nat, MAPPINGS + 1, now));
    assert_eq!((nat.len(), nat.poll_closed()), (MAPPINGS, Some(oldest)));
    // Once everybody has been answered nobody gives way.
    let all: Vec<_> = nat.mappings.keys().copied().collect();
    for id in all {
        got(&mut nat, now, id, (FAR[0], 9), b"y");
    }
    assert_eq!(open(&mut nat, 2, now), Outcome::Drop(Dropped::Full));
    assert_eq!((nat.len(), nat.poll_closed()), (MAPPINGS, None));
    // And time makes room again.
    sent(open(&mut nat, 2, now + UDP_LIFE));
    assert_eq!(nat.len(), 1);
}

#[test]
fn rights_that_are_withdrawn_close_what_has_no_other_use() {
    let (mut nat, now) = (nat(), origin());
    let mut open = |port, to: &[IpAddr]| {
        let mut last = None;
        for to in to {
            let packet = udp((CLIENT[0], port), (*to, 9), b"hello");
            let Outcome::Send(datagram) = nat.on_packet(now, &packet, true) else {
                panic!("not sent");
            };
            last = Some(datagram.mapping);
        }
        last.expect("a mapping")
    };
    let (lost, shared) = (open(1, &[FAR[0]]), open(2, &[FAR[0], OTHER[0]]));
    nat.retain(|peer| peer != FAR[0]);
    assert_eq!(nat.poll_closed(), Some(lost));
    assert_eq!(nat.poll_closed(), None);
    let mut heard = |from: IpAddr| {
        let mut packets = 0;
        let from = SocketAddr::new(from, 9);
        nat.on_datagram(now, shared, from, b"back", (64, 0), |_| packets += 1);
        packets
    };
    assert_eq!((heard(FAR[0]), heard(OTHER[0])), (0, 1));
}
