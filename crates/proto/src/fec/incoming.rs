//! The receiver's half: keeps what came of streams lately, collects repairs, and mends what is missing.
//!
//! A block waits for its turn when a repair of it has come and as many symbols are there as were missing when last looked. When
//! it has one is decided outside ([`Incoming::work`]): a peer chooses how much there is to do, and must not hold up others.
//! Everything is bounded: what is kept, the blocks, their symbols, and the work done for a peer, which has to have sent as much
//! or to have waited for it. No byte is in two blocks, and what was mended counts as received, so nothing is decoded twice.

mod decoding;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use bytes::Bytes;

use super::block::{Repair, Shape};
use super::history::History;
use decoding::{decode, missing, place};

/// Blocks of which repairs may still come.
const MOST_BLOCKS: usize = 128;
/// Repair symbols held, in bytes.
const MOST_HELD: usize = 8 << 20;
/// Bookkeeping that a symbol costs beside its bytes.
const SYMBOL_COST: usize = 96;
/// Work that each byte received pays for, in bytes that the code works on.
const WORK: u64 = 8;
/// Work that each second pays for, likewise: about a tenth of a core's.
const WORK_PER_SECOND: f64 = (32 << 20) as f64;
/// Work that is saved up at most.
const MOST_WORK: u64 = 128 << 20;
/// Work of any decoding beside that on its symbols: the code finds its way through all 65,536 symbols that there could be.
const DECODING: u64 = 1 << 20;
/// Work of looking at a piece of what is held.
const LOOKING: u64 = 64;
/// Work after which a turn ends; what has begun is finished. Some milliseconds of a core, with the largest block.
const TURN: u64 = 1 << 20;

