//! Packets whose fate is known, and those of them that left below the path's rate.

use std::time::Instant;

use super::{MIN_PACKETS, UNKNOWN};

/// Packets of which the fate is known, in packets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) acked: f64,
    pub(super) lost: f64,
}

impl Tally {
    pub(super) fn acked(count: f64) -> Self {
        Self {
            acked: count,
            lost: 0.0,
        }
    }

    pub(super) fn lost(count: f64) -> Self {
        Self {
            acked: 0.0,
            lost: count,
        }
    }

    pub(super) fn add(&mut self, more: Self) {
        self.acked += more.acked;
        self.lost += more.lost;
    }

    /// Lets what was counted until now weigh half as much.
    pub(super) fn halve(&mut self) {
        self.acked /= 2.0;
        self.lost /= 2.0;
    }

    pub(super) fn total(self) -> f64 {
        self.acked + self.lost
    }

    pub(super) fn share(self) -> f64 {
        if self.total() > 0.0 {
            self.lost / self.total()
        } else {
            0.0
        }
    }
}

/// Packets sent in a span of time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) tally: Tally,
    start: Instant,
    end: Option<Instant>,
}

impl Span {
    pub(super) fn new(start: Instant, end: Option<Instant>) -> Self {
        Self {
            tally: Tally::default(),
            start,
            end,
        }
    }

    /// Counts packets that left at `sent`, if that was in the span.
    pub(super) fn count(&mut self, packets: Tally, sent: Instant) {
        if sent >= self.start && !self.is_before(sent) {
            self.tally.add(packets);
        }
    }

    fn is_before(&self, sent: Instant) -> bool {
        self.end.is_some_and(|end| sent >= end)
    }
}

/// Answer to a quiet span.
pub(super) enum Answer {
    /// Packets per second that arrived of a span that was not quiet: more is sent than the path takes.
    Congested(f64),
    /// Packets below the path's rate, enough of them for a share.
    Shown(Tally),
}

/// A span that is sent below the path's rate, so that what is lost of it is the path's own loss.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Quiet {
    span: Option<Span>,
    /// Share by which the span is below the path's rate.
    depth: f64,
    /// Packets per second that arrive if the span is not below the path's rate after all.
    full: f64,
    /// The last span was not quiet enough to tell.
    inconclusive: bool,
    /// Packets of earlier spans that were too short alone.
    total: Tally,
}

impl Quiet {
    /// Begins a span, `depth` (a share) below the path's rate; until now `rate` packets a second arrived.
    pub(super) fn start(&mut self, now: Instant, depth: f64, rate: f64) {
        self.span = Some(Span::new(now, None));
        self.depth = depth;
        self.full = rate * (1.0 - depth / 4.0);
    }

    /// Ends the span; its answer is still to come.
    pub(super) fn end(&mut self, now: Instant) {
        if let Some(span) = &mut self.span {
            span.end.get_or_insert(now);
        }
    }

    /// Drops the span: it will not be quiet.
    pub(super) fn give_up(&mut self) {
        self.span = None;
    }

    /// True until a span is answered.
    pub(super) fn is_waiting(&self) -> bool {
        self.span.is_some()
    }

    /// True if the next span is to be as deep as possible.
    pub(super) fn wants_depth(&self) -> bool {
        self.inconclusive
    }

    pub(super) fn on_lost(&mut self, count: f64, sent: Instant) {
        if let Some(span) = &mut self.span {
            span.count(Tally::lost(count), sent);
        }
    }

    /// Takes `count` packets that were acknowledged. Returns what the span showed once it is answered, of a path that loses
    /// `baseline`; `queued` if a queue still stands.
    pub(super) fn on_acked(
        &mut self,
        count: f64,
        sent: Instant,
        queued: bool,
        baseline: f64,
    ) -> Option<Answer> {
        let span = self.span.as_mut()?;
        if !span.is_before(sent) {
            span.count(Tally::acked(count), sent);
            return None;
        }
        let span = self.span.take()?;
        let length = span.end?.saturating_duration_since(span.start);
        if !queued && span.tally.lost > 0.0 {
            let arrived = span.tally.acked / length.as_secs_f64().max(1e-6);
            let excess = span.tally.share() > baseline + UNKNOWN;
            if excess && arrived > self.full {
                return Some(Answer::Congested(arrived));
            }
        }
        // Had the excess been congestion, so shallow a span would have left some of it.
        self.inconclusive = span.tally.share() > baseline + UNKNOWN + self.depth;
        if self.inconclusive {
            self.total = Tally::default();
            return None;
        }
        self.total.add(span.tally);
        if self.total.total() < MIN_PACKETS {
            return None;
        }
        Some(Answer::Shown(std::mem::take(&mut self.total)))
    }
}
