//! State machine of one flow over one outer connection, the same at both ends (`PROTOCOL.md`
//! §18.4).
//!
//! ```text
//!              LAN                              Conn                               outer connection
//!   read, FIN ──► on_lan, on_lan_end ──► Sealer ──► to_outer ──► outer_output ──► written
//!   written ◄── lan_output ◄── to_lan ◄── Order ◄── Opener ◄── on_outer ◄── read; its end is an end of this alone
//! ```
//!
//! FIN crosses as a record, so the outer connection is never half closed: what ends it early is
//! seen, and resets the LAN side unless nothing is missing in either direction. "LAN" is the host
//! at this end: one of the LAN at the client, the destination at the server.

mod order;
mod outer;
mod report;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

use bytes::{Buf as _, BytesMut};

use super::{Keys, Kind, MAX_BODY, Opener, Sealer};
use order::{Order, Sent};
pub use report::{Action, Fault, Outcome, State};

/// Payload that a connection holds in each direction, 64 KiB, besides a record at most.
pub const MAX_HELD: usize = 1 << 16;

/// Time without progress after which an answer or an end that the peer owes is given up, 60 s.
pub const SILENCE: Duration = Duration::from_secs(60);

/// Time without progress after which a connection is given up whose both directions have ended,
/// 10 min: what proxies on the way have taken still has to cross, and nothing moves here meanwhile.
pub(super) const CLOSING: Duration = Duration::from_secs(600);

/// Code of an abort without a better one, INTERNAL (`PROTOCOL.md` §8).
const INTERNAL: u8 = 5;

/// Part that decides what a connection does with events; the order of ends within it is [`Sent`]'s
/// and [`Order`]'s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Opening,
    Flowing,
    Aborting(u8),
    Aborted(u8),
    Refused,
    Ended(Outcome),
}

/// End of the connection that this is.
enum Role {
    /// Says whether the body of a REPLY is that of a connected flow.
    Client(fn(&[u8]) -> bool),
    Server,
}

/// One flow over one outer connection.
pub struct Conn {
    role: Role,
    phase: Phase,
    sealer: Sealer,
    opener: Opener,
    to_outer: BytesMut,
    to_lan: BytesMut,
    sent: Sent,
    order: Order,
    /// Moment of the last progress.
    moved: Instant,
    outer_is_gone: bool,
    /// Payload for the LAN was thrown away.
    is_cut: bool,
    actions: VecDeque<Action>,
}

impl Conn {
    /// Client's end: preface and OPEN, with this body, are the first output; a preface that asks
    /// was said before. `connected` says whether the body of a REPLY is that of a connected flow.
    ///
    /// # Panics
    /// `open` is empty or longer than [`MAX_BODY`].
    #[must_use]
    pub fn client(now: Instant, keys: Keys, open: &[u8], connected: fn(&[u8]) -> bool) -> Self {
        let mut to_outer = BytesMut::new();
        if !keys.preface().asks {
            to_outer.extend_from_slice(&keys.preface().encode());
        }
        let (mut sealer, opener) = keys.client();
        let first = sealer.seal(Kind::Open, open, &mut to_outer);
        first.expect("the first record of a direction");
        Self::new(now, Role::Client(connected), (sealer, opener), to_outer)
    }

    /// Server's end of a connection whose OPEN has been opened.
    pub(super) fn server(now: Instant, sealer: Sealer, opener: Opener) -> Self {
        Self::new(now, Role::Server, (sealer, opener), BytesMut::new())
    }

    fn new(
        now: Instant,
        role: Role,
        (sealer, opener): (Sealer, Opener),
        to_outer: BytesMut,
    ) -> Self {
        let order = match role {
            Role::Client(_) => Order::of_server(),
            Role::Server => Order::of_client(),
        };
        Self {
            role,
            phase: Phase::Opening,
            sealer,
            opener,
            to_outer,
            to_lan: BytesMut::new(),
            sent: Sent::default(),
            order,
            moved: now,
            outer_is_gone: false,
            is_cut: false,
            actions: VecDeque::new(),
        }
    }

    /// State of the connection.
    #[must_use]
    pub fn state(&self) -> State {
        match self.phase {
            Phase::Opening => State::Opening,
            Phase::Flowing => match (self.sent.fin(), self.order.fin()) {
                (false, false) => State::Open,
                (true, false) => State::HalfLocal,
                (false, true) => State::HalfRemote,
                (true, true) => State::Closing,
            },
            Phase::Aborting(_) => State::Aborting,
            Phase::Aborted(_) => State::Aborted,
            Phase::Refused => State::Refused,
            Phase::Ended(_) => State::Ended,
        }
    }

