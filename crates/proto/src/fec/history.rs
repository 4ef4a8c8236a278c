//! What came of streams lately: the newest bytes, up to a bound, so that a block can be completed from them.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use super::Range;
use crate::compact::compact;

/// Bookkeeping that one chunk costs beside its bytes.
const CHUNK_COST: u64 = 160;

/// The newest chunks, by stream and offset. They do not overlap: of bytes that come again, as they do after they were mended,
/// the first ones stay.
#[derive(Debug, Default)]
pub(super) struct History {
    chunks: BTreeMap<(u64, u64), Bytes>,
    /// In the order of their arrival.
    order: VecDeque<(u64, u64)>,
    held: u64,
}

impl History {
    pub(super) fn insert(&mut self, stream: u64, offset: u64, bytes: &Bytes, limit: u64) {
        if limit == 0 {
            return;
        }
        let end = offset + bytes.len() as u64;
        let mut at = offset;
        while at < end {
            let before = self.chunks.range((stream, 0)..=(stream, at)).next_back();
            let reached = before.map_or(0, |((_, start), held)| start + held.len() as u64);
            if reached > at {
                at = reached;
                continue;
            }
            let next = self.chunks.range((stream, at)..(stream, end)).next();
            let stop = next.map_or(end, |((_, start), _)| *start);
            let part = |at: u64| usize::try_from(at - offset).unwrap_or(usize::MAX);
            let part = compact(bytes.slice(part(at)..part(stop)), bytes.len());
            self.held += part.len() as u64 + CHUNK_COST;
            self.chunks.insert((stream, at), part);
            self.order.push_back((stream, at));
            at = stop;
        }
        self.trim(limit);
    }

    /// Forgets the oldest until no more than `limit` bytes are held.
    pub(super) fn trim(&mut self, limit: u64) {
        while self.held > limit
            && let Some(key) = self.order.pop_front()
        {
            if let Some(old) = self.chunks.remove(&key) {
                self.held -= old.len() as u64 + CHUNK_COST;
            }
        }
    }

    /// Memory held, in bytes.
    pub(super) fn held(&self) -> u64 {
        self.held
    }

    /// Pieces of `range` that are there, in order, as offsets from its start and bytes.
    pub(super) fn pieces<'a>(
        &'a self,
        range: &'a Range,
    ) -> impl Iterator<Item = (usize, &'a [u8])> + 'a {
        let key = (range.stream, range.start);
        let before = self.chunks.range(..key).next_back();
        let before = before.filter(|((stream, _), _)| *stream == range.stream);
        let within = self
            .chunks
            .range(key..(range.stream, range.end.max(range.start)));
        before
            .into_iter()
            .chain(within)
            .filter_map(|((_, offset), bytes)| {
                let end = (offset + bytes.len() as u64).min(range.end);
                let start = (*offset).max(range.start);
                let part = |at: u64| usize::try_from(at).ok();
                let data = bytes.get(part(start - offset)?..part(end.checked_sub(*offset)?)?)?;
                (!data.is_empty()).then_some((part(start - range.start)?, data))
            })
    }
}
