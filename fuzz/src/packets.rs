//! IP packets and the frames that carry them (PROTOCOL.md §14), as each end reads them from the other.

use bentpipe_proto::packets::offload::{Merger, PREFIX, split};
use bentpipe_proto::packets::{
    Header, Joiner, MTU, Packer, Prohibited, prohibited, set_congestion_experienced,
};
use bytes::Bytes;

/// Frames in a row, cut at a byte that says how long each is: nothing that comes out is empty or longer than the device takes.
pub fn frames(data: &[u8]) {
    let mut joiner = Joiner::default();
    let mut rest = data;
    while let Some((&length, tail)) = rest.split_first() {
        let (frame, tail) = tail.split_at(tail.len().min(usize::from(length) * 8));
        let marked = length & 1 == 1;
        let _ = joiner.on_frame(&Bytes::copy_from_slice(frame), marked, |packet| {
            assert!(!packet.is_empty() && packet.len() <= MTU);
        });
        rest = tail;
    }
}

/// One packet: what is read of it lies within it, and the answer to it is a packet itself.
pub fn packet(data: &[u8]) {
    let mut marked = data.to_vec();
    if set_congestion_experienced(&mut marked) && Header::parse(data).is_some() {
        assert!(Header::parse(&marked).is_some_and(|header| header.traffic_class & 3 == 3));
    }
    let Some(header) = Header::parse(data) else {
        return;
    };
    assert!(header.offset <= data.len() && header.flow(1) == header.flow(1));
    let from = Prohibited {
        ipv4: Some([192, 0, 2, 1].into()),
        ipv6: Some([1; 16].into()),
    };
    if let Some(answer) = prohibited(data, &header, from) {
        let told = Header::parse(&answer).expect("a packet");
        assert_eq!(told.destination, header.source);
        assert!(told.is_icmp_error(&answer) && answer.len() <= MTU);
    }
}

/// Two reads of a device, the first as long as a byte says: packets that come out fit, and if they are merged and split once more
/// they are the same.
pub fn bulk(data: &[u8]) {
    let Some((&length, reads)) = data.split_first() else {
        return;
    };
    let (first, second) = reads.split_at(reads.len().min(usize::from(length) * 8));
    let mut packets = Vec::new();
    for read in [first, second] {
        let before = packets.len();
        let done = split(read, |packet| packets.push(packet));
        assert!(done.is_ok() || packets.len() == before);
    }
    assert!(packets.iter().all(|packet| packet.len() <= MTU));
    let (mut merger, mut again) = (Merger::new(true), Vec::new());
    packets
        .iter()
        .for_each(|packet| merger.push(packet.clone()));
    for piece in merger.pieces() {
        let mut bytes = piece.head();
        piece
            .contents()
            .for_each(|part| bytes.extend_from_slice(part));
        assert!(split(&bytes, |packet| again.push(packet)).is_ok());
    }
    assert_eq!(sorted(packets), sorted(again));
}

/// Packets in any order, without what may change: the number of one that may not be cut, and the checksum over it.
fn sorted(packets: Vec<Bytes>) -> Vec<Vec<u8>> {
    let unnumbered = |packet: Bytes| {
        let mut packet = packet.to_vec();
        if packet.len() >= 20 && packet[0] == 0x45 && packet[6] & 0x40 != 0 {
            packet[4..6].fill(0);
            packet[10..12].fill(0);
        }
        packet
    };
    let mut packets: Vec<_> = packets.into_iter().map(unnumbered).collect();
    packets.sort_unstable();
    packets
}

/// Pieces of three datagrams over IPv4 and IPv6, and a packet whose checksum was left out.
pub fn bulk_seeds() -> Vec<Vec<u8>> {
    let prefix = |kind: u8, size: u16, start: u16| {
        let words = [start + 8, size, start, 6].map(u16::to_ne_bytes);
        [&[1, kind], &*words.concat()].concat()
    };
    let udp = [[7; 4].as_slice(), &[0, 28, 1, 2], &[9; 20]].concat();
    let v4 = [
        &[0x45, 0, 0, 48, 0, 1, 0, 0, 9, 17, 0, 0][..],
        &[1; 8],
        &udp,
    ]
    .concat();
    let v6 = [&[0x60, 0, 0, 0, 0, 28, 17, 9][..], &[1; 32], &udp].concat();
    let piece = |kind, packet: &[u8]| {
        let start = if packet[0] == 0x45 { 20 } else { 40 };
        [&prefix(kind, 8, start), packet].concat()
    };
    let two = |first: Vec<u8>, second: Vec<u8>| {
        let mut seed = vec![(first.len() / 8) as u8];
        seed.extend_from_slice(&first[..first.len() / 8 * 8]);
        seed.extend_from_slice(&second);
        seed
    };
    vec![
        two(vec![0; PREFIX], piece(5, &v4)),
        two(vec![], piece(5, &v4)),
        two(vec![], piece(5, &v6)),
        two(vec![], piece(0, &v4)),
        two(piece(0, &v6), piece(5, &v6)),
    ]
}

/// Frames as the sender makes them, each after its length.
pub fn frame_seeds() -> Vec<Vec<u8>> {
    let mut packer = Packer::default();
    let mut packets = [700, 40, 1500, 200]
        .map(|size| Bytes::from(vec![0x45; size]))
        .into_iter();
    let frames = std::iter::from_fn(|| packer.frame(1200, || packets.next()));
    let mut seed = Vec::new();
    for frame in frames {
        let mut frame = frame.to_vec();
        frame.truncate(frame.len() / 8 * 8);
        seed.push((frame.len() / 8) as u8);
        seed.extend_from_slice(&frame);
    }
    vec![seed, vec![1, 2, 0, 0, 1, 0, 2, 7, 7]]
}

/// One of each family.
pub fn packet_seeds() -> Vec<Vec<u8>> {
    let mut v4 = vec![0; 60];
    v4[..4].copy_from_slice(&[0x46, 0xb9, 0, 60]);
    v4[8..10].copy_from_slice(&[64, 17]);
    v4[20..24].copy_from_slice(&[7, 3, 4, 0]);
    let mut v6 = vec![0; 80];
    v6[..8].copy_from_slice(&[0x6b, 0x10, 0, 0, 0, 40, 0, 64]);
    v6[40..42].copy_from_slice(&[44, 0]);
    v6[48..56].copy_from_slice(&[17, 0, 0, 1, 0, 0, 0, 9]);
    vec![v4, v6]
}
