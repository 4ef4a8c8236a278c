//! Reassembly of one direction of a flow, from unordered stream chunks to ordered payload.
//!
//! Sits between the QUIC stream (always read, unordered, as data arrives) and the LAN socket. The
//! peer's credit bounds what can be held; exceeding it is the peer's fault and closes the tunnel
//! (`PROTOCOL.md` "Credit"). It does not decide how much credit to give: see [`super::Budget`].

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use thiserror::Error;

use crate::compact::compact;
use crate::tunnel::AbortCode;

/// Longest OPEN or REPLY that may precede the payload of a stream, in bytes.
pub const MAX_HEADER: u64 = 2048;

/// Bookkeeping that one held chunk costs beside its bytes, in bytes: tree node, allocation, and QUIC's note that the range has
/// come.
const CHUNK_COST: u64 = 144;

/// Neighbouring chunks are copied together up to this size: a peer that sends single bytes into a
/// stalled flow would otherwise cost a hundred times what its credit allows.
const MERGE_BELOW: usize = 1024;

/// End of a direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// FIN: every byte was delivered and none will follow.
    Fin,
    /// FLOW_ABORT: every byte before it was delivered; the connection is to be reset.
    Abort(AbortCode),
}

/// The peer sent more than it was allowed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("peer sent up to offset {sent} of a flow, but its credit ends at {limit}")]
pub struct CreditExceeded {
    /// Stream offset that the peer reached.
    pub sent: u64,
    /// Stream offset that its credit allowed.
    pub limit: u64,
}

/// One receiving direction. Offsets given in are stream offsets; the header is subtracted here.
#[derive(Debug)]
pub struct Receiver {
    /// Held chunks by stream offset; they never overlap.
    chunks: BTreeMap<u64, Bytes>,
    next: u64,
    /// Stream offset up to which everything has come.
    come: u64,
    held: u64,
    highest: u64,
    /// Length of the header before the payload, once it was parsed.
    base: Option<u64>,
    /// Payload offset that the peer may reach.
    limit: u64,
    /// Stream offset at which the direction ends, once that is known.
    end: Option<u64>,
    abort: Option<(u64, AbortCode)>,
}

impl Receiver {
    /// A direction in which the peer may send `credit` bytes of payload.
    pub fn new(credit: u64) -> Self {
        Self {
            chunks: BTreeMap::new(),
            next: 0,
            come: 0,
            held: 0,
            highest: 0,
            base: None,
            limit: credit,
            end: None,
            abort: None,
        }
    }

    /// Takes a chunk that arrived at stream offset `offset`. QUIC hands out each byte once, but some may have been mended
    /// before.
    pub fn insert(&mut self, offset: u64, data: Bytes) -> Result<(), CreditExceeded> {
        let end = offset.saturating_add(data.len() as u64);
        let limit = self.limit.saturating_add(self.base.unwrap_or(MAX_HEADER));
        if end > limit {
            return Err(CreditExceeded { sent: end, limit });
        }
        let highest = self.highest;
        self.highest = highest.max(end);
        if data.is_empty() || end <= self.next {
            return Ok(());
        }
        if offset >= highest {
            // Behind all that has come: nearly every chunk, and there is nothing to search.
            let whole = data.len();
            self.put(offset, data, whole);
            if offset == self.come {
                self.come = end;
            }
            return Ok(());
        }
        if self.overlaps(offset, end) {
            self.fill(offset, &data);
        } else {
            let whole = data.len();
            self.put(offset, data, whole);
        }
        while let Some((start, chunk)) = self.chunks.range(..=self.come).next_back()
            && start + chunk.len() as u64 > self.come
        {
            self.come = start + chunk.len() as u64;
        }
        Ok(())
    }

    /// Some of these bytes were delivered or are held.
    fn overlaps(&self, offset: u64, end: u64) -> bool {
        let before = self.chunks.range(..end).next_back();
        let held = before.is_some_and(|(start, chunk)| start + chunk.len() as u64 > offset);
        held || offset < self.next
    }

    /// Puts those of `data`'s bytes that were not there.
    fn fill(&mut self, offset: u64, data: &Bytes) {
        let end = offset + data.len() as u64;
        let mut at = offset.max(self.next);
        while at < end {
            let before = self.chunks.range(..=at).next_back();
            let reached = before.map_or(0, |(start, chunk)| start + chunk.len() as u64);
            if reached > at {
                at = reached;
                continue;
            }
            let next = self.chunks.range(at..end).next();
            let stop = next.map_or(end, |(start, _)| *start);
            let part = |at: u64| usize::try_from(at - offset).unwrap_or(usize::MAX);
            self.put(at, data.slice(part(at)..part(stop)), data.len());
            at = stop;
        }
    }

