//! Packets through queue, packer and joiner, over a path that loses and reorders.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use bentpipe_units::{ByteCount, Seed};
use bytes::Bytes;

use super::*;

const MS: Duration = Duration::from_millis(1);

#[expect(clippy::disallowed_methods, reason = "an arbitrary origin")]
fn origin() -> Instant {
    Instant::now()
}

/// A UDP packet of `size` bytes from port `flow`, with this traffic class; its payload says `number`.
fn udp(flow: u16, class: u8, size: usize, number: u32) -> Bytes {
    let mut packet = vec![0; size];
    packet[..2].copy_from_slice(&[0x45, class]);
    packet[2..4].copy_from_slice(&(size as u16).to_be_bytes());
    packet[8..10].copy_from_slice(&[64, 17]);
    packet[12..20].copy_from_slice(&[10, 0, 0, 1, 192, 0, 2, 1]);
    packet[20..22].copy_from_slice(&flow.to_be_bytes());
    packet[28..32].copy_from_slice(&number.to_be_bytes());
    packet.into()
}

fn number(packet: &[u8]) -> u32 {
    u32::from_be_bytes(packet[28..32].try_into().expect("four bytes"))
}

fn queue(limit: u64) -> Queue {
    Queue::new(QueueConfig {
        limit: ByteCount::new(limit),
        age: 500 * MS,
        seed: Seed::new(1),
    })
}

fn push(queue: &mut Queue, now: Instant, packet: Bytes) {
    let header = Header::parse(&packet).expect("a packet");
    queue.push(now, &header, packet);
}

/// Frames of `max` bytes with packets of these sizes.
fn frames(max: usize, sizes: &[usize]) -> (Vec<Bytes>, Vec<Bytes>) {
    let packets: Vec<_> = sizes
        .iter()
        .zip(0..)
        .map(|(size, number)| udp(1, 0, *size, number))
        .collect();
    let mut packer = Packer::default();
    let mut left = packets.iter().cloned();
    let frames = std::iter::from_fn(|| packer.frame(max, || left.next())).collect();
    (packets, frames)
}

fn join<'a>(frames: impl IntoIterator<Item = &'a Bytes>) -> (Vec<Bytes>, u64) {
    let mut joiner = Joiner::default();
    let mut packets = Vec::new();
    for frame in frames {
        let taken = joiner.on_frame(frame, false, |packet| packets.push(packet));
        taken.expect("a frame");
    }
    (packets, joiner.discarded())
}

/// 100 packets of mixed sizes.
fn mixed() -> Vec<usize> {
    (0..100)
        .map(|i| [1500, 40, 1420, 200, 700][i % 5])
        .collect()
}

#[test]
fn packets_fill_frames_and_come_out_whole() {
    for max in [256, 1162, 1434, 2000] {
        let (packets, frames) = frames(max, &mixed());
        assert!(join(&frames) == (packets.clone(), 0), "{max}");
        let bytes: usize = packets.iter().map(|packet| packet.len() + PIECE).sum();
        let (last, full) = frames.split_last().expect("frames");
        assert!(last.len() <= max && full.iter().all(|frame| frame.len() <= max));
        // A split costs two bytes more, a small packet that is not split at most its own length.
        let least = bytes.div_ceil(max - HEAD);
        assert!(
            frames.len() <= least + least / 4 + 1,
            "{max}: {} of {least}",
            frames.len()
        );
    }
}

#[test]
fn splitting_costs_bulk_one_part_in_a_hundred() {
    let (packets, frames) = frames(1434, &[1500; 1000]);
    let payload: usize = packets.iter().map(Bytes::len).sum();
    let frames: usize = frames.iter().map(Bytes::len).sum();
    assert!(frames * 100 <= payload * 101, "{frames} for {payload}");
}

#[test]
fn order_does_not_matter_within_the_window() {
    let (packets, mut frames) = frames(1162, &mixed());
    for chunk in frames.chunks_mut(60) {
        chunk.reverse();
    }
    let (mut joined, discarded) = join(&frames);
    joined.sort_by_key(|packet| number(packet));
    assert_eq!((joined, discarded), (packets, 0));
}

#[test]
fn a_lost_frame_loses_only_what_touches_it() {
    let (packets, frames) = frames(1434, &[1500; 300]);
    for lost in [0, 1, 100, frames.len() - 1] {
        let rest = frames
            .iter()
            .enumerate()
            .filter(|(index, _)| *index != lost);
        let (joined, _) = join(rest.map(|(_, frame)| frame));
        let missing = packets.len() - joined.len();
        assert!((1..=3).contains(&missing), "{lost}: {missing}");
        assert!(joined.iter().all(|packet| packets.contains(packet)));
    }
}

