//! The receiver's half: keeps what came of streams lately, collects repairs, and mends what is missing.
//!
//! A block is tried when a repair of it comes and as many symbols are there as were missing when last looked. Everything
//! is bounded: what is kept, the blocks, their symbols, and the work done for a peer, which has to have sent as much.

use std::collections::BTreeMap;

use bytes::Bytes;
use reed_solomon_simd::ReedSolomonDecoder;

use super::block::{Repair, Shape};
use super::history::History;

/// Blocks of which repairs may still come.
const MOST_BLOCKS: usize = 128;
/// Repair symbols held, in bytes.
const MOST_HELD: usize = 8 << 20;
/// Looking at a block or decoding it handles all its bytes. It is done for this many times the bytes received
const WORK: u64 = 8;
/// and, saved up, no more bytes than this.
const MOST_WORK: u64 = 128 << 20;

/// Something that had been lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mended {
    /// Bytes of a stream; some of them may have come otherwise.
    Bytes {
        /// The stream.
        stream: u64,
        /// Of the first byte.
        offset: u64,
        /// What the stream carries there.
        bytes: Bytes,
    },
    /// A stream ends at this offset, and everything before it that the block covers has come.
    End {
        /// The stream.
        stream: u64,
        /// How many bytes it has.
        offset: u64,
    },
}

/// Counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MendStats {
    /// Bytes that were missing and were mended.
    pub mended: u64,
    /// Bytes of repairs that came.
    pub repairs: u64,
    /// Of those, the bytes that mended something.
    pub used: u64,
}

/// What a receiver knows of a peer's blocks.
#[derive(Debug, Default)]
pub struct Incoming {
    history: History,
    /// Bytes kept of streams.
    keep: u64,
    blocks: BTreeMap<u64, Block>,
    held: usize,
    work: u64,
    mended: Vec<Mended>,
    stats: MendStats,
}

#[derive(Debug)]
struct Block {
    shape: Shape,
    symbols: BTreeMap<usize, Bytes>,
    /// As many symbols were missing when last looked; `None` once the block is complete or given up.
    missing: Option<usize>,
}

impl Incoming {
    /// Keeps the newest `bytes` of what streams bring from now on; 0 keeps nothing.
    pub fn keep(&mut self, bytes: u64) {
        self.keep = bytes;
        self.history.trim(bytes);
        if bytes == 0 {
            self.blocks.clear();
            self.held = 0;
        }
    }

    /// Memory held, in bytes.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.history.held() + self.held as u64
    }

    /// A stream brought `bytes` at `offset`.
    pub fn on_received(&mut self, stream: u64, offset: u64, bytes: &Bytes) {
        self.work = (self.work + bytes.len() as u64 * WORK).min(MOST_WORK);
        self.history.insert(stream, offset, bytes, self.keep);
    }

    /// A DATAGRAM frame came. True if it is a repair; what it mends is asked for with [`Self::poll`].
    pub fn on_datagram(&mut self, content: &[u8]) -> bool {
        let Some(repair) = Repair::decode(content) else {
            return false;
        };
        self.stats.repairs += content.len() as u64;
        self.work = (self.work + content.len() as u64).min(MOST_WORK);
        let block = self.blocks.entry(repair.block).or_insert_with(|| Block {
            shape: repair.shape.clone(),
            symbols: BTreeMap::new(),
            missing: Some(0),
        });
        if block.shape != repair.shape || block.missing.is_none() {
            return true;
        }
        let size = repair.shape.symbol;
        for (index, symbol) in (repair.first..).zip(repair.symbols.chunks_exact(size)) {
            let symbol = Bytes::copy_from_slice(symbol);
            if block.symbols.insert(index, symbol).is_none() {
                self.held += size;
            }
        }
        self.try_block(repair.block);
        while self.blocks.len() > MOST_BLOCKS || self.held > MOST_HELD {
            let Some((_, old)) = self.blocks.pop_first() else {
                break;
            };
            self.held -= old.held();
        }
        true
    }

    /// What repairs have mended.
    pub fn poll(&mut self) -> Option<Mended> {
        self.mended.pop()
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> MendStats {
        self.stats
    }

    fn try_block(&mut self, number: u64) {
        let Some(block) = self.blocks.get_mut(&number) else {
            return;
        };
        if block
            .missing
            .is_none_or(|missing| missing > block.symbols.len())
        {
            return;
        }
        let total = block.shape.total() as u64;
        if self.work < total {
            return;
        }
        self.work -= total;
        let missing = missing(&block.shape, &self.history);
        if missing.len() > block.symbols.len() {
            block.missing = Some(missing.len());
            return;
        }
        if !missing.is_empty() {
            self.stats.used += (missing.len() * block.shape.symbol) as u64;
            let decoded = decode(block, &missing, &self.history).unwrap_or_default();
            for (first, bytes) in decoded {
                self.stats.mended += bytes.len() as u64;
                place(&block.shape, first, &bytes, &mut self.mended);
            }
        }
        let ends = block.shape.ranges.iter().filter(|range| range.fin);
        // Taken from the end: bytes come first.
        self.mended.splice(
            0..0,
            ends.map(|range| Mended::End {
                stream: range.stream,
                offset: range.end,
            }),
        );
        self.held -= block.held();
        block.symbols.clear();
        block.missing = None;
    }
}

