//! What is merged and split again are the same packets; what may not be merged stays alone.

use std::net::IpAddr;

use bytes::Bytes;

use super::*;
use crate::packets::MTU;
use crate::packets::build::{self, Head, Pair, is_intact};
use crate::packets::ip::{FRAGMENT, UDP};

/// One end of a conversation over IPv4 or IPv6.
#[derive(Clone, Copy)]
struct Flow {
    pair: Pair,
    port: u16,
}

fn flow(source: &str, destination: &str, port: u16) -> Flow {
    let [source, destination] =
        [source, destination].map(|text| text.parse::<IpAddr>().expect("an address"));
    let pair = Pair::new(source, destination).expect("one family");
    Flow { pair, port }
}

fn both() -> [Flow; 2] {
    [
        flow("192.0.2.1", "198.51.100.2", 4433),
        flow("2001:db8::1", "2001:db8:1::2", 4433),
    ]
}

/// The packet `number` of a flow, with `size` bytes of content.
fn packet(flow: Flow, number: u32, size: usize) -> Bytes {
    let content: Vec<u8> = (0..size)
        .map(|at| (at as u32 * 7 + number * 13) as u8)
        .collect();
    with_content(flow, number, &content)
}

fn with_content(flow: Flow, number: u32, content: &[u8]) -> Bytes {
    let mut udp = Vec::new();
    for word in [flow.port, 53, short(UDP_HEAD + content.len()), 0] {
        udp.extend_from_slice(&word.to_be_bytes());
    }
    let head = Head {
        pair: flow.pair,
        protocol: UDP,
        hops: 60,
        traffic_class: 0x0a,
        number,
    };
    build::packet(&head, &[&udp, content], UDP_CHECKSUM).expect("short enough")
}

/// A packet with one byte changed; an IPv4 header's checksum follows.
fn changed(packet: &Bytes, at: usize, change: u8) -> Bytes {
    edited(packet, |packet| {
        packet[at] ^= change;
        if packet[0] >> 4 == 4 {
            put(packet, 10, 0);
            let sum = checksum(0, &packet[..20]);
            put(packet, 10, sum);
        }
    })
}

fn edited(packet: &Bytes, edit: impl FnOnce(&mut [u8])) -> Bytes {
    let mut packet = packet.to_vec();
    edit(&mut packet);
    packet.into()
}

/// A prefix and a packet.
fn prefixed(prefix: Prefix, packet: &[u8]) -> Vec<u8> {
    [&prefix.bytes(), packet].concat()
}

/// The bytes that are written for these packets, a piece each.
fn written(merges: bool, packets: &[Bytes]) -> Vec<Vec<u8>> {
    let mut merger = Merger::new(merges);
    packets
        .iter()
        .cloned()
        .for_each(|packet| merger.push(packet));
    let whole = |piece: &Piece| {
        let mut bytes = piece.head();
        piece
            .contents()
            .for_each(|part| bytes.extend_from_slice(part));
        bytes
    };
    merger.pieces().iter().map(whole).collect()
}

fn read(bytes: &[u8]) -> Vec<Bytes> {
    let mut packets = Vec::new();
    split(bytes, |packet| packets.push(packet)).expect("a good prefix");
    packets
}

/// The number of pieces that become of packets, all of which come out again as they are.
fn pieces(packets: &[Bytes]) -> usize {
    let pieces = written(true, packets);
    let mut out: Vec<Bytes> = pieces.iter().flat_map(|piece| read(piece)).collect();
    let mut wanted = packets.to_vec();
    // Between flows there is no order.
    out.sort();
    wanted.sort();
    assert_eq!(out, wanted);
    pieces.len()
}

#[test]
fn a_flow_is_written_in_one_piece_and_read_again_as_it_was() {
    for flow in both() {
        for last in [1, 2, 999, 1252] {
            let mut packets: Vec<_> = (0..9).map(|number| packet(flow, number, 1252)).collect();
            packets.push(packet(flow, 9, last));
            let pieces = written(true, &packets);
            assert_eq!(pieces.len(), 1);
            assert_eq!(read(&pieces[0]), packets, "the last has {last} bytes");
        }
    }
}

