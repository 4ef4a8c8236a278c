//! Relay of one flow at one PEP: both halves towards its LAN end, and the stream to the other PEP.
//!
//! How it ends, in order or not, is in `relay/ending.rs`.

mod ending;

use std::time::{Duration, Instant};

use bytes::BytesMut;

use crate::fault::PeerFault;
use crate::handshake::Handshake;
use crate::receiver::Receiver;
use crate::reset::{Reset, Side};
use crate::segment::{Blob, Flags, Numbers, Segment};
use crate::sender::{Heard, Outgoing, Sender};
use crate::wire::{Cause, Message, Parser};

/// Time after which a connection without a segment is reset: two hours and four minutes, as for NATs
/// (RFC 5382 §5).
pub(crate) const IDLE: Duration = Duration::from_secs(7440);

/// Time for which the FIN of an end is acknowledged again after both directions have ended and the
/// end was last heard: four of its longest timeouts.
const LINGER: Duration = Duration::from_secs(240);

/// Bytes beyond the window at which the words of an end still count: it may have probed a closed
/// window with a segment, and numbers all that it says after that.
const PROBED: u64 = 65_535;

/// Least time between two answers to empty segments that are out of place, so that two ends which
/// disagree do not answer each other for ever.
const BETWEEN_ANSWERS: Duration = Duration::from_millis(100);

/// Phase of a relay.
#[derive(Debug)]
enum Phase {
    Open,
    /// Both directions have ended; the end was heard at this time.
    Closed(Instant),
    /// The far end has reset the connection, as the stream said at this time; the LAN end has yet to take what was
    /// sent before.
    Aborting(Instant),
    Reset(Cause, Reset),
}

/// Small messages that wait for the stream.
#[derive(Debug, Default)]
struct Outbox {
    /// FIN_ACKED is due, or has left.
    fin_acked: Option<bool>,
    reset: Option<Cause>,
}

/// Relay of one flow.
#[derive(Debug)]
pub(crate) struct Relay {
    /// Numbers of the LAN end, and of the end that is far.
    near: Numbers,
    far: Numbers,
    receiver: Receiver,
    /// End of the bytes that the LAN end had sent when the relay began.
    passed: u64,
    sender: Sender,
    parser: Parser,
    outbox: Outbox,
    phase: Phase,
    /// When something last came from the LAN or the stream.
    heard: Instant,
    /// When an empty segment out of place was last answered.
    answered: Option<Instant>,
}

impl Relay {
    /// Relay that goes on where the segments that have passed leave it; each of its halves holds at
    /// most `room` bytes and a blob. `None`: the SYN-ACK is missing.
    pub(crate) fn new(
        now: Instant,
        shaken: &Handshake,
        parser: Parser,
        room: usize,
    ) -> Option<Self> {
        let (next, passed, shift) = shaken.far_reception();
        Some(Self {
            near: shaken.numbers(Side::Lan)?,
            far: shaken.numbers(Side::Wan)?,
            receiver: Receiver::new(next, room, shift),
            passed,
            sender: Sender::new(shaken.reception(), room),
            parser,
            outbox: Outbox::default(),
            phase: Phase::Open,
            heard: now,
            answered: None,
        })
    }

    /// Takes a segment of the LAN end.
    pub(crate) fn on_lan(&mut self, now: Instant, segment: &Segment) -> Option<(Side, Segment)> {
        if let Phase::Reset(_, reset) = &mut self.phase {
            return reset.on_segment(Side::Lan, segment);
        }
        let place = self.near.offset(segment.number, self.receiver.next())?;
        self.heard = now;
        if let Phase::Closed(at) = &mut self.phase {
            *at = now;
        }
        if segment.flags.has(Flags::RST) {
            self.on_rst(now, place);
        } else if segment.flags.has(Flags::SYN) {
            // The far end's SYN-ACK again, or a new connection: its sender answers with an RST if
            // this one is no more (RFC 5961 §4).
            self.receiver.answer();
        } else if segment.flags.has(Flags::ACK) {
            self.on_words(now, place, segment);
        }
        None
    }

