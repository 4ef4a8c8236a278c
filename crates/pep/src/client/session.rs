//! Keeps one tunnel up: connects, notices the end, connects again; flows wait meanwhile.
//!
//! When an attempt is made is decided in `retry.rs`, how in `connecting.rs`; `silence.rs` is about a tunnel that does not
//! answer, `report.rs` about what the operator hears.

use std::cell::{Cell, OnceCell, RefCell};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use bentpipe_proto::tunnel::{CloseCode, Families};
use bentpipe_units::Seed;
use quinn_proto::crypto::ClientConfig as ClientCrypto;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use super::SharedKeyLog;
use super::associations::Relays;
use super::connecting::Attempt;
use super::enrol::{self, Enrolments};
use super::link::{Choice, LinkMeter, Seen};
use super::lookup::Lookups;
use super::memory::Memory;
use super::metering::Meter;
use super::packets::PacketDevice;
use super::publish::Published;
use super::report::{Told, is_replaced};
use super::retry::{Failure, Retry};
use super::routes::Routes;
use super::silence::Challenger;
use crate::config::{ClientConfig, FrontEnds, Role, Server, ServerAddress};
use crate::metrics::FirstByte;
use crate::paths::PathMemory;
use crate::process::{self, RunError};
use crate::sampler::Sampler;
use crate::shard::Shard;
use crate::status;
use bentpipe_tunnel::engine::identity::{self, PrivateKey, PublicKey};
use bentpipe_tunnel::engine::{
    Connection, ConnectionId, ConnectionNotice, Engine, Event, Unreachable,
};
use bentpipe_tunnel::text::printable;
use bentpipe_tunnel::transport::{QueryKey, TunnelEvent};

/// The tunnel did not come up in the time that a flow waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unready;

/// The client's tunnel.
pub(crate) struct Session {
    pub(super) config: Rc<ClientConfig>,
    pub(super) shard: Rc<Shard>,
    pub(super) crypto: Vec<Arc<dyn ClientCrypto>>,
    /// Keys of codes to join by.
    pub(super) enrolments: Enrolments,
    pub(super) public_key: PublicKey,
    pub(super) remembered: RefCell<Memory<SocketAddr>>,
    pub(super) links: RefCell<Memory<Seen>>,
    /// What the tunnel, now or last, was begun with, and what it shows of its link.
    pub(super) choice: Cell<Option<Choice>>,
    pub(super) meter: RefCell<LinkMeter>,
    pub(super) paths: PathMemory,
    /// When which server is tried.
    pub(super) retry: RefCell<Retry>,
    /// Wakes the task that makes attempts.
    pub(super) kick: Notify,
    pub(super) lookups: Lookups,
    /// The connection that is to become the tunnel.
    pub(super) attempt: Cell<Option<Attempt>>,
    /// An ICMP error about it.
    pub(super) unreachable: Cell<Option<Unreachable>>,
    pub(super) ready: Cell<Option<ConnectionId>>,
    /// Nobody answers in the tunnel that is ready.
    pub(super) outage: Cell<bool>,
    /// When that tunnel was last heard, once the operator was told that it is silent.
    pub(super) silence: Cell<Option<Instant>>,
    /// Another tunnel that is ready beside it.
    pub(super) challenger: Cell<Option<Challenger>>,
    /// The tunnel of a server that has said that it stops.
    leaving: Cell<Option<ConnectionId>>,
    /// The attempt that became the tunnel, now or last.
    pub(super) winner: Cell<Option<Attempt>>,
    pub(super) told: Cell<Told>,
    /// Lines of this kind and server are in the log since there was a tunnel.
    pub(super) logged: RefCell<Vec<(Told, usize)>>,
    pub(super) since: Cell<Instant>,
    pub(super) last_error: RefCell<Option<String>>,
    pub(super) changes: watch::Sender<()>,
    /// Our socket is IPv6 and reaches IPv4 addresses in their mapped form.
    pub(super) dual_stack: bool,
    pub(super) waiting: Cell<u64>,
    pub(super) draining: Cell<bool>,
    pub(super) sampler: RefCell<Sampler>,
    pub(super) latest: RefCell<status::Session>,
    /// Bytes used of those that may be.
    pub(super) meter_bytes: RefCell<Meter>,
    /// Where all but TCP comes from, if it is to go into the tunnel.
    pub(super) device: OnceCell<PacketDevice>,
    /// Datagrams of applications.
    pub(super) relays: Relays,
    /// What came of the ports that it publishes.
    pub(super) published: Published,
    /// What came of the prefixes that are to be routed here.
    pub(super) routes: RefCell<Routes>,
    /// Times to first bytes, where they are served.
    first_byte: Option<FirstByte>,
}