#[test]
fn numbers_wrap_and_silence_does_not_confuse() {
    let mut packer = Packer::default();
    let mut joiner = Joiner::default();
    let mut count = 0;
    for round in 0..80_000_u32 {
        let mut next = Some(udp(1, 0, 1500, round));
        while let Some(frame) = packer.frame(1162, || next.take()) {
            // Most of the second hundred thousand frames are lost.
            if !(100_000..150_000).contains(&(2 * round)) {
                joiner
                    .on_frame(&frame, false, |_| count += 1)
                    .expect("a frame");
            }
        }
    }
    assert_eq!(count, 80_000 - 25_000);
}

#[test]
fn what_comes_again_is_dropped() {
    let mut packer = Packer::default();
    let mut joiner = Joiner::default();
    let (mut sent, mut came) = (0, 0);
    let mut copies = VecDeque::new();
    // More than there are numbers; every third frame is lost, and copies come much later.
    for number in 0..70_000_u32 {
        let mut next = (number % 5 != 4).then(|| udp(1, 46 << 2, 200, number));
        let Some(frame) = packer.frame(1200, || next.take()) else {
            continue;
        };
        sent += 1;
        let mut deliver = |_| came += 1;
        if sent % 3 > 0 {
            joiner.on_frame(&frame, false, &mut deliver).expect("whole");
        }
        copies.push_back(frame);
        if copies.len() > 1000
            && let Some(copy) = copies.pop_front()
        {
            joiner.on_frame(&copy, false, &mut deliver).expect("whole");
        }
    }
    for copy in copies {
        joiner.on_frame(&copy, false, |_| came += 1).expect("whole");
    }
    assert_eq!(came, sent);
    assert_eq!(joiner.copies(), sent - sent / 3);
}

#[test]
fn small_packets_are_not_split() {
    let (_, frames) = frames(600, &[500, 200, 200]);
    assert_eq!(frames[0].len(), HEAD + PIECE + 500);
    let (packets, discarded) = join(&frames[1..]);
    assert_eq!((packets.len(), discarded), (2, 0));
}

#[test]
fn frames_of_another_form_are_refused() {
    let frame = |body: &[u8]| Bytes::from([&[2, 0, 0, 1], body].concat());
    let refused = [
        &[][..],
        &[0x00],
        &[0x00, 0x00],
        &[0x00, 0x02, 1],
        &[0x00, 0x01, 1, 0xff],
        // First, then more; last after another; middle beside another.
        &[0x40, 1, 1, 0x00, 1, 1],
        &[0x00, 1, 1, 0xc0, 1, 1],
        &[0x80, 1, 1, 0x00, 1, 1],
        &[0xc0, 1, 1, 0x80, 1, 1],
    ];
    for body in refused {
        let mut joiner = Joiner::default();
        let taken = joiner.on_frame(&frame(body), false, |_| panic!("delivered"));
        assert_eq!(taken, Err(Malformed), "{body:?}");
    }
    let other_context = Bytes::from_static(&[2, 1, 0, 1, 0, 1, 1]);
    assert!(
        Joiner::default()
            .on_frame(&other_context, false, |_| ())
            .is_err()
    );
}

#[test]
fn a_packet_longer_than_the_device_is_dropped() {
    let piece = |kind: FrameKind| [&kind.head(1000)[..], &[7; 1000]].concat();
    let frame = |n: u8, piece: Vec<u8>| Bytes::from([vec![2, 0, 0, n], piece].concat());
    let frames = [
        frame(1, piece(FrameKind::First)),
        frame(2, piece(FrameKind::Last)),
    ];
    assert_eq!(join(&frames), (Vec::new(), 1));
}

#[test]
fn marks_cross_both_ways() {
    for (class, expected) in [(0b01, 0b11), (0b10, 0b11), (0b11, 0b11), (0b00, 0b00)] {
        let mut v4 = udp(1, 0xb8 | class, 100, 0).to_vec();
        let before = checked(&v4[..20]);
        v4[10..12].copy_from_slice(&before.to_be_bytes());
        assert_eq!(set_congestion_experienced(&mut v4), expected != 0);
        assert_eq!(v4[1], 0xb8 | expected);
        assert_eq!(checked(&v4[..20]), 0, "the checksum of {class:b}");
        let mut v6 = vec![0_u8; 60];
        (v6[0], v6[1]) = (0x6b, 0x80 | class << 4);
        assert_eq!(set_congestion_experienced(&mut v6), expected != 0);
        assert_eq!(v6[1] >> 4 & 0b11, expected);
    }
    let mut frame = Packer::default();
    let mut next = Some(udp(1, 0b10, 100, 0));
    let frame = frame.frame(1200, || next.take()).expect("a frame");
    let marked = |mark| {
        let mut class = None;
        let taken = Joiner::default().on_frame(&frame, mark, |packet| class = Some(packet[1]));
        taken.expect("a frame");
        class
    };
    assert_eq!((marked(true), marked(false)), (Some(0b11), Some(0b10)));
}

