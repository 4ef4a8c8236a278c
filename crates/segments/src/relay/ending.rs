//! End of a relay: both directions have ended in order, or the flow is given up, and who is to hear of it.

use std::time::Instant;

use super::{IDLE, LINGER, Outbox, Phase, Relay};
use crate::handshake::notice;
use crate::reset::{Notice, Reset, Side};
use crate::segment::{Flags, Segment};
use crate::wire::Cause;

impl Relay {
    /// The LAN end has reset the connection. What it had sent before has been acknowledged, and crosses before the reset.
    pub(crate) fn on_reset_end(&mut self, now: Instant) {
        if !matches!(self.phase, Phase::Open | Phase::Aborting(_)) {
            return;
        }
        let tells = matches!(self.phase, Phase::Open);
        self.receiver.discard_early();
        self.sender.discard();
        self.outbox = Outbox {
            fin_acked: None,
            reset: tells.then_some(Cause::End),
        };
        // The other PEP ends the stream once it has read all, which its own end may hold up.
        self.phase = Phase::Reset(Cause::End, Reset::untold(now, IDLE));
    }

    /// The other PEP resets the flow. If its end did, the LAN end takes what was sent before first.
    pub(super) fn on_far_reset(&mut self, now: Instant, cause: Cause) {
        if cause == Cause::End && matches!(self.phase, Phase::Open) {
            self.phase = Phase::Aborting(now);
            self.outbox = Outbox::default();
            self.go_on_aborting(now);
        } else {
            self.abort(now, cause, vec![self.notice(Side::Lan)]);
            self.outbox.reset = None;
        }
    }

    /// Resets the LAN end once it has taken all that the far end had sent before its reset.
    pub(super) fn go_on_aborting(&mut self, now: Instant) {
        if !matches!(self.phase, Phase::Aborting(_)) {
            return;
        }
        // Nobody is left to whom this would have to be carried; the LAN end must not wait for that.
        while self.receiver.pop().is_some() {}
        if self.sender.awaited().is_none() {
            self.finish_aborting(now);
        }
    }

    /// Resets the LAN end if it is silent, or takes nothing for hours.
    pub(super) fn keep_aborting(&mut self, now: Instant) {
        if let Phase::Aborting(since) = self.phase {
            self.sender.handle_timeout(now);
            if self.sender.is_given_up() || now >= since + IDLE {
                self.finish_aborting(now);
            }
        }
    }

    fn finish_aborting(&mut self, now: Instant) {
        let notices = vec![self.notice(Side::Lan)];
        self.receiver.discard();
        self.sender.discard();
        self.outbox = Outbox::default();
        self.phase = Phase::Reset(Cause::End, Reset::new(now, notices));
    }

    /// The flow is given up here: what is on its way to the LAN end is lost.
    pub(crate) fn give_up(&mut self, now: Instant) {
        if self.delivers() {
            self.finish_aborting(now);
        }
        self.on_stream_lost(now);
    }

    /// The stream has ended or broken off: unless both directions have ended, so has the flow.
    pub(crate) fn on_stream_lost(&mut self, now: Instant) {
        self.abort(now, Cause::Lost, self.both());
        if let Phase::Reset(Cause::End, reset) = &mut self.phase {
            self.receiver.discard();
            self.outbox = Outbox::default();
            reset.remember(now);
        }
    }

    /// Acknowledgement of all that the far end has sent, in the LAN end's name.
    pub(super) fn last_word(&self) -> Segment {
        Segment {
            number: self.near.number(self.receiver.next()),
            acknowledgement: self.far.number(self.sender.acknowledged()),
            flags: Flags::ACK,
            ..Segment::default()
        }
    }

    pub(super) fn notice(&self, side: Side) -> Notice {
        let sent = [
            self.near.number(self.receiver.next()),
            self.far.number(self.sender.highest()),
        ];
        match side {
            Side::Lan => notice(side, sent[1], sent[0]),
            Side::Wan => notice(side, sent[0], sent[1]),
        }
    }

    pub(super) fn both(&self) -> Vec<Notice> {
        vec![self.notice(Side::Lan), self.notice(Side::Wan)]
    }

    /// Gives an open flow up, and tells the ends that `notices` name.
    pub(super) fn abort(&mut self, now: Instant, cause: Cause, notices: Vec<Notice>) {
        if !matches!(self.phase, Phase::Open) {
            return;
        }
        self.receiver.discard();
        self.sender.discard();
        let tells = cause != Cause::Lost;
        self.outbox = Outbox {
            fin_acked: None,
            reset: tells.then_some(cause),
        };
        self.phase = Phase::Reset(cause, Reset::new(now, notices));
    }

    /// Notes that both directions have ended.
    pub(super) fn settle(&mut self, now: Instant) {
        let done = self.receiver.is_done() && self.outbox.fin_acked == Some(true);
        if done && matches!(self.phase, Phase::Open) {
            self.phase = Phase::Closed(now);
        }
    }

    /// Says whether the flow may be forgotten.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        match &self.phase {
            Phase::Open | Phase::Aborting(_) => false,
            Phase::Closed(at) => now >= *at + LINGER,
            Phase::Reset(_, reset) => reset.is_over(now),
        }
    }

    /// Reason of the reset, if the flow has been reset.
    pub(crate) fn reset_by(&self) -> Option<Cause> {
        match &self.phase {
            Phase::Aborting(_) => Some(Cause::End),
            Phase::Reset(cause, _) => Some(*cause),
            Phase::Open | Phase::Closed(_) => None,
        }
    }

    /// Says whether a new connection may take the place of this one: both directions have ended, or
    /// it was reset.
    pub(crate) fn is_ended(&self) -> bool {
        !matches!(self.phase, Phase::Open)
    }

    /// Says whether both directions have ended in order: what is left is to answer late segments.
    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.phase, Phase::Closed(_)) && self.is_stream_done()
    }

    /// Says whether bytes of an end that has reset the connection are on their way to the LAN end: for that no stream is
    /// needed any more.
    pub(crate) fn delivers(&self) -> bool {
        matches!(self.phase, Phase::Aborting(_))
    }

    /// Says whether an end may still wait for something of this PEP: for more than answers to late segments.
    pub(crate) fn owes(&self) -> bool {
        match &self.phase {
            Phase::Open | Phase::Aborting(_) => true,
            Phase::Closed(_) => !self.is_stream_done(),
            Phase::Reset(_, reset) => reset.is_awaited() || !self.is_stream_done(),
        }
    }

    /// Says whether the last message has left, so that the stream may be ended.
    pub(crate) fn is_stream_done(&self) -> bool {
        self.is_ended() && self.outbox.reset.is_none()
    }
}
