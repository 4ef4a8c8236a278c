//! Clients, a link and a server in one thread and in virtual time: engine, tunnel and relay logic as they are, LAN
//! sides as fast as they are told to be.
//!
//! ```text
//!  terminals[i]: apps ─ engine ─ access delay ─┐                        ┌─ engine ─ origins
//!  terminals[j]: apps ─ engine ─ access delay ─┼─ forward, return link ─┤  (one server)
//!  competitors[k]: TCP ──────── access delay ──┘                        └─ TCP
//! ```

mod apps;
mod competitor;
mod inner;
mod origins;
mod page;
mod sites;
mod step;
mod terminal;
mod wire;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bentpipe_congestion::{Kind, Saved};
use bentpipe_link::{Duplex, LinkConfig, Scenario, tcp};
use bentpipe_proto::tunnel::{Families, Forward, Hello, VERSION, capability};
use bentpipe_tunnel::engine::identity::{self, PrivateKey};
use bentpipe_tunnel::engine::{
    ConnectionId, Engine, EngineConfig, Link, Profile, ServerSetup, Wishes,
};
use bentpipe_tunnel::transport::FlowKey;
use bentpipe_units::Seed;
use quinn_proto::crypto::ClientConfig;

pub use apps::{Ending, Reader};
pub use competitor::Competitor;
pub use inner::Inner;
pub use origins::{Origins, source};
use page::Browser;
pub use page::PagePlan;
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
    keys: Keys,
    seed: Seed,
    known: Link,
    wishes: Wishes,
    spins: u32,
    /// Destinations refuse, so long after OPEN.
    pub refuse_after: Option<Duration>,
    refusals: Vec<(Instant, ConnectionId, FlowKey)>,
    /// Paths to terminals as the server remembers them.
    pub known_paths: HashMap<SocketAddr, Saved>,
    /// Every packet that comes over the forward link is marked "congestion experienced".
    pub mark_all: bool,
    /// A fault of a client's is what is looked for.
    pub expects_fault: bool,
    /// Larger UDP payloads are lost without a word, bytes.
    pub largest: Option<usize>,
    /// Destinations answer once and then neither speak nor end.
    pub silent: bool,
    /// Destinations are the test's own: flows that the server has heard of, with the number in [`source`], gather here.
    pub opened: Option<Vec<(ConnectionId, FlowKey, u64)>>,
    /// Packets that tunnels offered to the forward and the return link.
    pub sent: [Sent; 2],
    /// Every batch that left, as (when, over which link as in `sent`, size): equal runs have equal traces.
    pub trace: Vec<(Duration, usize, usize)>,
}