    fn on_rst(&mut self, now: Instant, place: u64) {
        let expected = [self.receiver.next(), self.receiver.acknowledged()];
        if expected.contains(&place) {
            self.on_reset_end(now);
        } else if (self.receiver.acknowledged()..=self.receiver.edge()).contains(&place) {
            self.receiver.answer();
        }
    }

    fn on_words(&mut self, now: Instant, place: u64, segment: &Segment) {
        let blob = segment.blob();
        let heard = self
            .far
            .offset(segment.acknowledgement, self.sender.acknowledged());
        let in_place = (self.receiver.acknowledged()..=self.receiver.edge()).contains(&place);
        let known = heard.is_some_and(|acknowledged| {
            let heard = Heard {
                acknowledged,
                window: segment.window,
                place,
                pure: blob.is_none(),
            };
            place <= self.receiver.edge() + PROBED && self.sender.on_heard(now, heard)
        });
        if self.sender.is_done() {
            self.outbox.fin_acked.get_or_insert(false);
        }
        match blob {
            Some(blob) => self.receiver.insert(place, blob),
            None if in_place && known => {}
            None => self.answer_sparely(now),
        }
        self.go_on_aborting(now);
    }

    /// Answers an empty segment that is out of place: a probe of a window, or of a silent
    /// connection.
    fn answer_sparely(&mut self, now: Instant) {
        let recent = |before: Instant| now.duration_since(before) < BETWEEN_ANSWERS;
        if !self.answered.is_some_and(recent) {
            self.answered = Some(now);
            self.receiver.answer();
        }
    }

    /// Takes a segment of the far end that the other PEP let pass before its relay began.
    pub(crate) fn on_wan(&mut self, segment: &Segment) -> Option<(Side, Segment)> {
        match &mut self.phase {
            Phase::Open => {}
            // The other PEP has forgotten the flow, and the far end has not heard the last word.
            Phase::Closed(_) if segment.span() > 0 => return Some((Side::Wan, self.last_word())),
            Phase::Closed(_) | Phase::Aborting(_) => return None,
            Phase::Reset(_, reset) => return reset.on_segment(Side::Wan, segment),
        }
        if segment.flags.has(Flags::SYN | Flags::RST) || !segment.flags.has(Flags::ACK) {
            return None;
        }
        let place = self.far.offset(segment.number, self.sender.tail())?;
        if !self.sender.is_near(place) {
            return None;
        }
        let heard = segment.acknowledgement;
        let heard = self.near.offset(heard, self.receiver.next());
        if let Some(heard) = heard.filter(|heard| *heard <= self.passed) {
            self.receiver.confirm(heard);
        }
        if let Some(blob) = segment.blob().filter(|_| self.sender.has_room()) {
            // The next bytes in order need not wait for the stream; others come there.
            let _ = place > 0 && self.sender.push(place, blob);
        }
        None
    }

    /// Says whether the stream may be read.
    pub(crate) fn has_room(&self) -> bool {
        self.sender.has_room() || !matches!(self.phase, Phase::Open)
    }

    /// Takes bytes of the stream from `input`, as many as there is room for.
    ///
    /// # Errors
    /// [`PeerFault`]: the flow has been reset.
    pub(crate) fn on_stream(&mut self, now: Instant, input: &mut &[u8]) -> Result<(), PeerFault> {
        self.heard = now;
        while self.has_room() {
            if matches!(self.phase, Phase::Aborting(_) | Phase::Reset(..)) {
                *input = &[];
                return Ok(());
            }
            let taken = match self.parser.next(input) {
                Ok(None) => return Ok(()),
                Ok(Some(message)) => self.on_message(now, message),
                Err(fault) => Err(fault.into()),
            };
            if let Err(fault) = taken {
                self.abort(now, Cause::Fault, self.both());
                return Err(fault);
            }
        }
        Ok(())
    }

