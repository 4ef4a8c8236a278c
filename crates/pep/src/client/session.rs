//! Keeps one tunnel up: connects, notices the end, connects again; flows wait meanwhile.
//!
//! When an attempt is made is decided in `retry.rs`, how in `connecting.rs`; `silence.rs` is about a tunnel that does not
//! answer, `connections.rs` is which connections there are, `report.rs` about what the operator hears.

use std::cell::{Cell, OnceCell, RefCell};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use bentpipe_proto::tunnel::{CloseCode, Families};
use bentpipe_units::Seed;
use quinn_proto::crypto::ClientConfig as ClientCrypto;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use super::SharedKeyLog;
use super::associations::Relays;
use super::carrier::Reach;
use super::connections::{Attempt, Connections, Lost, Ready};
use super::enrol::{self, Enrolments};
use super::link::{LinkMeter, Seen};
use super::lookup::Lookups;
use super::memory::Memory;
use super::metering::Meter;
use super::packets::PacketDevice;
use super::publish::Published;
use super::report::{News, Told, is_replaced};
use super::retry::{Failure, Retry};
use super::routes::Routes;
use crate::config::{ClientConfig, FrontEnds, Role, Server, ServerAddress};
use crate::metrics::FirstByte;
use crate::paths::PathMemory;
use crate::process::{self, RunError};
use crate::sampler::Sampler;
use crate::shard::Shard;
use crate::status;
use bentpipe_tunnel::engine::identity::{self, PrivateKey, PublicKey};
use bentpipe_tunnel::engine::{Connection, ConnectionId, ConnectionNotice, Engine, Event};
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
    /// Meter of what the tunnel shows of its link.
    pub(super) meter: RefCell<LinkMeter>,
    pub(super) paths: PathMemory,
    /// Schedule by which servers are tried.
    pub(super) retry: RefCell<Retry>,
    /// Wakes the task that makes attempts.
    pub(super) kick: Notify,
    pub(super) lookups: Lookups,
    /// Connections that there are, and the use of each.
    pub(super) connections: RefCell<Connections>,
    /// News that the operator was told.
    pub(super) news: RefCell<News>,
    /// Reach of the server, for all who wait for a change of that.
    reach: watch::Sender<Reach>,
    /// Our socket is IPv6 and reaches IPv4 addresses in their mapped form.
    pub(super) dual_stack: bool,
    pub(super) waiting: Cell<u64>,
    pub(super) draining: Cell<bool>,
    pub(super) sampler: RefCell<Sampler>,
    pub(super) latest: RefCell<status::Session>,
    /// Bytes used of those that may be.
    pub(super) meter_bytes: RefCell<Meter>,
    /// Device that all but TCP comes from, if that is to go into the tunnel.
    pub(super) device: OnceCell<PacketDevice>,
    /// Datagrams of applications.
    pub(super) relays: Relays,
    /// Outcome of the ports that it publishes.
    pub(super) published: Published,
    /// Outcome of the prefixes that are to be routed here.
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
        let session = Rc::new(Self {
            first_byte: config.monitoring.metrics.as_ref().map(|_| FirstByte::new()),
            remembered: RefCell::new(Memory::load(
                &config.state_dir,
                "servers.json",
                "the server's address",
            )),
            links: RefCell::new(Memory::load(&config.state_dir, "links.json", "the link")),
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
            connections: RefCell::new(Connections::new()),
            news: RefCell::new(News::new(now)),
            reach: watch::Sender::new(Reach::of(Vec::new())),
            dual_stack,
            waiting: Cell::new(0),
            draining: Cell::new(false),
            sampler: RefCell::new(Sampler::new(now)),
            latest: RefCell::default(),
            device: OnceCell::new(),
            relays,
            published,
            routes: RefCell::default(),
        });
        session.tell_reach();
        Ok(session)
    }

    /// Memory of paths.
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

    /// Reach of the server, now and after every change.
    pub(crate) fn reach(&self) -> watch::Receiver<Reach> {
        self.reach.subscribe()
    }

    /// Tells all who wait for it that the tunnel, or what it reaches, has changed.
    pub(super) fn tell_reach(&self) {
        self.reach.send_replace(Reach {
            carries: self.carries(),
            families: self.families(),
            published: self.published_packets(),
            routed: self.routed(),
            addressed: self.device.get().is_some_and(PacketDevice::has_addresses),
            ..Reach::of(self.server_addresses())
        });
    }

    /// The tunnel for a new flow, now or when it comes up or answers again within the configured time. What is opened in
    /// an outage would be lost with the tunnel if the server turns out to have been restarted.
    pub(crate) async fn tunnel(&self) -> Result<ConnectionId, Unready> {
        if self.is_stopped() {
            return Err(Unready);
        }
        let usable = || self.connections.borrow().usable();
        if let Some(ready) = usable() {
            return Ok(ready);
        }
        self.want();
        let mut changes = self.reach();
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

    /// True if DNS queries can cross now.
    pub(crate) fn answers_dns(&self) -> bool {
        let usable = self.connections.borrow().usable();
        usable.is_some_and(|id| {
            let has = |engine: &Engine| Some(engine.peek(id)?.tunnel.takes_queries());
            self.shard.peek(has).unwrap_or(false)
        })
    }

    /// Sends a DNS query; its answer is an event.
    pub(crate) fn ask(&self, message: &[u8]) -> Option<(ConnectionId, QueryKey)> {
        let id = self.ready()?;
        let asked = self.shard.change(id, |connection| connection.ask(message));
        Some((id, asked?.ok()?))
    }

    /// Gives up a DNS query: there will be no answer.
    pub(crate) fn forget(&self, (id, query): (ConnectionId, QueryKey)) {
        self.shard
            .change(id, |connection| connection.forget_query(query));
    }

    /// The tunnel, whether it answers or not.
    pub(super) fn ready(&self) -> Option<ConnectionId> {
        self.connections.borrow().tunnel()
    }

    /// True if there is a tunnel, and it answers.
    pub(super) fn carries(&self) -> bool {
        self.connections.borrow().usable().is_some()
    }

    /// Notes that somebody waits for a tunnel, or for the end of an outage.
    pub(crate) fn want(&self) {
        if let Some(id) = self.ready() {
            self.shard.change(id, Connection::want);
        } else {
            self.retry.borrow_mut().on_asked(process::now());
            self.kick.notify_one();
        }
    }

    /// True if no tunnel is wanted: the client stops, or the bytes are used up.
    pub(super) fn is_stopped(&self) -> bool {
        self.draining.get() || self.meter_bytes.borrow().is_halted()
    }

    pub(super) fn front(&self) -> &FrontEnds {
        &self.config.front
    }

    /// True if all but TCP goes into the tunnel.
    pub(super) fn has_device(&self) -> bool {
        self.device.get().is_some()
    }

    /// Address families that the server reaches; both while that is unknown.
    pub(crate) fn families(&self) -> Families {
        let both = Families {
            ipv4: true,
            ipv6: true,
        };
        self.ready().map_or(both, |tunnel| {
            self.shard.peek(|engine| {
                let hello = engine
                    .peek(tunnel)
                    .and_then(|connection| connection.tunnel.remote());
                hello.map_or(both, |hello| hello.families)
            })
        })
    }

    /// Addresses of our servers, as far as they are known.
    fn server_addresses(&self) -> Vec<IpAddr> {
        let remembered = self.remembered.borrow();
        let known = |server: &Server| match &server.address {
            ServerAddress::Ip(address) => Some(address.ip()),
            name @ ServerAddress::Name { .. } => Some(remembered.get(&name.to_string())?.ip()),
        };
        let mut addresses: Vec<_> = self.config.servers.iter().filter_map(known).collect();
        let connections = self.connections.borrow();
        let tried = connections
            .attempt()
            .into_iter()
            .chain(connections.winner());
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
                let lost = self.connections.borrow_mut().on_goaway(id);
                if let Lost::Tunnel { next } = lost {
                    // Open flows may finish; new ones wait for a server that stays.
                    self.unready(next, "the server is stopping", false);
                }
            }
            ConnectionNotice::Tunnel(TunnelEvent::Packets) => self.on_packets(id),
            ConnectionNotice::Tunnel(TunnelEvent::Families) => {
                if self.ready() == Some(id) {
                    self.tell_families();
                    self.tell_reach();
                }
            }
            ConnectionNotice::Tunnel(TunnelEvent::Published(entry, code)) => {
                if self.ready() == Some(id) {
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
                if self.connections.borrow_mut().on_outage(id, outage) {
                    self.tell_reach();
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
        let ready = self.connections.borrow_mut().on_ready(id);
        match ready {
            Ready::Unwanted => self.drop_connection(id),
            Ready::Enrols => self.name_own_key(id),
            Ready::Tunnel(attempt) => self.install(attempt),
            Ready::Beside(attempt) => self.challenge(attempt),
        }
    }

    /// The tunnel is the one of this attempt from now on.
    pub(super) fn install(&self, attempt: Attempt) {
        let (id, now) = (attempt.id, process::now());
        self.connections.borrow_mut().install(attempt);
        self.retry.borrow_mut().on_ready(now, attempt.server);
        *self.meter.borrow_mut() = LinkMeter::default();
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
        let link = attempt.choice.report(self.meter.borrow().seen());
        let text = format!("{}; link {link}", details.unwrap_or_default());
        self.tell(Told::Ready, &text);
        self.compare_controllers(id);
        self.compare_packets(id);
        self.learn_assigned(id);
        self.learn_routes(id);
        self.ask_for_ports(id);
        self.tell_reach();
    }

    fn on_lost(&self, id: ConnectionId, (told, failure): (Told, Failure), reason: &str) {
        let now = process::now();
        let lost = self.connections.borrow_mut().on_lost(id);
        match lost {
            Lost::Challenger => self.retry.borrow_mut().on_failed(now, failure),
            Lost::Tunnel { next } => {
                self.paths.tunnel_ended();
                self.unready(next, reason, failure == Failure::Replaced);
            }
            Lost::Attempt(attempt) => {
                self.retry.borrow_mut().on_failed(now, failure);
                self.tell_of(attempt.server, told, reason);
            }
            Lost::Leaving => self.retry.borrow_mut().on_changed(now),
            Lost::Unknown => {}
        }
        self.kick.notify_one();
    }

    /// The tunnel is no more; `next` was ready beside it and follows.
    fn unready(&self, next: Option<Attempt>, reason: &str, replaced: bool) {
        let now = process::now();
        self.published.forget();
        if let Some(next) = next {
            return self.install(next);
        }
        let lasted = self.news.borrow().lasted(now);
        self.retry.borrow_mut().on_lost(now, lasted, replaced);
        let told = if replaced {
            Told::Refused
        } else {
            Told::Trying
        };
        self.tell(told, reason);
        self.kick.notify_one();
        self.tell_reach();
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
        self.tell_reach();
        if let Some(id) = self.ready() {
            self.shard
                .change(id, |connection| connection.tunnel.send_goaway());
        }
    }

    /// Closes every connection.
    pub(crate) fn close(&self) {
        self.learn_path();
        self.meter_bytes.borrow_mut().save(&self.shard);
        let all = self.connections.borrow_mut().close();
        all.into_iter().for_each(|id| self.drop_connection(id));
    }
}
