//! All connections of one shard: routes datagrams and timers to them and gathers what they send.
//!
//! One quinn `Endpoint`, many [`Connection`]s. Connections that may have something to send wait in
//! `dirty`; `endpoint/sending.rs` takes turns among them, `admission.rs` begins them; timers are kept
//! in order. No socket, no clock: the shard of crate `pep` and the virtual-time tests drive it alike.

mod admission;
mod config;
mod connections;
mod event;
mod schedule;
mod sending;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use bentpipe_proto::tunnel::{CloseCode, Families};
use quinn_proto::{DatagramEvent, EcnCodepoint, Endpoint, QlogStream, ServerConfig, Transmit};

use super::arrival::{Arrival, DatagramMemory, Kind, Routed};
use super::connection::{Connection, ConnectionNotice, Unreachable};
use super::handshakes::Handshakes;
use super::identity;
use super::ledger::Ledger;
use super::placement::Placement;
use super::reliable::Wires;
use super::totals::{Allowance, Totals};
use super::tuning;
use crate::transport::MemoryPool;
pub use config::{EngineConfig, ServerSetup};
use connections::Connections;
pub use event::{ConnectionId, Event};
use schedule::RoundRobin;
pub(crate) use schedule::Timers;

/// One batch of datagrams for the socket; the bytes are in the caller's buffer.
pub type Output = Transmit;

/// The engine of one shard.
pub struct Engine {
    endpoint: Endpoint,
    config: EngineConfig,
    connections: Connections,
    /// Server: connections whose client has not proven its key yet.
    handshakes: Handshakes,
    /// Server of several shards: who hears of connections, and this shard.
    placement: Option<(u8, Arc<Placement>)>,
    /// Connections that may have something to send; they take turns, one batch each.
    dirty: RoundRobin,
    /// Connections with work that can wait for others.
    working: RoundRobin,
    /// Wires that are TCP connections.
    wires: Wires,
    timers: Timers,
    responses: VecDeque<(Output, Vec<u8>)>,
    /// Bytes that belong to no connection, or not yet.
    strays: Ledger,
    /// Connections that have ended.
    past: Totals,
    allowance: Allowance,
    events: VecDeque<Event>,
    tracer: Option<Tracer>,
}

/// Begins the trace of a connection.
pub type Tracer = Box<dyn FnMut(Instant) -> Option<QlogStream>>;

impl Engine {
    /// An engine without connections.
    pub fn new(config: EngineConfig) -> Self {
        let seed = config.deterministic.then(|| {
            let mut bytes = [0; 32];
            bytes[..8].copy_from_slice(&config.seed.as_u64().to_le_bytes());
            bytes
        });
        let endpoint = tuning::endpoint(config.reset_key.clone(), config.shard, seed);
        // The per-connection configuration is chosen in `accept`; this one only lets quinn listen.
        let server = config.server.as_ref().map(|setup| {
            Arc::new(ServerConfig::new(
                setup.crypto.clone(),
                setup.token_key.clone(),
            ))
        });
        Self {
            endpoint: Endpoint::new(Arc::new(endpoint), server, true, seed),
            connections: Connections::default(),
            handshakes: Handshakes::new(config.seed.stream("handshakes")),
            placement: None,
            dirty: RoundRobin::default(),
            working: RoundRobin::default(),
            wires: Wires::default(),
            timers: Timers::default(),
            responses: VecDeque::new(),
            strays: Ledger::default(),
            past: Totals::default(),
            allowance: Allowance::default(),
            events: VecDeque::new(),
            tracer: None,
            config,
        }
    }

    /// Traces every connection from now on.
    pub fn trace_with(&mut self, tracer: Tracer) {
        self.tracer = Some(tracer);
    }

    /// Tells `placement` of this shard's connections from now on.
    pub fn report_to(&mut self, placement: (u8, Arc<Placement>)) {
        self.placement = Some(placement);
    }

    /// Takes a datagram from the socket.
    pub fn handle_datagram(&mut self, now: Instant, arrival: Arrival) {
        if self.judge(now, &arrival) {
            self.take(now, arrival);
        }
    }

