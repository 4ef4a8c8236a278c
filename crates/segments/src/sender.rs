//! Half of a TCP, towards one LAN end: sends it the blobs that the stream from the other PEP
//! brings, in the other end's name, until it acknowledges them.
//!
//! Blobs leave as they came, for nobody here could seal a part of one: a window that holds half a
//! blob is as good as none, until the persist timer sends the blob whole. The hop is a LAN, so the
//! cumulative acknowledgement does, without SACK.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::congestion::HopWindow;
use crate::rto::RoundTrip;
use crate::segment::Blob;

/// Duplicate acknowledgements that stand for a loss (RFC 5681 §3.2).
const DUPLICATES: u32 = 3;

/// Timeouts in a row, without a word of the end, after which it is given up (RFC 1122 §4.2.3.5): some
/// nine minutes.
const MOST_TIMEOUTS: u32 = 15;

/// Silence after which an end to which nothing is to be sent is asked whether it is still there: its
/// RST may have been lost, and the other end is told by its own PEP that all is well.
const SILENCE: Duration = Duration::from_secs(120);

/// Blob that the end has not acknowledged.
#[derive(Debug)]
struct Stored {
    start: u64,
    blob: Blob,
    /// When it left, if it has left just once.
    sent: Option<Instant>,
    resent: bool,
}

impl Stored {
    fn end(&self) -> u64 {
        self.start + self.blob.span()
    }
}

/// Segment that is to leave towards the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outgoing {
    /// A blob, whose first byte is at this place.
    Blob(u64, Blob),
    /// An empty segment before this place, which the end answers with its window.
    Probe(u64),
}

/// Acknowledgement of the LAN end, with the fields of its segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heard {
    /// Place that it acknowledges.
    pub(crate) acknowledged: u64,
    /// Window as in the header.
    pub(crate) window: u16,
    /// Place of the segment in the end's own numbers, which tells newer windows from older ones.
    pub(crate) place: u64,
    /// The segment carries nothing.
    pub(crate) pure: bool,
}

/// Sending half towards a LAN end. Places are offsets in the other end's numbers.
#[derive(Debug)]
pub(crate) struct Sender {
    stored: VecDeque<Stored>,
    memory: usize,
    room: usize,
    acknowledged: u64,
    /// End of what has left, here or past this PEP.
    highest: u64,
    /// Place up to which the end permits to send.
    edge: u64,
    /// Place in the end's numbers of the segment that brought `edge`.
    edge_from: u64,
    /// End of the last blob.
    tail: u64,
    /// Number of the next blob of `stored` to leave.
    next: usize,
    /// End of direction, once its blob is here.
    fin: Option<u64>,
    shift: u8,
    timing: Timing,
    loss: Loss,
    window: HopWindow,
}

/// Timer of a sender, and how long it has not been answered.
#[derive(Debug, Default)]
struct Timing {
    round_trip: RoundTrip,
    due: Option<Instant>,
    unanswered: u32,
    /// The persist timer has run out: a probe is due.
    probe: bool,
}

/// State of the repair of losses.
#[derive(Debug, Default)]
struct Loss {
    duplicates: u32,
    /// The first blob is to leave again at once, whatever the window.
    first: bool,
    /// Place that a timeout has begun to send again up to; until it is acknowledged, duplicates
    /// come of that (RFC 6582 §4).
    recover: u64,
}

/// Facts about a LAN end that its handshake has shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reception {
    /// Place that it has acknowledged.
    pub(crate) acknowledged: u64,
    /// Place up to which segments have passed this PEP untouched.
    pub(crate) passed: u64,
    /// Place up to which it permits to send.
    pub(crate) edge: u64,
    /// Place in its own numbers of the segment that said so.
    pub(crate) edge_from: u64,
    /// Shift of its windows.
    pub(crate) shift: u8,
    /// Largest segment that it takes, bytes.
    pub(crate) largest: u16,
}