impl Session {
    pub(crate) fn new(
        config: Rc<ClientConfig>,
        (key, enrolments): (&PrivateKey, &[Option<PrivateKey>]),
        key_log: SharedKeyLog,
        shard: Rc<Shard>,
        dual_stack: bool,
    ) -> Result<Rc<Self>, RunError> {
        let enrolments = Enrolments::new(&config, enrolments, &key_log)?;
        let servers = config.servers.iter();
        let crypto = servers.map(|server| enrol::crypto(&config, server, key, &key_log));
        let crypto = crypto.collect::<Result<_, _>>()?;
        let now = process::now();
        let published = Published::new(config.publish.len());
        let relays = Relays::new(&config);
        Ok(Rc::new(Self {
            first_byte: config.metrics.as_ref().map(|_| FirstByte::new()),
            remembered: RefCell::new(Memory::load(
                &config.state_dir,
                "servers.json",
                "the server's address",
            )),
            links: RefCell::new(Memory::load(&config.state_dir, "links.json", "the link")),
            choice: Cell::new(None),
            meter: RefCell::default(),
            paths: PathMemory::load(&config.state_dir, Role::Client),
            meter_bytes: RefCell::new(Meter::load(&config, &shard)),
            retry: RefCell::new(Retry::new(
                now,
                config.servers.len(),
                Seed::new(process::random_u64()),
            )),
            config,
            shard,
            crypto,
            enrolments,
            public_key: key.public(),
            kick: Notify::new(),
            lookups: Lookups::default(),
            attempt: Cell::new(None),
            unreachable: Cell::new(None),
            ready: Cell::new(None),
            outage: Cell::new(false),
            silence: Cell::new(None),
            challenger: Cell::new(None),
            leaving: Cell::new(None),
            winner: Cell::new(None),
            told: Cell::new(Told::Nothing),
            logged: RefCell::default(),
            since: Cell::new(now),
            last_error: RefCell::default(),
            changes: watch::Sender::new(()),
            dual_stack,
            waiting: Cell::new(0),
            draining: Cell::new(false),
            sampler: RefCell::new(Sampler::new(now)),
            latest: RefCell::default(),
            device: OnceCell::new(),
            relays,
            published,
            routes: RefCell::default(),
        }))
    }

    /// What is known of paths.
    pub(crate) fn paths(&self) -> &PathMemory {
        &self.paths
    }

    pub(crate) fn shard(&self) -> &Rc<Shard> {
        &self.shard
    }

    /// Takes times to first bytes, where they are served.
    pub(crate) fn first_byte(&self) -> Option<&FirstByte> {
        self.first_byte.as_ref()
    }

    /// Hears of every change of what the accessors here answer.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// The tunnel for a new flow, now or when it comes up or answers again within the configured time. What is opened in
    /// an outage would be lost with the tunnel if the server turns out to have been restarted.
    pub(crate) async fn tunnel(&self) -> Result<ConnectionId, Unready> {
        if self.is_stopped() {
            return Err(Unready);
        }
        let usable = || self.ready.get().filter(|_| self.carries());
        if let Some(ready) = usable() {
            return Ok(ready);
        }
        self.want();
        let mut changes = self.changes();
        self.waiting.set(self.waiting.get() + 1);
        let result = timeout(self.config.open_wait, async {
            while !self.is_stopped() {
                if let Some(ready) = usable() {
                    return Ok(ready);
                }
                changes.changed().await.map_err(|_| Unready)?;
            }
            Err(Unready)
        });
        let result = result.await.unwrap_or(Err(Unready));
        self.waiting.set(self.waiting.get() - 1);
        result
    }

    /// Whether DNS queries can cross now.
    pub(crate) fn answers_dns(&self) -> bool {
        let usable = self.ready.get().filter(|_| self.carries());
        usable.is_some_and(|id| {
            let has = |engine: &Engine| Some(engine.peek(id)?.tunnel.takes_queries());
            self.shard.peek(has).unwrap_or(false)
        })
    }

    /// Sends a DNS query; its answer is an event.
    pub(crate) fn ask(&self, message: &[u8]) -> Option<(ConnectionId, QueryKey)> {
        let id = self.ready.get()?;
        let asked = self.shard.change(id, |connection| {
            let (tunnel, quic) = connection.parts();
            tunnel.ask(quic, message)
        });
        Some((id, asked?.ok()?))
    }

    /// Gives up a DNS query: there will be no answer.
    pub(crate) fn forget(&self, (id, query): (ConnectionId, QueryKey)) {
        self.shard.change(id, |connection| {
            let (tunnel, quic) = connection.parts();
            tunnel.forget_query(quic, query);
        });
    }

    /// Whether there is a tunnel, and it answers.
    pub(super) fn carries(&self) -> bool {
        self.ready.get().is_some() && !self.outage.get()
    }

