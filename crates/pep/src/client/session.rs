//! Keeps one tunnel up: connects, notices the end, connects again; flows wait meanwhile.
//!
//! Its parts have owners: when an attempt is made is decided in `retry.rs`, how in `connecting.rs`; `connections.rs` is which
//! connections there are, `report.rs` about what the operator hears, `packet_road.rs` about packets. What is done all the time is
//! in `upkeep.rs`.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;

use bentpipe_proto::tunnel::{CloseCode, LesBody, LesKind};
use tokio::sync::watch;
use tokio::time::timeout;

use super::SharedKeyLog;
use super::carrier::Reach;
use super::connecting::Connector;
use super::connections::{Attempt, Lost, Ready};
use super::learned::Learned;
use super::metering::Meter;
use super::packet_road::PacketRoad;
use super::publish::Published;
use super::report::{self, Reporter, Told, is_replaced};
use super::retry::{Failure, Retry};
use super::schedule::Schedule;
use super::servers::Servers;
use super::sle::Sealing;
use super::tunnels::Tunnels;
use super::web::Pages;
use super::wires::Wires;
use crate::config::{ClientConfig, FrontEnds};
use crate::keys::{PrivateKey, PublicKey};
use crate::metrics::FirstByte;
use crate::paths::PathMemory;
use crate::process::{self, RunError};
use crate::shard::Shard;
use crate::status;
use bentpipe_tunnel::engine::identity;
use bentpipe_tunnel::engine::{Connection, ConnectionId, ConnectionNotice, Engine, Event};
use bentpipe_tunnel::text::printable;
use bentpipe_tunnel::transport::TunnelEvent;

/// The tunnel did not come up in the time that a flow waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unready;

/// What wants a tunnel, and whether one is to be had.
#[derive(Default)]
struct Demand {
    /// Flows that wait for a tunnel.
    waiting: Cell<u64>,
    /// The client stops.
    draining: Cell<bool>,
}

/// Ways of connections beside a flow of the tunnel each.
struct Ways {
    /// Flows that are sealed beside the tunnel.
    sle: Option<Rc<Sealing>>,
    /// Pages that are fetched ahead.
    pages: Option<Rc<Pages>>,
}

/// The client's tunnel.
pub(crate) struct Session {
    config: Rc<ClientConfig>,
    /// Connections that there are, and the use of each.
    pub(super) tunnels: Rc<Tunnels>,
    pub(super) schedule: Rc<Schedule>,
    pub(super) servers: Rc<Servers>,
    pub(super) learned: Rc<Learned>,
    pub(super) reporter: Rc<Reporter>,
    pub(super) connector: Connector,
    wires: Rc<Wires>,
    /// Reach of the server, for all who wait for a change of that.
    reach: watch::Sender<Reach>,
    demand: Demand,
    /// Bytes used of those that may be.
    pub(super) meter: RefCell<Meter>,
    packet_road: PacketRoad,
    pub(super) published: Rc<Published>,
    ways: Ways,
    /// Times to first bytes, where they are served.
    first_byte: Option<FirstByte>,
}

impl Session {
    pub(crate) fn new(
        config: Rc<ClientConfig>,
        keys: (&PrivateKey, &[Option<PrivateKey>]),
        key_log: &SharedKeyLog,
        shard: Rc<Shard>,
        (dual_stack, mark): (bool, Option<u32>),
    ) -> Result<Rc<Self>, RunError> {
        let servers = Rc::new(Servers::new(config.clone(), keys, key_log, dual_stack)?);
        let tunnels = Tunnels::new(shard);
        let schedule = Rc::new(Schedule::new(servers.len()));
        let learned = Rc::new(Learned::load(config.clone(), tunnels.clone()));
        let reporter = Rc::new(Reporter::new(tunnels.clone()));
        let wires = Wires::new(&config, &tunnels, (&schedule, &servers), &learned, mark);
        let memory = config.memory.tunnel.as_u64();
        let sealed = config.sle.clone();
        let sle = sealed.map(|sle| Sealing::new((sle, memory), &tunnels, mark));
        let traffic = sle.as_ref().map(|sle| sle.traffic().clone());
        let packet_road = PacketRoad::new(config.clone(), tunnels.clone())?;
        let les = packet_road.les().map(|les| les.traffic().clone());
        let session = Rc::new(Self {
            connector: Connector::new(
                tunnels.clone(),
                (schedule.clone(), servers.clone()),
                (learned.clone(), wires.clone()),
                reporter.clone(),
                sle.is_some(),
            ),
            wires,
            reach: watch::Sender::new(Reach::of(Vec::new())),
            demand: Demand::default(),
            meter: RefCell::new(Meter::load(&config, tunnels.shard(), (traffic, les))),
            packet_road,
            published: Published::new(config.clone(), tunnels.clone()),
            ways: Ways {
                sle,
                pages: Pages::new(&config, keys.0)?,
            },
            first_byte: config.monitoring.metrics.as_ref().map(|_| FirstByte::new()),
            config,
            tunnels,
            schedule,
            servers,
            learned,
            reporter,
        });
        session.tell_reach();
        Ok(session)
    }

