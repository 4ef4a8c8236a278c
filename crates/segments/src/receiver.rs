//! Half of a TCP, towards one LAN end: takes its segments, acknowledges them in the other end's
//! name, and holds their payload until the stream to the other PEP has it.
//!
//! Blobs stay whole. One that brings a new byte is kept, whatever else it repeats. The end is
//! acknowledged only when the other end has acknowledged it: whoever hears that its FIN came has
//! lost no byte.

use std::collections::{BTreeMap, VecDeque};

use crate::segment::Blob;

/// Least rise of the window that is worth a segment of its own, bytes: a full segment.
const WORTH_TELLING: u64 = 1460;

/// Reason for an acknowledgement that is to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The prefix grew, or the window did.
    Progress,
    /// A segment came that did not bring the next byte: each of them is answered, so that its
    /// sender counts three.
    Duplicate,
}

/// Receiving half towards a LAN end. Places are offsets in that end's numbers.
#[derive(Debug)]
pub(crate) struct Receiver {
    /// First byte that has not come.
    next: u64,
    /// Blobs behind a gap, by their start; neither starts nor ends repeat, both rise.
    early: BTreeMap<u64, Blob>,
    /// Blobs in order, for the stream.
    ready: VecDeque<(u64, Blob)>,
    /// Memory of `early`, and of `ready`, bytes.
    early_memory: usize,
    ready_memory: usize,
    room: usize,
    /// Place up to which the end may send.
    edge: u64,
    /// Largest window that a header can name.
    widest: u64,
    shift: u8,
    /// Place of the FIN, once all before it has come.
    fin: Option<u64>,
    /// The other end has acknowledged the FIN.
    confirmed: bool,
    progress: bool,
    duplicates: u32,
}

impl Receiver {
    /// Receiver of what comes from `next` on, which holds at most `room` bytes and a segment, and
    /// names windows shifted by `shift`.
    pub(crate) fn new(next: u64, room: usize, shift: u8) -> Self {
        let widest = u64::from(u16::MAX) << shift.min(14);
        Self {
            next,
            early: BTreeMap::new(),
            ready: VecDeque::new(),
            early_memory: 0,
            ready_memory: 0,
            room,
            edge: next + widest.min(room as u64),
            widest,
            shift: shift.min(14),
            fin: None,
            confirmed: false,
            progress: true,
            duplicates: 0,
        }
    }

    /// First byte that has not come.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Place up to which the end may send.
    pub(crate) fn edge(&self) -> u64 {
        self.edge
    }

    /// Place that is acknowledged: the contiguous prefix, its FIN only when the other end has it.
    pub(crate) fn acknowledged(&self) -> u64 {
        match self.fin {
            Some(fin) if !self.confirmed => fin,
            _ => self.next,
        }
    }

    /// Window as a header names it.
    pub(crate) fn window(&self) -> u16 {
        let free = self.edge.saturating_sub(self.acknowledged());
        u16::try_from(free >> self.shift).unwrap_or(u16::MAX)
    }

