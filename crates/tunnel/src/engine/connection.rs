//! One QUIC connection of the engine: its state, what happens to it, and when it wants to be called again.
//!
//! What it sends is in `connection/sending.rs`, what the shell asks and tells in `shell.rs`; `liveness.rs` knows what silence
//! means, `backlog.rs` what quinn holds, `validation.rs` what may leave before the peer has proved itself. Joins quinn's state machine, the gate with its controller and
//! the tunnel. Datagrams in, datagrams out, `now` as an argument; no socket, no clock.

mod acknowledgements;
mod backlog;
mod duplicates;
mod liveness;
mod notice;
mod permit;
mod sending;
mod shell;
mod stage;
pub(crate) mod streams;
mod validation;

use std::time::{Duration, Instant};

use bentpipe_units::Seed;
use bytes::Bytes;
use quinn_proto::{ConnectionEvent, ConnectionHandle, Event, StreamEvent};

use super::arrival::Kind;
use super::gate::LEAST_MTU;
use super::ledger::Books;
use super::prober::Prober;
use super::settings::SendControl;
use super::train::Train;
use crate::transport::{Fault, Lane, Streams, Tunnel, TunnelEvent};
use acknowledgements::Acknowledgements;
use backlog::Backlog;
use duplicates::Duplicates;
use liveness::{GRANULARITY, Liveness};
pub use notice::{ConnectionNotice, Unreachable, UnreachableCause};
use permit::{Permit, Shut};
use stage::Stage;
use streams::StreamLimit;
pub use validation::FirstWords;
use validation::{AddressValidation, LEAST_ROOM};

/// A peer that repairs has losses; what few packets leave here are probably lost as often.
const LIKELY_LOSS: f64 = 0.01;

/// Payload of the datagram that asks; quinn wants to answer with 1200 bytes and more.
const LOUD: usize = 500;

/// A connection and everything that belongs to it.
pub struct Connection {
    pub(super) handle: ConnectionHandle,
    /// quinn's machine.
    pub(super) quic: Streams,
    /// Control stream, queries and repairs.
    lane: Lane,
    /// The flows.
    pub tunnel: Tunnel,
    control: SendControl,
    permit: Permit,
    duplicates: Duplicates,
    train: Train,
    books: Books,
    streams: StreamLimit,
    acks: Acknowledgements,
    backlog: Backlog,
    liveness: Liveness,
    validation: AddressValidation,
    stage: Stage,
}

impl Connection {
    pub(super) fn new(
        handle: ConnectionHandle,
        quic: quinn_proto::Connection,
        control: SendControl,
        tunnel: Tunnel,
        streams: StreamLimit,
        seed: Seed,
        now: Instant,
    ) -> Self {
        let validation = AddressValidation::new(quic.side());
        Self {
            handle,
            quic: Streams::new(quic),
            lane: Lane::default(),
            tunnel,
            acks: Acknowledgements::new(control.path.asked, control.path.asks),
            control,
            permit: Permit::new(now),
            duplicates: Duplicates::default(),
            train: Train::default(),
            books: Books::default(),
            streams,
            backlog: Backlog::default(),
            liveness: Liveness::new(Prober::new(seed.stream("prober")), now),
            validation,
            stage: Stage::default(),
        }
    }

    /// quinn takes an event, caused by a datagram of `size` bytes and such a `kind` that arrived at `at`.
    pub(super) fn handle_event(
        &mut self,
        now: Instant,
        event: ConnectionEvent,
        at: Instant,
        size: usize,
        kind: Kind,
    ) {
        self.stage.on_datagram(kind.initial);
        self.acks.on_datagram(now);
        let rested = self.liveness.on_datagram(now, self.quic.rtt());
        if rested && self.is_listening() {
            self.quic.ping();
        }
        self.validation.on_datagram(size);
        let address = self.quic.remote_address();
        self.quic.handle_event(event);
        let moved = self.quic.remote_address() != address;
        self.validation.on_address(moved);
        if moved {
            self.quic.forget_rtt();
        }
        let frames = self.quic.stats().frame_rx;
        let headers = self.control.headers();
        self.acks.on_frames(now, &frames);
        let handshake = !self.stage.is_established();
        self.books
            .on_received(frames, size as u64, headers, handshake);
        let bytes = size as u64 + headers;
        while let Some(content) = self.quic.datagrams().recv() {
            self.train.on_datagram(now, at, &content, bytes);
            self.lane
                .on_datagram(now, &mut self.tunnel, &content, kind.marked);
        }
        if self.lane.on_path_received(size) {
            self.control.gate.flight().expect_loss(LIKELY_LOSS);
        }
    }

