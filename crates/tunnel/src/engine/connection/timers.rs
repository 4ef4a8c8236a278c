//! Times at which a connection is to be called again, and questions that it asks a peer of whom nothing is heard.

use std::time::{Duration, Instant};

use bytes::Bytes;

use super::super::gate::LEAST_MTU;
use super::Connection;
use super::liveness::GRANULARITY;

/// Payload of the datagram that asks; quinn wants to answer with 1200 bytes and more.
const LOUD: usize = 500;

impl Connection {
    pub(in crate::engine) fn handle_timeout(&mut self, now: Instant) {
        if self.quic.poll_timeout().is_some_and(|due| due <= now) {
            self.quic.handle_timeout(now);
        }
        self.train.handle_timeout(now);
        if self.quic.header_timeout().is_some_and(|due| due <= now) {
            let excused = self.liveness.is_excused(now);
            self.lane
                .expire_headers(now, &mut self.tunnel, &mut self.quic, excused);
        }
        self.update_prober(now);
        if self.liveness.size_deadline().is_some_and(|due| due <= now) {
            self.forget_mtu(now);
        }
        if self.listening_deadline().is_some_and(|due| due <= now) {
            self.liveness.on_listened(now);
            self.quic.ping();
        }
        if self.silence_deadline().is_some_and(|due| due <= now) {
            self.probe(now);
            self.liveness.on_asked(now);
        }
    }

    pub(in crate::engine) fn poll_timeout(&mut self) -> Option<Instant> {
        if self.validation.is_muted() {
            // Nothing may leave, so nothing is worth waking up for but the end.
            return self.quic.poll_timeout();
        }
        let shut = self.permit.is_shut();
        let owed = self.acks.overdue_at(self.quic.rtt());
        let repair = self.lane.repair_timeout(&self.tunnel);
        [
            self.quic.poll_timeout(),
            self.permit.poll_timeout(),
            owed.filter(|_| shut),
            self.acks.due_at(),
            self.liveness.probe_at(),
            self.duplicates.poll_timeout(shut),
            repair.filter(|_| !shut),
            self.train.poll_timeout(),
            self.quic.header_timeout(),
            self.silence_deadline(),
            self.listening_deadline(),
            self.liveness.size_deadline(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Notes that somebody waits for the end of an outage: it is to be looked for as often as if flows were open.
    pub fn want(&mut self) {
        self.liveness.want();
    }

    /// True if small packets at rest are of use: their round-trip time tells if somebody fills the path.
    pub(super) fn is_listening(&self) -> bool {
        self.stage.is_established() && self.control.gate.flight().controller().listens()
    }

    /// Instant at which to ask, soon after there was payload, whether somebody fills the path.
    fn listening_deadline(&self) -> Option<Instant> {
        let deadline = self.liveness.listening_deadline()?;
        self.is_listening().then_some(deadline)
    }

    /// Instant at which to ask whether the path still stands.
    fn silence_deadline(&self) -> Option<Instant> {
        if !self.stage.is_established() {
            return None;
        }
        let flows = self.tunnel.flow_count() > 0;
        let packets = self.tunnel.packets_until();
        self.liveness
            .silence_deadline(self.quic.side(), self.quic.rtt(), flows, packets)
    }

    pub(super) fn update_prober(&mut self, now: Instant) {
        let waiting = self.is_waiting(now);
        let flight = self.control.gate.flight();
        let unanswered = self.stage.is_established() && flight.in_flight() > 0;
        let (mut progress, unproven) = (flight.progress, flight.unproven());
        let outstanding = flight.in_flight() + self.backlog.streams() as u64;
        drop(flight);
        // Before the first data is acknowledged only the handshake tells of the path.
        let rtt = self.quic.rtt();
        progress.pto = progress.pto.max(rtt.mul_f32(1.5));
        // RFC 9002 §6.2.1: the peer may hold the ACK back for so long.
        let held = self.acks.held_by_peer(now, rtt);
        progress.pto = progress.pto.max(rtt + held + GRANULARITY);
        let doubted = unproven.filter(|_| self.quic.current_mtu() > LEAST_MTU);
        self.liveness.doubt_size(doubted, progress.pto);
        self.lane.on_in_flight(outstanding);
        self.liveness.update(now, progress, unanswered, waiting);
    }

    /// Gives up the present size of datagrams: the path does not take it any more. quinn's own detector wants four bursts of
    /// losses, each found by a probe of its own, which ours put off.
    pub(super) fn forget_mtu(&mut self, now: Instant) {
        self.control.gate.flight().keep_path();
        self.quic.forget_mtu(now);
        self.liveness.doubt_size(None, Duration::ZERO);
    }

    /// True if flows exist that were active lately or have something to send, or would be opened.
    fn is_waiting(&self, now: Instant) -> bool {
        let packets = || self.tunnel.packets_until().is_some_and(|until| now < until);
        let open = self.tunnel.flow_count() > 0 || packets();
        self.liveness.is_wanted()
            || self.lane.has_queries()
            || open && (self.lane.has_output(&self.tunnel) || self.liveness.is_payload_recent(now))
    }

    /// Says where flows wait; a client, now and then, with enough bytes that a server which sees a new address behind them may
    /// answer with a full packet: to an address that is not validated it sends three times what came from there (RFC 9000 §8).
    pub(super) fn probe(&mut self, now: Instant) {
        let loud = self.quic.side().is_client() && self.liveness.take_loud(now);
        let content = (!self.control.is_reliable())
            .then(|| self.lane.awaited(&self.tunnel, if loud { LOUD } else { 0 }))
            .flatten();
        let content = content.or_else(|| loud.then(|| Bytes::from_static(&[0; LOUD])));
        let sent = content.is_some_and(|content| self.quic.datagrams().send(content, true).is_ok());
        if !sent {
            self.quic.ping();
        }
    }
}
