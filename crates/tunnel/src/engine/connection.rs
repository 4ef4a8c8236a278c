//! One QUIC connection of the engine: its state, what happens to it, and when it wants to be called again.
//!
//! What it sends is in `connection/sending.rs`, what it does in silence in `connection/outage.rs`. Joins quinn's state
//! machine, the gate with its controller, the pacer, the outage prober and the tunnel. Datagrams in, datagrams out, `now` as
//! an argument; no socket, no clock.

mod figures;
mod outage;
mod sending;
pub(crate) mod streams;

use std::fmt;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use bentpipe_congestion::{Pacer, Saved};
use bentpipe_proto::tunnel::{Acks, CloseCode};
use bentpipe_units::{BitRate, Seed};
use bytes::Bytes;
use quinn_proto::{
    ConnectionError, ConnectionEvent, ConnectionHandle, Dir, Event, StreamEvent, VarInt,
};

use super::ack_demand::{AckDemand, AckDuty};
use super::identity;
use super::insist::Insistence;
use super::ledger::Books;
use super::prober::Prober;
use super::repeat::Repeater;
use super::settings::SendControl;
use super::train::Train;
use crate::transport::{Fault, Lane, OpenError, QueryKey, Streams, Tunnel, TunnelEvent};
use streams::{StreamLimit, streams_for};

/// Not to hear of a peer for so long is an outage: where flows are open, either side asks before.
const SILENT: Duration = Duration::from_secs(6);

/// In an outage the peer is excused for what it owes, and for so long after it: what was lost has to leave once more.
const CATCH_UP: Duration = Duration::from_secs(10);

/// A peer that is not heard for this long although an answer is overdue is called silent.
const UNHEARD: Duration = Duration::from_secs(5);

/// A peer that repairs has losses; what few packets leave here are probably lost as often.
const LIKELY_LOSS: f64 = 0.01;

/// To an address that has not proved itself a server sends so many times what came from there (RFC 9000 §8).
const UNPROVEN: u64 = 3;

/// Room for a datagram of the handshake, whatever is in it.
const LEAST_ROOM: u64 = 1500;

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
    pacer: Pacer,
    prober: Prober,
    repeater: Repeater,
    insistence: Insistence,
    train: Train,
    books: Books,
    streams: StreamLimit,
    /// How the peer wants to be acknowledged.
    asked: Acks,
    /// How this side wants to be acknowledged where round trips are short, and how the peer does.
    demand: AckDemand,
    duty: AckDuty,
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
    /// Instant at which the last outage ended.
    silence_ended: Option<Instant>,
    /// When the peer was last heard: unlike the above, a question of ours does not touch it.
    last_heard: Instant,
    last_payload: Instant,
    /// When the path was last listened to at rest.
    listened: Instant,
    /// When one of a client's probes is to be loud again.
    quiet_until: Option<Instant>,
    /// Flows wait for the end of an outage before they are opened.
    wanted: bool,
    /// The peer's address changed, and the new one was not asked yet.
    moved: bool,
    /// What the shell was last told of an outage.
    told_outage: bool,
    established: bool,
    /// The last datagram began with an Initial packet.
    initial: bool,
    /// When the peer was last heard in an outage: where it waits is asked of this side only then, and in the next round trip.
    returned: Option<Instant>,
    /// Datagrams that quinn has of what is said again.
    again: usize,
    /// Bytes received and sent, copies included.
    unproven: [u64; 2],
    /// The peer is told why its handshake failed, as often as it asks.
    explains: bool,
    /// What may leave before the peer was heard (client).
    first: Option<FirstWords>,
    /// Nothing leaves any more.
    silenced: bool,
    /// The end was reported.
    pub(super) lost: bool,
}

/// Properties of a datagram that came.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kind {
    /// "Congestion experienced".
    pub(super) marked: bool,
    /// An Initial packet comes first in it: anybody on the path can make one.
    pub(super) initial: bool,
}

/// Bound on what a client sends to a peer that it has not heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FirstWords {
    /// Datagrams that may leave.
    pub datagrams: u64,
    /// The first ones leave three times (`insist.rs`), for a path that loses.
    pub copies: bool,
}

/// Why data has to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shut {
    /// The window is full: an acknowledgement opens it.
    Window,
    /// It is too early: time opens it.
    Pacer,
    /// quinn keeps its DATAGRAM frames to itself: the peer's new address has not proved itself, which a datagram from there
    /// ends, or the connection is closed.
    Unproven,
}