/// The Internet checksum.
fn checked(bytes: &[u8]) -> u16 {
    let words = bytes
        .chunks(2)
        .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
    let sum: u32 = words.sum();
    !((sum & 0xffff) + (sum >> 16)) as u16
}

#[test]
fn voice_goes_first_but_not_alone() {
    let (mut queue, now) = (queue(10_000_000), origin());
    for number in 0..400 {
        push(&mut queue, now, udp(1, 0, 1000, number));
        push(&mut queue, now, udp(2, 0xb8, 1000, number));
        push(&mut queue, now, udp(3, 0x20, 1000, number));
    }
    let leaves: Vec<_> = (0..400)
        .filter_map(|_| queue.pop(now))
        .map(|packet| packet[21])
        .collect();
    assert!(leaves[..64].iter().all(|flow| *flow == 2), "{leaves:?}");
    let share = |flow| leaves[64..].iter().filter(|of| **of == flow).count();
    let (bulk, voice, low) = (share(1), share(2), share(3));
    assert!(
        (140..200).contains(&voice) && bulk > 130 && (5..30).contains(&low),
        "{bulk} {voice} {low}"
    );
}

#[test]
fn flows_share_and_a_new_one_goes_first() {
    let (mut queue, now) = (queue(10_000_000), origin());
    for number in 0..300 {
        push(&mut queue, now, udp(1, 0, 1500, number));
        push(&mut queue, now, udp(2, 0, 500, number));
    }
    let mut sent = [0; 4];
    for turn in 0..200 {
        if turn == 100 {
            push(&mut queue, now, udp(3, 0, 100, 0));
        }
        let packet = queue.pop(now).expect("packets wait");
        if turn == 100 {
            assert_eq!(packet[21], 3);
        }
        sent[usize::from(packet[21])] += packet.len();
    }
    let ratio = sent[1] as f64 / sent[2] as f64;
    assert!((0.9..1.1).contains(&ratio), "{sent:?}");
}

#[test]
fn what_is_old_is_not_sent() {
    let (mut queue, now) = (queue(10_000_000), origin());
    for number in 0..10 {
        push(&mut queue, now + number * 100 * MS, udp(1, 0, 1000, number));
    }
    let packet = queue.pop(now + 1000 * MS).expect("a young one");
    assert_eq!((number(&packet), queue.dropped().age), (5, 5));
    assert!(queue.pop(now + 9000 * MS).is_none() && queue.is_empty());
}

#[test]
fn the_longest_flow_makes_room() {
    // A hundred packets with what each of them costs beside its bytes.
    let (mut queue, now) = (queue(100 * 1096), origin());
    push(&mut queue, now, udp(2, 0, 1000, 0));
    for number in 0..1000 {
        push(&mut queue, now, udp(1, 0, 1000, number));
        assert!(queue.memory() <= 100 * 1096);
    }
    let flows: Vec<_> = std::iter::from_fn(|| queue.pop(now))
        .map(|packet| packet[21])
        .collect();
    assert!(flows.contains(&2) && flows.len() == 100);
    assert_eq!(queue.dropped().overflow, 901);
}

#[test]
fn a_flow_that_is_too_fast_is_told() {
    for (class, dropped) in [(0, true), (0b10, false)] {
        let (mut queue, start) = (queue(10_000_000), origin());
        queue.set_rtt(500 * MS);
        let mut marks = 0;
        for turn in 0..4000 {
            let now = start + turn * MS;
            push(&mut queue, now, udp(1, class, 1000, turn));
            if turn % 20 != 0
                && let Some(packet) = queue.pop(now)
            {
                marks += u64::from(packet[1] & 0b11 == 0b11);
            }
        }
        assert_eq!(queue.dropped().codel > 0, dropped);
        assert_eq!((queue.marked() > 0, marks), (!dropped, queue.marked()));
    }
}

