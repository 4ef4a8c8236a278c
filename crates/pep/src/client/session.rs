//! Keeps one tunnel up: connects, notices the end, connects again; flows wait meanwhile.
//!
//! A new attempt starts every three seconds while none has succeeded, beside the older ones: a
//! restarted server is found soon, and a link with an RTT of several seconds still gets its chance.
//! How an attempt is made is in `connecting.rs`, what the operator hears in `report.rs`.

use std::cell::{Cell, OnceCell, RefCell};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bentpipe_proto::tunnel::{CloseCode, Families};
use quinn_proto::crypto::ClientConfig as ClientCrypto;
use tokio::sync::watch;
use tokio::time::timeout;

use super::SharedKeyLog;
use super::connecting::{Attempt, RETRY};
use super::link::{Choice, LinkMeter, Seen};
use super::memory::Memory;
use super::packets::PacketDevice;
use super::publish::Published;
use super::report::{Told, is_replaced};
use super::routes::Routes;
use crate::config::{ClientConfig, FrontEnds, Role, Server, ServerAddress};
use crate::engine::identity::{self, PrivateKey, PublicKey};
use crate::engine::shard::Shard;
use crate::engine::{Connection, ConnectionId, ConnectionNotice, Engine, Event, Ledger};
use crate::paths::PathMemory;
use crate::process::{self, RunError};
use crate::sampler::Sampler;
use crate::status;
use crate::text::printable;
use crate::transport::{QueryKey, TunnelEvent};

/// Before connecting again after another process has taken over with the same key (`PROTOCOL.md` §5.1): at once, the two
/// would end each other's flows for ever.
const ELSEWHERE: Duration = Duration::from_secs(60);

/// The tunnel did not come up in the time that a flow waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unready;

/// The client's tunnel.
pub(crate) struct Session {
    pub(super) config: Rc<ClientConfig>,
    pub(super) shard: Rc<Shard>,
    pub(super) crypto: Vec<Arc<dyn ClientCrypto>>,
    pub(super) public_key: PublicKey,
    pub(super) remembered: RefCell<Memory<SocketAddr>>,
    pub(super) links: RefCell<Memory<Seen>>,
    /// What the tunnel, now or last, was begun with, and what it shows of its link.
    pub(super) choice: Cell<Option<Choice>>,
    pub(super) meter: RefCell<LinkMeter>,
    pub(super) paths: PathMemory,
    pub(super) attempts: RefCell<Vec<Attempt>>,
    pub(super) ready: Cell<Option<ConnectionId>>,
    /// Nobody answers in the tunnel that is ready.
    outage: Cell<bool>,
    /// Which server is tried next.
    pub(super) next_server: Cell<usize>,
    /// The attempt that became the tunnel, now or last.
    pub(super) winner: Cell<Option<Attempt>>,
    pub(super) retry_at: Cell<Instant>,
    pub(super) told: Cell<Told>,
    pub(super) since: Cell<Instant>,
    pub(super) last_error: RefCell<Option<String>>,
    pub(super) changes: watch::Sender<()>,
    /// Our socket is IPv6 and reaches IPv4 addresses in their mapped form.
    pub(super) dual_stack: bool,
    pub(super) waiting: Cell<u64>,
    pub(super) draining: Cell<bool>,
    pub(super) sampler: RefCell<Sampler>,
    pub(super) latest: RefCell<status::Session>,
    /// Bytes of earlier tunnels.
    pub(super) past: Cell<Ledger>,
    /// All that may be used has been.
    pub(super) used_up: Cell<bool>,
    /// Where all but TCP comes from, if it is to go into the tunnel.
    pub(super) device: OnceCell<PacketDevice>,
    /// What came of the ports that it publishes.
    pub(super) published: Published,
    /// What came of the prefixes that are to be routed here.
    pub(super) routes: RefCell<Routes>,
}