impl Block {
    fn held(&self) -> usize {
        self.symbols.len() * self.shape.symbol
    }
}

/// Pieces of the block that the history has, as offsets in the block and bytes.
fn pieces<'a>(shape: &'a Shape, history: &'a History) -> impl Iterator<Item = (usize, &'a [u8])> {
    let mut base = 0;
    shape.ranges.iter().flat_map(move |range| {
        let start = base;
        base += usize::try_from(range.len()).unwrap_or(usize::MAX);
        let shift = move |(offset, bytes): (usize, &'a [u8])| (start + offset, bytes);
        history.pieces(range).map(shift)
    })
}

/// Symbols of which the history has not every byte, in order.
fn missing(shape: &Shape, history: &History) -> Vec<usize> {
    let mut missing = Vec::new();
    let mut gap = |from: usize, to: usize| {
        if from < to {
            let first = missing.last().map_or(0, |last| last + 1);
            missing.extend((from / shape.symbol).max(first)..to.div_ceil(shape.symbol));
        }
    };
    let mut reached = 0;
    for (offset, bytes) in pieces(shape, history) {
        gap(reached, offset);
        reached = reached.max(offset + bytes.len());
    }
    gap(reached, shape.total());
    missing
}

/// The missing symbols, neighbours together, as offsets in the block and bytes.
fn decode(block: &Block, missing: &[usize], history: &History) -> Option<Vec<(usize, Vec<u8>)>> {
    let shape = &block.shape;
    let (size, count) = (shape.symbol, shape.sources());
    let mut decoder = ReedSolomonDecoder::new(count, shape.repairs, size).ok()?;
    let mut lost = missing.iter().copied().peekable();
    // Of a symbol that is in more than one piece.
    let mut parts = vec![0; size];
    let mut pieces = pieces(shape, history).peekable();
    for index in 0..count {
        let (start, end) = (index * size, (index + 1) * size);
        while pieces
            .next_if(|(from, bytes)| from + bytes.len() <= start)
            .is_some()
        {}
        if lost.next_if_eq(&index).is_some() {
            continue;
        }
        match pieces.peek() {
            Some((from, bytes)) if *from <= start && end <= from + bytes.len() => {
                let symbol = &bytes[start - from..end - from];
                decoder.add_original_shard(index, symbol).ok()?;
            }
            _ => {
                parts.fill(0);
                while let Some((from, bytes)) = pieces.peek()
                    && *from < end
                {
                    let (first, last) = (start.max(*from), end.min(from + bytes.len()));
                    parts[first - start..last - start]
                        .copy_from_slice(&bytes[first - from..last - from]);
                    if from + bytes.len() > end {
                        break;
                    }
                    pieces.next();
                }
                decoder.add_original_shard(index, &parts).ok()?;
            }
        }
    }
    for (index, symbol) in block.symbols.iter().take(missing.len()) {
        decoder.add_recovery_shard(*index, symbol).ok()?;
    }
    let result = decoder.decode().ok()?;
    let mut mended: Vec<(usize, Vec<u8>)> = Vec::new();
    for (index, symbol) in result.restored_original_iter() {
        match mended.last_mut() {
            Some((first, bytes)) if *first + bytes.len() == index * size => {
                bytes.extend_from_slice(symbol);
            }
            _ => mended.push((index * size, symbol.to_vec())),
        }
    }
    Some(mended)
}

/// Says which streams `bytes` at `offset` of the block belong to.
fn place(shape: &Shape, offset: usize, bytes: &[u8], mended: &mut Vec<Mended>) {
    let mut base = 0;
    for range in &shape.ranges {
        let len = usize::try_from(range.len()).unwrap_or(usize::MAX);
        let (from, to) = (offset.max(base), (offset + bytes.len()).min(base + len));
        if from < to {
            mended.push(Mended::Bytes {
                stream: range.stream,
                offset: range.start + (from - base) as u64,
                bytes: Bytes::copy_from_slice(&bytes[from - offset..to - offset]),
            });
        }
        base += len;
    }
}
