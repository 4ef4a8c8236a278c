//! One flow of a table, from its SYN on: watched, offered to the other PEP or invited by it,
//! relayed, or left alone. What its stream brings and takes is in `flow/stream.rs`.

mod stream;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::handshake::{Handshake, notice};
use crate::relay::{IDLE, Relay};
use crate::reset::{Reset, Side};
use crate::segment::{Flags, Segment};
use crate::wire::{Cause, Endpoint, Form, Message, Opening, Parser, Scope};

/// Time for which an invitation waits for the end of its handshake (RFC 5382 §5).
const HANDSHAKE: Duration = Duration::from_secs(240);

/// Both ends of a flow, as one PEP sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowName {
    /// Pair of ends that the addresses belong to.
    pub scope: Scope,
    /// End on the LAN of this PEP.
    pub lan: Endpoint,
    /// End behind the other PEP.
    pub wan: Endpoint,
}

/// Stage of a flow.
#[derive(Debug)]
enum Stage {
    /// The handshake is going on.
    Watched,
    /// The stream carries the flow's OPEN; the parser reads the answer.
    Offered(Parser),
    /// The other PEP has offered the flow; the initiator has yet to acknowledge the SYN-ACK.
    Invited(Parser),
    /// All passes.
    Untouched,
    Relayed(Box<Relay>),
    /// An earlier process may have relayed the flow: both ends are reset.
    Stray(Reset),
}

/// Step that a flow has taken with a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The segment goes on.
    Pass,
    /// The segment goes on, and the flow is to be offered to the other PEP.
    Offer,
    /// The relay has the segment.
    Taken,
}

/// One flow.
#[derive(Debug)]
pub(crate) struct Flow {
    name: FlowName,
    handshake: Handshake,
    stage: Stage,
    /// OPEN, and the refusal of an invitation.
    outbox: VecDeque<Message>,
    /// Segments of a reset.
    resets: VecDeque<(Side, Segment)>,
    heard: Instant,
    room: usize,
}

impl Flow {
    /// Flow that begins with this SYN; each direction of its relay holds at most `room` bytes.
    pub(crate) fn new(
        now: Instant,
        name: FlowName,
        side: Side,
        syn: &Segment,
        room: usize,
    ) -> Self {
        Self {
            name,
            handshake: Handshake::new(side, syn),
            stage: Stage::Watched,
            outbox: VecDeque::new(),
            resets: VecDeque::new(),
            heard: now,
            room,
        }
    }

    /// Flow that is not known, of which this segment came: it is reset. Nothing is relayed, so the
    /// segment may stand for the SYN.
    pub(crate) fn stray(now: Instant, name: FlowName, side: Side, segment: &Segment) -> Self {
        let (sent, expected) = (segment.number, segment.acknowledgement);
        let notices = vec![
            notice(side, expected, sent),
            notice(side.other(), sent, expected),
        ];
        Self {
            stage: Stage::Stray(Reset::new(now, notices)),
            ..Self::new(now, name, side, segment, 0)
        }
    }

    /// Both ends.
    pub(crate) fn name(&self) -> &FlowName {
        &self.name
    }

    /// Says whether this SYN begins another connection, for which this one has to go.
    pub(crate) fn gives_way(&self, side: Side, syn: &Segment) -> bool {
        let known = self.handshake.numbers(side);
        let other = known.is_none_or(|known| known.initial() != syn.number);
        match &self.stage {
            Stage::Watched | Stage::Invited(_) => other && side == self.handshake.initiator(),
            Stage::Untouched => other,
            Stage::Stray(_) => true,
            Stage::Offered(_) => false,
            Stage::Relayed(relay) => relay.is_ended(),
        }
    }

    /// Says whether the flow has a place among the relays: one that has ended lingers without.
    pub(crate) fn has_place(&self) -> bool {
        match &self.stage {
            Stage::Offered(_) | Stage::Invited(_) => true,
            Stage::Relayed(relay) => !relay.is_closed(),
            Stage::Watched | Stage::Untouched | Stage::Stray(_) => false,
        }
    }

    /// Says whether an end may still wait for something of this PEP.
    pub(crate) fn owes(&self) -> bool {
        match &self.stage {
            Stage::Offered(_) | Stage::Invited(_) => true,
            Stage::Relayed(relay) => relay.owes(),
            Stage::Watched | Stage::Untouched | Stage::Stray(_) => false,
        }
    }

    /// Says whether bytes of an end that has reset the connection are on their way to the LAN end.
    pub(crate) fn delivers(&self) -> bool {
        self.relay().is_some_and(Relay::delivers)
    }

    /// Says whether the flow may have segments or messages of its own.
    pub(crate) fn speaks(&self) -> bool {
        self.has_place() || matches!(self.stage, Stage::Relayed(_) | Stage::Stray(_))
    }

