//! The wires to the servers: carries out what `wire_choice.rs` decides, and tells it what came of it.
//!
//! A connection of QUIC does not know by which wire its datagrams leave: the shard looks that up by the server's address. So a
//! tunnel moves from UDP to TLS and back without resetting a flow; to the server this is a change of the client's address.

mod tls_road;

use std::cell::{Cell, RefCell};
use std::future::pending;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::task::spawn_local;
use tokio::time::{sleep_until, timeout};

use super::connections::Attempt;
use super::learned::Learned;
use super::schedule::Schedule;
use super::servers::Servers;
use super::tunnels::Tunnels;
use super::wire_choice::{Need, WireChoice, WireStep};
use super::{tls_connection, udp_trial};
use crate::config::{ClientConfig, Server};
use crate::events;
use crate::process;
use crate::throttle::Throttle;
use bentpipe_tunnel::engine::Connection;

/// Time from one look at what is wanted to the next, at most.
const LOOK: Duration = Duration::from_secs(1);

/// Time for a handshake over UDP that is to show whether UDP passes.
const TRIAL: Duration = Duration::from_secs(8);

/// Wires to the servers of the configuration, by their index there.
pub(super) struct Wires {
    config: Rc<ClientConfig>,
    tunnels: Rc<Tunnels>,
    schedule: Rc<Schedule>,
    servers: Rc<Servers>,
    learned: Rc<Learned>,
    of: Vec<ServerWires>,
    /// Wakes the task that looks after them.
    kick: Notify,
    /// Mark of our own sockets, where this machine's traffic is intercepted.
    mark: Option<u32>,
    /// Lines about TLS connections that bring nothing.
    silences: Throttle,
}

/// Wires to one server.
struct ServerWires {
    choice: RefCell<WireChoice>,
    /// Address of QUIC that a TLS connection stands for, and what ends that.
    open: RefCell<Option<OpenWire>>,
    /// A failure to open one is in the log since one was open.
    told: Cell<bool>,
    /// TLS connections that were given up for their silence: of several addresses another one is tried first.
    passed: Cell<usize>,
}

struct OpenWire {
    remote: SocketAddr,
    /// The TLS connection's two addresses: ours, and the server's.
    between: Option<[IpAddr; 2]>,
    leave: Rc<Notify>,
}

impl Wires {
    /// UDP to every server.
    pub(super) fn new(
        config: &Rc<ClientConfig>,
        tunnels: &Rc<Tunnels>,
        (schedule, servers): (&Rc<Schedule>, &Rc<Servers>),
        learned: &Rc<Learned>,
        mark: Option<u32>,
    ) -> Rc<Self> {
        let wires = |server: &Server| ServerWires {
            choice: RefCell::new(WireChoice::new(server.wire)),
            open: RefCell::default(),
            told: Cell::new(false),
            passed: Cell::new(0),
        };
        Rc::new(Self {
            of: config.servers.iter().map(wires).collect(),
            mark,
            config: config.clone(),
            tunnels: tunnels.clone(),
            schedule: schedule.clone(),
            servers: servers.clone(),
            learned: learned.clone(),
            kick: Notify::new(),
            silences: Throttle::new(),
        })
    }

    /// True if datagrams for a server leave by TLS now.
    pub(super) fn is_tls(&self, server: usize) -> bool {
        self.of[server].open.borrow().is_some()
    }

    /// Address of a server for which its open TLS connection stands: attempts are made at that.
    pub(super) fn address(&self, server: usize) -> Option<SocketAddr> {
        let open = self.of[server].open.borrow();
        open.as_ref().map(|open| process::canonical(open.remote))
    }

    /// Opens the TLS connection of a server that is not to be reached by UDP, before an attempt at `address`.
    ///
    /// # Errors
    /// It could not be opened.
    pub(super) async fn prepare(
        self: &Rc<Self>,
        server: usize,
        address: SocketAddr,
    ) -> io::Result<()> {
        let wires = &self.of[server];
        if self.permits_udp(server) || self.is_tls(server) {
            return Ok(());
        }
        let (config, passed) = (&self.config.servers[server], wires.passed.get());
        let socket = tls_connection::open(config, &self.servers, self.mark, passed);
        let socket = socket.await?;
        let remote = self.servers.remote(address);
        wires
            .choice
            .borrow_mut()
            .on_opened(process::now(), Need::Nothing);
        self.carry(server, remote, socket);
        Ok(())
    }

    /// Looks after the wires; never ends.
    pub(super) async fn keep(self: &Rc<Self>) {
        let mut servers = self.config.servers.iter();
        if servers.all(|server| server.tls.is_none()) {
            return pending().await;
        }
        loop {
            let mut due = process::now() + LOOK;
            for server in 0..self.of.len() {
                self.look_for_another_network(server);
                if self.config.servers[server].tls.is_some() {
                    due = due.min(self.step(server).unwrap_or(due));
                }
            }
            tokio::select! {
                () = sleep_until(due.into()) => {}
                () = self.kick.notified() => {}
            }
        }
    }

    /// Does what is to be done for one server; returns when something may be next.
    fn step(self: &Rc<Self>, server: usize) -> Option<Instant> {
        let (now, need) = (process::now(), self.need(server));
        let step = self.of[server].choice.borrow_mut().poll(now, need);
        match step {
            WireStep::Wait(until) => return until,
            WireStep::Open => {
                self.tell_of_silence(server);
                self.open(server);
            }
            WireStep::TryUdp => self.try_udp(server),
        }
        None
    }

