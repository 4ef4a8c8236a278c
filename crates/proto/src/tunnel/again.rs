//! After a silence: where a receiver waits in its streams, and bytes that a sender says again (`PROTOCOL.md` §5.6).
//!
//! One DATAGRAM frame each, read from hostile input. Only the form: when they leave is the engine's business, what is said
//! again that of [`Outstanding`](crate::relay::Outstanding).

use bytes::Bytes;

use super::{FlowId, varint};

/// Most places of one AWAITED.
pub const MAX_AWAITED: usize = 32;
/// Most bytes that precede what AGAIN says.
pub const AGAIN_HEAD: usize = 1 + 8 + 8;

/// Kinds of DATAGRAM frames.
const AWAITED: u64 = 4;
const AGAIN: u64 = 5;

/// A place in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The stream, by its index among its opener's bidirectional ones; 2^61 is added to that of the server's.
    pub stream: u64,
    /// Number of bytes that precede it, headers included.
    pub offset: u64,
}

impl Place {
    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        varint::encode(self.stream, out);
        varint::encode(self.offset, out);
    }

    /// Reads one from the beginning of `rest`, which is moved behind it.
    pub(crate) fn decode(rest: &mut &[u8]) -> Option<Self> {
        let (stream, offset) = (varint::take(rest)?, varint::take(rest)?);
        // A stream has at most 2^62 bytes, and 2^60 of a kind exist.
        let sane = (stream & !FlowId::OF_SERVER.0) >> 60 == 0 && offset >> 61 == 0;
        sane.then_some(Self { stream, offset })
    }
}

/// AWAITED: a receiver has everything before these places and nothing at them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Awaited {
    /// At most [`MAX_AWAITED`].
    pub places: Vec<Place>,
}

impl Awaited {
    /// The content of a DATAGRAM frame of `size` bytes, or of as few as it takes.
    #[must_use]
    pub fn encode(&self, size: usize) -> Vec<u8> {
        let places = &self.places[..self.places.len().min(MAX_AWAITED)];
        let mut out = Vec::with_capacity(size);
        varint::encode(AWAITED, &mut out);
        varint::encode(places.len() as u64, &mut out);
        for place in places {
            place.encode(&mut out);
        }
        out.resize(out.len().max(size), 0);
        out
    }

    /// Reads a DATAGRAM frame. `None`: of another kind, or malformed; it is to be dropped.
    #[must_use]
    pub fn decode(content: &[u8]) -> Option<Self> {
        let mut rest = content;
        if varint::take(&mut rest)? != AWAITED {
            return None;
        }
        let count = usize::try_from(varint::take(&mut rest)?).ok()?;
        if count > MAX_AWAITED {
            return None;
        }
        let places = (0..count).map(|_| Place::decode(&mut rest));
        Some(Self {
            places: places.collect::<Option<_>>()?,
        })
    }
}

/// AGAIN: what a stream carries at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Again {
    /// Of the first byte.
    pub place: Place,
    /// Some bytes.
    pub bytes: Bytes,
}

impl Again {
    /// The content of the DATAGRAM frame.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(AGAIN_HEAD + self.bytes.len());
        varint::encode(AGAIN, &mut out);
        self.place.encode(&mut out);
        out.extend_from_slice(&self.bytes);
        out
    }

    /// Reads a DATAGRAM frame. `None`: of another kind, or malformed; it is to be dropped.
    #[must_use]
    pub fn decode(content: &[u8]) -> Option<Self> {
        let mut rest = content;
        if varint::take(&mut rest)? != AGAIN {
            return None;
        }
        let place = Place::decode(&mut rest)?;
        Some(Self {
            place,
            // What is held is not to hold its whole datagram.
            bytes: Bytes::copy_from_slice(rest),
        })
    }
}