    /// Holds `data`, which is a slice of `whole` bytes or of a datagram.
    fn put(&mut self, offset: u64, data: Bytes, whole: usize) {
        self.held += data.len() as u64;
        if data.len() < MERGE_BELOW
            && let Some((_, before)) =
                self.chunks
                    .range_mut(..offset)
                    .next_back()
                    .filter(|(start, chunk)| {
                        **start + chunk.len() as u64 == offset && chunk.len() < MERGE_BELOW
                    })
        {
            let mut merged = BytesMut::with_capacity(before.len() + data.len());
            merged.extend_from_slice(before);
            merged.extend_from_slice(&data);
            *before = merged.freeze();
            return;
        }
        self.chunks.insert(offset, compact(data, whole));
    }

    /// The stream has ended and every byte of it was handed to [`Self::insert`].
    pub fn finish(&mut self) {
        self.end = Some(self.highest);
    }

    /// The stream ends at `offset`; what precedes it may still be missing.
    pub fn finish_at(&mut self, offset: u64) {
        self.end.get_or_insert(offset);
    }

    /// True once everything up to the stream's end has come.
    pub fn is_whole(&self) -> bool {
        self.end.is_some_and(|end| self.come() >= end)
    }

    /// Stream offset up to which everything that will be delivered has come. Kept, not searched for: a peer chooses how many
    /// chunks are held and how often this is asked.
    fn come(&self) -> u64 {
        self.come.min(self.stop()).max(self.next)
    }

    /// The peer's side was reset after `final_offset` bytes of payload.
    pub fn abort(&mut self, final_offset: u64, code: AbortCode) {
        self.abort.get_or_insert((final_offset, code));
    }

    /// True if the peer's LAN side was reset: it takes nothing more.
    pub fn is_aborted(&self) -> bool {
        self.abort.is_some()
    }

    /// Raises the payload offset that the peer may reach.
    pub fn raise_limit(&mut self, limit: u64) {
        self.limit = self.limit.max(limit);
    }

    /// The first `length` bytes were the header; what follows is payload.
    pub fn set_header(&mut self, length: u64) {
        self.base = Some(length);
        self.consume(length);
    }

    /// Bytes that are next in order, chunk by chunk.
    pub fn ready(&self) -> impl Iterator<Item = &Bytes> {
        let mut expected = self.next;
        let stop = self.stop();
        self.chunks.iter().map_while(move |(&offset, chunk)| {
            let contiguous = offset == expected && offset < stop;
            expected += chunk.len() as u64;
            contiguous.then_some(chunk)
        })
    }

    /// The LAN side took `n` bytes of what [`Self::ready`] gave.
    pub fn consume(&mut self, mut n: u64) {
        while n > 0
            && let Some(mut entry) = self.chunks.first_entry()
        {
            let length = entry.get().len() as u64;
            if n < length {
                let mut rest = std::mem::take(entry.get_mut());
                let _ = rest.split_to(usize::try_from(n).unwrap_or(usize::MAX));
                let offset = entry.remove_entry().0;
                self.chunks.insert(offset + n, rest);
                self.advance(n);
                return;
            }
            entry.remove();
            self.advance(length);
            n -= length;
        }
    }

    fn advance(&mut self, n: u64) {
        self.next += n;
        self.come = self.come.max(self.next);
        self.held -= n;
    }

    /// Stream offset of the first byte that has not come, unless all have.
    pub fn awaits(&self) -> Option<u64> {
        (!self.is_whole()).then_some(self.come())
    }

    /// Highest payload offset that arrived.
    pub fn reached(&self) -> u64 {
        self.highest.saturating_sub(self.base.unwrap_or(0))
    }

    /// End of this direction, once everything before it was consumed. A direction that FIN has ended is whole, whatever became of
    /// the peer's side later.
    pub fn end(&self) -> Option<End> {
        match self.abort {
            Some(_) if self.base.is_none() => None,
            Some((_, code)) if !self.is_finished() => {
                (self.next >= self.stop()).then_some(End::Abort(code))
            }
            Some(_) | None => self.is_finished().then_some(End::Fin),
        }
    }

    fn is_finished(&self) -> bool {
        self.end.is_some_and(|end| self.next >= end)
    }

    /// Stream offset after which nothing is delivered: the abort's, if there was one.
    fn stop(&self) -> u64 {
        match (self.abort, self.base) {
            (Some((offset, _)), Some(base)) => base.saturating_add(offset),
            _ => u64::MAX,
        }
    }

    /// Bytes held: those that have come and were not consumed.
    pub fn held(&self) -> u64 {
        self.held
    }

    /// Bytes that came, header included, each counted once.
    pub fn taken(&self) -> u64 {
        self.next + self.held
    }

    /// Memory held for this direction, in bytes: payload and bookkeeping.
    pub fn memory(&self) -> u64 {
        self.held + self.chunks.len() as u64 * CHUNK_COST
    }

    /// Throws away everything held: the LAN side is gone.
    pub fn discard(&mut self) {
        self.chunks.clear();
        self.held = 0;
        self.come = self.next;
    }
}

#[cfg(test)]
mod tests;
