//! Side of a connection that faces the outer one: bytes out, records in, and its end, which is no
//! end of the flow.

use std::time::Instant;

use bytes::{Buf as _, Bytes};

use super::{Action, Conn, Fault, Kind, MAX_HELD, Outcome, Phase, Role};

impl Conn {
    /// Bytes for the outer connection.
    #[must_use]
    pub fn outer_output(&self) -> &[u8] {
        &self.to_outer
    }

    /// Outer connection has taken `count` bytes of [`Conn::outer_output`].
    ///
    /// # Panics
    /// There were not as many.
    pub fn outer_written(&mut self, now: Instant, count: usize) {
        self.to_outer.advance(count);
        self.moved = now;
        self.settle();
    }

    /// Bytes that the outer connection may bring now: 0 while they would only wait here for the
    /// LAN.
    #[must_use]
    pub fn outer_room(&self) -> usize {
        MAX_HELD.saturating_sub(self.to_lan.len())
    }

    /// Takes bytes from the outer connection, as many as there is room for, and says how many.
    pub fn on_outer(&mut self, now: Instant, bytes: &[u8]) -> usize {
        let mut rest = bytes;
        while self.outer_room() > 0 && self.outcome().is_none() {
            let record = match self.opener.next(&mut rest) {
                Ok(Some(record)) => record,
                Ok(None) => return bytes.len(),
                Err(fault) => {
                    self.fail(fault.into());
                    break;
                }
            };
            let kind = record.kind;
            if !self.order.take(kind, &self.sent) {
                let state = self.state();
                self.fail(Fault::Order { kind, state });
                break;
            }
            self.moved = now;
            if kind != Kind::Data {
                let body = Bytes::copy_from_slice(record.body);
                self.on_record(kind, body);
            } else if matches!(self.phase, Phase::Opening | Phase::Flowing) {
                self.to_lan.extend_from_slice(record.body);
            }
        }
        // What follows the end of a flow is nobody's.
        let taken = bytes.len() - rest.len();
        if self.outcome().is_some() {
            bytes.len()
        } else {
            taken
        }
    }

    /// Follows a record that is not payload.
    fn on_record(&mut self, kind: Kind, body: Bytes) {
        match (kind, self.phase) {
            (Kind::Reply, phase) => self.on_reply(body, phase),
            (Kind::Abort, Phase::Opening) => {
                // There is no LAN side yet that could take anything.
                self.throw_away();
                self.phase = Phase::Aborted(body[0]);
            }
            (Kind::Abort, Phase::Flowing) => self.phase = Phase::Aborted(body[0]),
            (Kind::Abort, Phase::Aborting(code)) => {
                self.end(Outcome::Aborted(code), Action::CloseOuter);
            }
            _ => {}
        }
        self.settle();
    }

    /// Follows the answer of the server, which an abort from here may have crossed.
    fn on_reply(&mut self, body: Bytes, phase: Phase) {
        let connected = match self.role {
            Role::Client(connected) => connected(&body),
            Role::Server => false,
        };
        if phase == Phase::Opening {
            self.actions.push_back(Action::Replied(body));
        }
        match phase {
            Phase::Opening if connected => self.phase = Phase::Flowing,
            Phase::Opening => self.end(Outcome::Refused, Action::CloseOuter),
            Phase::Aborting(code) if !connected => {
                self.end(Outcome::Aborted(code), Action::CloseOuter);
            }
            _ => {}
        }
    }

    /// Outer connection has ended in order.
    pub fn on_outer_end(&mut self) {
        self.on_outer_gone(Fault::Ended);
    }

    /// Outer connection was reset, or has timed out.
    pub fn on_outer_reset(&mut self) {
        self.on_outer_gone(Fault::Reset);
    }

    fn on_outer_gone(&mut self, fault: Fault) {
        match self.phase {
            // The LAN may be slow to take what came before FIN; the peer's part is over.
            Phase::Flowing if self.has_peer_all() => {
                self.outer_is_gone = true;
                self.to_outer.clear();
                self.settle();
            }
            Phase::Opening | Phase::Flowing => self.fail(fault),
            Phase::Aborting(code) => self.end(Outcome::Aborted(code), Action::CloseOuter),
            Phase::Refused => self.end(Outcome::Refused, Action::CloseOuter),
            Phase::Aborted(_) => {
                self.outer_is_gone = true;
                self.to_outer.clear();
                self.settle();
            }
            Phase::Ended(_) => {}
        }
    }
}