impl Sender {
    /// Sender that holds at most `room` bytes and a blob.
    pub(crate) fn new(end: Reception, room: usize) -> Self {
        Self {
            stored: VecDeque::new(),
            memory: 0,
            room,
            acknowledged: end.acknowledged,
            highest: end.passed.max(end.acknowledged),
            edge: end.edge,
            edge_from: end.edge_from,
            tail: end.acknowledged,
            next: 0,
            fin: None,
            shift: end.shift.min(14),
            timing: Timing::default(),
            loss: Loss::default(),
            window: HopWindow::new(end.largest),
        }
    }

    /// Place that the end has acknowledged.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// End of the last blob.
    pub(crate) fn tail(&self) -> u64 {
        self.tail
    }

    /// Says whether a segment of the other end may be at `place`: within two of the widest windows
    /// without a shift of what the LAN end expects. Elsewhere are guesses, and an end's old words.
    pub(crate) fn is_near(&self, place: u64) -> bool {
        const REACH: u64 = 1 << 17;
        (self.acknowledged.saturating_sub(REACH)..=self.edge.max(self.tail) + REACH)
            .contains(&place)
    }

    /// End of what has left.
    pub(crate) fn highest(&self) -> u64 {
        self.highest
    }

    /// Memory held, in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.memory
    }

    /// Says whether another blob may come.
    pub(crate) fn has_room(&self) -> bool {
        self.memory < self.room
    }

    /// Says whether the end has acknowledged the FIN, and so all before it.
    pub(crate) fn is_done(&self) -> bool {
        self.fin.is_some_and(|fin| self.acknowledged > fin)
    }

    /// First blob that the end has not acknowledged whole; none once it has all that has come for it.
    pub(crate) fn awaited(&self) -> Option<&Blob> {
        self.stored.front().map(|first| &first.blob)
    }

    /// Says whether the end has been silent for too long.
    pub(crate) fn is_given_up(&self) -> bool {
        self.timing.unanswered > MOST_TIMEOUTS
    }

    /// Takes a blob whose first byte is at `start`. False: bytes before it are missing, or the
    /// direction has ended; nothing is kept.
    pub(crate) fn push(&mut self, start: u64, blob: Blob) -> bool {
        let end = start + blob.span();
        if end <= self.tail {
            return true;
        }
        if start > self.tail || self.fin.is_some() {
            return false;
        }
        if self.stored.is_empty() {
            self.timing.due = None;
        }
        self.tail = end;
        self.fin = blob.ends().then(|| end - 1);
        self.memory += blob.memory();
        self.stored.push_back(Stored {
            start,
            blob,
            sent: None,
            resent: false,
        });
        true
    }

    /// Takes an acknowledgement. False: it is for what was never sent.
    pub(crate) fn on_heard(&mut self, now: Instant, heard: Heard) -> bool {
        if heard.acknowledged > self.highest {
            return false;
        }
        self.timing.unanswered = 0;
        if heard.acknowledged < self.acknowledged {
            return true;
        }
        let edge = heard.acknowledged + (u64::from(heard.window) << self.shift);
        let unchanged = edge == self.edge;
        if heard.place >= self.edge_from {
            self.edge_from = heard.place;
            self.edge = edge;
        }
        if heard.acknowledged > self.acknowledged {
            self.on_progress(now, heard.acknowledged);
        } else if heard.pure && unchanged && self.in_flight() > 0 {
            self.on_duplicate();
        }
        if self.stored.is_empty() {
            self.timing.due = None;
        } else if self.in_flight() == 0 && self.may_send() {
            // The window has opened: what waited for that is over.
            self.timing.due = None;
            self.timing.round_trip.on_progress();
        }
        self.set_timer(now);
        true
    }

    fn on_progress(&mut self, now: Instant, place: u64) {
        let bytes = place - self.acknowledged;
        self.acknowledged = place;
        self.tail = self.tail.max(place);
        let mut sample = None;
        while let Some(first) = self.stored.front().filter(|first| first.end() <= place) {
            self.memory -= first.blob.memory();
            if !first.resent {
                sample = first.sent;
            }
            self.stored.pop_front();
            self.next = self.next.saturating_sub(1);
        }
        if let Some(sent) = sample {
            self.timing.round_trip.sample(now.duration_since(sent));
        }
        self.timing.round_trip.on_progress();
        self.timing.due = None;
        self.loss.duplicates = 0;
        self.loss.first = self.window.on_progress(place, bytes) && self.next > 0;
    }

    fn on_duplicate(&mut self) {
        self.loss.duplicates += 1;
        if self.window.repairs() {
            self.window.on_duplicate();
        } else if self.loss.duplicates == DUPLICATES && self.acknowledged >= self.loss.recover {
            self.window.on_loss(self.in_flight(), self.highest);
            self.loss.first = true;
        }
    }

    /// Bytes on their way: those that have left since the last timeout and are not acknowledged.
    fn in_flight(&self) -> u64 {
        let last = self.next.checked_sub(1).and_then(|it| self.stored.get(it));
        last.map_or(0, |last| last.end().saturating_sub(self.acknowledged))
    }

    /// The next segment that may leave.
    pub(crate) fn poll(&mut self, now: Instant) -> Option<Outgoing> {
        let index = if self.loss.first && !self.stored.is_empty() {
            0
        } else if self.may_send() {
            self.next
        } else if std::mem::take(&mut self.timing.probe) {
            return Some(Outgoing::Probe(self.acknowledged));
        } else {
            // What has come since the last acknowledgement may find a window that is too small.
            self.set_timer(now);
            return None;
        };
        self.loss.first = false;
        self.timing.probe = false;
        self.next = self.next.max(index + 1);
        let stored = self.stored.get_mut(index)?;
        let again = stored.sent.is_some();
        stored.resent |= again;
        stored.sent = Some(now);
        let outgoing = Outgoing::Blob(stored.start, stored.blob.clone());
        let end = stored.end();
        self.highest = self.highest.max(end);
        if index == 0 {
            self.timing.due = None;
        }
        self.set_timer(now);
        Some(outgoing)
    }

    /// Says whether window and congestion window let the next blob leave whole.
    fn may_send(&self) -> bool {
        let Some(next) = self.stored.get(self.next) else {
            return false;
        };
        let flight = self.in_flight();
        // A FIN takes no room at the end.
        let fits = next.start + u64::from(next.blob.length) <= self.edge;
        fits && (flight == 0 || flight + next.blob.span() <= self.window.size())
    }

    /// Sets the timer for a retransmit; if the end's window lets nothing leave, or there is nothing,
    /// for a probe.
    fn set_timer(&mut self, now: Instant) {
        if self.timing.due.is_some() {
            return;
        }
        if self.stored.is_empty() {
            self.timing.due = Some(now + SILENCE);
        } else if self.in_flight() > 0 || !self.may_send() {
            self.timing.due = Some(now + self.timing.round_trip.timeout());
        }
    }

    /// When [`Self::handle_timeout`] is to be called.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.timing.due
    }

    /// Acts on a timer that has run out.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if self.timing.due.is_none_or(|due| due > now) {
            return;
        }
        self.timing.due = None;
        if self.stored.is_empty() {
            self.timing.probe = true;
            self.set_timer(now);
            return;
        }
        self.timing.unanswered += 1;
        let flight = self.in_flight();
        if flight > 0 {
            self.window.on_timeout(flight);
            self.loss = Loss {
                duplicates: 0,
                first: true,
                recover: self.highest,
            };
            // Without SACK nobody knows what is missing behind the first: all goes again, as fast
            // as acknowledgements come.
            self.next = 0;
            for stored in &mut self.stored {
                stored.resent |= stored.sent.is_some();
            }
        } else if self.edge > self.acknowledged {
            // The window holds a part of the next blob: the end takes that part, or all.
            self.loss.first = true;
        } else {
            self.timing.probe = true;
        }
        self.timing.round_trip.on_timeout();
        self.set_timer(now);
    }

    /// Throws away all that is held.
    pub(crate) fn discard(&mut self) {
        self.stored.clear();
        self.memory = 0;
        self.next = 0;
        self.timing = Timing::default();
        self.loss = Loss::default();
    }
}

#[cfg(test)]
mod tests;