    /// Takes a datagram from the socket or from another shard.
    pub fn handle_routed(&mut self, now: Instant, routed: Routed) {
        match routed.judged {
            true => self.take(now, routed.arrival),
            false => self.handle_datagram(now, routed.arrival),
        }
    }

    /// Judges a datagram by its source, before anything is computed for it; false: it is dropped.
    pub fn judge(&mut self, now: Instant, arrival: &Arrival) -> bool {
        let (remote, size) = (arrival.remote, arrival.data.len());
        let knocks = self.config.server.is_some() && is_initial(&arrival.data);
        let passes = !knocks || self.handshakes.knock(now, remote.ip());
        if !passes {
            self.allowance.enter(size as u64 + self.headers_of(remote));
            self.strays.received.enter_stray(remote, size);
        }
        passes
    }

    fn take(&mut self, now: Instant, arrival: Arrival) {
        let Arrival {
            at,
            remote,
            local,
            ecn,
            mut data,
        } = arrival;
        let mut buf = Vec::new();
        let (size, memory) = (data.len(), DatagramMemory::of(&mut data));
        self.allowance.enter(size as u64 + self.headers_of(remote));
        let kind = Kind {
            marked: ecn == Some(EcnCodepoint::Ce),
            initial: is_initial(&data),
        };
        match self
            .endpoint
            .handle(now, remote, local, ecn, data, &mut buf)
        {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                if let Some((id, connection)) = self.connections.of_handle(handle) {
                    connection.handle_event(now, event, at, size, kind);
                    memory.wipe();
                    if connection.has_work() {
                        self.working.insert(id);
                    }
                    self.dirty.insert(id);
                    if let Some(key) = identity::take_refused() {
                        let notice = ConnectionNotice::UnknownKey(key, remote);
                        self.events.push_back(Event {
                            connection: id,
                            notice,
                        });
                    }
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                self.strays.received.enter_stray(remote, size);
                self.accept(now, incoming, size);
            }
            Some(DatagramEvent::Response(transmit)) => {
                self.strays.received.enter_stray(remote, size);
                // A client's are stateless resets. A server that has forgotten the connection, too, would answer each
                // with a shorter one, across the satellite and back.
                if self.config.server.is_some() {
                    self.respond(transmit, buf);
                }
            }
            None => self.strays.received.enter_stray(remote, size),
        }
    }

    /// Bytes on the link that are in no connection's ledger: first datagrams, stateless resets and what brought them about.
    pub fn strays(&self) -> Ledger {
        self.strays
    }

    /// Sums over all connections since the engine began, and what belongs to none.
    pub fn totals(&self) -> Totals {
        let mut totals = self.past;
        totals.ledger += self.strays;
        for (_, connection) in self.connections.iter() {
            totals += connection.totals();
        }
        totals
    }

    /// Bytes that have crossed the link in both directions, IP packets whole.
    pub fn crossed(&self) -> u64 {
        self.allowance.crossed()
    }

    /// Lets `more` bytes cross from now on, in both directions together; `None`: any number. Once they have, a few
    /// datagrams that end connections still leave, and then nothing.
    pub fn allow(&mut self, more: Option<u64>) {
        self.allowance.grant(more);
    }

    /// True once after the allowance was used up.
    pub fn take_spent(&mut self) -> bool {
        self.allowance.take_news()
    }

    /// Takes a report that datagrams do not arrive: it concerns connections with the address that they were sent to, and an ICMP error
    /// only those that shake hands.
    pub fn handle_unreachable(&mut self, said: Unreachable) {
        for (id, connection) in self.connections.iter_mut() {
            let peer = connection.quic.remote_address();
            let is_meant =
                (peer.ip().to_canonical(), peer.port()) == (said.to.ip(), said.to.port());
            if is_meant && said.own_fault().is_some() {
                connection.on_unsent(said.cause);
            }
            if is_meant && connection.quic.is_handshaking() && !connection.is_lost() {
                self.events.push_back(Event {
                    connection: id,
                    notice: ConnectionNotice::Unreachable(said),
                });
            }
        }
    }

    /// Answers no more handshakes; their clients try again, and find whoever serves then.
    pub fn stop_accepting(&mut self) {
        self.config.server = None;
    }