    /// Way in which the connection ended, once it has.
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome> {
        match self.phase {
            Phase::Ended(outcome) => Some(outcome),
            _ => None,
        }
    }

    /// Next step to take.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Bytes that the LAN may send now: 0 while they would only wait here.
    #[must_use]
    pub fn lan_room(&self) -> usize {
        let reads = match self.phase {
            Phase::Opening => matches!(self.role, Role::Client(_)),
            Phase::Flowing => true,
            _ => false,
        };
        let room = MAX_HELD.saturating_sub(self.to_outer.len());
        if reads && !self.sent.fin() { room } else { 0 }
    }

    /// Takes payload from the LAN, as much as there is room for, and says how much.
    pub fn on_lan(&mut self, now: Instant, bytes: &[u8]) -> usize {
        let part = &bytes[..bytes.len().min(self.lan_room())];
        for body in part.chunks(MAX_BODY) {
            if self
                .sealer
                .seal(Kind::Data, body, &mut self.to_outer)
                .is_err()
            {
                self.abort(now, INTERNAL);
                break;
            }
        }
        part.len()
    }

    /// LAN side has ended its direction in order.
    pub fn on_lan_end(&mut self, now: Instant) {
        if matches!(self.phase, Phase::Opening | Phase::Flowing) && !self.sent.fin() {
            self.sent.set_fin();
            self.end_with(Kind::Fin, &[]);
            self.moved = now;
            self.settle();
        }
    }

    /// LAN side was reset, or is to be, for a reason with this code (`PROTOCOL.md` §8). What it
    /// sent before still counts.
    pub fn abort(&mut self, now: Instant, code: u8) {
        match self.phase {
            Phase::Opening | Phase::Flowing => {
                self.to_lan.clear();
                self.reset_lan();
                self.sent.set_abort();
                self.end_with(Kind::Abort, &[code]);
                self.phase = Phase::Aborting(code);
                self.moved = now;
                if self.outer_is_gone {
                    self.end(Outcome::Aborted(code), Action::ResetOuter);
                }
            }
            Phase::Aborted(_) => self.throw_away(),
            Phase::Aborting(_) | Phase::Refused | Phase::Ended(_) => return,
        }
        self.settle();
    }

    /// Payload for the LAN.
    #[must_use]
    pub fn lan_output(&self) -> &[u8] {
        // The server's LAN is there once its dial has succeeded.
        let held = matches!(self.phase, Phase::Opening);
        if held { &[] } else { &self.to_lan }
    }

    /// LAN has taken `count` bytes of [`Conn::lan_output`].
    ///
    /// # Panics
    /// There were not as many.
    pub fn lan_written(&mut self, now: Instant, count: usize) {
        self.to_lan.advance(count);
        self.moved = now;
        self.settle();
    }

    /// LAN has been told that its direction is over, as [`Action::ShutLan`] wanted.
    pub fn on_lan_shut(&mut self, now: Instant) {
        if self.phase == Phase::Flowing && self.sent.may_confirm() {
            self.confirm();
            self.moved = now;
            self.settle();
        }
    }

    /// Server's connect has succeeded: answers with this body of a REPLY.
    ///
    /// # Panics
    /// `reply` is empty or longer than [`MAX_BODY`], or this is the client's end.
    pub fn on_dialled(&mut self, reply: &[u8]) {
        if self.answer(reply) {
            self.phase = Phase::Flowing;
            self.settle();
        }
    }

    /// Server's connect has failed, or is not permitted: answers with this body of a REPLY.
    ///
    /// # Panics
    /// `reply` is empty or longer than [`MAX_BODY`], or this is the client's end.
    pub fn on_refused(&mut self, now: Instant, reply: &[u8]) {
        if self.answer(reply) {
            self.phase = Phase::Refused;
            self.to_lan.clear();
            self.moved = now;
        }
    }

    /// Seals REPLY, if the client still waits for it.
    fn answer(&mut self, reply: &[u8]) -> bool {
        assert!(matches!(self.role, Role::Server), "a client has no answer");
        let waits = self.phase == Phase::Opening;
        if waits {
            let sealed = self.sealer.seal(Kind::Reply, reply, &mut self.to_outer);
            sealed.expect("the first record of a direction");
        }
        waits
    }

