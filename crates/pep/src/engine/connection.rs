//! One QUIC connection of the engine: when it may send, what, and when it wants to be called again.
//!
//! Joins quinn's state machine, the gate with its controller, the pacer, the outage prober and the
//! tunnel. Datagrams in, datagrams out, `now` as an argument; no socket, no clock.

use std::time::{Duration, Instant};

use bentpipe_proto::congestion::{Kind, Pacer, Saved};
use bentpipe_proto::tunnel::{Acks, CloseCode};
use bentpipe_units::{BitRate, Seed};
use bytes::Bytes;
use quinn_proto::{ConnectionEvent, ConnectionHandle, Event, FrameStats, Transmit, VarInt};

use super::insist::Insistence;
use super::prober::Prober;
use super::profile::{ACK_DELAY, AckPolicy, Link};
use super::repeat::Repeater;
use super::settings::{SendControl, Wishes};
use super::train::Train;
use crate::transport::{Fault, Tunnel, TunnelEvent};

/// Most datagrams built in one go; more gains nothing (GSO 44 measured no faster than 10).
const MAX_BATCH: usize = 10;

/// A client with open flows that hears nothing for this long asks whether the path still stands:
/// if its own address has changed, a server that only sends can never reach it.
const SILENCE: Duration = Duration::from_secs(3);

/// Payload of the datagram that asks; quinn wants to answer with 1200 bytes and more.
const LOUD: usize = 500;

/// How long a client may take from its first datagram to the proof of its key. It starts anew every few seconds.
const HANDSHAKE: Duration = Duration::from_secs(30);

/// Bytes of a full datagram that are no payload, about: short header, tag, STREAM header.
const OVERHEAD: usize = 32;

/// Full datagrams in a row after which nothing is written until quinn has run dry: an estimate that is a few bytes off
/// would leave them in quinn, datagram for datagram, for as long as the bulk goes on.
const UNCHECKED: usize = 512;

/// Fewer datagrams than this do not open the gate by their number, however few to an ACK the peer wishes.
const FEWEST_OWED: u64 = 16;

/// quinn asks for no ACK delay shorter than a round trip, and takes none for shorter than this.
const SHORTEST_DELAY: Duration = Duration::from_millis(25);

/// For how long after the last payload a flow counts as waiting for more.
const RECENT: Duration = Duration::from_secs(60);

/// A connection and everything that belongs to it.
pub struct Connection {
    pub(super) handle: ConnectionHandle,
    /// quinn's machine.
    pub(crate) quic: quinn_proto::Connection,
    /// The flows.
    pub tunnel: Tunnel,
    control: SendControl,
    pacer: Pacer,
    prober: Prober,
    repeater: Repeater,
    insistence: Insistence,
    train: Train,
    /// How the peer wants to be acknowledged.
    asked: Acks,
    /// The client's HELLO came and is not answered yet (server).
    greeting: bool,
    /// Bytes in streams that quinn has not sent yet, as far as can be told from outside.
    residual: usize,
    /// Datagrams since that was last known for certain.
    unchecked: usize,
    /// Datagrams received and still unanswered: when the oldest came, and how many there are.
    unanswered: Option<(Instant, u64)>,
    /// What forbade sending when last asked.
    shut: Option<Shut>,
    last_received: Instant,
    last_payload: Instant,
    /// Flows wait for the end of an outage before they are opened.
    wanted: bool,
    /// The peer's address changed, and the new one was not asked yet.
    moved: bool,
    /// What the shell was last told of an outage.
    told_outage: bool,
    established: bool,
    /// When a handshake that has not succeeded is given up (server).
    give_up: Option<Instant>,
    /// The end was reported.
    pub(super) lost: bool,
}

/// Why data has to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shut {
    /// The window is full: an acknowledgement opens it.
    Window,
    /// It is too early: time opens it.
    Pacer,
}

/// What the engine reports of a connection.
#[derive(Debug)]
pub enum ConnectionNotice {
    /// The handshake is complete (for a client: on its side).
    Connected,
    /// Something happened in the tunnel.
    Tunnel(TunnelEvent),
    /// An outage has begun (true) or ended.
    Outage(bool),
    /// The peer broke the tunnel protocol; the connection is being closed.
    Fault(Fault),
    /// The connection is over.
    Lost(quinn_proto::ConnectionError),
}