    /// Memory for the tunnels of all engines.
    pub fn pool(&self) -> &MemoryPool {
        &self.config.pool
    }

    /// Server: what connections to come may hold, before their client is known.
    pub fn set_limits(&mut self, max_flows: u64, memory: u64) {
        self.config.hello.max_flows = max_flows;
        self.config.memory = memory;
    }

    /// Server: which address families it reaches; every client is told.
    pub fn set_families(&mut self, families: Families) {
        self.config.hello.families = families;
        for (id, connection) in self.connections.iter_mut() {
            connection.tunnel.set_families(families);
            self.dirty.insert(id);
        }
    }

    /// Server: true once after many strangers' handshakes have ended, whose memory can go back to the system.
    pub fn strangers_subside(&mut self) -> bool {
        self.handshakes.subsides()
    }

    /// Runs every timer that is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(id) = self.timers.pop_due(now) {
            if let Some(connection) = self.connections.get_mut(id) {
                connection.handle_timeout(now);
                self.dirty.insert(id);
            }
        }
        while let Some(id) = self.handshakes.give_up(now) {
            if let Some(connection) = self.connection(id) {
                connection.close(now, CloseCode::NoError.code(), String::new());
            }
        }
    }

    /// Instant at which [`Self::handle_timeout`] wants to be called next.
    pub fn poll_timeout(&self) -> Option<Instant> {
        [self.timers.earliest(), self.handshakes.poll_timeout()]
            .into_iter()
            .flatten()
            .min()
    }

    /// The next event for the shell.
    pub fn poll_event(&mut self, now: Instant) -> Option<Event> {
        if self.events.is_empty() {
            for id in self.dirty.waiting() {
                self.pump(now, id);
            }
        }
        self.events.pop_front()
    }

    /// Moves events between one connection, the endpoint and the shell.
    fn pump(&mut self, now: Instant, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(id) else {
            return;
        };
        while let Some(event) = connection.quic.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(connection.handle, event) {
                connection.quic.handle_event(event);
            }
        }
        while let Some(notice) = connection.poll(now) {
            if matches!(notice, ConnectionNotice::Connected) {
                self.handshakes.succeed(id);
            }
            self.events.push_back(Event {
                connection: id,
                notice,
            });
        }
    }

    /// True if [`Self::work`] would do something.
    pub fn has_work(&self) -> bool {
        !self.working.is_empty()
    }

    /// Does what can wait for others (decoding repairs), some milliseconds' worth of it, for one connection: they take turns.
    /// To be called when nothing else is to be done, or now and then.
    pub fn work(&mut self, now: Instant) {
        let Some(id) = self.working.next() else {
            return;
        };
        self.working.end_turn(id);
        let connection = self.connections.get_mut(id);
        if !connection.is_some_and(|connection| connection.work(now)) {
            self.working.remove(id);
        }
        self.dirty.insert(id);
    }

    /// Has tunnels that hold more than they may of the memory for all give way. To be called every second: those that hold
    /// most may be those of which nothing is heard.
    pub fn share_memory(&mut self) {
        for (id, connection) in self.connections.iter_mut() {
            if connection.share_memory() {
                self.dirty.insert(id);
            }
        }
    }

    /// A connection, to look at or to act on; it is then looked at for output again.
    pub fn connection(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        let connection = self.connections.get_mut(id)?;
        self.dirty.insert(id);
        Some(connection)
    }

    /// A connection, to look at only.
    pub fn peek(&self, id: ConnectionId) -> Option<&Connection> {
        self.connections.get(id)
    }

    /// Every connection.
    pub fn connections(&self) -> impl Iterator<Item = (ConnectionId, &Connection)> {
        self.connections.iter()
    }

    /// True while something may be waiting for [`Self::poll_event`] or [`Self::poll_transmit`].
    pub fn is_dirty(&self) -> bool {
        !self.dirty.is_empty() || !self.events.is_empty() || !self.responses.is_empty()
    }
}

/// True for an Initial packet of QUIC (RFC 9000 §17.2.2): with one of these a connection begins.
pub(crate) fn is_initial(datagram: &[u8]) -> bool {
    datagram.first().is_some_and(|first| first & 0xf0 == 0xc0)
}
