//! A block and its repairs on the wire: which bytes of which streams, and Reed-Solomon symbols over them.
//!
//! Read from a peer's DATAGRAM frames, therefore from hostile input: every number is bounded before anything is done
//! with it.

use reed_solomon_simd::ReedSolomonEncoder;

use crate::tunnel::{Place, varint};

/// Most bytes that one block covers: some milliseconds of a core to encode, as many again to decode.
pub const MAX_BLOCK: u64 = 4 << 20;
/// Most pieces of streams in a block: each repair names them all.
pub const MAX_RANGES: usize = 24;
/// Most repair symbols of a block.
pub const MAX_REPAIRS: u64 = 4096;
/// Bytes of a symbol that the code works on at a time; smaller symbols would cost as much.
pub(super) const LANE: usize = 64;
/// Sizes of a symbol: the smallest that is worth its cost; the largest fits into a packet.
const SYMBOL: std::ops::RangeInclusive<u64> = LANE as u64..=1400;
/// Most symbols of a block, originals and repairs together and rounded up to a power of two.
const MAX_SYMBOLS: usize = 1 << 15;
/// Most that the code has to work on for a block, in bytes ([`Shape::work`]): some milliseconds of a core.
const MAX_WORK: usize = 8 << 20;
/// Kind of DATAGRAM frames that are repairs.
const KIND: u64 = 3;

/// A piece of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The stream, by its index among its opener's bidirectional ones; 2^61 is added to that of the server's.
    pub stream: u64,
    /// Offset of its first byte.
    pub start: u64,
    /// Offset after its last byte.
    pub end: u64,
    /// The stream ends there.
    pub fin: bool,
}

impl Range {
    pub(super) const fn len(&self) -> u64 {
        self.end - self.start
    }

    /// Place at which the block begins.
    const fn place(&self) -> Place {
        Place {
            stream: self.stream,
            offset: self.start,
        }
    }
}

/// The shape of a block: the same in all its repairs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Bytes of a symbol, even.
    pub(super) symbol: usize,
    /// Repair symbols made.
    pub(super) repairs: usize,
    pub(super) ranges: Vec<Range>,
}

impl Shape {
    /// Bytes covered.
    pub(super) fn total(&self) -> usize {
        let total: u64 = self.ranges.iter().map(Range::len).sum();
        usize::try_from(total).unwrap_or(usize::MAX)
    }

    /// Symbols that the bytes are cut into; the last one is filled up with zeros.
    pub(super) fn sources(&self) -> usize {
        self.total().div_ceil(self.symbol)
    }

    /// Symbols, originals and repairs together, as many as the code works on.
    fn symbols(&self) -> usize {
        (self.sources() + self.repairs).next_power_of_two()
    }

    /// Bytes that the code works on to encode or decode the block, which is what that costs.
    pub(super) fn work(&self) -> usize {
        match self.total() {
            0 => 0,
            _ => self.symbols() * self.symbol.next_multiple_of(LANE),
        }
    }

    /// The code exists for such numbers, and takes no longer than a block may.
    pub(super) fn is_supported(&self) -> bool {
        self.total() == 0
            || self.symbols() <= MAX_SYMBOLS
                && self.work() <= MAX_WORK
                && ReedSolomonEncoder::supports(self.sources(), self.repairs)
    }
}

/// One DATAGRAM frame: some repair symbols of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repair<'a> {
    /// Names the block; later ones have higher numbers.
    pub block: u64,
    pub(super) shape: Shape,
    /// Number of the first symbol among the repairs.
    pub(super) first: usize,
    /// Whole symbols.
    pub(super) symbols: &'a [u8],
}

impl<'a> Repair<'a> {
    /// True if a DATAGRAM frame with this content is meant to be a repair.
    #[must_use]
    pub fn is_meant(content: &[u8]) -> bool {
        matches!(varint::decode(content), Some((KIND, _)))
    }

    /// Writes the head; symbols follow.
    pub(super) fn head(shape: &Shape, block: u64, first: usize, out: &mut Vec<u8>) {
        let fields = [
            KIND,
            block,
            shape.symbol as u64,
            shape.repairs as u64,
            first as u64,
            shape.ranges.len() as u64,
        ];
        for field in fields {
            varint::encode(field, out);
        }
        for range in &shape.ranges {
            range.place().encode(out);
            varint::encode(range.len() << 1 | u64::from(range.fin), out);
        }
    }

    /// The content of the DATAGRAM frame.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        Self::head(&self.shape, self.block, self.first, &mut out);
        out.extend_from_slice(self.symbols);
        out
    }

    /// Reads a DATAGRAM frame. `None`: of another kind, or malformed; it is to be dropped.
    #[must_use]
    pub fn decode(content: &'a [u8]) -> Option<Self> {
        let mut rest = content;
        let mut field = || varint::take(&mut rest);
        let small = |value: u64, most: u64| usize::try_from(value).ok().filter(|_| value <= most);
        if field()? != KIND {
            return None;
        }
        let block = field()?;
        let symbol = field()?;
        let repairs = small(field()?, MAX_REPAIRS)?;
        let first = small(field()?, MAX_REPAIRS)?;
        let count = small(field()?, MAX_RANGES as u64).filter(|count| *count > 0)?;
        if !SYMBOL.contains(&symbol) || symbol % 2 != 0 {
            return None;
        }
        let mut ranges = Vec::with_capacity(count);
        let mut total = 0;
        for _ in 0..count {
            let place = Place::decode(&mut rest)?;
            let length = varint::take(&mut rest)?;
            total += length >> 1;
            if total > MAX_BLOCK {
                return None;
            }
            ranges.push(Range {
                stream: place.stream,
                start: place.offset,
                end: place.offset + (length >> 1),
                fin: length & 1 == 1,
            });
        }
        let shape = Shape {
            symbol: usize::try_from(symbol).ok()?,
            repairs,
            ranges,
        };
        let whole = rest.len().is_multiple_of(shape.symbol);
        let within = first + rest.len() / shape.symbol <= repairs;
        (whole && within && shape.is_supported()).then_some(Self {
            block,
            shape,
            first,
            symbols: rest,
        })
    }
}