#[test]
fn the_prohibited_are_told_once_and_never_about_errors() {
    let from = Prohibited {
        ipv4: Some([100, 96, 0, 1].into()),
        ipv6: Some([0xfd62, 0, 0, 0, 0, 0, 0, 1].into()),
    };
    let packet = udp(7, 0, 1400, 0);
    let header = Header::parse(&packet).expect("a packet");
    let answer = prohibited(&packet, &header, from).expect("an answer");
    let head = Header::parse(&answer).expect("a packet");
    assert_eq!(head.destination, header.source);
    assert_eq!(answer[20..22], [3, 13]);
    assert_eq!((checked(&answer[..20]), checked(&answer[20..])), (0, 0));
    assert_eq!(answer[28..], packet[..answer.len() - 28]);
    assert!(prohibited(&answer, &head, from).is_none());

    let mut v6 = vec![0_u8; 100];
    (v6[0], v6[5], v6[6]) = (0x60, 60, 17);
    v6[8..10].copy_from_slice(&[0xfd, 1]);
    v6[24..26].copy_from_slice(&[0x20, 1]);
    let header = Header::parse(&v6).expect("a packet");
    let answer = prohibited(&v6, &header, from).expect("an answer");
    let pseudo = [
        &answer[8..40],
        &[0, 0, answer[4], answer[5], 0, 0, 0, 58],
        &answer[40..],
    ]
    .concat();
    assert_eq!(checked(&pseudo), 0);
    assert_eq!(answer[40..42], [1, 1]);
}

#[test]
fn headers_are_read_or_refused() {
    let packet = udp(0x1234, 0xb9, 100, 0);
    let header = Header::parse(&packet).expect("a packet");
    assert_eq!(header.source, IpAddr::from([10, 0, 0, 1]));
    assert_eq!((header.protocol, header.ports), (17, Some((0x1234, 0))));
    assert_eq!(header.class(), Class::Voice);
    let changed = |at: usize, byte: u8| {
        let mut packet = packet.to_vec();
        packet[at] = byte;
        Header::parse(&packet)
    };
    // Another version, a short header, another length, a source route.
    assert!(
        [(0, 0x55), (0, 0x44), (3, 99)]
            .into_iter()
            .all(|(at, byte)| changed(at, byte).is_none())
    );
    assert_eq!(changed(6, 0x20).and_then(|header| header.ports), None);
    let mut routed = udp(1, 0, 100, 0).to_vec();
    (routed[0], routed[20], routed[21]) = (0x46, 131, 4);
    assert!(Header::parse(&routed).is_none());

    let mut v6 = vec![0_u8; 80];
    (v6[0], v6[5], v6[6], v6[40], v6[49]) = (0x60, 40, 0, 17, 53);
    let header = Header::parse(&v6).expect("a packet with hop-by-hop options");
    assert_eq!(
        (header.protocol, header.ports, header.offset),
        (17, Some((53, 0)), 48)
    );
    v6[6] = 43;
    assert!(Header::parse(&v6).is_none(), "a routing header");
}

/// Checksums computed by another program: both families and transports, an odd length, and the sum that would say that there is none.
#[test]
fn checksums_of_whole_packets_are_written() {
    let v4 = |protocol: u8, transport: &[u8]| {
        let length = 20 + transport.len() as u8;
        let head = [0x45, 0, 0, length, 0, 0, 0, 0, 64, protocol, 0xff, 0xff];
        [&head, &[10, 0, 0, 1, 10, 0, 0, 2][..], transport].concat()
    };
    let mut packet = v4(17, &[0, 1, 0, 2, 0, 9, 0xee, 0xee, 0x80]);
    assert!(write_checksums(&mut packet));
    assert_eq!(
        (packet[10..12].to_vec(), packet[26..28].to_vec()),
        (vec![0x66, 0xce], vec![0x6b, 0xd6])
    );
    let mut zero = v4(17, &[0, 1, 0, 2, 0, 10, 0, 0, 0, 0]);
    assert!(write_checksums(&mut zero));
    let sum = u16::from_be_bytes([zero[26], zero[27]]);
    zero[28..30].copy_from_slice(&sum.to_be_bytes());
    assert!(write_checksums(&mut zero));
    assert_eq!(zero[26..28], [0xff, 0xff]);
    let tcp = [&[0; 12][..], &[0x50, 0, 0, 0, 0xee, 0xee, 0, 0]].concat();
    let head = [&[0x60, 0, 0, 0, 0, 20, 6, 64][..], &[0; 32]].concat();
    let mut v6 = [head, tcp].concat();
    assert!(write_checksums(&mut v6));
    assert_eq!(v6[56..58], (!0x501a_u16).to_be_bytes());
    for other in [
        v4(1, &[8, 0, 0, 0]),
        v4(6, &[0; 12]),
        v4(50, &[0; 8]),
        vec![],
    ] {
        let mut packet = other.clone();
        assert!(!write_checksums(&mut packet));
        assert_eq!(packet, other);
    }
    let mut fragment = v4(17, &[0; 8]);
    fragment[6] = 0x20;
    assert!(!write_checksums(&mut fragment));
}
