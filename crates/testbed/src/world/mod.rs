//! Clients, a link and a server in one thread and in virtual time: engine, tunnel and relay logic as they are, LAN
//! sides as fast as they are told to be.
//!
//! ```text
//!  terminals[i]: apps ─ engine ─ access delay ─┐                        ┌─ engine ─ origins
//!  terminals[j]: apps ─ engine ─ access delay ─┼─ forward, return link ─┤  (one server)
//!  competitors[k]: TCP ──────── access delay ──┘                        └─ TCP
//! ```

mod apps;
mod behaviour;
mod competitor;
mod ends;
mod inner;
mod origins;
mod page;
mod sites;
mod slow_start;
mod step;
mod stream;
mod terminal;
mod timed;
mod wire;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bentpipe_congestion::{Kind, Saved};
use bentpipe_link::{Duplex, LinkConfig, Scenario};
use bentpipe_proto::tunnel::Forward;
use bentpipe_tunnel::engine::{ConnectionId, Engine, Link, Profile, Wishes, over_tcp};
use quinn_proto::crypto::ClientConfig;

use crate::tcp;

pub use apps::{Ending, Reader};
pub use behaviour::{Behaviour, Impairments};
pub use competitor::Competitor;
use ends::Ends;
pub use inner::Inner;
pub use origins::{Origins, source};
pub use page::PagePlan;
pub use stream::TcpPath;
use stream::TcpWire;
pub use terminal::Terminal;
use wire::Access;
pub use wire::{Packet, Sent};

/// A scenario by name, without jitter: a pipe has a constant delay.
pub fn preset(name: &str) -> Option<Scenario> {
    let mut table: toml::Table = toml::from_str(bentpipe_link::preset(name)?).ok()?;
    table.get_mut("orbit")?.as_table_mut()?.remove("jitter");
    table.try_into().ok()
}

const SERVER: ([u8; 4], u16) = ([10, 20, 0, 1], 4433);

/// Parts of a world.
#[derive(Clone)]
pub struct Setup<'a> {
    /// Link between the terminals and the server.
    pub link: &'a LinkConfig,
    /// Seed of every random number.
    pub seed: u64,
    /// Class of link that both ends are tuned for.
    pub profile: Profile,
    /// Facts that terminals know of the link beyond `profile`.
    pub known: Option<Link>,
    /// Settings that both ends wish for.
    pub wishes: Wishes,
    /// Settings that terminals send with, if not with `wishes`.
    pub own: Option<Wishes>,
    /// Settings that terminals wish of the server.
    pub forward: Forward,
    /// Published ports are known to the client, and to the server.
    pub publish: [bool; 2],
    /// Both ends carry DNS.
    pub dns: bool,
    /// One terminal for each, that much farther from the link, each way.
    pub access: Vec<Duration>,
}

impl<'a> Setup<'a> {
    /// One terminal on `link`.
    pub fn new(link: &'a LinkConfig, seed: u64) -> Self {
        Self {
            link,
            seed,
            profile: Profile::Geo,
            known: None,
            wishes: Wishes::default(),
            own: None,
            forward: Forward::default(),
            publish: [false; 2],
            dns: false,
            access: vec![Duration::ZERO],
        }
    }
}

/// The simulated tunnels with their applications.
pub struct World {
    /// Present instant of virtual time.
    pub now: Instant,
    /// Instant at which virtual time began.
    pub start: Instant,
    /// Model of the link.
    pub link: Duplex<Packet>,
    /// Clients.
    pub terminals: Vec<Terminal>,
    /// Engine of the server.
    pub server: Engine,
    /// Destinations behind the server.
    pub origins: Origins,
    /// TCP connections on the same link, outside any tunnel.
    pub competitors: Vec<Competitor>,
    /// IP packets inside the first tunnel.
    pub inner: Inner,
    access: Access,
    ends: Ends,
    spins: u32,
    /// Conduct of the server's side beside serving.
    pub behaviour: Behaviour,
    /// Impairments of the path.
    pub impairments: Impairments,
    /// Packets that tunnels offered to the forward and the return link.
    pub sent: [Sent; 2],
    /// Every batch that left, as (when, over which link as in `sent`, size): equal runs have equal traces.
    pub trace: Vec<(Duration, usize, usize)>,
}

