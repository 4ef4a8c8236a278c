//! Repairs (PROTOCOL.md §5.5), as a receiver reads them from its peer: a sequence of DATAGRAM frames, each after its length.

use bentpipe_proto::fec::{Incoming, MAX_BLOCK, Mended, Repair};
use bytes::Bytes;

/// What the receiver keeps, and what it may hold in all.
const KEEP: u64 = 1 << 16;
const MOST: u64 = KEEP + (9 << 20);

/// Whatever comes, memory is bounded, what mends lies within the block's bounds, and what is read can be written again.
pub fn repair(data: &[u8]) {
    let now = crate::origin();
    let mut incoming = Incoming::default();
    incoming.keep(KEEP);
    let text = Bytes::from(vec![7; 9000]);
    incoming.on_received(1, 0, &text.slice(..4000));
    incoming.on_received(1, 5000, &text.slice(5000..));
    incoming.on_received(2, 0, &text.slice(..100));
    let mut rest = data;
    while let Some((&[high, low], tail)) = rest.split_first_chunk() {
        let size = usize::from(u16::from_be_bytes([high, low])).min(tail.len());
        let (frame, next) = tail.split_at(size);
        rest = next;
        if let Some(repair) = Repair::decode(frame) {
            assert!(Repair::is_meant(frame));
            assert_eq!(Repair::decode(&repair.encode()), Some(repair));
        }
        incoming.on_datagram(frame);
        incoming.work(now);
        assert!(incoming.memory() <= MOST);
        let mut mended = 0;
        while let Some(piece) = incoming.poll() {
            if let Mended::Bytes { bytes, .. } = piece {
                mended += bytes.len() as u64;
            }
        }
        assert!(mended <= MAX_BLOCK);
    }
}

/// Repairs of a stream of which the receiver has all but a piece, and of one that it has whole.
pub fn seeds() -> Vec<Vec<u8>> {
    use bentpipe_proto::fec::{Fec, Outgoing};
    let now = crate::origin();
    let mut outgoing = Outgoing::default();
    outgoing.configure(Fec::Fixed { repair: 1, per: 2 }, KEEP);
    let mut seed = Vec::new();
    for (stream, bytes) in [(1, 9000), (2, 100)] {
        outgoing.on_written(now, stream, 0, vec![7; bytes].into());
        outgoing.on_dry(now, stream, bytes as u64, true);
        let later = now + std::time::Duration::from_secs(1);
        while let Some(frame) = outgoing.poll(later, 400) {
            seed.extend_from_slice(&(frame.len() as u16).to_be_bytes());
            seed.extend_from_slice(&frame);
        }
    }
    vec![seed]
}