    /// Somebody waits for a tunnel, or for the end of an outage.
    pub(crate) fn want(&self) {
        if let Some(id) = self.ready.get() {
            self.shard.change(id, Connection::want);
        } else {
            self.retry.borrow_mut().on_asked(process::now());
            self.kick.notify_one();
        }
    }

    /// Whether no tunnel is wanted: the client stops, or the bytes are used up.
    pub(super) fn is_stopped(&self) -> bool {
        self.draining.get() || self.meter_bytes.borrow().is_halted()
    }

    pub(super) fn front(&self) -> &FrontEnds {
        &self.config.front
    }

    /// Makes the device that all but TCP goes into, if it is to go into the tunnel: it exists before the rules that lead
    /// there. False if nothing is to go.
    pub(crate) fn open_device(&self) -> io::Result<bool> {
        if self.front().tunnels_packets().is_none() {
            return Ok(false);
        }
        let device = PacketDevice::create()?;
        Ok(self.device.set(device).is_ok())
    }

    /// Whether all but TCP goes into the tunnel.
    pub(super) fn has_device(&self) -> bool {
        self.device.get().is_some()
    }

    /// Whether packets have addresses to leave from.
    pub(crate) fn has_addresses(&self) -> bool {
        self.device.get().is_some_and(PacketDevice::has_addresses)
    }

    /// Address families that the server reaches; both while that is unknown.
    pub(crate) fn families(&self) -> Families {
        let both = Families {
            ipv4: true,
            ipv6: true,
        };
        self.ready.get().map_or(both, |tunnel| {
            self.shard.peek(|engine| {
                let hello = engine
                    .peek(tunnel)
                    .and_then(|connection| connection.tunnel.remote());
                hello.map_or(both, |hello| hello.families)
            })
        })
    }

    /// Where our servers are, as far as is known.
    pub(crate) fn server_addresses(&self) -> Vec<IpAddr> {
        let remembered = self.remembered.borrow();
        let known = |server: &Server| match &server.address {
            ServerAddress::Ip(address) => Some(address.ip()),
            name @ ServerAddress::Name { .. } => Some(remembered.get(&name.to_string())?.ip()),
        };
        let mut addresses: Vec<_> = self.config.servers.iter().filter_map(known).collect();
        let tried = self.attempt.get().into_iter().chain(self.winner.get());
        addresses.extend(tried.map(|attempt| attempt.address.ip()));
        addresses.sort_unstable();
        addresses.dedup();
        addresses
    }

    /// Takes the engine's news about connections.
    pub(crate) fn on_event(&self, event: Event) {
        let id = event.connection;
        match event.notice {
            ConnectionNotice::Connected | ConnectionNotice::UnknownKey(..) => {}
            ConnectionNotice::Tunnel(TunnelEvent::Ready) => self.on_ready(id),
            ConnectionNotice::Tunnel(TunnelEvent::Goaway) => {
                if self.ready.get() == Some(id) {
                    // Open flows may finish; new ones wait for a server that stays.
                    self.leaving.set(Some(id));
                    self.unready("the server is stopping", false);
                }
            }
            ConnectionNotice::Tunnel(TunnelEvent::Packets) => self.on_packets(id),
            ConnectionNotice::Tunnel(TunnelEvent::Families) => {
                if self.ready.get() == Some(id) {
                    self.tell_families();
                    self.changes.send_replace(());
                }
            }
            ConnectionNotice::Tunnel(TunnelEvent::Published(entry, code)) => {
                if self.ready.get() == Some(id) {
                    self.on_published(entry, code);
                }
            }
            ConnectionNotice::Tunnel(
                TunnelEvent::Opened(..)
                | TunnelEvent::Inbound(..)
                | TunnelEvent::Publish(_)
                | TunnelEvent::Flow(_)
                | TunnelEvent::Query(..)
                | TunnelEvent::Answer(..)
                | TunnelEvent::Enrol(_),
            ) => {}
            ConnectionNotice::Tunnel(TunnelEvent::Enrolled(code, at)) => {
                self.on_enrolled(id, code, at);
            }
            ConnectionNotice::Outage(outage) => {
                if self.ready.get() == Some(id) {
                    self.outage.set(outage);
                    self.changes.send_replace(());
                }
            }
            ConnectionNotice::Unreachable(said) => self.on_unreachable(id, said),
            ConnectionNotice::Fault(fault) => {
                self.on_lost(id, (Told::Trying, Failure::Broken), &printable(fault));
            }
            ConnectionNotice::Lost(reason) => {
                let trusts = |engine: &Engine| engine.peek(id).is_some_and(Connection::trusts_last);
                let proven = self.shard.peek(trusts);
                if proven && identity::is_unknown_client(&reason) && self.turns_to_enrolment(id) {
                    return;
                }
                let (told, text) = self.explain(&reason, proven);
                let failure = match told {
                    Told::Refused if is_replaced(&reason) => Failure::Replaced,
                    Told::Refused => Failure::Refused,
                    _ => Failure::Broken,
                };
                self.on_lost(id, (told, failure), &text);
            }
        }
    }

