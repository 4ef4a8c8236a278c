//! Stream of a flow to the other PEP: its answer to an offer, messages of the relay, and the end.

use std::time::Instant;

use bytes::BytesMut;

use super::{Flow, Stage};
use crate::fault::PeerFault;
use crate::wire::{Form, Message};

impl Flow {
    /// Says whether the stream may be read.
    pub(crate) fn has_room(&self) -> bool {
        match &self.stage {
            Stage::Relayed(relay) => relay.has_room(),
            _ => true,
        }
    }

    /// Takes bytes of the stream, as many as there is room for.
    ///
    /// # Errors
    /// [`PeerFault`]: the flow has been reset, or left alone if it was not relayed yet.
    pub(crate) fn on_stream(
        &mut self,
        now: Instant,
        form: Form,
        input: &mut &[u8],
    ) -> Result<(), PeerFault> {
        let own = self.opening(form);
        match &mut self.stage {
            Stage::Relayed(relay) => return relay.on_stream(now, input),
            Stage::Offered(parser) => match parser.next(input) {
                Ok(None) => return Ok(()),
                Ok(Some(Message::Open(opening))) if Some(&opening) == own.as_ref() => {
                    self.begin(now);
                    return self.on_stream(now, form, input);
                }
                Ok(Some(Message::Reset(_))) => self.stage = Stage::Untouched,
                Ok(Some(_)) => return self.break_off(now, PeerFault::Open),
                Err(fault) => return self.break_off(now, fault.into()),
            },
            // Before it has the answer the other PEP may withdraw, and nothing else.
            Stage::Invited(_) if !input.is_empty() => self.leave_alone(),
            _ => {}
        }
        *input = &[];
        Ok(())
    }

    fn break_off(&mut self, now: Instant, fault: PeerFault) -> Result<(), PeerFault> {
        self.on_stream_lost(now);
        Err(fault)
    }

    /// The stream broke off. An offer that it carried may have been accepted, and bytes of the flow
    /// acknowledged that are lost now: it is reset.
    pub(crate) fn on_stream_lost(&mut self, now: Instant) {
        if matches!(self.stage, Stage::Offered(_)) {
            self.begin(now);
        }
        match &mut self.stage {
            Stage::Relayed(relay) => relay.on_stream_lost(now),
            _ => self.stage = Stage::Untouched,
        }
        self.outbox.clear();
    }

    /// The flow is given up: both ends are reset, and what is on its way to them is lost.
    pub(crate) fn give_up(&mut self, now: Instant) {
        if let Stage::Relayed(relay) = &mut self.stage {
            relay.give_up(now);
        } else {
            self.on_stream_lost(now);
        }
    }

    /// Appends messages for the stream to `out`, until that has `most` bytes.
    pub(crate) fn poll_stream(&mut self, now: Instant, out: &mut BytesMut, most: usize) {
        let waits = matches!(self.stage, Stage::Invited(_));
        while out.len() < most
            && !waits
            && let Some(message) = self.outbox.pop_front()
        {
            // Too late for an answer if the handshake has not become a relay.
            let open = matches!(message, Message::Open(_));
            if !open || self.has_place() {
                message.encode(out);
            }
        }
        if let Stage::Relayed(relay) = &mut self.stage {
            relay.poll_stream(now, out, most);
        }
    }

    /// Says whether the last message has left, so that the stream may be ended.
    pub(crate) fn is_stream_done(&self) -> bool {
        let ended = match &self.stage {
            Stage::Relayed(relay) => relay.is_stream_done(),
            stage => matches!(stage, Stage::Untouched),
        };
        ended && self.outbox.is_empty()
    }
}
