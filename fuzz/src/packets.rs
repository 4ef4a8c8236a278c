//! IP packets and the frames that carry them (PROTOCOL.md §14), as each end reads them from the other.

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