impl Connection {
    pub(super) fn new(
        handle: ConnectionHandle,
        quic: quinn_proto::Connection,
        control: SendControl,
        tunnel: Tunnel,
        seed: Seed,
        now: Instant,
    ) -> Self {
        Self {
            handle,
            give_up: quic.side().is_server().then(|| now + HANDSHAKE),
            quic,
            tunnel,
            asked: control.path.asked.announced(),
            control,
            pacer: Pacer::new(now),
            prober: Prober::new(seed.stream("prober")),
            repeater: Repeater::default(),
            insistence: Insistence::default(),
            train: Train::default(),
            greeting: false,
            residual: 0,
            unchecked: 0,
            unanswered: None,
            shut: None,
            last_received: now,
            last_payload: now,
            wanted: false,
            moved: false,
            told_outage: false,
            established: false,
            lost: false,
        }
    }

    /// quinn takes an event, caused by a datagram of `size` bytes.
    pub(super) fn handle_event(&mut self, now: Instant, event: ConnectionEvent, size: usize) {
        self.unanswered.get_or_insert((now, 0)).1 += 1;
        self.last_received = now;
        let address = self.quic.remote_address();
        self.quic.handle_event(event);
        self.moved |= self.quic.remote_address() != address;
        let bytes = size as u64 + self.control.path.headers();
        while let Some(content) = self.quic.datagrams().recv() {
            self.train.on_datagram(now, &content, bytes);
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if self.quic.poll_timeout().is_some_and(|due| due <= now) {
            self.quic.handle_timeout(now);
        }
        if self.give_up.is_some_and(|due| due <= now) {
            self.give_up = None;
            self.close(now, CloseCode::NoError.code(), String::new());
        }
        self.train.handle_timeout(now);
        self.update_prober(now);
        if self.silence_deadline().is_some_and(|due| due <= now) {
            // Once; from then on the prober sees an unanswered packet and takes over.
            self.ask_loudly();
            self.last_received = now;
        }
    }

    /// Takes quinn's events and turns them into notices.
    pub(super) fn poll(&mut self, now: Instant) -> Option<ConnectionNotice> {
        loop {
            if let Some(event) = self.tunnel.poll_event() {
                match event {
                    TunnelEvent::Flow(_) => self.last_payload = now,
                    TunnelEvent::Ready => self.on_hello(),
                    TunnelEvent::Opened(..) | TunnelEvent::Goaway => {}
                }
                return Some(ConnectionNotice::Tunnel(event));
            }
            let outage = self.prober.is_outage();
            if std::mem::replace(&mut self.told_outage, outage) != outage {
                return Some(ConnectionNotice::Outage(outage));
            }
            match self.quic.poll()? {
                Event::Connected => {
                    self.established = true;
                    self.insistence.on_established(now);
                    self.give_up = None;
                    self.tunnel.on_connected(&mut self.quic);
                    if self.quic.side().is_client() {
                        self.start_train();
                    }
                    return Some(ConnectionNotice::Connected);
                }
                Event::ConnectionLost { reason } => {
                    self.lost = true;
                    self.tunnel.on_lost();
                    return Some(ConnectionNotice::Lost(reason));
                }
                Event::Stream(event) => {
                    if let Err(fault) = self.tunnel.on_stream_event(now, &mut self.quic, event) {
                        self.close(now, fault.code().code(), fault.to_string());
                        return Some(ConnectionNotice::Fault(fault));
                    }
                    if let Some(rate) = self.tunnel.take_rate_hint() {
                        self.control.hint(now, rate);
                    }
                }
                // They were taken as they came.
                Event::HandshakeDataReady | Event::DatagramReceived | Event::DatagramsUnblocked => {
                }
            }
        }
    }

    fn on_hello(&mut self) {
        if let Some(acks) = self.tunnel.remote().and_then(|hello| hello.acks) {
            self.asked = acks;
        }
        self.greeting = self.quic.side().is_server();
    }

    /// Answers the client's HELLO: as late as this, so that the shell has said what it allows this client.
    fn greet(&mut self, now: Instant) {
        let remote = self.tunnel.remote();
        let wished = remote
            .map(|hello| hello.forward.clone())
            .unwrap_or_default();
        let granted = self.control.grant(now, wished, self.quic.rtt());
        self.tunnel.greet(granted);
        self.start_train();
    }

    /// HELLO is about to leave, and for a round trip nothing follows it.
    fn start_train(&mut self) {
        if self.control.gate.flight().controller.wants_hint() {
            self.train.start();
        }
    }

    /// Tells the peer what its train showed, after HELLO.
    fn report_train(&mut self) {
        if self.tunnel.remote().is_some()
            && let Some(estimate) = self.train.take_report()
        {
            self.tunnel.on_train(self.quic.rtt(), estimate);
        }
    }

    /// Server: this client is sent to no faster than `max_rate`, whatever it wishes.
    pub fn set_max_rate(&mut self, now: Instant, max_rate: Option<BitRate>) {
        self.control.limit(now, max_rate, self.quic.rtt());
    }

    /// The next datagrams to send, if any may leave now.
    pub(super) fn poll_transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit> {
        if std::mem::take(&mut self.greeting) {
            self.greet(now);
        }
        // The new address is asked to prove itself (RFC 9000 §8.2) before quinn spends on a probe of its packet size what
        // may be sent there unproven. The first datagram still goes to the old address.
        if self.moved
            && let Some((transmit, _)) = self.transmit_through_gate(now, 1, buf)
        {
            self.moved = transmit.destination != self.quic.remote_address();
            return Some(transmit);
        }
        self.moved = false;
        if let Some(transmit) = self.insistence.poll(now, buf) {
            return Some(transmit);
        }
        self.report_train();
        self.update_prober(now);
        if self.prober.poll(now, self.quic.rtt()) {
            self.ask_loudly();
            return self
                .transmit_through_gate(now, 1, buf)
                .map(|(transmit, _)| transmit);
        }
        let transmit = self
            .transmit_train(now, buf)
            .or_else(|| self.transmit_data(now, buf))
            .or_else(|| self.transmit_exempt(now, buf));
        if transmit.is_some() {
            self.unanswered = None;
        }
        transmit
    }

    /// The train, back to back and not paced: its packets are charged, and the window bounds them.
    fn transmit_train(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit> {
        let mtu = usize::from(self.quic.current_mtu());
        if self.train.is_due() && self.residual == 0 && !self.tunnel.has_output() {
            let mut flight = self.control.gate.flight();
            // How fast these few are acknowledged is not how fast the path is.
            flight.set_app_limited();
            let room = usize::try_from(flight.room() / mtu as u64).unwrap_or(usize::MAX);
            drop(flight);
            self.train.load(&mut self.quic, room);
        }
        let permits = self.train.left().min(MAX_BATCH);
        if permits == 0 {
            return None;
        }
        let transmit = self.transmit_through_gate(now, permits, buf);
        let size = transmit.as_ref().map_or(0, |(transmit, _)| transmit.size);
        self.train.on_sent(size.div_ceil(mtu));
        transmit.map(|(transmit, _)| transmit)
    }

    /// Data, as far as window and pacer allow. Writes into streams at the last moment.
    fn transmit_data(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit> {
        loop {
            let mtu = usize::from(self.quic.current_mtu());
            let permits = match self.permits(now, mtu) {
                Ok(permits) => permits,
                Err(shut) => {
                    self.shut = Some(shut);
                    return None;
                }
            };
            self.shut = None;
            if self.unchecked >= UNCHECKED {
                self.residual = permits * mtu;
            }
            let want = (permits * mtu).saturating_sub(self.residual);
            let written = if want > 0 {
                self.tunnel.write(&mut self.quic, want, mtu)
            } else {
                0
            };
            let had = self.residual;
            let Some((transmit, lost)) = self.transmit_through_gate(now, permits, buf) else {
                (self.residual, self.unchecked) = (0, 0);
                if written > 0 {
                    return None;
                }
                if had == 0 {
                    self.control.gate.flight().set_app_limited();
                    return self.repeat(now, buf);
                }
                // quinn had less left than thought: write and ask once more.
                continue;
            };
            // A batch that is not full means that quinn has nothing left.
            let full = transmit.size + 2 * OVERHEAD >= permits * mtu;
            let datagrams = transmit.size.div_ceil(mtu);
            (self.residual, self.unchecked) = if full {
                let payload = transmit.size.saturating_sub(datagrams * OVERHEAD);
                let left = (had + written + lost).saturating_sub(payload);
                (left, self.unchecked + datagrams)
            } else {
                (0, 0)
            };
            let mut flight = self.control.gate.flight();
            flight.clear_app_limited();
            self.pacer
                .on_sent(now, transmit.size as u64, flight.controller.pacing_rate());
            return Some(transmit);
        }
    }

    /// How many datagrams may leave now; at least one, or what forbids it.
    fn permits(&mut self, now: Instant, mtu: usize) -> Result<usize, Shut> {
        if !self.established {
            // The handshake is a few datagrams, and anti-amplification limits bind it.
            return Ok(MAX_BATCH);
        }
        let flight = self.control.gate.flight();
        let room = usize::try_from(flight.room() / mtu as u64).unwrap_or(usize::MAX);
        if room == 0 {
            self.pacer.on_shut();
            return Err(Shut::Window);
        }
        let paced = self.pacer.budget(
            now,
            flight.controller.pacing_rate(),
            self.quic.current_mtu(),
        );
        match room.min(paced as usize).min(MAX_BATCH) {
            0 => Err(Shut::Pacer),
            permits => Ok(permits),
        }
    }

    /// What must not wait for window or pacer: pure ACKs and probes; and one datagram if the peer
    /// has been owed an answer for longer than it was promised (its ACK is stuck behind data).
    fn transmit_exempt(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit> {
        self.shut?;
        let owed = self.unanswered.is_some_and(|(since, count)| {
            count > self.asked.packets.max(FEWEST_OWED) || now >= since + self.answer_within()
        });
        if owed {
            // With the gate open quinn says everything it has to say; if that is nothing, so be it.
            self.unanswered = None;
            return self
                .transmit_through_gate(now, 1, buf)
                .map(|(transmit, _)| transmit);
        }
        let transmit = self.quic.poll_transmit(now, 1, buf)?;
        let frames = self.quic.stats().frame_tx.ack_frequency;
        self.insistence.on_sent(now, frames, &transmit, buf);
        Some(transmit)
    }

    /// The peer's wish, as quinn bounds it.
    fn answer_within(&self) -> Duration {
        let longest = self.quic.rtt().max(SHORTEST_DELAY);
        self.asked.delay.clamp(ACK_DELAY[0], longest)
    }

    /// Asks quinn with the gate open; also returns the bytes declared lost since the last time.
    fn transmit_through_gate(
        &mut self,
        now: Instant,
        permits: usize,
        buf: &mut Vec<u8>,
    ) -> Option<(Transmit, usize)> {
        self.control.gate.set_open(true);
        let before = ack_eliciting(&self.quic.stats().frame_tx);
        let transmit = self.quic.poll_transmit(now, permits, buf);
        let sent = self.quic.stats().frame_tx;
        let elicits = ack_eliciting(&sent) != before;
        let mut flight = self.control.gate.flight();
        flight.close_gate(now, elicits);
        let lost = usize::try_from(flight.take_lost()).unwrap_or(usize::MAX);
        let lossy = flight.controller.is_lossy();
        drop(flight);
        let transmit = transmit?;
        self.insistence
            .on_sent(now, sent.ack_frequency, &transmit, buf);
        if !lossy {
            self.repeater.clear();
        } else if elicits {
            self.repeater.on_sent(now, &transmit, buf, self.quic.rtt());
        }
        Some((transmit, lost))
    }

    /// What left last once more, now that nothing else is to be sent.
    fn repeat(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit> {
        let transmit = self.repeater.poll(now, self.quic.rtt(), buf)?;
        let rate = self.control.gate.flight().controller.pacing_rate();
        self.pacer.on_sent(now, transmit.size as u64, rate);
        Some(transmit)
    }

    fn update_prober(&mut self, now: Instant) {
        let waiting = self.is_waiting(now);
        let flight = self.control.gate.flight();
        let unanswered = self.established && flight.in_flight() > 0;
        let progress = flight.progress;
        drop(flight);
        self.prober.update(now, progress, unanswered, waiting);
        self.wanted &= self.prober.is_outage();
    }

    /// Somebody waits for the end of an outage: it is to be looked for as often as if flows were open.
    pub fn want(&mut self) {
        self.wanted = true;
    }

    /// A ping with enough bytes that a server which sees a new address behind it may answer with a full packet: to an
    /// address that is not validated it sends three times what came from there (RFC 9000 §8).
    fn ask_loudly(&mut self) {
        let zeros = Bytes::from_static(&[0; LOUD]);
        if self.quic.side().is_server() || self.quic.datagrams().send(zeros, true).is_err() {
            self.quic.ping();
        }
    }

    /// Flows exist that were active lately or have something to send, or would be opened.
    fn is_waiting(&self, now: Instant) -> bool {
        let open = self.tunnel.flow_count() > 0;
        let recent = || now.saturating_duration_since(self.last_payload) < RECENT;
        self.wanted || open && (self.tunnel.has_output() || recent())
    }

    fn silence_deadline(&self) -> Option<Instant> {
        let active =
            self.established && self.quic.side().is_client() && self.tunnel.flow_count() > 0;
        let deadline = self.last_received + SILENCE;
        (active && deadline < self.last_payload + RECENT).then_some(deadline)
    }

    pub(super) fn poll_timeout(&mut self) -> Option<Instant> {
        let within = self.answer_within();
        let owed = self.unanswered.map(|(since, _)| since + within);
        let paced = (self.shut == Some(Shut::Pacer)).then(|| self.pacer.poll_timeout());
        [
            self.quic.poll_timeout(),
            self.give_up,
            paced.flatten(),
            owed.filter(|_| self.shut.is_some()),
            self.prober.poll_timeout(),
            self.repeater.poll_timeout().filter(|_| self.shut.is_none()),
            self.insistence.poll_timeout(),
            self.train.poll_timeout(),
            self.silence_deadline(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Closes the connection with an application code (`PROTOCOL.md` "Closing").
    pub fn close(&mut self, now: Instant, code: u64, reason: String) {
        let code = VarInt::from_u64(code).unwrap_or_default();
        self.quic.close(now, code, Bytes::from(reason));
        self.lost = true;
        self.tunnel.on_lost();
    }

    /// What this side sends with now; a server knows that once the client's HELLO came.
    pub fn sends_with(&self) -> Wishes {
        self.control.current
    }

    /// The congestion controller at work.
    pub fn controller(&self) -> Kind {
        self.control.gate.flight().controller.kind()
    }

    /// When the peer was asked to acknowledge.
    pub fn asks(&self) -> AckPolicy {
        self.control.path.asks
    }

    /// What the connection was begun with.
    pub fn link(&self) -> Link {
        self.control.path.link
    }

    /// Round-trip time, smoothed and smallest.
    pub fn rtt(&self) -> (Duration, Duration) {
        (self.quic.rtt(), self.quic.min_rtt())
    }

    /// Window in bytes, pacing rate in bit/s and bytes in flight.
    pub fn congestion(&self) -> (u64, BitRate, u64) {
        let flight = self.control.gate.flight();
        (
            flight.controller.window(),
            flight.controller.pacing_rate(),
            flight.in_flight(),
        )
    }

    /// Datagrams that left a second time.
    pub fn repeated(&self) -> u64 {
        self.repeater.repeated()
    }

    /// What was learned of the path in this direction, for the next connection.
    pub fn saved(&self, now: Instant) -> Option<Saved> {
        self.control.gate.flight().saved(now)
    }

    /// The path is known from an earlier connection; false if the controller makes no use of that.
    pub fn resume(&mut self, now: Instant, saved: Saved) -> bool {
        self.control.gate.flight().resume(now, saved)
    }

    /// What an earlier connection's controller learned of the path and this one's goes by.
    pub fn resumed(&self) -> Option<Saved> {
        self.control.gate.flight().resumed()
    }

    /// The tunnel together with quinn's machine, for calls that need both.
    pub fn parts(&mut self) -> (&mut Tunnel, &mut quinn_proto::Connection) {
        (&mut self.tunnel, &mut self.quic)
    }
}

/// Frames sent so far that the peer has to acknowledge (RFC 9000 §13.2.1), other than those of which
/// each connection sends a handful.
fn ack_eliciting(sent: &FrameStats) -> u64 {
    let flow_control = sent.max_data + sent.max_stream_data + sent.max_streams_bidi;
    let ends = sent.reset_stream + sent.stop_sending;
    let path = sent.ping + sent.path_challenge + sent.path_response;
    sent.stream + sent.datagram + sent.crypto + flow_control + ends + path
}