/// Something that had been lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mended {
    /// Bytes of a stream; some of them may have come otherwise.
    Bytes {
        /// The stream.
        stream: u64,
        /// Of the first byte.
        offset: u64,
        /// Bytes that the stream carries there.
        bytes: Bytes,
    },
    /// A stream ends at this offset, and everything before it that the block covers has come.
    End {
        /// The stream.
        stream: u64,
        /// Number of bytes that it has.
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

/// Blocks of a peer as its receiver knows them.
#[derive(Debug, Default)]
pub struct Incoming {
    history: History,
    /// Bytes kept of streams, at most.
    keep: u64,
    blocks: BTreeMap<u64, IncomingBlock>,
    /// Ranges of all blocks, by stream and start: their ends.
    covered: BTreeMap<(u64, u64), u64>,
    /// Blocks that wait for their turn.
    due: BTreeSet<u64>,
    held: usize,
    work: u64,
    /// Instant up to which time has paid for work.
    paid: Option<Instant>,
    mended: Vec<Mended>,
    stats: MendStats,
}

#[derive(Debug)]
struct IncomingBlock {
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
        self.trim();
        if bytes == 0 {
            self.blocks.clear();
            self.covered.clear();
            self.due.clear();
            self.held = 0;
        }
    }

    /// Bytes kept of streams, at most.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.keep
    }

    /// Memory held, in bytes.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.history.held() + self.held as u64
    }

    /// A stream brought `bytes` at `offset`.
    pub fn on_received(&mut self, stream: u64, offset: u64, bytes: &Bytes) {
        self.earn(bytes.len() as u64 * WORK);
        self.history.insert(stream, offset, bytes, self.keep);
    }

    /// A DATAGRAM frame came. True if it is a repair; what it mends is asked for with [`Self::poll`], after [`Self::work`].
    pub fn on_datagram(&mut self, content: &[u8]) -> bool {
        let Some(repair) = Repair::decode(content) else {
            return false;
        };
        self.stats.repairs += content.len() as u64;
        self.earn(content.len() as u64);
        if self.keep == 0 && repair.shape.total() > 0 {
            // With nothing kept its block could not be mended, and its symbols would stay; an end alone needs nothing.
            return true;
        }
        if self.blocks.contains_key(&repair.block) || self.begin(&repair) {
            self.collect(&repair);
            self.trim();
        }
        true
    }

    /// Takes up a block, unless some of its bytes are in another one already.
    fn begin(&mut self, repair: &Repair<'_>) -> bool {
        let shape = &repair.shape;
        let ranges = || shape.ranges.iter().filter(|range| range.start < range.end);
        for (taken, range) in ranges().enumerate() {
            let mut before = self
                .covered
                .range((range.stream, 0)..(range.stream, range.end));
            if before
                .next_back()
                .is_some_and(|(_, end)| *end > range.start)
            {
                for range in ranges().take(taken) {
                    self.covered.remove(&(range.stream, range.start));
                }
                return false;
            }
            self.covered.insert((range.stream, range.start), range.end);
        }
        let block = IncomingBlock {
            shape: shape.clone(),
            symbols: BTreeMap::new(),
            missing: Some(0),
        };
        self.blocks.insert(repair.block, block);
        true
    }

    /// Takes the symbols of a block that is known.
    fn collect(&mut self, repair: &Repair<'_>) {
        let known = self.blocks.get_mut(&repair.block);
        let Some(block) = known.filter(|block| block.shape == repair.shape) else {
            return;
        };
        let Some(missing) = block.missing else {
            return;
        };
        let size = repair.shape.symbol;
        for (index, symbol) in (repair.first..).zip(repair.symbols.chunks_exact(size)) {
            let symbol = Bytes::copy_from_slice(symbol);
            if block.symbols.insert(index, symbol).is_none() {
                self.held += size + SYMBOL_COST;
            }
        }
        if missing <= block.symbols.len() {
            self.due.insert(repair.block);
        }
    }

    /// Forgets the oldest blocks until no more is held than may be.
    fn trim(&mut self) {
        let most = MOST_HELD.min(usize::try_from(self.keep).unwrap_or(usize::MAX));
        while self.blocks.len() > MOST_BLOCKS || self.held > most {
            let Some((number, old)) = self.blocks.pop_first() else {
                break;
            };
            self.held = self.held.saturating_sub(old.held());
            self.due.remove(&number);
            for range in old.shape.ranges.iter().filter(|range| range.len() > 0) {
                self.covered.remove(&(range.stream, range.start));
            }
        }
    }

    /// True if [`Self::work`] may have something to do.
    #[must_use]
    pub fn has_work(&self) -> bool {
        !self.due.is_empty()
    }

    /// Mends blocks that are due, for some milliseconds at most. True if there is more that the peer has paid for.
    pub fn work(&mut self, now: Instant) -> bool {
        let since = self
            .paid
            .replace(now)
            .map(|paid| now.saturating_duration_since(paid));
        let span = since.map_or(1.0, |since| since.as_secs_f64());
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a positive number, cut where it is too large"
        )]
        self.earn((span * WORK_PER_SECOND) as u64);
        let mut done = 0;
        while done < TURN
            && let Some(&number) = self.due.first()
        {
            let Some(cost) = self.try_block(number) else {
                return false;
            };
            self.due.remove(&number);
            self.work = self.work.saturating_sub(cost);
            done += cost;
        }
        !self.due.is_empty()
    }

    fn earn(&mut self, work: u64) {
        self.work = self.work.saturating_add(work).min(MOST_WORK);
    }

    /// Next piece that repairs have mended.
    pub fn poll(&mut self) -> Option<Mended> {
        self.mended.pop()
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> MendStats {
        self.stats
    }

    /// Mends a block if it can be mended. Returns the work that this has cost; `None` if the peer cannot pay for it yet.
    fn try_block(&mut self, number: u64) -> Option<u64> {
        let Some(block) = self.blocks.get_mut(&number) else {
            return Some(0);
        };
        let decoding = DECODING + block.shape.work() as u64;
        if self.work < decoding && block.shape.total() > 0 {
            return None;
        }
        let (missing, pieces) = missing(&block.shape, &self.history);
        let mut cost = (pieces + 1) * LOOKING;
        if missing.len() > block.symbols.len() {
            block.missing = Some(missing.len());
            return Some(cost);
        }
        if !missing.is_empty() {
            cost += decoding;
            self.stats.used += (missing.len() * block.shape.symbol) as u64;
            let decoded = decode(block, &missing, &self.history).unwrap_or_default();
            let before = self.mended.len();
            for (first, bytes) in decoded {
                self.stats.mended += bytes.len() as u64;
                place(&block.shape, first, &bytes, &mut self.mended);
            }
            // What is mended is there: of a block with these bytes nothing is missing any more.
            for mended in &self.mended[before..] {
                if let Mended::Bytes {
                    stream,
                    offset,
                    bytes,
                } = mended
                {
                    self.history.insert(*stream, *offset, bytes, self.keep);
                }
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
        self.held = self.held.saturating_sub(block.held());
        block.symbols.clear();
        block.missing = None;
        Some(cost)
    }
}

impl IncomingBlock {
    fn held(&self) -> usize {
        self.symbols.len() * (self.shape.symbol + SYMBOL_COST)
    }
}