/// An ICMP error about datagrams of a handshake. Anybody may have forged it: a hint, and nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unreachable {
    /// Cause.
    pub cause: UnreachableCause,
    /// Sender of the ICMP message.
    pub from: Option<IpAddr>,
}

/// What an ICMP error says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnreachableCause {
    /// No program listens at the port.
    Port,
    /// The host does not answer its router.
    Host,
    /// No route leads there.
    Network,
    /// A firewall rejects it.
    Prohibited,
}

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.cause {
            UnreachableCause::Port => "port unreachable",
            UnreachableCause::Host => "host unreachable",
            UnreachableCause::Network => "network unreachable",
            UnreachableCause::Prohibited => "prohibited by a firewall",
        })?;
        match self.from {
            Some(from) => write!(f, ", says {} (ICMP)", from.to_canonical()),
            None => f.write_str(" (ICMP)"),
        }
    }
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
    /// The network says that nobody can be reached there (client, before the handshake is complete).
    Unreachable(Unreachable),
    /// The peer broke the tunnel protocol; the connection is being closed.
    Fault(Fault),
    /// The peer has shown this key, from this address, and nobody accepts it; that it holds the private half is not
    /// proved.
    UnknownKey(identity::PublicKey, std::net::SocketAddr),
    /// The connection is over.
    Lost(ConnectionError),
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
        Self {
            handle,
            quic: Streams::new(quic),
            lane: Lane::default(),
            tunnel,
            asked: control.path.asked.announced(),
            demand: AckDemand::new(control.path.asks),
            duty: AckDuty::default(),
            control,
            pacer: Pacer::new(now),
            prober: Prober::new(seed.stream("prober")),
            repeater: Repeater::default(),
            insistence: Insistence::default(),
            train: Train::default(),
            books: Books::default(),
            streams,
            greeting: false,
            residual: 0,
            unchecked: 0,
            unanswered: None,
            shut: None,
            last_received: now,
            silence_ended: None,
            last_heard: now,
            last_payload: now,
            listened: now,
            quiet_until: None,
            wanted: false,
            moved: false,
            told_outage: false,
            established: false,
            initial: false,
            returned: None,
            again: 0,
            unproven: [0; 2],
            explains: false,
            first: None,
            silenced: false,
            lost: false,
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
        self.initial = kind.initial;
        self.unanswered.get_or_insert((now, 0)).1 += 1;
        self.first = None;
        if self.prober.is_outage() {
            self.returned = Some(now);
            if now.saturating_duration_since(self.last_received) > self.quic.rtt() {
                self.prober.hurry(now);
            }
        }
        self.listen(now);
        if now.saturating_duration_since(self.last_heard) >= SILENT {
            self.silence_ended = Some(now);
        }
        self.last_received = now;
        self.last_heard = now;
        self.unproven[0] += size as u64;
        let address = self.quic.remote_address();
        self.quic.handle_event(event);
        self.moved |= self.quic.remote_address() != address;
        let frames = self.quic.stats().frame_rx;
        let headers = self.control.path.headers();
        self.duty.on_received(now, &frames);
        let handshake = !self.established;
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

    /// The connection began with a datagram of `size` bytes.
    pub(super) fn began_with(&mut self, size: usize) {
        self.unproven[0] += size as u64;
    }

    /// The QUIC connection below, to ask for its path, peer and counters.
    #[must_use]
    pub fn quic(&self) -> &quinn_proto::Connection {
        self.quic.quic()
    }

    /// Peer's address, an IPv4 address in its own form whichever family the socket below has.
    #[must_use]
    pub fn peer(&self) -> std::net::SocketAddr {
        let peer = self.quic.remote_address();
        (peer.ip().to_canonical(), peer.port()).into()
    }

    /// Streams that the peer may hold open now.
    pub fn allowed_streams(&self) -> u64 {
        self.quic.max_concurrent_streams(Dir::Bi)
    }

    /// True if the last datagram came from the peer whose key this side has verified. Initial packets prove nothing.
    #[must_use]
    pub fn trusts_last(&self) -> bool {
        self.established && !self.initial
    }

    /// True once nothing more is owed to the peer. A stranger's connection does not linger for the three PTO of RFC 9000
    /// §10.2, unless the peer is told why it was refused.
    pub(super) fn is_over(&self) -> bool {
        let stranger = self.quic.side().is_server() && !self.established;
        self.lost && (self.quic.is_drained() || (stranger && !self.explains))
    }

    /// Bytes that may leave for an address of which nothing is proved yet. quinn keeps this account too, but knows of no copies.
    fn room_unproven(&self) -> u64 {
        if self.established || self.quic.side().is_client() {
            return u64::MAX;
        }
        let [received, sent] = self.unproven;
        (received * UNPROVEN).saturating_sub(sent)
    }

    /// Not even a datagram may leave before more has come.
    fn is_muted(&self) -> bool {
        let spent = self.first.is_some_and(|first| first.datagrams == 0);
        self.silenced || spent || self.room_unproven() < LEAST_ROOM
    }

    /// Bounds what leaves before the peer was heard (client): a peer that is not there costs no more.
    pub fn set_first_words(&mut self, first: FirstWords) {
        self.first = Some(first);
    }

    /// Forgets a connection without another datagram: its peer was never heard.
    pub fn abandon(&mut self, now: Instant) {
        self.silenced = true;
        self.close(now, CloseCode::NoError.code(), String::new());
    }

    /// The time of the last datagram from the peer; `None` before the first (client).
    pub fn heard(&self) -> Option<Instant> {
        self.first.is_none().then_some(self.last_heard)
    }

    /// Whether an answer is overdue, and nothing has been heard for longer than short gaps of a link last.
    pub fn is_silent(&self, now: Instant) -> bool {
        self.prober.is_outage() && now.saturating_duration_since(self.last_heard) >= UNHEARD
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if self.quic.poll_timeout().is_some_and(|due| due <= now) {
            self.quic.handle_timeout(now);
        }
        self.train.handle_timeout(now);
        if self.quic.header_timeout().is_some_and(|due| due <= now) {
            let silent = now.saturating_duration_since(self.last_heard) >= SILENT;
            let behind = self.silence_ended.is_some_and(|end| now < end + CATCH_UP);
            let excused = silent || behind;
            self.lane
                .expire_headers(now, &mut self.tunnel, &mut self.quic, excused);
        }
        self.update_prober(now);
        if self.listening_deadline().is_some_and(|due| due <= now) {
            self.listened = now;
            self.quic.ping();
        }
        if self.silence_deadline().is_some_and(|due| due <= now) {
            // Once; from then on the prober sees an unanswered packet and takes over.
            self.probe(now);
            self.last_received = now;
        }
    }

    /// Repairs of the peer's are to be decoded.
    pub(super) fn has_work(&self) -> bool {
        self.lane.has_repairs()
    }

    /// Decodes some of them. True if there are more.
    pub(super) fn work(&mut self, now: Instant) -> bool {
        !self.lost && self.lane.decode_repairs(now)
    }

    /// True if the tunnel had to give way to others.
    pub(super) fn share_memory(&mut self) -> bool {
        self.lane.share_memory(&mut self.tunnel, &mut self.quic)
    }

    /// Takes quinn's events and turns them into notices.
    pub(super) fn poll(&mut self, now: Instant) -> Option<ConnectionNotice> {
        loop {
            if let Some(event) = self.tunnel.poll_event() {
                match event {
                    TunnelEvent::Flow(_) | TunnelEvent::Packets => self.last_payload = now,
                    TunnelEvent::Ready => self.on_hello(),
                    TunnelEvent::Opened(..)
                    | TunnelEvent::Inbound(..)
                    | TunnelEvent::Publish(_)
                    | TunnelEvent::Published(..)
                    | TunnelEvent::Enrol(_)
                    | TunnelEvent::Enrolled(..)
                    | TunnelEvent::Query(..)
                    | TunnelEvent::Answer(..)
                    | TunnelEvent::Families
                    | TunnelEvent::Goaway => {}
                }
                return Some(ConnectionNotice::Tunnel(event));
            }
            let outage = self.prober.is_outage();
            if std::mem::replace(&mut self.told_outage, outage) != outage {
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
            match event {
                Event::Connected => {
                    self.established = true;
                    self.streams.on_known(&mut self.quic);
                    self.lane.on_connected(&mut self.tunnel, &mut self.quic);
                    if self.quic.side().is_client() {
                        self.start_train();
                    }
                    return Some(ConnectionNotice::Connected);
                }
                Event::ConnectionLost { reason } => {
                    self.lost = true;
                    self.explains = matches!(reason, ConnectionError::TransportError(_));
                    self.lane.on_lost(&mut self.tunnel, &mut self.quic);
                    return Some(ConnectionNotice::Lost(reason));
                }
                Event::Stream(event) => {
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
                        self.duty.ask(acks);
                    }
                }
                // They were taken as they came.
                Event::HandshakeDataReady | Event::DatagramReceived | Event::DatagramsUnblocked => {
                }
            }
        }
    }

    fn on_fault(&mut self, now: Instant, fault: Fault) -> ConnectionNotice {
        self.close(now, fault.code().code(), fault.to_string());
        ConnectionNotice::Fault(fault)
    }

    fn on_hello(&mut self) {
        self.lane.set_fec(&self.tunnel, self.control.current.fec);
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
        self.lane.set_fec(&self.tunnel, self.control.current.fec);
        self.lane.greet(&mut self.tunnel, granted);
        self.start_train();
    }

    /// HELLO is about to leave, and for a round trip nothing follows it.
    fn start_train(&mut self) {
        if self.control.gate.flight().controller().wants_hint() {
            self.train.start();
        }
    }

    /// Tells the peer what its train showed, after HELLO.
    fn report_train(&mut self) {
        if self.tunnel.remote().is_some()
            && let Some(estimate) = self.train.take_report()
        {
            self.lane
                .on_train(&mut self.tunnel, &mut self.quic, estimate);
        }
    }

    /// Server: sets how many flows and queries this client may hold open at once.
    pub fn set_max_flows(&mut self, max_flows: u64) {
        let most = streams_for(u32::try_from(max_flows).unwrap_or(u32::MAX));
        self.streams.set_most(&mut self.quic, most);
    }

    /// Server: this client is sent to no faster than `max_rate`, whatever it wishes.
    pub fn set_max_rate(&mut self, now: Instant, max_rate: Option<BitRate>) {
        self.control.limit(now, max_rate, self.quic.rtt());
    }

    pub(super) fn poll_timeout(&mut self) -> Option<Instant> {
        if self.is_muted() {
            // Nothing may leave, so nothing is worth waking up for but the end.
            return self.quic.poll_timeout();
        }
        let within = self.answer_within();
        let owed = self.unanswered.map(|(since, _)| since + within);
        let paced = (self.shut == Some(Shut::Pacer)).then(|| self.pacer.poll_timeout());
        [
            self.quic.poll_timeout(),
            paced.flatten(),
            owed.filter(|_| self.shut.is_some()),
            self.duty.poll_timeout(),
            self.prober.poll_timeout(),
            self.repeater.poll_timeout().filter(|_| self.shut.is_none()),
            self.insistence.poll_timeout(),
            self.lane
                .repair_timeout(&self.tunnel)
                .filter(|_| self.shut.is_none()),
            self.train.poll_timeout(),
            self.quic.header_timeout(),
            self.silence_deadline(),
            self.listening_deadline(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Closes the connection with an application code (`PROTOCOL.md` "Closing").
    pub fn close(&mut self, now: Instant, code: u64, reason: String) {
        let code = VarInt::from_u64(code).unwrap_or_default();
        self.quic.close(now, code, Bytes::from(reason));
        self.insistence.end();
        self.lost = true;
        self.lane.on_lost(&mut self.tunnel, &mut self.quic);
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

    /// The tunnel together with the streams that its flows use, for calls that need both.
    pub fn parts(&mut self) -> (&mut Tunnel, &mut Streams) {
        (&mut self.tunnel, &mut self.quic)
    }

    /// Client: sends a query; its answer is a [`TunnelEvent::Answer`].
    ///
    /// # Errors
    /// The server takes no queries, or no more of them now.
    pub fn ask(&mut self, message: &[u8]) -> Result<QueryKey, OpenError> {
        self.lane.ask(&self.tunnel, &mut self.quic, message)
    }

    /// Client: gives up a query; there will be no event.
    pub fn forget_query(&mut self, query: QueryKey) {
        self.lane.forget_query(&mut self.quic, query);
    }

    /// Server: answers a query; without a message it is refused.
    pub fn answer(&mut self, query: QueryKey, message: Option<Bytes>) {
        self.lane.answer(&mut self.quic, query, message);
    }

    /// The connection but for its flows and streams, to ask for its queries and repairs.
    #[must_use]
    pub fn lane(&self) -> &Lane {
        &self.lane
    }
}