    /// Memory of paths.
    pub(crate) fn paths(&self) -> &PathMemory {
        self.learned.paths()
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
            families: self.tunnels.families(),
            published: self.published.packets(),
            routed: self.packet_road.routed(),
            addressed: self.packet_road.has_addresses(),
            leads_tcp: self.packet_road.leads_tcp(),
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
        self.demand.waiting.set(self.demand.waiting.get() + 1);
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
        self.demand.waiting.set(self.demand.waiting.get() - 1);
        result
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
            self.schedule.tell(Retry::on_asked);
            self.schedule.wake();
        }
    }

    /// True if no tunnel is wanted: the client stops, or the bytes are used up.
    pub(super) fn is_stopped(&self) -> bool {
        self.demand.draining.get() || self.meter.borrow().is_halted()
    }

    pub(super) fn front(&self) -> &FrontEnds {
        &self.config.front
    }

    /// Key of the tunnel's server.
    pub(super) fn server_key(&self) -> Option<PublicKey> {
        let winner = self.tunnels.state().winner()?;
        let server = self.config.servers.get(winner.server)?;
        Some(server.public_key)
    }

    /// Connections of the client.
    pub(crate) fn tunnels(&self) -> &Rc<Tunnels> {
        &self.tunnels
    }

    /// Packets that cross beside its flows.
    pub(crate) fn packet_road(&self) -> &PacketRoad {
        &self.packet_road
    }

    /// Ports of the server that lead to hosts behind this client.
    pub(super) fn published(&self) -> &Rc<Published> {
        &self.published
    }

    /// Flows that are sealed beside the tunnel, if some are to be.
    pub(super) fn sle(&self) -> Option<&Rc<Sealing>> {
        self.ways.sle.as_ref()
    }

    /// Pages that are fetched ahead, if some are to be.
    pub(super) fn pages(&self) -> Option<&Rc<Pages>> {
        self.ways.pages.as_ref()
    }

    /// Waits until no flow is open.
    pub(crate) async fn until_idle(&self) {
        let sealed = || self.ways.sle.as_ref().map_or(0, |sle| sle.active());
        process::until_idle(self.shard(), sealed).await;
    }

    /// Gives the device what the server has assigned; never ends.
    pub(crate) async fn follow_assigned(&self) {
        let changed = || self.tell_reach();
        self.packet_road
            .follow_assigned(self.reach(), changed)
            .await;
    }

    /// Looks after the wires to the servers; never ends.
    pub(crate) async fn keep_wires(&self) {
        self.wires.keep().await;
    }

    /// Addresses of our servers, as far as they are known.
    fn server_addresses(&self) -> Vec<IpAddr> {
        let mut addresses = self.servers.known();
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
                self.packet_road.on_packets(id);
            }
            ConnectionNotice::Tunnel(TunnelEvent::Families) => {
                if self.tunnels.ready() == Some(id) {
                    self.reporter.tell_families();
                    self.tell_reach();
                }
            }
            ConnectionNotice::Tunnel(TunnelEvent::SleEpoch(epoch, _)) => {
                if let Some(sle) = &self.ways.sle {
                    sle.on_epoch(id, epoch);
                }
            }
            ConnectionNotice::Tunnel(TunnelEvent::Les(kind, body)) => self.on_les(id, kind, &body),
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
                self.connector.on_enrolled(id, code, at);
            }
            ConnectionNotice::Outage(outage) => {
                if self.tunnels.state_mut().on_outage(id, outage) {
                    self.tell_reach();
                }
            }
            ConnectionNotice::Unreachable(said) => self.connector.on_unreachable(id, said),
            ConnectionNotice::Fault(fault) => {
                self.on_lost(id, (Told::Trying, Failure::Broken), &printable(fault));
            }
            ConnectionNotice::Lost(reason) => {
                let trusts = |engine: &Engine| engine.peek(id).is_some_and(Connection::trusts_last);
                let proven = self.tunnels.shard().peek(trusts);
                if proven
                    && identity::is_unknown_client(&reason)
                    && self.connector.turns_to_enrolment(id)
                {
                    return;
                }
                let (told, text) = report::explain(&reason, proven, self.servers.own_key());
                let failure = match told {
                    Told::Refused if is_replaced(&reason) => Failure::Replaced,
                    Told::Refused => Failure::Refused,
                    _ => Failure::Broken,
                };
                self.on_lost(id, (told, failure), &text);
            }
        }
    }

    /// Takes a message of LES; a server that breaks its rules loses the tunnel.
    fn on_les(&self, id: ConnectionId, kind: LesKind, body: &LesBody) {
        let Some(les) = self.packet_road.les() else {
            return;
        };
        if let Err(violation) = les.on_message(id, kind, body) {
            let now = process::now();
            self.tunnels.change(id, |connection| {
                let code = CloseCode::ProtocolViolation.code();
                connection.close(now, code, violation.to_string());
            });
            self.on_lost(id, (Told::Trying, Failure::Broken), &violation.to_string());
        }
    }

    fn on_ready(&self, id: ConnectionId) {
        let ready = self.tunnels.state_mut().on_ready(id);
        match ready {
            Ready::Unwanted => self.tunnels.close(id),
            Ready::Enrols => self.connector.name_own_key(id),
            Ready::Tunnel(attempt) => self.install(attempt),
            Ready::Beside(attempt) => self.challenge(attempt),
        }
    }

    /// The tunnel is the one of this attempt from now on.
    pub(super) fn install(&self, attempt: Attempt) {
        let id = attempt.id;
        self.tunnels.state_mut().install(attempt);
        self.schedule
            .tell(|retry, now| retry.on_ready(now, attempt.server));
        self.learned.begin();
        self.servers.remember(&attempt);
        self.wires.on_ready(&attempt);
        self.learned.measure_link();
        self.reporter.tell_ready(&self.learned.report(&attempt));
        let wished = self.config.links[0].forward.controller;
        self.reporter.compare_controllers(wished);
        if self.packet_road.has_device() {
            self.reporter.compare_packets();
        }
        if let Some(sle) = &self.ways.sle {
            sle.on_ready(&attempt);
        }
        self.packet_road.on_ready(&attempt);
        self.published.ask(id);
        self.tell_reach();
    }

    fn on_lost(&self, id: ConnectionId, (told, failure): (Told, Failure), reason: &str) {
        let lost = self.tunnels.state_mut().on_lost(id);
        match lost {
            Lost::Challenger => self
                .schedule
                .tell(|retry, now| retry.on_failed(now, failure)),
            Lost::Tunnel { next } => {
                self.learned.paths().tunnel_ended();
                self.unready(next, reason, failure == Failure::Replaced);
            }
            Lost::Attempt(attempt) => {
                self.schedule
                    .tell(|retry, now| retry.on_failed(now, failure));
                self.reporter.tell_of(attempt.server, told, reason);
            }
            Lost::Leaving => self.schedule.tell(Retry::on_changed),
            Lost::Unknown => {}
        }
        self.schedule.wake();
    }

    /// The tunnel is no more; `next` was ready beside it and follows.
    fn unready(&self, next: Option<Attempt>, reason: &str, replaced: bool) {
        self.published.forget();
        if let Some(sle) = &self.ways.sle {
            sle.on_lost();
        }
        self.packet_road.on_lost();
        if let Some(next) = next {
            return self.install(next);
        }
        let lasted = self.reporter.lasted();
        self.schedule
            .tell(|retry, now| retry.on_lost(now, lasted, replaced));
        let told = if replaced {
            Told::Refused
        } else {
            Told::Trying
        };
        self.reporter.tell(told, reason);
        self.schedule.wake();
        self.tell_reach();
    }

    /// No new flows; the server hears of it.
    pub(crate) fn drain(&self) {
        self.demand.draining.set(true);
        self.schedule.wake();
        self.tell_reach();
        if let Some(id) = self.tunnels.ready() {
            self.tunnels
                .shard()
                .change(id, |connection| connection.tunnel.send_goaway());
        }
    }

    /// Closes every connection.
    pub(crate) fn close(&self) {
        self.learned.learn_path();
        self.meter.borrow_mut().save(self.tunnels.shard());
        if let Some(sle) = &self.ways.sle {
            sle.close();
        }
        self.packet_road.on_lost();
        let all = self.tunnels.state_mut().close();
        all.into_iter().for_each(|id| self.tunnels.close(id));
    }

    /// The client's part of `status`.
    pub(crate) fn status(&self) -> status::Session {
        let stopped = self.is_stopped();
        let mut session = self.reporter.status(stopped);
        let next = self.schedule.state().next().filter(|_| !stopped);
        session.tunnel.next_attempt_s =
            next.map(|next| next.saturating_duration_since(process::now()).as_secs());
        let winner = self.tunnels.state().winner();
        session.tunnel.link = winner.map(|attempt| self.learned.report(&attempt));
        session.flows.waiting = self.demand.waiting.get();
        session.metering = self.meter.borrow().report(self.shard());
        session.publish = self.published.report();
        session.sle = self.ways.sle.as_ref().map(|sle| sle.report());
        session.web = self.ways.pages.as_ref().map(|pages| pages.report());
        self.packet_road.fill(&mut session);
        session.memory.ceiling = self.config.memory.tunnel.as_u64();
        let peer = self.servers.address(0);
        session.tunnel.peer.get_or_insert_with(|| peer.to_string());
        session
    }
}