struct Keys {
    client: PrivateKey,
    server: PrivateKey,
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
        let (seed, wishes) = (Seed::new(setup.seed), setup.wishes);
        let keys = Keys {
            client: PrivateKey::generate().expect("random numbers"),
            server: PrivateKey::generate().expect("random numbers"),
        };
        let terminals = setup.access.iter().zip(0u8..).map(|(access, index)| {
            let seed = seed.stream(&format!("client {index}"));
            let mut config = config(&keys, seed, false, setup.own.unwrap_or(wishes));
            config.hello.forward = setup.forward.clone();
            config.hello.capabilities |= publishing(setup.publish[0]);
            config.hello.capabilities |= if setup.dns { capability::DNS } else { 0 };
            let engine = Engine::new(config);
            Terminal::new(engine, ([10, 20, 1, index], 50_000).into(), *access)
        });
        let mut server = config(&keys, seed.stream("server"), true, wishes);
        server.hello.capabilities |= publishing(setup.publish[1]);
        server.hello.capabilities |= if setup.dns { capability::DNS } else { 0 };
        let mut world = Self {
            now: start,
            start,
            link: Duplex::new(setup.link, seed.stream("link"), start),
            terminals: terminals.collect(),
            server: Engine::new(server),
            origins: Origins::default(),
            competitors: Vec::new(),
            inner: Inner::default(),
            access: Access::default(),
            keys,
            seed,
            known: setup.known.unwrap_or_else(|| setup.profile.into()),
            wishes,
            spins: 0,
            refuse_after: None,
            refusals: Vec::new(),
            known_paths: HashMap::new(),
            mark_all: false,
            expects_fault: false,
            largest: None,
            silent: false,
            opened: None,
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
        let key = self.keys.server.public();
        let crypto = identity::client_crypto(&self.keys.client, key, false, None)
            .expect("keys make a TLS configuration");
        let crypto = alter(crypto);
        let terminal = &mut self.terminals[terminal];
        let id = terminal
            .engine
            .connect(self.now, crypto, SERVER.into(), self.known)
            .expect("a client can connect");
        terminal.tunnels.push(id);
        id
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
        let seed = self.seed.stream(&format!("server after {:?}", self.at()));
        self.server = Engine::new(config(&self.keys, seed, true, self.wishes));
        self.origins = Origins::default();
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

    /// Time that a download alone takes, from OPEN to the last byte.
    pub fn timed_download(&mut self, bytes: u64) -> Duration {
        let index = self.download(bytes, None);
        self.run_until(Duration::from_secs(1200), "a download", |world| {
            world.reader(index).end.is_some()
        });
        let reader = self.reader(index);
        let (at, ending) = reader.end.expect("it ended");
        assert_eq!((reader.got, ending), (bytes, Ending::Fin));
        at - reader.since
    }

    /// Time that an upload alone takes, from OPEN to the last byte at its destination.
    pub fn timed_upload(&mut self, bytes: u64) -> Duration {
        let (before, began) = (self.origins.uploads.len(), self.now);
        self.terminals[0].upload(began, bytes);
        self.run_until(Duration::from_secs(1200), "an upload", |world| {
            world.origins.uploads.len() > before
        });
        let (at, got) = self.origins.uploads[before];
        assert_eq!(got, bytes);
        at - began
    }

    /// Time that the first terminal takes to load a page.
    pub fn timed_page(&mut self, plan: PagePlan) -> Duration {
        let (now, tunnel) = (self.now, self.tunnel());
        let pages = &mut self.terminals[0].apps.pages;
        pages.push(Browser::new(now, tunnel, plan));
        let index = pages.len() - 1;
        // Wakes the terminal.
        self.terminals[0].engine.connection(tunnel);
        let time = |world: &Self| world.terminals[0].apps.pages[index].time();
        self.run_until(Duration::from_secs(300), "a page", |world| {
            time(world).is_some()
        });
        time(self).expect("it is whole")
    }

    /// Time that a DNS query of the first terminal takes, which the server answers at once.
    pub fn timed_query(&mut self) -> Duration {
        self.timed_queries(1)
    }

    /// Time that so many queries take that are asked at once, until the last answer.
    pub fn timed_queries(&mut self, count: usize) -> Duration {
        let (began, id) = (self.now, self.tunnel());
        let terminal = &mut self.terminals[0];
        let last = terminal.answers.len() + count - 1;
        let connection = terminal.engine.connection(id).expect("a tunnel");
        for _ in 0..count {
            connection.ask(&[0x5a; 40]).expect("it carries DNS");
        }
        self.run_until(Duration::from_secs(60), "answers", |world| {
            world.terminals[0].answers.len() > last
        });
        self.terminals[0].answers[last] - began
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

fn publishing(it_does: bool) -> u64 {
    if it_does { capability::PUBLISH } else { 0 }
}

fn config(keys: &Keys, seed: Seed, server: bool, wishes: Wishes) -> EngineConfig {
    let own = if server { &keys.server } else { &keys.client };
    let setup = server.then(|| ServerSetup {
        crypto: identity::server_crypto(own, Arc::new(|_| true), false, None)
            .expect("keys make a TLS configuration"),
        token_key: identity::token_key(own),
    });
    EngineConfig {
        pool: Arc::default(),
        reset_key: identity::reset_key(own),
        shard: server.then_some(0),
        server: setup,
        hello: Hello {
            version: VERSION,
            agent: "simulation".into(),
            families: Families {
                ipv4: true,
                ipv6: true,
            },
            initial_credit: 1 << 20,
            max_flows: 50_000,
            capabilities: capability::PACKETS,
            ..Hello::default()
        },
        memory: 256 << 20,
        wishes,
        seed,
        deterministic: true,
    }
}
