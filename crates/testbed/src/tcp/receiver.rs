//! The receiving end: acknowledges every second segment, and at once what is out of order (RFC 5681 §4.2).

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::ranges::Ranges;
use super::{Ack, Segment};

/// A single segment waits at most this long for its acknowledgement.
const DELAY: Duration = Duration::from_millis(40);
/// Ranges of one ACK beside timestamps.
const MAX_RANGES: usize = 3;

/// Receives what a [`super::Sender`] sends.
#[derive(Debug, Default)]
pub struct Receiver {
    /// Everything below has arrived.
    next: u64,
    above: Ranges,
    /// Segments whose ranges were reported last, the newest first.
    recent: VecDeque<u64>,
    newest: Option<Segment>,
    unacknowledged: u32,
    marked: bool,
    immediate: bool,
    due: Option<Instant>,
    received: u64,
}

impl Receiver {
    /// A segment has arrived.
    pub fn handle_segment(&mut self, now: Instant, segment: Segment) {
        let in_order = segment.sequence == self.next;
        let holes = !in_order || self.above.around(self.next + 1).is_some();
        if segment.sequence >= self.next {
            let new = self.above.insert(segment.sequence..segment.sequence + 1);
            self.received += u64::from(!new.is_empty());
        }
        if let Some(run) = self.above.around(self.next) {
            self.next = run.end;
            self.above.forget_below(run.end);
        }
        if !in_order {
            self.recent.push_front(segment.sequence);
            self.recent.truncate(4 * MAX_RANGES);
        }
        self.recent.retain(|sequence| *sequence >= self.next);
        let newer = |newest: Segment| segment.transmission > newest.transmission;
        if self.newest.is_none_or(newer) {
            self.newest = Some(segment);
        }
        // A change of the mark is reported at once, as far as ECN's echo goes.
        self.immediate |= holes || !self.recent.is_empty() || segment.marked;
        self.marked |= segment.marked;
        self.unacknowledged += 1;
        self.due.get_or_insert(now + DELAY);
    }

    /// The acknowledgement that is to be sent now.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Ack> {
        let due = self.due.is_some_and(|due| due <= now);
        if self.unacknowledged == 0 || !(self.immediate || due || self.unacknowledged >= 2) {
            return None;
        }
        let newest = self.newest?;
        let mut selective = Vec::new();
        for sequence in &self.recent {
            if let Some(range) = self.above.around(*sequence)
                && !selective.contains(&range)
            {
                selective.push(range);
            }
            if selective.len() == MAX_RANGES {
                break;
            }
        }
        self.unacknowledged = 0;
        self.immediate = false;
        self.due = None;
        Some(Ack {
            cumulative: self.next,
            selective,
            transmission: newest.transmission,
            sent: newest.sent,
            marked: std::mem::take(&mut self.marked),
        })
    }

    /// Instant at which a delayed acknowledgement is due.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.due
    }

    /// Segments that arrived, each counted once.
    pub fn received(&self) -> u64 {
        self.received
    }
}