    /// Gives up a TLS connection from an address that leads to the server no more: TCP would repeat itself from there for long.
    fn look_for_another_network(&self, server: usize) {
        let wires = &self.of[server];
        let between = wires.open.borrow().as_ref().and_then(|open| open.between);
        let Some([ours, theirs]) = between else {
            return;
        };
        let source = process::source_address(theirs);
        if source.is_none_or(|source| source == ours) {
            return;
        }
        if let Some(open) = wires.open.take() {
            self.leave(&open);
            self.lose(server, open.remote);
        }
        let now = process::now();
        let mut choice = wires.choice.borrow_mut();
        choice.on_ended(now);
        choice.on_moved(now);
    }

    /// Has datagrams leave by UDP; what is under way in the TLS connection is still taken.
    fn leave(&self, open: &OpenWire) {
        self.tunnels.shard().leave_tls(open.remote);
        open.leave.notify_one();
    }

    /// Where UDP is not to be used, all is lost until another TLS connection is open. The tunnel asks for an answer, so that it
    /// finds out, and connections wait.
    fn lose(&self, server: usize, remote: SocketAddr) {
        if self.permits_udp(server) {
            return;
        }
        self.tunnels.shard().lose(remote);
        if let (Need::Tunnel { .. }, Some(tunnel)) = (self.need(server), self.current(server)) {
            let now = process::now();
            self.tunnels
                .change(tunnel.id, |connection| connection.change_wire(now));
        }
    }

    fn permits_udp(&self, server: usize) -> bool {
        self.of[server].choice.borrow().permits_udp()
    }

    /// Use that is made of a server now.
    fn need(&self, server: usize) -> Need {
        let state = self.tunnels.state();
        if let Some(attempt) = state.attempt().filter(|attempt| attempt.server == server) {
            let since = self.schedule.state().trying();
            return Need::Attempt {
                since: since.unwrap_or_else(process::now),
                heard: self.tunnels.heard(attempt.id).is_some(),
                rtt: attempt.choice.link.rtt,
                blocked: self.learned.wants_tls(server, attempt.source),
            };
        }
        match state.winner().filter(|attempt| attempt.server == server) {
            Some(_) if state.tunnel().is_some() => {
                drop(state);
                Need::Tunnel {
                    silent: self.tunnels.look(Connection::unanswered_since),
                }
            }
            _ => Need::Nothing,
        }
    }

    /// Attempt or tunnel at a server, whichever there is.
    fn current(&self, server: usize) -> Option<Attempt> {
        let state = self.tunnels.state();
        let tunnel = state.winner().filter(|_| state.tunnel().is_some());
        let current = state.attempt().into_iter().chain(tunnel);
        current.into_iter().find(|attempt| attempt.server == server)
    }

    /// An attempt begins: another wire may be due already.
    pub(super) fn on_attempt(&self) {
        self.kick.notify_one();
    }

    /// A TLS connection that carries the tunnel brings nothing, and another one is opened beside it.
    fn tell_of_silence(&self, server: usize) {
        let wires = &self.of[server];
        if !wires.choice.borrow().is_renewing() {
            return;
        }
        wires.passed.set(wires.passed.get().wrapping_add(1));
        let open = wires.open.borrow();
        if let Some(open) = open.as_ref()
            && self.silences.is_due(process::now())
        {
            let address = process::canonical(open.remote);
            tracing::warn!(
                "nothing comes by the TLS connection to {address}, though TCP says that it stands: trying another one, and UDP where that may be used"
            );
        }
    }

    /// Notes that an attempt was not answered: if it was made over TLS, the next one goes another way.
    pub(super) fn on_unanswered(&self, server: usize) {
        let wires = &self.of[server];
        if let Some(open) = wires.open.take() {
            wires.choice.borrow_mut().on_unanswered(process::now());
            wires.passed.set(wires.passed.get().wrapping_add(1));
            self.leave(&open);
            self.lose(server, open.remote);
        }
    }

    /// The network has changed: UDP may pass here.
    pub(super) fn on_moved(&self) {
        let now = process::now();
        self.of
            .iter()
            .for_each(|wires| wires.choice.borrow_mut().on_moved(now));
        self.kick.notify_one();
    }

    fn try_udp(self: &Rc<Self>, server: usize) {
        let Some(remote) = self.address(server) else {
            return;
        };
        let wires = self.clone();
        spawn_local(async move {
            let passes = timeout(
                TRIAL,
                udp_trial::passes(&wires.servers, server, remote, wires.mark),
            );
            let passes = matches!(passes.await, Ok(Ok(true)));
            wires.on_tried(server, passes);
            wires.kick.notify_one();
        });
    }

    fn on_tried(&self, server: usize, passes: bool) {
        let (now, wires) = (process::now(), &self.of[server]);
        let first = wires.choice.borrow().is_checking();
        if !wires.choice.borrow_mut().on_tried(now, passes) {
            if let (true, Some(tunnel)) = (first && self.is_tls(server), self.current(server)) {
                self.learned.remember_wire(&tunnel, true);
            }
            return;
        }
        if let Some(open) = wires.open.take() {
            self.leave(&open);
        }
        let Some(tunnel) = self.current(server) else {
            return;
        };
        tracing::info!(target: events::STATE, "UDP passes again: the tunnel leaves TLS; no connection is reset");
        self.learned.remember_wire(&tunnel, false);
        self.tunnels
            .change(tunnel.id, |connection| connection.change_wire(now));
    }

    /// The attempt has become the tunnel: by which wire is remembered for the next start on this network, unless UDP is still to be
    /// tried beside it.
    pub(super) fn on_ready(&self, attempt: &Attempt) {
        let (wires, tls) = (&self.of[attempt.server], self.is_tls(attempt.server));
        let known = !(tls && wires.choice.borrow().is_checking());
        if known && self.config.servers[attempt.server].tls.is_some() {
            self.learned.remember_wire(attempt, tls);
        }
    }
}