    /// Moment at which an answer or an end that the peer owes is given up, if it owes one and
    /// nothing moves.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let patience = match self.phase {
            // The server's own dial is bounded by those who dial.
            Phase::Opening if matches!(self.role, Role::Server) => None,
            Phase::Flowing if self.sent.fin() && self.order.fin() => Some(CLOSING),
            Phase::Flowing | Phase::Ended(_) => None,
            Phase::Opening | Phase::Aborting(_) | Phase::Aborted(_) | Phase::Refused => {
                Some(SILENCE)
            }
        };
        patience.map(|patience| self.moved + patience)
    }

    /// Gives an answer or an end up that the peer owes, once its time has come.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.deadline().is_none_or(|deadline| now < deadline) {
            return;
        }
        match self.phase {
            Phase::Aborting(code) => self.end(Outcome::Aborted(code), Action::ResetOuter),
            Phase::Aborted(code) => self.end(Outcome::PeerAborted(code), Action::ResetOuter),
            Phase::Refused => self.end(Outcome::Refused, Action::ResetOuter),
            _ => self.fail(Fault::Silence),
        }
    }

    /// Takes the steps for which all has happened.
    fn settle(&mut self) {
        match self.phase {
            Phase::Flowing if self.order.fin() && self.to_lan.is_empty() => {
                if self.sent.ask_shut() {
                    self.actions.push_back(Action::ShutLan);
                }
                let confirmed = self.has_peer_all() && self.sent.done();
                if confirmed && self.to_outer.is_empty() {
                    let last = match self.outer_is_gone {
                        true => Action::ResetOuter,
                        false => Action::CloseOuter,
                    };
                    self.end(Outcome::Closed, last);
                }
            }
            Phase::Aborting(code) if self.order.done() && self.to_outer.is_empty() => {
                self.end(Outcome::Aborted(code), Action::CloseOuter);
            }
            Phase::Aborted(code) if self.to_lan.is_empty() => {
                self.reset_lan_after_fin();
                if !self.sent.done() && !self.outer_is_gone {
                    self.confirm();
                }
                if self.to_outer.is_empty() {
                    self.end(Outcome::PeerAborted(code), Action::CloseOuter);
                }
            }
            _ => {}
        }
    }

    /// Says whether all of the peer's direction is here, and all of this one is known to be
    /// delivered: the peer is needed for nothing more.
    fn has_peer_all(&self) -> bool {
        self.sent.fin() && self.order.fin() && self.order.done()
    }

    /// Seals DONE, unless nobody can hear it.
    fn confirm(&mut self) {
        self.sent.set_done();
        if !self.outer_is_gone {
            self.end_with(Kind::Done, &[]);
        }
    }

    /// Seals a record that ends something; DATA has left numbers for them.
    fn end_with(&mut self, kind: Kind, body: &[u8]) {
        let sealed = self.sealer.seal(kind, body, &mut self.to_outer);
        sealed.expect("each of three kinds is sealed once");
    }

    /// Breaks the connection: nothing that has not been delivered is.
    fn fail(&mut self, fault: Fault) {
        self.end(Outcome::Broken(fault), Action::ResetOuter);
    }

    /// Has the LAN side reset, once, instead of any end in order.
    fn reset_lan(&mut self) {
        if self.sent.reset_lan() {
            self.actions.retain(|action| *action != Action::ShutLan);
            self.actions.push_back(Action::ResetLan);
        }
    }

    /// Throws away payload that the LAN has not taken: an end in order would hide that.
    fn throw_away(&mut self) {
        self.is_cut |= !self.to_lan.is_empty();
        self.to_lan.clear();
    }

    /// Has the LAN side reset. If the peer's direction had ended in order, the host is told of that first and reads no error:
    /// nothing of that direction is missing.
    fn reset_lan_after_fin(&mut self) {
        if self.is_cut || !self.order.fin() {
            return self.reset_lan();
        }
        if self.sent.ask_shut() {
            self.actions.push_back(Action::ShutLan);
        }
        if self.sent.reset_lan() {
            self.actions.push_back(Action::ResetLan);
        }
    }

    fn end(&mut self, outcome: Outcome, last: Action) {
        if outcome != Outcome::Closed {
            self.reset_lan();
        }
        self.actions.push_back(last);
        (self.to_lan, self.to_outer) = (BytesMut::new(), BytesMut::new());
        self.phase = Phase::Ended(outcome);
    }
}

impl fmt::Debug for Conn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conn")
            .field("phase", &self.phase)
            .field("to_outer", &self.to_outer.len())
            .field("to_lan", &self.to_lan.len())
            .field("sealer", &self.sealer)
            .field("opener", &self.opener)
            .finish_non_exhaustive()
    }
}