/// The kernel checks the header of IPv4 and goes by the lengths of all.
#[test]
fn the_head_of_a_piece_is_that_of_one_large_packet() {
    for flow in both() {
        let packets: Vec<_> = (0..3).map(|number| packet(flow, number, 500)).collect();
        let piece = written(true, &packets).remove(0);
        let header = Header::parse(&piece[PREFIX..]).expect("lengths that are right");
        let heads = header.offset + UDP_HEAD;
        assert_eq!(piece.len(), PREFIX + heads + 1500);
        let prefix = Prefix::read(*piece.first_chunk().expect("a prefix"));
        let wanted = Prefix {
            flags: 1,
            kind: 5,
            heads: short(heads),
            size: 500,
            start: short(header.offset),
            place: 6,
        };
        assert_eq!(prefix, wanted);
        let v4 = header.source.is_ipv4();
        assert!(!v4 || checksum(0, &piece[PREFIX..PREFIX + 20]) == 0);
        // What stands in place of the checksum is the pseudo-header's part of it.
        let sum = checksum(0, &piece[PREFIX + header.offset..]);
        let large = edited(&Bytes::copy_from_slice(&piece[PREFIX..]), |packet| {
            put(packet, header.offset + UDP_CHECKSUM, sum);
        });
        assert!(is_intact(&large, &header, large.len(), false));
    }
}

#[test]
fn a_shorter_packet_is_the_last_of_its_piece_and_a_longer_one_begins_another() {
    for flow in both() {
        let sizes = |sizes: &[usize]| {
            let numbered = (0..).zip(sizes);
            let packets: Vec<_> = numbered.map(|(n, size)| packet(flow, n, *size)).collect();
            pieces(&packets)
        };
        assert_eq!(sizes(&[700, 700, 300]), 1);
        assert_eq!(sizes(&[700, 300, 300, 300]), 2);
        assert_eq!(sizes(&[700, 300, 700]), 2);
        assert_eq!(sizes(&[300, 700, 700]), 2);
        assert_eq!(sizes(&[700, 0, 700]), 3, "without content");
        assert_eq!(sizes(&[1000; 65]), 2, "64 packets at most");
        assert_eq!(sizes(&[1452; 46]), 2, "65,535 bytes at most");
    }
}

#[test]
fn flows_that_take_turns_are_merged_each() {
    let flows = [5000, 5001, 5002].map(|port| Flow { port, ..both()[0] });
    let turns = (0..10).flat_map(|number| flows.map(|flow| packet(flow, number, 800)));
    assert_eq!(pieces(&turns.collect::<Vec<_>>()), 3);
}

#[test]
fn packets_of_one_flow_keep_their_order() {
    for flow in both() {
        let v4 = matches!(flow.pair, Pair::V4(..));
        let mut packets: Vec<_> = (0..6).map(|number| packet(flow, number, 800)).collect();
        // Congestion experienced, on one in the middle.
        packets[2] = changed(&packets[2], 1, if v4 { 1 } else { 0x10 });
        let pieces = written(true, &packets);
        assert_eq!(pieces.len(), 3);
        let out: Vec<_> = pieces.iter().flat_map(|piece| read(piece)).collect();
        assert_eq!(out, packets);
        // Nor is a packet passed that may belong to the flow, as fragments do.
        packets[2] = edited(&packets[2], |packet| {
            packet[6] = if v4 { 0x20 } else { FRAGMENT };
        });
        let pieces = written(true, &packets);
        assert_eq!(pieces.len(), 3);
        assert_eq!(&pieces[1][PREFIX..], &packets[2]);
    }
}

#[test]
fn headers_that_differ_are_not_merged() {
    let [v4, v6] = both().map(|flow| [packet(flow, 0, 800), packet(flow, 1, 800)]);
    // Traffic class; number; hops; addresses; ports.
    for at in [1, 5, 8, 12, 16, 21, 23] {
        let other = changed(&v4[1], at, 4);
        assert_eq!(written(true, &[v4[0].clone(), other]).len(), 2, "{at}");
    }
    // Traffic class, flow label, hops, addresses, ports.
    for at in [1, 3, 7, 8, 24, 41, 43] {
        let other = changed(&v6[1], at, 4);
        assert_eq!(written(true, &[v6[0].clone(), other]).len(), 2, "{at}");
    }
}

/// Who forbids that a packet is cut need not number it (RFC 6864), as Linux does not.
#[test]
fn numbers_of_packets_that_are_not_cut_do_not_matter() {
    let whole = |number| changed(&packet(both()[0], number, 800), 6, 0x40);
    assert_eq!(written(true, &[whole(0), whole(0), whole(7)]).len(), 1);
    let cut = |number| packet(both()[0], number, 800);
    assert_eq!(pieces(&[cut(0xffff), cut(0), cut(1)]), 1, "they go round");
    assert_eq!(pieces(&[cut(0), cut(0)]), 2);
}

