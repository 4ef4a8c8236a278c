//! Resets that arrive: an end takes an RST only at the very byte that it expects (RFC 5961 §3), and
//! a PEP need not know which one that is.
//!
//! So the PEP asks: it sends an empty segment from before the end's window, the end answers what it
//! expects (RFC 9293 §3.10.7.4), and that number gets the RST. It asks again until the end says
//! that it knows nothing of the connection, or a while is over.

use std::time::{Duration, Instant};

use crate::segment::{Flags, Segment};

/// Time for which a connection that was reset is remembered.
const MEMORY: Duration = Duration::from_secs(120);

/// First and longest time between two questions.
const FIRST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(8);

/// Side of a PEP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Side {
    /// Towards the end that is near.
    Lan,
    /// Towards the other PEP, and the end that is far.
    Wan,
}

impl Side {
    /// The other side.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Lan => Self::Wan,
            Self::Wan => Self::Lan,
        }
    }
}

/// Words to an end whose connection is over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Notice {
    /// Side that it is on.
    pub(crate) side: Side,
    /// Number that it probably expects.
    pub(crate) number: u32,
    /// Number that it does not expect any more.
    pub(crate) old: u32,
    /// Number that it has seen acknowledged long ago: nothing is acknowledged to an end that is
    /// reset.
    pub(crate) acknowledgement: u32,
}

/// Connection that is being reset at one or both of its ends.
#[derive(Debug)]
pub(crate) struct Reset {
    notices: Vec<Notice>,
    next: Instant,
    wait: Duration,
    until: Instant,
}

impl Reset {
    /// Reset of the ends that `notices` name.
    pub(crate) fn new(now: Instant, notices: Vec<Notice>) -> Self {
        Self {
            notices,
            next: now,
            wait: FIRST,
            until: now + MEMORY,
        }
    }

    /// Reset of which no end has to be told here, remembered for `time` at most.
    pub(crate) fn untold(now: Instant, time: Duration) -> Self {
        Self {
            until: now + time,
            ..Self::new(now, Vec::new())
        }
    }

    /// Remembers the connection for the usual while from now on.
    pub(crate) fn remember(&mut self, now: Instant) {
        self.until = now + MEMORY;
    }

    /// Says whether the connection may be forgotten.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        now >= self.until
    }

    /// Says whether an end may not know yet that the connection is reset.
    pub(crate) fn is_awaited(&self) -> bool {
        !self.notices.is_empty()
    }

    /// When [`Self::handle_timeout`] is to be called.
    pub(crate) fn poll_timeout(&self) -> Instant {
        if self.notices.is_empty() {
            self.until
        } else {
            self.next.min(self.until)
        }
    }

    /// Segments that are due: an RST at first, and a question.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> Vec<(Side, Segment)> {
        if now < self.next || self.notices.is_empty() {
            return Vec::new();
        }
        let first = self.wait == FIRST;
        self.next = now + self.wait;
        self.wait = (self.wait * 2).min(LONGEST);
        let mut out = Vec::new();
        for notice in &self.notices {
            let segment = |number, flags| Segment {
                number,
                acknowledgement: notice.acknowledgement,
                flags,
                ..Segment::default()
            };
            if first {
                let rst = segment(notice.number, Flags::RST);
                out.push((notice.side, rst));
            }
            out.push((notice.side, segment(notice.old, Flags::ACK)));
        }
        out
    }

    /// Takes a segment of the end on this `side`, and answers it.
    pub(crate) fn on_segment(&mut self, side: Side, segment: &Segment) -> Option<(Side, Segment)> {
        if segment.flags.has(Flags::RST) {
            self.notices.retain(|notice| notice.side != side);
            return None;
        }
        rst_for(segment).map(|rst| (side, rst))
    }
}

/// RST that the sender of `segment` takes: at the number that it acknowledges.
fn rst_for(segment: &Segment) -> Option<Segment> {
    let answers = segment.flags.has(Flags::ACK) && !segment.flags.has(Flags::RST);
    answers.then(|| Segment {
        number: segment.acknowledgement,
        flags: Flags::RST,
        ..Segment::default()
    })
}