    fn on_message(&mut self, now: Instant, message: Message) -> Result<(), PeerFault> {
        match message {
            Message::Open(_) => Err(PeerFault::Open),
            Message::Blob(number, blob) => self.on_blob(number, blob),
            Message::FinAcked => {
                self.receiver.confirm_fin();
                self.settle(now);
                Ok(())
            }
            Message::Reset(cause) => {
                self.on_far_reset(now, cause);
                Ok(())
            }
        }
    }

    fn on_blob(&mut self, number: u32, blob: Blob) -> Result<(), PeerFault> {
        let tail = self.sender.tail();
        let place = self.far.offset(number, tail).filter(|place| *place > 0);
        match place {
            Some(place) if self.sender.push(place, blob) => Ok(()),
            _ => Err(PeerFault::Gap {
                number,
                tail: self.far.number(tail),
            }),
        }
    }

    /// Appends messages for the stream to `out`, until that has `most` bytes or nothing is left.
    pub(crate) fn poll_stream(&mut self, now: Instant, out: &mut BytesMut, most: usize) {
        while out.len() < most
            && let Some(message) = self.next_message()
        {
            message.encode(out);
        }
        self.settle(now);
    }

    fn next_message(&mut self) -> Option<Message> {
        if matches!(self.phase, Phase::Aborting(_)) {
            return None;
        }
        if self.outbox.fin_acked == Some(false) {
            self.outbox.fin_acked = Some(true);
            return Some(Message::FinAcked);
        }
        if let Some((place, blob)) = self.receiver.pop() {
            return Some(Message::Blob(self.near.number(place), blob));
        }
        // What an end that has reset had sent is before its reset; of others nothing is held.
        self.outbox.reset.take().map(Message::Reset)
    }

    /// The next segment that is to leave towards the LAN end.
    pub(crate) fn poll_segment(&mut self, now: Instant) -> Option<Segment> {
        if matches!(self.phase, Phase::Reset(..)) {
            return None;
        }
        let segment = match self.sender.poll(now) {
            Some(Outgoing::Blob(place, blob)) => {
                self.receiver.answered();
                Segment {
                    number: self.far.number(place),
                    flags: blob.flags | Flags::ACK,
                    urgent: blob.urgent,
                    length: blob.length,
                    zone: blob.zone,
                    ..Segment::default()
                }
            }
            Some(Outgoing::Probe(place)) => self.empty(place - 1),
            None => {
                self.receiver.poll_answer()?;
                self.empty(self.sender.highest())
            }
        };
        Some(Segment {
            acknowledgement: self.near.number(self.receiver.acknowledged()),
            window: self.receiver.window(),
            ..segment
        })
    }

    fn empty(&self, place: u64) -> Segment {
        Segment {
            number: self.far.number(place),
            flags: Flags::ACK,
            ..Segment::default()
        }
    }

    /// When [`Self::handle_timeout`] is to be called.
    pub(crate) fn poll_timeout(&self) -> Instant {
        match &self.phase {
            Phase::Open => {
                let idle = self.heard + IDLE;
                self.sender.poll_timeout().map_or(idle, |due| due.min(idle))
            }
            Phase::Aborting(since) => {
                let last = *since + IDLE;
                self.sender.poll_timeout().map_or(last, |due| due.min(last))
            }
            Phase::Closed(at) => *at + LINGER,
            Phase::Reset(_, reset) => reset.poll_timeout(),
        }
    }

    /// Acts on timers that have run out; yields segments of a reset.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> Vec<(Side, Segment)> {
        if matches!(self.phase, Phase::Open) {
            self.sender.handle_timeout(now);
            if self.sender.is_given_up() {
                self.abort(now, Cause::Silent, vec![self.notice(Side::Lan)]);
            } else if now >= self.heard + IDLE {
                self.abort(now, Cause::Idle, self.both());
            }
        }
        self.keep_aborting(now);
        match &mut self.phase {
            Phase::Reset(_, reset) => reset.handle_timeout(now),
            _ => Vec::new(),
        }
    }

    /// First blob that the LAN end has not acknowledged whole.
    pub(crate) fn awaited(&self) -> Option<&Blob> {
        self.sender.awaited()
    }

    /// Memory held, in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.receiver.memory() + self.sender.memory()
    }
}