    fn on_ready(&self, id: ConnectionId) {
        let Some(attempt) = self.attempt.get().filter(|attempt| attempt.id == id) else {
            return self.drop_connection(id);
        };
        if attempt.enrols {
            return self.name_own_key(id);
        }
        match self.ready.get() {
            Some(_) => self.challenge(attempt),
            None => self.install(attempt),
        }
    }

    /// The tunnel is the one of this attempt from now on.
    pub(super) fn install(&self, attempt: Attempt) {
        let (id, now) = (attempt.id, process::now());
        self.attempt.set(None);
        self.retry.borrow_mut().on_ready(now, attempt.server);
        self.winner.set(Some(attempt));
        self.choice.set(Some(attempt.choice));
        *self.meter.borrow_mut() = LinkMeter::default();
        self.ready.set(Some(id));
        self.outage.set(false);
        *self.sampler.borrow_mut() = Sampler::new(now);
        self.remember();
        let details = self.shard.peek(|engine| {
            let connection = engine.peek(id)?;
            let hello = connection.tunnel.remote()?;
            let exchange = identity::key_exchange(connection.quic()).unwrap_or("unknown");
            let rtt = connection.rtt().0.as_millis();
            let resumed = connection
                .resumed()
                .map(|saved| format!(", resumed at {}", status::rate(saved.rate.as_u64())));
            Some(format!(
                "{} at {}, RTT {rtt} ms, {exchange}{}",
                printable(&hello.agent),
                connection.peer(),
                resumed.unwrap_or_default()
            ))
        });
        self.measure_link();
        let choice = self.choice.get();
        let link =
            choice.map(|choice| format!("; link {}", choice.report(self.meter.borrow().seen())));
        let text = details.unwrap_or_default() + &link.unwrap_or_default();
        self.tell(Told::Ready, &text);
        self.compare_controllers(id);
        self.compare_packets(id);
        self.learn_assigned(id);
        self.learn_routes(id);
        self.ask_for_ports(id);
        self.changes.send_replace(());
    }

    fn on_lost(&self, id: ConnectionId, (told, failure): (Told, Failure), reason: &str) {
        let now = process::now();
        if self.take_challenger(id) {
            self.retry.borrow_mut().on_failed(now, failure);
        } else if self.ready.get() == Some(id) {
            self.paths.tunnel_ended();
            match self.challenger() {
                Some(other) => {
                    self.published.forget();
                    self.silence.set(None);
                    self.install(other);
                }
                None => self.unready(reason, failure == Failure::Replaced),
            }
        } else if let Some(attempt) = self.attempt.get().filter(|attempt| attempt.id == id) {
            self.attempt.set(None);
            self.retry.borrow_mut().on_failed(now, failure);
            self.tell_of(attempt.server, told, reason);
        } else if self.leaving.get() == Some(id) {
            // Usually the reset of a server that was started again.
            self.leaving.set(None);
            self.retry.borrow_mut().on_changed(now);
        }
        self.kick.notify_one();
    }

    fn unready(&self, reason: &str, replaced: bool) {
        let now = process::now();
        self.ready.set(None);
        self.silence.set(None);
        self.published.forget();
        let lasted = now.saturating_duration_since(self.since.get());
        self.retry.borrow_mut().on_lost(now, lasted, replaced);
        let told = if replaced {
            Told::Refused
        } else {
            Told::Trying
        };
        self.tell(told, reason);
        self.kick.notify_one();
        self.changes.send_replace(());
    }

    pub(super) fn drop_connection(&self, id: ConnectionId) {
        let now = process::now();
        self.shard.change(id, |connection| {
            connection.close(now, CloseCode::NoError.code(), String::new());
        });
    }

    /// No new flows; the server hears of it.
    pub(crate) fn drain(&self) {
        self.draining.set(true);
        self.kick.notify_one();
        self.changes.send_replace(());
        if let Some(id) = self.ready.get() {
            self.shard
                .change(id, |connection| connection.tunnel.send_goaway());
        }
    }

    /// Closes every connection.
    pub(crate) fn close(&self) {
        self.learn_path();
        self.meter_bytes.borrow_mut().save(&self.shard);
        let others = [self.attempt.take(), self.challenger()];
        let others = others.into_iter().flatten().map(|attempt| attempt.id);
        others
            .chain(self.ready.take())
            .for_each(|id| self.drop_connection(id));
    }
}