impl World {
    /// A world over `link`; connects at once.
    pub fn new(link: &LinkConfig, seed: u64) -> Self {
        Self::with(&Setup::new(link, seed))
    }

    /// Makes a world whose ends are tuned for `profile`; connects at once.
    pub fn with_profile(link: &LinkConfig, seed: u64, profile: Profile) -> Self {
        Self::with(&Setup {
            profile,
            ..Setup::new(link, seed)
        })
    }

    /// A world in which both ends send with `controller`.
    pub fn with_controller(
        link: &LinkConfig,
        seed: u64,
        profile: Profile,
        controller: Kind,
    ) -> Self {
        let wishes = Wishes {
            controller,
            ..Wishes::default()
        };
        Self::with(&Setup {
            profile,
            wishes,
            ..Setup::new(link, seed)
        })
    }

    /// The world of `setup`; every terminal connects at once.
    pub fn with(setup: &Setup<'_>) -> Self {
        #[expect(clippy::disallowed_methods, reason = "the origin of virtual time")]
        let start = Instant::now();
        let ends = Ends::new(setup);
        let terminals = setup.access.iter().zip(0u8..).map(|(access, index)| {
            let engine = Engine::new(ends.terminal(setup, index));
            Terminal::new(engine, ([10, 20, 1, index], 50_000).into(), *access)
        });
        let mut world = Self {
            now: start,
            start,
            link: Duplex::new(setup.link, ends.seed.stream("link"), start),
            terminals: terminals.collect(),
            server: Engine::new(ends.server(setup)),
            origins: Origins::default(),
            competitors: Vec::new(),
            inner: Inner::default(),
            access: Access::default(),
            ends,
            spins: 0,
            behaviour: Behaviour::default(),
            impairments: Impairments::default(),
            sent: [Sent::default(); 2],
            trace: Vec::new(),
        };
        for index in 0..world.terminals.len() {
            world.connect(index);
        }
        world
    }

    /// Starts another connection from a terminal.
    pub fn connect(&mut self, terminal: usize) -> ConnectionId {
        self.connect_with(terminal, |crypto| crypto)
    }

    /// Starts a connection that alters its cryptography.
    pub fn connect_with(
        &mut self,
        terminal: usize,
        alter: impl FnOnce(Arc<dyn ClientConfig>) -> Arc<dyn ClientConfig>,
    ) -> ConnectionId {
        let crypto = alter(self.ends.crypto());
        let terminal = &mut self.terminals[terminal];
        let id = terminal
            .engine
            .connect(self.now, crypto, SERVER.into(), self.ends.known)
            .expect("a client can connect");
        terminal.tunnels.push(id);
        id
    }

    /// Leads the datagrams of a terminal through a new TCP connection, or `None`, by themselves, as the shells do; a tunnel
    /// that is in use moves.
    pub fn change_wire(&mut self, terminal: usize, path: Option<TcpPath>) {
        let (now, at) = (self.now, self.at());
        let seed = self.ends.seed.stream(&format!("TCP {terminal} {at:?}"));
        let terminal = &mut self.terminals[terminal];
        let udp = (
            terminal.address.ip().to_canonical(),
            terminal.address.port(),
        )
            .into();
        if let Some(path) = path {
            terminal.tcp = Some(TcpWire::new(now, path, seed));
        }
        terminal.address = path.map_or(udp, |_| over_tcp(udp));
        let waiting = path.map(|_| 0);
        terminal.engine.set_waiting(SERVER.into(), waiting);
        self.server.set_waiting(over_tcp(udp), waiting);
        let tunnel = terminal.ready.map(|(tunnel, _)| tunnel);
        if let Some(tunnel) = tunnel.and_then(|id| terminal.engine.connection(id)) {
            tunnel.change_wire(now);
        }
    }

