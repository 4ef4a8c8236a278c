//! Keeps one tunnel up: connects, notices the end, connects again; flows wait meanwhile.
//!
//! Its parts have owners: when an attempt is made is decided in `retry.rs`, how in `connecting.rs`; `connections.rs` is which
//! connections there are, `report.rs` about what the operator hears, `packet_road.rs` about packets. What follows from news of the
//! engine, and what is done all the time, is in `upkeep.rs` and `silence.rs`.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;

use tokio::sync::watch;
use tokio::time::timeout;

use super::SharedKeyLog;
use super::attendance::Attendance;
use super::connecting::Connector;
use super::connections::Attempt;
use super::learned::Learned;
use super::metering::Meter;
use super::packet_road::PacketRoad;
use super::publish::Published;
use super::reach::{Reach, ServerPlace};
use super::report::Reporter;
use super::retry::Retry;
use super::schedule::Schedule;
use super::servers::Servers;
use super::sle::Sealing;
use super::tunnels::Tunnels;
use super::web::Pages;
use super::wires::Wires;
use crate::config::{ClientConfig, ClientFile, FrontEnds};
use crate::keys::{PrivateKey, PublicKey};
use crate::metrics::FirstByte;
use crate::paths::PathMemory;
use crate::process::{self, RunError};
use crate::shard::Shard;
use crate::status;
use bentpipe_tunnel::engine::{Connection, ConnectionId};

/// The tunnel did not come up in the time that a flow waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unready;

/// What wants a tunnel, and whether one is to be had.
struct Demand {
    /// Flows that wait for a tunnel.
    waiting: Cell<u64>,
    attendance: Rc<Attendance>,
}

/// Ways of connections beside a flow of the tunnel each.
struct WaysBeside {
    /// Flows that are sealed beside the tunnel.
    sle: Option<Rc<Sealing>>,
    /// Pages that are fetched ahead.
    pages: Option<Rc<Pages>>,
}

/// The client's tunnel.
pub(crate) struct Session {
    pub(super) config: Rc<ClientConfig>,
    /// Connections that there are, and the use of each.
    pub(super) tunnels: Rc<Tunnels>,
    pub(super) schedule: Rc<Schedule>,
    pub(super) servers: Rc<Servers>,
    pub(super) learned: Rc<Learned>,
    pub(super) reporter: Rc<Reporter>,
    pub(super) connector: Connector,
    pub(super) wires: Rc<Wires>,
    /// Reach of the server, for all who wait for a change of that.
    reach: watch::Sender<Reach>,
    demand: Demand,
    /// Bytes used of those that may be.
    pub(super) meter: RefCell<Meter>,
    packet_road: PacketRoad,
    pub(super) published: Rc<Published>,
    ways: WaysBeside,
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
        let packet_road = PacketRoad::new(config.clone(), tunnels.clone(), keys.0)?;
        let les = packet_road.les().map(|les| les.traffic().clone());
        let attendance = Attendance::new();
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
            demand: Demand {
                waiting: Cell::default(),
                attendance: attendance.clone(),
            },
            meter: RefCell::new(Meter::load(&config, tunnels.shard(), (traffic, les))),
            packet_road,
            published: Published::new(config.clone(), tunnels.clone()),
            ways: WaysBeside {
                sle,
                pages: Pages::new(&config, keys.0, &attendance)?,
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
        let winner = self.tunnels.state().winner();
        self.reach.send_replace(Reach {
            server: winner.map(|attempt| ServerPlace {
                index: attempt.server,
                address: attempt.address.ip(),
            }),
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
    /// an outage, or first thing after a sleep, would be lost with the tunnel if the server turns out to have been restarted.
    pub(crate) async fn tunnel(&self) -> Result<ConnectionId, Unready> {
        if self.is_stopped() {
            return Err(Unready);
        }
        self.look_for_sleep();
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
        self.demand.attendance.is_ending() || self.meter.borrow().is_halted()
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

    /// Applications that are being answered.
    pub(super) fn attendance(&self) -> &Rc<Attendance> {
        &self.demand.attendance
    }

    /// Pages that are fetched ahead, if some are to be.
    pub(super) fn pages(&self) -> Option<&Rc<Pages>> {
        self.ways.pages.as_ref()
    }

    /// Waits until no flow is open, and no application waits for an answer.
    pub(crate) async fn until_idle(&self) {
        let sealed = || self.ways.sle.as_ref().map_or(0, |sle| sle.active());
        let attended = || self.demand.attendance.open();
        process::until_idle(self.shard(), || sealed() + attended()).await;
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

    /// No new flows; the server hears of it.
    pub(crate) fn drain(&self) {
        self.demand.attendance.end();
        if let Some(pages) = self.pages() {
            pages.rest();
        }
        self.schedule.wake();
        self.tell_reach();
        if let Some(id) = self.tunnels.ready() {
            self.tunnels
                .shard()
                .change(id, |connection| connection.tunnel.send_goaway());
        }
    }

    /// Takes over what a running client can of a file that was read again, and says what that is.
    pub(crate) fn reload(&self, fresh: &ClientFile) -> Option<String> {
        let ClientFile::Tunnel(fresh) = fresh else {
            return None;
        };
        let (les, fresh) = (self.packet_road.les()?, fresh.front.les.as_ref()?);
        les.reload(&fresh.peps).unwrap_or_else(|error| {
            tracing::error!("the PEPs stay as they were: {error}");
            None
        })
    }

    /// Closes every connection.
    pub(crate) fn close(&self) {
        self.learned.learn_path();
        self.meter.borrow_mut().save(self.tunnels.shard());
        if let Some(sle) = &self.ways.sle {
            sle.close();
        }
        self.packet_road.close();
        let all = self.tunnels.state_mut().close();
        for id in all {
            self.tunnels.close(id, "the client is stopping");
        }
    }

    /// The client's part of `status`.
    pub(crate) fn status(&self) -> status::Session {
        let stopped = self.is_stopped();
        let mut session = self.reporter.status(stopped);
        let next = self.schedule.state().next().filter(|_| !stopped);
        session.tunnel.next_attempt_s =
            next.map(|next| next.saturating_duration_since(process::now()).as_secs());
        let connections = self.tunnels.state();
        let (tried, winner) = (connections.tried(), connections.winner());
        let tried = tried.filter(|_| connections.tunnel().is_none());
        drop(connections);
        // Without a tunnel what is told is about the server that is tried.
        let is_told = |winner: &Attempt| tried.is_none_or(|(server, _)| server == winner.server);
        let link = winner.filter(is_told);
        session.tunnel.link = link.map(|attempt| self.learned.report(&attempt));
        session.tunnel.peer = tried
            .map(|(_, address)| address.to_string())
            .or(session.tunnel.peer.take());
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