impl Session {
    pub(crate) fn new(
        config: Rc<ClientConfig>,
        key: &PrivateKey,
        key_log: SharedKeyLog,
        shard: Rc<Shard>,
        dual_stack: bool,
    ) -> Result<Rc<Self>, RunError> {
        let crypto = config.servers.iter().map(|server| {
            identity::client_crypto(
                key,
                server.public_key,
                config.allow_classical,
                key_log.clone(),
            )
            .map(|crypto| crypto as Arc<dyn ClientCrypto>)
            .map_err(RunError::key)
        });
        let crypto = crypto.collect::<Result<_, _>>()?;
        let now = process::now();
        let published = Published::new(config.publish.len());
        Ok(Rc::new(Self {
            remembered: RefCell::new(Memory::load(
                &config.state_dir,
                "servers.json",
                "the server's address",
            )),
            links: RefCell::new(Memory::load(&config.state_dir, "links.json", "the link")),
            choice: Cell::new(None),
            meter: RefCell::default(),
            paths: PathMemory::load(&config.state_dir, Role::Client),
            config,
            shard,
            crypto,
            public_key: key.public(),
            attempts: RefCell::default(),
            ready: Cell::new(None),
            outage: Cell::new(false),
            next_server: Cell::new(0),
            winner: Cell::new(None),
            retry_at: Cell::new(now),
            told: Cell::new(Told::Nothing),
            since: Cell::new(now),
            last_error: RefCell::default(),
            changes: watch::Sender::new(()),
            dual_stack,
            waiting: Cell::new(0),
            draining: Cell::new(false),
            sampler: RefCell::new(Sampler::new(now)),
            latest: RefCell::default(),
            past: Cell::default(),
            used_up: Cell::new(false),
            device: OnceCell::new(),
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

    /// Hears of every change of what the accessors here answer.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// The tunnel for a new flow, now or when it comes up or answers again within the configured time. What is opened in
    /// an outage would be lost with the tunnel if the server turns out to have been restarted.
    pub(crate) async fn tunnel(&self) -> Result<ConnectionId, Unready> {
        if self.draining.get() {
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
            while !self.draining.get() {
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

    /// The end of an outage is waited for.
    pub(crate) fn want(&self) {
        if let Some(id) = self.ready.get() {
            self.shard.change(id, Connection::want);
        }
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
        let attempts = self.attempts.borrow();
        let tried = attempts.iter().copied().chain(self.winner.get());
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
                    self.unready("the server is stopping");
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
                | TunnelEvent::Answer(..),
            ) => {}
            ConnectionNotice::Outage(outage) => {
                if self.ready.get() == Some(id) {
                    self.outage.set(outage);
                    self.changes.send_replace(());
                }
            }
            ConnectionNotice::Fault(fault) => self.on_lost(id, Told::Trying, &printable(fault)),
            ConnectionNotice::Lost(reason) => {
                let trusts = |engine: &Engine| engine.peek(id).is_some_and(Connection::trusts_last);
                let proven = self.shard.peek(trusts);
                let (told, text) = self.explain(&reason, proven);
                self.on_lost(id, told, &text);
                if proven && is_replaced(&reason) {
                    self.retry_at.set(process::now() + ELSEWHERE);
                }
            }
        }
    }

    fn on_ready(&self, id: ConnectionId) {
        let attempts = std::mem::take(&mut *self.attempts.borrow_mut());
        let (won, others): (Vec<_>, Vec<_>) =
            attempts.into_iter().partition(|attempt| attempt.id == id);
        others
            .into_iter()
            .for_each(|other| self.drop_connection(other.id));
        if self.ready.get().is_some() {
            return self.drop_connection(id);
        }
        self.winner.set(won.first().copied());
        self.choice.set(won.first().map(|attempt| attempt.choice));
        *self.meter.borrow_mut() = LinkMeter::default();
        self.ready.set(Some(id));
        self.outage.set(false);
        *self.sampler.borrow_mut() = Sampler::new(process::now());
        self.remember();
        let details = self.shard.peek(|engine| {
            let connection = engine.peek(id)?;
            let hello = connection.tunnel.remote()?;
            let exchange = identity::key_exchange(&connection.quic).unwrap_or("unknown");
            let rtt = connection.rtt().0.as_millis();
            let resumed = connection.resumed().map(|saved| {
                let rate = saved.rate.as_u64() as f64 / 1e6;
                format!(", resumed at {rate:.1} Mbit/s")
            });
            Some(format!(
                "{} at {}, RTT {rtt} ms, {exchange}{}",
                printable(&hello.agent),
                connection.quic.remote_address(),
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
        self.learn_routes(id);
        self.ask_for_ports(id);
        self.changes.send_replace(());
    }

    fn on_lost(&self, id: ConnectionId, told: Told, reason: &str) {
        self.attempts
            .borrow_mut()
            .retain(|attempt| attempt.id != id);
        if self.ready.get() == Some(id) {
            self.paths.tunnel_ended();
            self.close_books(id);
            self.unready(reason);
        } else if self.ready.get().is_none() {
            self.tell(told, reason);
        }
    }

    fn unready(&self, reason: &str) {
        self.ready.set(None);
        self.published.forget();
        // At once: the usual cause is a server that was restarted and has just answered. One that greets and leaves
        // again and again is not to be hammered.
        let earliest = self.since.get() + RETRY;
        self.retry_at.set(process::now().max(earliest));
        self.tell(Told::Trying, reason);
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
        self.changes.send_replace(());
        if let Some(id) = self.ready.get() {
            self.shard
                .change(id, |connection| connection.tunnel.send_goaway());
        }
    }

    /// Closes every connection.
    pub(crate) fn close(&self) {
        self.learn_path();
        if let Some(id) = self.ready.get() {
            self.close_books(id);
        }
        let attempts = std::mem::take(&mut *self.attempts.borrow_mut());
        attempts
            .into_iter()
            .map(|attempt| attempt.id)
            .chain(self.ready.take())
            .for_each(|id| self.drop_connection(id));
    }
}