    /// Takes a segment that came from `side`.
    pub(crate) fn on_segment(&mut self, now: Instant, side: Side, segment: &Segment) -> Step {
        if let Stage::Relayed(relay) = &mut self.stage {
            let answer = match side {
                Side::Lan => relay.on_lan(now, segment),
                Side::Wan => relay.on_wan(segment),
            };
            self.resets.extend(answer);
            return Step::Taken;
        }
        if let Stage::Stray(reset) = &mut self.stage {
            self.resets.extend(reset.on_segment(side, segment));
            return Step::Taken;
        }
        self.heard = now;
        let answered = self.handshake.on_pass(side, segment);
        if matches!(self.stage, Stage::Offered(_) | Stage::Untouched) {
            // Offered: the other PEP may relay already. Only its answer, or the stream's end, tells.
            return Step::Pass;
        }
        if !self.handshake.may_relay() {
            self.leave_alone();
            return Step::Pass;
        }
        if matches!(self.stage, Stage::Invited(_)) && self.accept(now) {
            return self.on_segment(now, side, segment);
        }
        if answered && side == Side::Lan {
            return Step::Offer;
        }
        Step::Pass
    }

    /// Lets all pass from now on; an invitation is refused, an offer has not left.
    pub(crate) fn leave_alone(&mut self) {
        self.outbox.clear();
        if matches!(self.stage, Stage::Invited(_)) {
            self.outbox.push_back(Message::Reset(Cause::Unknown));
        }
        self.stage = Stage::Untouched;
    }

    /// OPEN of this flow, once the SYN-ACK was seen.
    fn opening(&self, form: Form) -> Option<Opening> {
        let FlowName { scope, lan, wan } = self.name;
        let (initiator, responder) = match self.handshake.initiator() {
            Side::Lan => (lan, wan),
            Side::Wan => (wan, lan),
        };
        Some(Opening {
            form,
            scope,
            initiator,
            responder,
            initial: self.handshake.initial()?,
        })
    }

    /// Offers the flow to the other PEP.
    pub(crate) fn offer(&mut self, form: Form) {
        if let Some(opening) = self.opening(form) {
            self.outbox.push_back(Message::Open(opening));
            self.stage = Stage::Offered(Parser::default());
        }
    }

    /// Takes the other PEP's OPEN, whose stream `parser` reads on.
    ///
    /// # Errors
    /// [`Cause::Unknown`]: the flow is another one, or is left alone.
    pub(crate) fn invite(
        &mut self,
        now: Instant,
        opening: &Opening,
        parser: Parser,
    ) -> Result<(), Cause> {
        let syn = self.handshake.numbers(Side::Lan);
        let fits = matches!(self.stage, Stage::Watched)
            && self.handshake.initiator() == Side::Lan
            && syn.is_some_and(|syn| syn.initial() == opening.initial[0]);
        if !fits {
            return Err(Cause::Unknown);
        }
        self.outbox.push_back(Message::Open(opening.clone()));
        self.stage = Stage::Invited(parser);
        self.accept(now);
        Ok(())
    }

    /// Begins the relay, if the handshake is over. OPEN waited in the outbox for this.
    fn accept(&mut self, now: Instant) -> bool {
        if !self.handshake.is_established() {
            return false;
        }
        let Some(Message::Open(opening)) = self.outbox.front() else {
            return false;
        };
        if self.handshake.initial() != Some(opening.initial) {
            self.leave_alone();
            return false;
        }
        self.begin(now)
    }

    /// Begins the relay with the parser of the stage.
    fn begin(&mut self, now: Instant) -> bool {
        let stage = std::mem::replace(&mut self.stage, Stage::Untouched);
        if let Stage::Offered(parser) | Stage::Invited(parser) = stage
            && let Some(mut relay) = Relay::new(now, &self.handshake, parser, self.room)
        {
            if self.handshake.is_reset() {
                // The RST has passed here, and the other PEP has taken it, which relays already.
                relay.on_reset_end(now);
            }
            self.stage = Stage::Relayed(Box::new(relay));
        }
        matches!(self.stage, Stage::Relayed(_))
    }

    /// The next segment that is to leave.
    pub(crate) fn poll_segment(&mut self, now: Instant) -> Option<(Side, Segment)> {
        if let Some(reset) = self.resets.pop_front() {
            return Some(reset);
        }
        match &mut self.stage {
            Stage::Relayed(relay) => relay.poll_segment(now).map(|it| (Side::Lan, it)),
            _ => None,
        }
    }

    /// When [`Self::handle_timeout`] is to be called.
    pub(crate) fn poll_timeout(&self) -> Instant {
        match &self.stage {
            Stage::Relayed(relay) => relay.poll_timeout(),
            Stage::Stray(reset) => reset.poll_timeout(),
            Stage::Invited(_) => self.heard + HANDSHAKE,
            _ => self.heard + IDLE,
        }
    }

    /// Acts on what is due. False: the flow is to be forgotten.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> bool {
        let due = self.poll_timeout() <= now;
        match &mut self.stage {
            Stage::Relayed(relay) => {
                self.resets.extend(relay.handle_timeout(now));
                !relay.is_over(now)
            }
            Stage::Stray(reset) => {
                self.resets.extend(reset.handle_timeout(now));
                !reset.is_over(now)
            }
            Stage::Invited(_) if due => {
                self.leave_alone();
                true
            }
            Stage::Offered(_) if due => {
                self.on_stream_lost(now);
                true
            }
            _ => !due,
        }
    }

    /// Relay of the flow, if there is one.
    pub(crate) fn relay(&self) -> Option<&Relay> {
        match &self.stage {
            Stage::Relayed(relay) => Some(relay),
            _ => None,
        }
    }
}

/// Says whether a segment begins a connection.
pub(crate) fn is_first(segment: &Segment) -> bool {
    segment.flags.has(Flags::SYN) && !segment.flags.has(Flags::ACK | Flags::RST)
}
