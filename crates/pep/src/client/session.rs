//! Keeps one tunnel up: connects, notices the end, connects again; flows wait meanwhile.
//!
//! When an attempt is made is decided in `retry.rs`, how in `connecting.rs`; `silence.rs` is about a tunnel that does not
//! answer, `connections.rs` is which connections there are, `report.rs` about what the operator hears.

use std::cell::{Cell, OnceCell, RefCell};
use std::future::pending;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use bentpipe_proto::tunnel::Families;
use bentpipe_units::Seed;
use quinn_proto::crypto::ClientConfig as ClientCrypto;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use super::SharedKeyLog;
use super::associations::Relays;
use super::carrier::Reach;
use super::connections::{Attempt, Lost, Ready};
use super::enrol::{self, Enrolments};
#[cfg(target_os = "linux")]
use super::kept_device::KeptDevice;
use super::link::{LinkMeter, Seen};
use super::lookup::Lookups;
use super::memory::Memory;
use super::metering::Meter;
use super::packets::PacketDevice;
use super::publish::Published;
use super::report::{News, Told, is_replaced};
use super::retry::{Failure, Retry};
use super::routes::Routes;
use super::tunnels::Tunnels;
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
    /// Connections that there are, and the use of each.
    pub(super) tunnels: Rc<Tunnels>,
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
    pub(super) relays: Rc<Relays>,
    /// Outcome of the ports that it publishes.
    pub(super) published: Rc<Published>,
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
        let tunnels = Tunnels::new(shard);
        let published = Published::new(config.clone(), tunnels.clone());
        let relays = Relays::new(&config, tunnels.clone());
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
            meter_bytes: RefCell::new(Meter::load(&config, tunnels.shard())),
            retry: RefCell::new(Retry::new(
                now,
                config.servers.len(),
                Seed::new(process::random_u64()),
            )),
            config,
            tunnels,
            crypto,
            enrolments,
            public_key: key.public(),
            kick: Notify::new(),
            lookups: Lookups::default(),
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
        self.tunnels.shard()
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
            published: self.published.packets(),
            routed: self.routes.borrow().routed.clone(),
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
        let usable = || self.tunnels.usable();
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
        let usable = self.tunnels.usable();
        usable.is_some_and(|id| {
            let has = |engine: &Engine| Some(engine.peek(id)?.tunnel.takes_queries());
            self.tunnels.shard().peek(has).unwrap_or(false)
        })
    }

    /// Sends a DNS query; its answer is an event.
    pub(crate) fn ask(&self, message: &[u8]) -> Option<(ConnectionId, QueryKey)> {
        let id = self.tunnels.ready()?;
        let asked = self
            .tunnels
            .shard()
            .change(id, |connection| connection.ask(message));
        Some((id, asked?.ok()?))
    }

    /// Gives up a DNS query: there will be no answer.
    pub(crate) fn forget(&self, (id, query): (ConnectionId, QueryKey)) {
        self.tunnels
            .shard()
            .change(id, |connection| connection.forget_query(query));
    }

    /// True if there is a tunnel, and it answers.
    pub(super) fn carries(&self) -> bool {
        self.tunnels.usable().is_some()
    }

    /// Notes that somebody waits for a tunnel, or for the end of an outage.
    pub(crate) fn want(&self) {
        if let Some(id) = self.tunnels.ready() {
            self.tunnels.shard().change(id, Connection::want);
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
        self.tunnels.families()
    }

    /// Associations for datagrams of applications.
    pub(crate) fn relays(&self) -> &Rc<Relays> {
        &self.relays
    }

    /// Ports of the server that lead to hosts behind this client.
    pub(super) fn published(&self) -> &Rc<Published> {
        &self.published
    }

    /// True if the tunnel carries packets now; `None` without a tunnel.
    pub(crate) fn carries_packets(&self) -> Option<bool> {
        self.tunnels.carries_packets()
    }

    /// Makes the device that all but TCP goes into, if it is to go into the tunnel: it exists before the rules that lead
    /// there. Returns what the guardian keeps of it; `None` if nothing is to go.
    #[cfg(target_os = "linux")]
    pub(crate) fn open_device(&self) -> io::Result<Option<Arc<KeptDevice>>> {
        if self.front().tunnels_packets().is_none() {
            return Ok(None);
        }
        let device = PacketDevice::create()?;
        let kept = device.kept();
        Ok(self.device.set(device).is_ok().then_some(kept))
    }

    /// Carries the LAN's packets; never ends but with an error.
    pub(crate) async fn carry_packets(&self) -> io::Result<()> {
        match self.device.get() {
            Some(device) => device.carry(&self.tunnels).await,
            None => pending().await,
        }
    }

    /// Gives the device what the server has assigned; never ends.
    pub(crate) async fn follow_assigned(&self) {
        let Some(device) = self.device.get() else {
            return pending().await;
        };
        let changed = || self.tell_reach();
        device
            .follow_assigned(&self.tunnels, self.reach(), changed)
            .await;
    }

    /// The tunnel is up: its server has said what it routes here.
    fn learn_routes(&self) {
        let Some(intercept) = &self.front().intercept else {
            return;
        };
        let granted = self.tunnels.look(|connection| {
            let tunnel = &connection.tunnel;
            let hello = tunnel.remote().filter(|_| tunnel.carries_packets())?;
            Some(hello.routed.clone())
        });
        let granted = granted.unwrap_or_default();
        self.routes.borrow_mut().learn(&intercept.routes, &granted);
    }

    /// Addresses of our servers, as far as they are known.
    fn server_addresses(&self) -> Vec<IpAddr> {
        let remembered = self.remembered.borrow();
        let known = |server: &Server| match &server.address {
            ServerAddress::Ip(address) => Some(address.ip()),
            name @ ServerAddress::Name { .. } => Some(remembered.get(&name.to_string())?.ip()),
        };
        let mut addresses: Vec<_> = self.config.servers.iter().filter_map(known).collect();
        let connections = self.tunnels.state();
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
                let lost = self.tunnels.state_mut().on_goaway(id);
                if let Lost::Tunnel { next } = lost {
                    // Open flows may finish; new ones wait for a server that stays.
                    self.unready(next, "the server is stopping", false);
                }
            }
            ConnectionNotice::Tunnel(TunnelEvent::Packets) => {
                self.relays.on_packets(id, self.device.get());
            }
            ConnectionNotice::Tunnel(TunnelEvent::Families) => {
                if self.tunnels.ready() == Some(id) {
                    self.tell_families();
                    self.tell_reach();
                }
            }
            ConnectionNotice::Tunnel(TunnelEvent::Published(entry, code)) => {
                if self.tunnels.ready() == Some(id) {
                    self.published.on_answer(entry, code);
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
                if self.tunnels.state_mut().on_outage(id, outage) {
                    self.tell_reach();
                }
            }
            ConnectionNotice::Unreachable(said) => self.on_unreachable(id, said),
            ConnectionNotice::Fault(fault) => {
                self.on_lost(id, (Told::Trying, Failure::Broken), &printable(fault));
            }
            ConnectionNotice::Lost(reason) => {
                let trusts = |engine: &Engine| engine.peek(id).is_some_and(Connection::trusts_last);
                let proven = self.tunnels.shard().peek(trusts);
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
        let ready = self.tunnels.state_mut().on_ready(id);
        match ready {
            Ready::Unwanted => self.tunnels.close(id),
            Ready::Enrols => self.name_own_key(id),
            Ready::Tunnel(attempt) => self.install(attempt),
            Ready::Beside(attempt) => self.challenge(attempt),
        }
    }

    /// The tunnel is the one of this attempt from now on.
    pub(super) fn install(&self, attempt: Attempt) {
        let (id, now) = (attempt.id, process::now());
        self.tunnels.state_mut().install(attempt);
        self.retry.borrow_mut().on_ready(now, attempt.server);
        *self.meter.borrow_mut() = LinkMeter::default();
        *self.sampler.borrow_mut() = Sampler::new(now);
        self.remember();
        let details = self.tunnels.shard().peek(|engine| {
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
        self.relays.learn_assigned();
        self.learn_routes();
        self.published.ask(id);
        self.tell_reach();
    }

    fn on_lost(&self, id: ConnectionId, (told, failure): (Told, Failure), reason: &str) {
        let now = process::now();
        let lost = self.tunnels.state_mut().on_lost(id);
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

    /// No new flows; the server hears of it.
    pub(crate) fn drain(&self) {
        self.draining.set(true);
        self.kick.notify_one();
        self.tell_reach();
        if let Some(id) = self.tunnels.ready() {
            self.tunnels
                .shard()
                .change(id, |connection| connection.tunnel.send_goaway());
        }
    }

    /// Closes every connection.
    pub(crate) fn close(&self) {
        self.learn_path();
        self.meter_bytes.borrow_mut().save(self.tunnels.shard());
        let all = self.tunnels.state_mut().close();
        all.into_iter().for_each(|id| self.tunnels.close(id));
    }
}
