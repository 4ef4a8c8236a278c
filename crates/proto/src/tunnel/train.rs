//! Packets of a train: what is sent back to back so that the receiver can see how fast the path carries it
//! (`PROTOCOL.md` §5.4).
//!
//! One DATAGRAM frame each. Only the form: when a train leaves is the engine's business, what its arrival says that of
//! `Dispersion` of crate `congestion`.

use super::varint;

/// Most packets of one train.
pub const MAX_TRAIN: u64 = 64;

/// Kind of DATAGRAM frames that belong to a train; 0 is padding.
const TRAIN: u64 = 1;

/// The head of one packet of a train; zeros fill the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrainPacket {
    /// Number of packets that the train has.
    pub count: u64,
    /// Number of this packet among them, from 0.
    pub index: u64,
}

impl TrainPacket {
    /// The content of a DATAGRAM frame of `size` bytes, or of as few as it takes.
    #[must_use]
    pub fn encode(self, size: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(size);
        for field in [TRAIN, self.count, self.index] {
            varint::encode(field, &mut out);
        }
        out.resize(out.len().max(size), 0);
        out
    }

    /// Reads a DATAGRAM frame. `None`: of another kind, or not a train's; it is to be dropped.
    #[must_use]
    pub fn decode(mut content: &[u8]) -> Option<Self> {
        let mut field = || varint::take(&mut content);
        let (kind, count, index) = (field()?, field()?, field()?);
        let sane = kind == TRAIN && count <= MAX_TRAIN && index < count;
        sane.then_some(Self { count, index })
    }
}