    /// Takes quinn's events and turns them into notices.
    pub(super) fn poll(&mut self, now: Instant) -> Option<ConnectionNotice> {
        loop {
            if let Some(event) = self.tunnel.poll_event() {
                self.heed(now, &event);
                return Some(ConnectionNotice::Tunnel(event));
            }
            if let Some(outage) = self.liveness.take_news() {
                return Some(ConnectionNotice::Outage(outage));
            }
            let Some(event) = self.quic.poll() else {
                // Everything that streams brought was read.
                if let Err(fault) = self.lane.mend(now, &mut self.tunnel, &mut self.quic) {
                    return Some(self.on_fault(now, fault));
                }
                if self.tunnel.has_events() {
                    continue;
                }
                return None;
            };
            if let Some(notice) = self.on_quic_event(now, event) {
                return Some(notice);
            }
        }
    }

    /// Notes what the tunnel's own `event` means for the connection below.
    fn heed(&mut self, now: Instant, event: &TunnelEvent) {
        match event {
            TunnelEvent::Flow(_) | TunnelEvent::Packets => self.liveness.on_payload(now),
            TunnelEvent::Ready => self.on_hello(),
            TunnelEvent::Opened(..)
            | TunnelEvent::Inbound(..)
            | TunnelEvent::Segments(_)
            | TunnelEvent::Publish(_)
            | TunnelEvent::Published(..)
            | TunnelEvent::Enrol(_)
            | TunnelEvent::Enrolled(..)
            | TunnelEvent::Query(..)
            | TunnelEvent::Answer(..)
            | TunnelEvent::Families
            | TunnelEvent::SleEpoch(..)
            | TunnelEvent::Les(..)
            | TunnelEvent::Goaway => {}
        }
    }

    /// Takes one of quinn's events; returns the notice that it becomes, if it is one for the shell.
    fn on_quic_event(&mut self, now: Instant, event: Event) -> Option<ConnectionNotice> {
        match event {
            Event::Connected => {
                self.stage.establish();
                self.validation.on_established();
                self.streams.on_known(&mut self.quic);
                self.lane.on_connected(&mut self.tunnel, &mut self.quic);
                if self.quic.side().is_client() {
                    self.start_train();
                }
                Some(ConnectionNotice::Connected)
            }
            Event::ConnectionLost { reason } => {
                self.stage.on_lost(&reason);
                self.lane.on_lost(&mut self.tunnel, &mut self.quic);
                Some(ConnectionNotice::Lost(reason))
            }
            Event::Stream(event) => self.on_stream_event(now, event),
            // They were taken as they came.
            Event::HandshakeDataReady | Event::DatagramReceived | Event::DatagramsUnblocked => None,
        }
    }

    fn on_stream_event(&mut self, now: Instant, event: StreamEvent) -> Option<ConnectionNotice> {
        if matches!(event, StreamEvent::Opened { .. }) {
            self.streams.on_opened(&mut self.quic);
        }
        let (tunnel, quic) = (&mut self.tunnel, &mut self.quic);
        if let Err(fault) = self.lane.on_stream_event(now, tunnel, quic, event) {
            return Some(self.on_fault(now, fault));
        }
        if let Some(rate) = self.lane.take_rate_hint() {
            self.control.hint(now, rate);
        }
        if let Some(acks) = self.lane.take_ack_wish() {
            self.acks.on_wish(acks);
        }
        None
    }

    fn on_fault(&mut self, now: Instant, fault: Fault) -> ConnectionNotice {
        self.close(now, fault.code().code(), fault.to_string());
        ConnectionNotice::Fault(fault)
    }

    fn on_hello(&mut self) {
        self.configure_repairs();
        let remote = self.tunnel.agreement().remote();
        if let Some(acks) = remote.and_then(|hello| hello.acks) {
            self.acks.set_policy(acks);
        }
        self.stage.on_hello(self.quic.side());
    }

    /// Answers the client's HELLO: as late as this, so that the shell has said what it allows this client.
    fn greet(&mut self, now: Instant) {
        let remote = self.tunnel.agreement().remote();
        let wished = remote
            .map(|hello| hello.forward.clone())
            .unwrap_or_default();
        let granted = self.control.grant(now, wished, self.quic.rtt());
        self.configure_repairs();
        self.lane.greet(&mut self.tunnel, granted);
        self.start_train();
    }

    /// Has what is lost repaired as the settings in force say.
    fn configure_repairs(&mut self) {
        self.lane.set_fec(&self.tunnel, self.control.current.fec);
    }

    /// HELLO is about to leave, and for a round trip nothing follows it.
    fn start_train(&mut self) {
        if !self.control.is_reliable() && self.control.gate.flight().controller().wants_hint() {
            self.train.start();
        }
    }

    /// Tells the peer what its train showed, after HELLO.
    fn report_train(&mut self) {
        if self.tunnel.agreement().remote().is_some()
            && let Some(estimate) = self.train.take_report()
        {
            self.lane
                .on_train(&mut self.tunnel, &mut self.quic, estimate);
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
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

    pub(super) fn poll_timeout(&mut self) -> Option<Instant> {
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

    /// True if small packets at rest are of use: their round-trip time tells if somebody fills the path.
    fn is_listening(&self) -> bool {
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

    fn update_prober(&mut self, now: Instant) {
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
    fn forget_mtu(&mut self, now: Instant) {
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
    fn probe(&mut self, now: Instant) {
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