/// The kernel would give a damaged packet a checksum that is right.
#[test]
fn what_is_damaged_or_has_no_checksum_stays_as_it_is() {
    for flow in both() {
        let good: Vec<_> = (0..3).map(|number| packet(flow, number, 800)).collect();
        let damage = |packet: &Bytes| changed(packet, packet.len() - 1, 1);
        for at in 0..3 {
            let mut packets = good.clone();
            packets[at] = damage(&packets[at]);
            let pieces = written(true, &packets);
            let alone = |piece: &&Vec<u8>| piece[PREFIX..] == packets[at];
            assert_eq!(pieces.iter().filter(alone).count(), 1, "{at}");
        }
        let mut unchecked = good;
        unchecked[0] = edited(&unchecked[0], |packet| {
            let at = packet.len() - 800 - 2;
            put(packet, at, 0);
        });
        assert_eq!(written(true, &unchecked).len(), 2);
    }
}

#[test]
fn without_the_offload_every_packet_is_alone() {
    let packets: Vec<_> = (0..5)
        .map(|number| packet(both()[0], number, 900))
        .collect();
    let pieces = written(false, &packets);
    for (piece, packet) in pieces.iter().zip(&packets) {
        assert_eq!(piece[..PREFIX], [0; PREFIX]);
        assert_eq!(&piece[PREFIX..], packet);
    }
    assert_eq!(pieces.len(), packets.len());
}

#[test]
fn a_checksum_that_was_left_out_is_completed() {
    for flow in both() {
        let whole = packet(flow, 3, 701);
        let header = Header::parse(&whole).expect("a packet");
        let prefix = Prefix {
            flags: NEEDS_CHECKSUM,
            start: short(header.offset),
            place: short(UDP_CHECKSUM),
            ..Prefix::default()
        };
        let mut left = prefixed(prefix, &whole);
        let sum = !checksum(flow.pair.sum(UDP, whole.len() - header.offset), &[]);
        put(&mut left, PREFIX + header.offset + UDP_CHECKSUM, sum);
        assert_eq!(read(&left), [whole]);
    }
}

/// A checksum of 0 would say that there is none (RFC 768).
#[test]
fn a_checksum_of_zero_is_sent_as_its_complement() {
    for flow in both() {
        let mut content = [0; 700];
        let empty = with_content(flow, 0, &content);
        let at = empty.len() - content.len() - 2;
        let sum = [empty[at], empty[at + 1]];
        content[..2].copy_from_slice(&sum);
        let packets = [with_content(flow, 0, &content), packet(flow, 1, 700)];
        assert_eq!(packets[0][at..at + 2], [0xff, 0xff]);
        assert_eq!(read(&written(true, &packets)[0]), packets);
    }
}

#[test]
fn prefixes_that_describe_nothing_are_refused() {
    let packets: Vec<_> = (0..3)
        .map(|number| packet(both()[0], number, 900))
        .collect();
    let good = written(true, &packets).remove(0);
    let prefix = Prefix::read(*good.first_chunk().expect("a prefix"));
    let refused = |prefix: Prefix, packet: &[u8]| {
        let bytes = prefixed(prefix, packet);
        assert_eq!(split(&bytes, |_| panic!("handed on")), Err(Mismatch));
    };
    let packet = &good[PREFIX..];
    for kind in [1, 3, 4, 0x85, 255] {
        refused(Prefix { kind, ..prefix }, packet);
    }
    for size in [0, 1473, 65_535] {
        refused(Prefix { size, ..prefix }, packet);
    }
    for length in [0, 19, 28, packet.len() - 1] {
        refused(prefix, &packet[..length]);
    }
    let one = Prefix {
        kind: ONE,
        ..prefix
    };
    for (start, place) in [(20, 1479), (1499, 0), (65_535, 65_535)] {
        let beyond = Prefix {
            start,
            place,
            ..one
        };
        refused(beyond, &packet[..MTU]);
    }
    assert_eq!(split(&good[..PREFIX - 1], |_| ()), Err(Mismatch));
    // A fragment, and what is not UDP.
    for (at, change) in [(6, 0x20), (9, 1)] {
        refused(
            prefix,
            &changed(&Bytes::copy_from_slice(packet), at, change),
        );
    }
}

/// The kernel's pieces are as long as they like, and their packets as short.
#[test]
fn a_piece_of_any_size_becomes_packets_that_are_intact_and_fit() {
    for flow in both() {
        for size in [1, 7, 1000, 1452] {
            let content = vec![0xa5; 60_000];
            let large = with_content(flow, 0xfff0, &content);
            let prefix = Prefix {
                flags: NEEDS_CHECKSUM,
                kind: DATAGRAMS,
                size,
                ..Prefix::default()
            };
            let packets = read(&prefixed(prefix, &large));
            assert_eq!(packets.len(), content.len().div_ceil(usize::from(size)));
            for packet in packets {
                let header = Header::parse(&packet).expect("a packet");
                assert!(packet.len() <= MTU && is_intact(&packet, &header, packet.len(), false));
            }
        }
    }
}
