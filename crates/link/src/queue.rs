//! The queue before the serialiser: first in, first out, drop-tail.
//!
//! It counts what waits, not the packet being sent, as a router's interface queue does, and remembers since when.

use std::collections::VecDeque;
use std::time::Instant;

use bentpipe_units::ByteCount;

/// Limit of what may wait. The packet in service does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueLimit {
    /// At most this many bytes.
    Bytes(ByteCount),
    /// At most this many packets, whatever their size.
    Packets(usize),
}

#[derive(Debug)]
pub(crate) struct DropTail<P> {
    limit: QueueLimit,
    bytes: ByteCount,
    waiting: VecDeque<(Instant, ByteCount, P)>,
}

impl<P> DropTail<P> {
    pub(crate) const fn new(limit: QueueLimit) -> Self {
        Self {
            limit,
            bytes: ByteCount::ZERO,
            waiting: VecDeque::new(),
        }
    }

    /// Appends the packet, or drops it and answers false.
    pub(crate) fn push(&mut self, now: Instant, size: ByteCount, packet: P) -> bool {
        let fits = match self.limit {
            QueueLimit::Bytes(limit) => self.bytes + size <= limit,
            QueueLimit::Packets(limit) => self.waiting.len() < limit,
        };
        if fits {
            self.push_over_limit(now, size, packet);
        }
        fits
    }

    /// Appends the packet, full or not: for one that is served at once.
    pub(crate) fn push_over_limit(&mut self, now: Instant, size: ByteCount, packet: P) {
        self.bytes += size;
        self.waiting.push_back((now, size, packet));
    }

    /// The first packet, and since when it waits.
    pub(crate) fn pop(&mut self) -> Option<(Instant, ByteCount, P)> {
        let (since, size, packet) = self.waiting.pop_front()?;
        self.bytes = self.bytes.saturating_sub(size);
        Some((since, size, packet))
    }

    pub(crate) const fn bytes(&self) -> ByteCount {
        self.bytes
    }

    pub(crate) fn packets(&self) -> usize {
        self.waiting.len()
    }

    /// Since when the first packet waits.
    pub(crate) fn waiting_since(&self) -> Option<Instant> {
        self.waiting.front().map(|(since, ..)| *since)
    }
}
