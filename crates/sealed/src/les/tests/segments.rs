//! Inner packets: whatever has a form that is carried comes out as it went in; the rest is named.

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::*;

/// Timestamps, between an MSS of 9000, SACK permitted and a window scale.
const SYN_OPTIONS: [u8; 20] = [
    2, 4, 35, 40, 4, 2, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8, 1, 3, 3, 7,
];

#[test]
fn every_segment_arrives_as_it_left() {
    let mut random = Pcg64Mcg::seed_from_u64(1);
    let roots = roots(0);
    let (mut sender, mut receiver) = ends(&roots);
    let mut flows = Flows::default();
    for _ in 0..2000 {
        let v6 = random.next_u32() % 2 == 0;
        let mut fill = |length: usize| {
            let mut bytes = vec![0; length];
            random.fill_bytes(&mut bytes);
            bytes
        };
        let options = fill(40)[..usize::from(fill(1)[0] % 11) * 4].to_vec();
        let most = MTU - if v6 { 60 } else { 40 } - options.len();
        let length = [0, 1, most, usize::from(fill(1)[0])][usize::from(fill(1)[0] % 4)];
        let flags = fill(1)[0] & !SYN;
        let inner = Segment::new(v6, flags, &fill(length))
            .options(&options)
            .bytes();
        let sealed = seal(&mut sender, &inner);
        let bare = flags & (FIN | RST | URG) == 0 && length == 0;
        let own = if bare { 28 } else { OVERHEAD };
        assert_eq!(sealed.len(), inner.len() + own);
        let opened = open(&mut receiver, &mut flows, &sealed);
        assert_eq!(opened, Ok((Delivered::Packet, inner)));
    }
}

#[test]
fn datagrams_arrive_as_they_left() {
    let roots = roots(0);
    let (mut sender, mut receiver) = ends(&roots);
    for (v6, length) in [(false, 0), (false, 1), (true, 0), (true, MTU - 48)] {
        let inner = datagram(v6, &vec![0xab; length]);
        let sealed = seal(&mut sender, &inner);
        assert_eq!(sealed.len(), inner.len() + OVERHEAD);
        let opened = open(&mut receiver, &mut Flows::default(), &sealed);
        assert_eq!(opened, Ok((Delivered::Packet, inner)));
    }
}

#[test]
fn nothing_of_an_inner_packet_stands_on_the_wire() {
    let roots = roots(0);
    let inner = Segment::new(true, ACK, &[0x5a; 900]).bytes();
    let sealed = seal(&mut ends(&roots).0, &inner);
    let shows = |part: &[u8]| sealed.windows(part.len()).any(|own| own == part);
    assert!(!inner.chunks_exact(8).any(shows));
}

#[test]
fn a_syn_loses_timestamps_and_ecn_and_keeps_the_rest() {
    let roots = roots(0);
    for (v6, most) in [(false, 1364_u16), (true, 1344)] {
        let mut segment = Segment::new(v6, SYN | 0xc0, b"fast open").options(&SYN_OPTIONS);
        let mut inner = segment.bytes();
        let reserved = if v6 { 52 } else { 32 };
        inner[reserved] |= 1;
        assert!(write_checksums(&mut inner));
        let mut kept = SYN_OPTIONS;
        kept[2..4].copy_from_slice(&most.to_be_bytes());
        kept[6..16].fill(1);
        segment = segment.options(&kept);
        segment.flags = SYN;
        let opened = fresh(&roots, &seal(&mut ends(&roots).0, &inner));
        assert_eq!(opened, Ok((Delivered::Packet, segment.bytes())));
    }
}

#[test]
fn a_full_packet_fits_a_path_of_either_family() {
    // The headers of IPv6 and UDP.
    assert_eq!(40 + 8 + OVERHEAD + MTU, 1500);
}

#[test]
fn a_small_mss_stays_and_broken_options_end_the_reading() {
    let roots = roots(0);
    let options: [&[u8]; 5] = [
        &[2, 4, 5, 80],
        &[2, 3, 255, 0],
        &[8, 0, 1, 1],
        &[0, 2, 4, 255, 255, 1, 1, 1],
        &[1, 1, 8, 10],
    ];
    for options in options {
        let inner = Segment::new(false, SYN | ACK, b"").options(options).bytes();
        let opened = fresh(&roots, &seal(&mut ends(&roots).0, &inner));
        assert_eq!(opened, Ok((Delivered::Packet, inner)));
    }
}

#[test]
fn other_forms_are_named() {
    let fault = |packet: &[u8]| {
        let sealed = ends(&roots(0)).0.seal(packet, &mut BytesMut::new());
        sealed.unwrap_err()
    };
    let v4 = Segment::new(false, ACK, b"payload").bytes();
    let v6 = Segment::new(true, ACK, b"payload").bytes();
    let with = |packet: &[u8], at: usize, byte: u8| {
        let mut packet = packet.to_vec();
        packet[at] = byte;
        packet
    };
    let cases = [
        (vec![], NotCarried::Short(0)),
        (v4[..19].to_vec(), NotCarried::Short(19)),
        (vec![0x45; MTU + 1], NotCarried::Long(MTU + 1)),
        (with(&v4, 0, 0x55), NotCarried::Version(5)),
        (with(&v4, 0, 0x46), NotCarried::Options),
        (with(&v4, 6, 0x20), NotCarried::Fragment),
        (with(&v4, 7, 1), NotCarried::Fragment),
        (with(&v4, 9, 1), NotCarried::Protocol(1)),
        (with(&v6, 6, 0), NotCarried::Protocol(0)),
        (with(&v4, 32, 0x4f), NotCarried::Offset(16)),
        (with(&v4, 32, 0xf0), NotCarried::Short(47)),
        (
            with(&v4, 3, 48),
            NotCarried::Length {
                named: 48,
                length: 47,
            },
        ),
        (
            with(&datagram(false, b"1234"), 25, 13),
            NotCarried::Length {
                named: 13,
                length: 12,
            },
        ),
    ];
    for (packet, expected) in cases {
        assert_eq!(fault(&packet), Unwritten::NotCarried(expected));
    }
    let text = fault(&with(&v4, 9, 1)).to_string();
    let expected = "inner packet: protocol 1, only TCP (6) and UDP (17) are carried";
    assert_eq!(text, expected);
}

#[test]
fn an_association_ends_with_its_numbers() {
    let roots = roots(0);
    let (mut sender, mut receiver) = ends(&roots);
    let (data, ack) = (
        Segment::new(false, ACK, b"x"),
        Segment::new(false, ACK, b""),
    );
    sender.spend_all_but(9, 1);
    assert_eq!(sender.used(), MAX_NUMBER - 9);
    let sealed = seal(&mut sender, &data.bytes());
    assert!(open(&mut receiver, &mut Flows::default(), &sealed).is_ok());
    let mut out = BytesMut::new();
    assert_eq!(sender.seal(&data.bytes(), &mut out), Err(Unwritten::Spent));
    sender.spend_all_but(1, 9);
    let sealed = seal(&mut sender, &ack.bytes());
    assert!(open(&mut receiver, &mut Flows::default(), &sealed).is_ok());
    assert_eq!(sender.seal(&ack.bytes(), &mut out), Err(Unwritten::Spent));
    assert!(out.is_empty());
}