    /// Time for which what a terminal receives by TCP has waited for lost segments.
    pub fn blocked(&self, terminal: usize) -> Duration {
        let tcp = self.terminals[terminal].tcp.as_ref();
        tcp.map_or(Duration::ZERO, |tcp| tcp.down.blocked)
    }

    /// Starts a TCP connection beside the tunnels, with data to the terminals (`down`) or from them; returns its index.
    pub fn compete(&mut self, config: tcp::Config, down: bool, access: Duration) -> usize {
        self.competitors.push(Competitor::new(config, down, access));
        self.competitors.len() - 1
    }

    /// Paths to terminals as the server has learned them.
    pub fn learned(&mut self) -> HashMap<SocketAddr, Saved> {
        let ids: Vec<_> = self.server.connections().map(|(id, _)| id).collect();
        let path = |id| {
            let connection = self.server.connection(id)?;
            let saved = connection.saved(self.now)?;
            Some((connection.parts().1.remote_address(), saved))
        };
        ids.into_iter().filter_map(path).collect()
    }

    /// Replaces the server's process: same key, no memory.
    pub fn restart_server(&mut self) {
        let name = format!("server after {:?}", self.at());
        self.server = Engine::new(self.ends.plain_server(&name));
        self.origins = Origins::at(self.origins.rtt);
    }

    /// Virtual time since the beginning.
    pub fn at(&self) -> Duration {
        self.now - self.start
    }

    /// The tunnel of the first terminal.
    pub fn tunnel(&self) -> ConnectionId {
        self.terminals[0].tunnel()
    }

    /// One flow of the first terminal.
    pub fn reader(&self, index: usize) -> &Reader {
        &self.terminals[0].apps.readers[index]
    }

    /// True once every terminal's tunnel has been ready and was not lost.
    pub fn is_ready(&self) -> bool {
        self.terminals
            .iter()
            .all(|terminal| terminal.ready.is_some())
    }

    /// Runs until `done`, for at most `limit` of virtual time; panics beyond that.
    pub fn run_until(&mut self, limit: Duration, what: &str, done: impl Fn(&Self) -> bool) {
        assert!(
            self.run_while(limit, |world| !done(world)),
            "{what}: not within {limit:?}; {}",
            self.describe()
        );
    }

    /// Runs while `busy`; false if that lasts longer than `limit` of virtual time.
    pub fn run_while(&mut self, limit: Duration, busy: impl Fn(&Self) -> bool) -> bool {
        let deadline = self.now + limit;
        while busy(self) {
            if self.now >= deadline {
                return false;
            }
            self.step(deadline);
        }
        true
    }

    /// A download of `bytes` by the first terminal; returns its index among the readers.
    pub fn download(&mut self, bytes: u64, rate: Option<u64>) -> usize {
        self.terminals[0].download(self.now, bytes, rate)
    }

    /// Lets `span` of virtual time pass.
    pub fn run_for(&mut self, span: Duration) {
        let deadline = self.now + span;
        while self.now < deadline {
            self.step(deadline);
        }
    }

    fn describe(&self) -> String {
        let flows = |engine: &Engine| {
            let each = engine.connections().map(|(_, connection)| {
                let (window, rate, in_flight) = connection.congestion();
                format!(
                    "{} flows, window {window}, rate {rate}, in flight {in_flight}",
                    connection.tunnel.flow_count()
                )
            });
            each.collect::<Vec<_>>().join("; ")
        };
        let clients = self
            .terminals
            .iter()
            .map(|terminal| format!("{} {:?}", flows(&terminal.engine), terminal.notices.last()));
        format!(
            "at {:?}: clients {:?}, server [{}]",
            self.at(),
            clients.collect::<Vec<_>>(),
            flows(&self.server),
        )
    }
}
