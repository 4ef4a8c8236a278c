//! What a connection does when it hears nothing: whom silence matters to, when it asks, and what.

use std::time::{Duration, Instant};

use bytes::Bytes;
use quinn_proto::Side;

use super::Connection;
use super::sending::SHORTEST_DELAY;
use crate::engine::gate::LEAST_MTU;

/// Who has open flows and hears nothing for this long asks whether the path still stands: if a client's address has changed,
/// a server that only sends can never reach it, and after an outage a receiver is to say where it waits.
const SILENCE: Duration = Duration::from_secs(3);

/// Payload of the datagram that asks; quinn wants to answer with 1200 bytes and more.
const LOUD: usize = 500;

/// Such datagrams are this far apart: there are dozens of probes a second.
const QUIET: Duration = Duration::from_millis(250);

/// For how long after the last payload a flow counts as waiting for more.
const RECENT: Duration = Duration::from_secs(60);
/// And so much longer in an outage.
const PATIENT: Duration = Duration::from_secs(240);

/// A peer who is heard after so long keeps the tunnel alive.
const LONG: Duration = Duration::from_secs(20);

/// A peer holds its ACKs back for so long at most, if it was not told otherwise (RFC 9000 §18.2).
const MAX_HELD: Duration = Duration::from_millis(25);

/// Granularity of timers (RFC 9002 §6.1.2).
const GRANULARITY: Duration = Duration::from_millis(1);

/// Soon after payload the path is listened to so often.
const LISTEN: Duration = Duration::from_secs(20);

/// A probe of ours gives way to one of QUIC's that comes this soon.
const GIVEN_WAY: Duration = Duration::from_millis(250);

impl Connection {
    /// Until when a probe that is due has to wait. A peer that is heard and acknowledges nothing may not get datagrams of
    /// this size any more. QUIC's own probes are small enough for every path, and find that out; but each probe of ours,
    /// which is filled up with payload, would put them off.
    pub(super) fn gives_way_until(&mut self, now: Instant) -> Option<Instant> {
        let heard =
            now.saturating_duration_since(self.last_heard) <= 2 * self.quic.rtt().max(MAX_HELD);
        if !heard || self.quic.current_mtu() <= LEAST_MTU || !self.prober.is_due(now) {
            return None;
        }
        let next = self.quic.poll_timeout()? + GRANULARITY;
        (next > now && next <= now + GIVEN_WAY).then_some(next)
    }

    /// The peer is heard after a silence. Its keep-alive puts off ours, whose answer would tell if somebody fills the path by now; so
    /// it is asked at once.
    pub(super) fn listen(&mut self, now: Instant) {
        let silent = now.saturating_duration_since(self.last_received);
        if silent >= LONG && self.established && self.control.gate.flight().controller().listens() {
            self.quic.ping();
        }
    }

    /// When to ask, soon after there was payload, whether somebody fills the path: more of it is likely to come.
    pub(super) fn listening_deadline(&self) -> Option<Instant> {
        let next = self.listened.max(self.last_payload) + LISTEN;
        let soon = self.established && next < self.last_payload + RECENT;
        (soon && self.control.gate.flight().controller().listens()).then_some(next)
    }

    pub(super) fn update_prober(&mut self, now: Instant) {
        let waiting = self.is_waiting(now);
        let flight = self.control.gate.flight();
        let unanswered = self.established && flight.in_flight() > 0;
        let mut progress = flight.progress;
        let outstanding = flight.in_flight() + self.residual as u64;
        drop(flight);
        // Before the first data is acknowledged only the handshake tells of the path.
        progress.pto = progress.pto.max(self.quic.rtt().mul_f32(1.5));
        // RFC 9002 §6.2.1: the peer may hold the ACK back for so long.
        let rtt = self.quic.rtt();
        let held = self.demand.delay(now).min(rtt.max(SHORTEST_DELAY));
        progress.pto = progress.pto.max(rtt + held + GRANULARITY);
        self.lane.on_in_flight(outstanding);
        self.prober.update(now, progress, unanswered, waiting);
        self.wanted &= self.prober.is_outage();
    }

    /// Somebody waits for the end of an outage: it is to be looked for as often as if flows were open.
    pub fn want(&mut self) {
        self.wanted = true;
    }

    /// Says where flows wait; a client, now and then, with enough bytes that a server which sees a new address behind them may
    /// answer with a full packet: to an address that is not validated it sends three times what came from there (RFC 9000 §8).
    pub(super) fn probe(&mut self, now: Instant) {
        let loud =
            self.quic.side().is_client() && self.quiet_until.is_none_or(|until| until <= now);
        if loud {
            self.quiet_until = Some(now + QUIET);
        }
        let content = self.lane.awaited(&self.tunnel, if loud { LOUD } else { 0 });
        let content = content.or_else(|| loud.then(|| Bytes::from_static(&[0; LOUD])));
        let sent = content.is_some_and(|content| self.quic.datagrams().send(content, true).is_ok());
        if !sent {
            self.quic.ping();
        }
    }

    /// Flows exist that were active lately or have something to send, or would be opened.
    fn is_waiting(&self, now: Instant) -> bool {
        let packets = || self.tunnel.packets_until().is_some_and(|until| now < until);
        let open = self.tunnel.flow_count() > 0 || packets();
        // In an outage nothing comes for anybody: who waited when it began does so for some time.
        let recent = match self.prober.is_outage() {
            true => RECENT + PATIENT,
            false => RECENT,
        };
        let recent = || now.saturating_duration_since(self.last_payload) < recent;
        self.wanted
            || self.lane.has_queries()
            || open && (self.lane.has_output(&self.tunnel) || recent())
    }

    pub(super) fn silence_deadline(&self) -> Option<Instant> {
        let patience = match self.quic.side() {
            Side::Client => SILENCE,
            // The client asks first.
            Side::Server => SILENCE + 2 * self.quic.rtt(),
        };
        let flows = (self.tunnel.flow_count() > 0).then(|| self.last_payload + RECENT);
        let until = flows.max(self.tunnel.packets_until());
        let deadline = self.last_received + patience;
        (self.established && until.is_some_and(|until| deadline < until)).then_some(deadline)
    }
}