    /// Memory held, in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.early_memory + self.ready_memory
    }

    /// Says whether the end has been told that all it ever sent has arrived.
    pub(crate) fn is_done(&self) -> bool {
        self.fin.is_some() && self.confirmed
    }

    /// Takes a blob whose first byte is at `start`.
    pub(crate) fn insert(&mut self, start: u64, blob: Blob) {
        let end = start + blob.span();
        let payload_end = start + u64::from(blob.length);
        let outside = start.max(self.next) >= self.edge && payload_end > self.edge;
        if self.fin.is_some() || end <= self.next || outside || start > self.edge {
            self.duplicates += 1;
        } else if start > self.next {
            self.duplicates += 1;
            self.hold(start, end, blob);
        } else if self.make_room(&blob) {
            self.push(start, blob);
            self.gather();
            self.raise_edge();
            self.progress = true;
        } else {
            self.duplicates += 1;
        }
    }

    /// Holds a blob behind a gap, if it brings a byte and there is room.
    fn hold(&mut self, start: u64, end: u64, blob: Blob) {
        let memory = blob.memory();
        if self.covered(start, end) || self.memory() + memory > self.room {
            return;
        }
        let within: Vec<u64> = self
            .early
            .range(start..end)
            .filter(|(other, held)| *other + held.span() <= end)
            .map(|(other, _)| *other)
            .collect();
        for other in within {
            self.forget(other);
        }
        self.early_memory += memory;
        self.early.insert(start, blob);
    }

    /// Says whether all bytes from `start` to `end` are held behind the gap.
    fn covered(&self, start: u64, end: u64) -> bool {
        let mut at = start;
        while at < end {
            // Ends rise with starts: of all that begin before, the last one reaches furthest.
            let before = self.early.range(..=at).next_back();
            match before.map(|(other, held)| other + held.span()) {
                Some(reached) if reached > at => at = reached,
                _ => return false,
            }
        }
        true
    }

    fn forget(&mut self, start: u64) -> Option<Blob> {
        let blob = self.early.remove(&start)?;
        self.early_memory -= blob.memory();
        Some(blob)
    }

    /// Makes room for the next blob in order at the cost of those behind a gap, which their sender
    /// still has (RFC 9293 §3.10.7.4 lets a receiver drop them). Without that, what waits for the
    /// gap could keep it open for ever.
    fn make_room(&mut self, blob: &Blob) -> bool {
        while self.memory() + blob.memory() > self.room
            && let Some((&last, _)) = self.early.last_key_value()
        {
            self.forget(last);
        }
        self.ready.is_empty() || self.memory() + blob.memory() <= self.room
    }

    /// Appends a blob in order.
    fn push(&mut self, start: u64, blob: Blob) {
        self.next = start + blob.span();
        self.fin = blob.ends().then(|| self.next - 1);
        self.ready_memory += blob.memory();
        self.ready.push_back((start, blob));
    }

    /// Appends what the last blob has closed the gap to.
    fn gather(&mut self) {
        while self.fin.is_none()
            && let Some((&start, _)) = self.early.first_key_value()
            && start <= self.next
            && let Some(blob) = self.forget(start)
        {
            if start + blob.span() > self.next {
                self.push(start, blob);
            }
        }
        if self.fin.is_some() {
            self.discard_early();
        }
    }

    /// Widens the window to the free room, unless the step is a small one; never takes back what
    /// was allowed.
    fn raise_edge(&mut self) -> bool {
        let free = self.room.saturating_sub(self.ready_memory) as u64;
        let edge = self.next + free.min(self.widest);
        let step = edge.saturating_sub(self.edge);
        let worth = step > 0 && step >= WORTH_TELLING.min(self.room as u64 / 2);
        if worth {
            self.edge = edge;
        }
        worth
    }

    /// The next blob in order, with its place: the stream takes it.
    pub(crate) fn pop(&mut self) -> Option<(u64, Blob)> {
        let (start, blob) = self.ready.pop_front()?;
        self.ready_memory -= blob.memory();
        let before = self.window();
        if self.raise_edge() && self.fin.is_none() && self.is_worth_telling(before) {
            self.progress = true;
        }
        Some((start, blob))
    }

    /// Says whether the window has risen by so much since it was `before` that its sender should
    /// hear of it: most windows go along with acknowledgements.
    fn is_worth_telling(&self, before: u16) -> bool {
        let before = u64::from(before) << self.shift;
        before < WORTH_TELLING * 2 || before < self.room as u64 / 4
    }

    /// The other end has acknowledged all before `place`, which had passed this PEP untouched.
    pub(crate) fn confirm(&mut self, place: u64) {
        if place > self.next && self.fin.is_none() {
            self.next = place;
            self.gather();
            self.raise_edge();
            self.edge = self.edge.max(self.next);
            self.progress = true;
        }
    }

    /// The other end has acknowledged the FIN. That may have passed the other PEP untouched, before
    /// it comes here again.
    pub(crate) fn confirm_fin(&mut self) {
        self.confirmed = true;
        self.progress |= self.fin.is_some();
    }

    /// Asks for an acknowledgement beside those that segments ask for.
    pub(crate) fn answer(&mut self) {
        self.progress = true;
    }

    /// The next acknowledgement that is to leave.
    pub(crate) fn poll_answer(&mut self) -> Option<Answer> {
        if self.progress {
            self.progress = false;
            return Some(Answer::Progress);
        }
        self.duplicates = self.duplicates.checked_sub(1)?;
        Some(Answer::Duplicate)
    }

    /// An acknowledgement has left with a segment that carries payload.
    pub(crate) fn answered(&mut self) {
        self.progress = false;
    }

    /// Throws away what is held behind a gap.
    pub(crate) fn discard_early(&mut self) {
        self.early.clear();
        self.early_memory = 0;
    }

    /// Throws away all that is held.
    pub(crate) fn discard(&mut self) {
        self.discard_early();
        self.ready.clear();
        self.ready_memory = 0;
    }
}

#[cfg(test)]
mod tests;
