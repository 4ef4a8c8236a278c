//! A client, a link and a server in one thread and in virtual time: engine, tunnel and relay logic as
//! they are, LAN sides as fast as they are told to be.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bentpipe_link::sim::next_wakeup;
use bentpipe_link::{Duplex, LinkConfig, Pipe};
use bentpipe_pep::engine::identity::{self, PrivateKey};
use bentpipe_pep::engine::{
    ConnectionId, ConnectionNotice, Engine, EngineConfig, Event, Profile, ServerSetup, Wishes,
};
use bentpipe_pep::transport::{FlowKey, TunnelEvent};
use bentpipe_proto::congestion::Kind;
use bentpipe_proto::tunnel::{Families, Hello, ReplyCode, VERSION};
use bentpipe_units::{ByteCount, Seed};
use bytes::BytesMut;
use quinn_proto::EcnCodepoint;

use crate::apps::{Apps, Servers};

/// IPv4 and UDP headers: the link counts IP packets.
const HEADERS: usize = 28;

const SERVER: ([u8; 4], u16) = ([10, 20, 0, 1], 4433);

/// A datagram on the link.
pub(crate) struct Datagram {
    from: SocketAddr,
    to: SocketAddr,
    ecn: Option<EcnCodepoint>,
    data: BytesMut,
}

/// One simulated tunnel with its applications.
pub(crate) struct World {
    pub(crate) now: Instant,
    pub(crate) start: Instant,
    pub(crate) link: Duplex<Datagram>,
    pub(crate) client: Engine,
    pub(crate) server: Engine,
    pub(crate) client_address: SocketAddr,
    pub(crate) apps: Apps,
    servers: Servers,
    keys: Keys,
    seed: Seed,
    profile: Profile,
    wishes: Wishes,
    /// Client-side connections in the order of their beginning.
    pub(crate) tunnels: Vec<ConnectionId>,
    pub(crate) notices: Vec<(Duration, String)>,
    ready: Option<ConnectionId>,
    spins: u32,
    /// Destinations refuse, so long after OPEN.
    pub(crate) refuse_after: Option<Duration>,
    refusals: Vec<(Instant, ConnectionId, FlowKey)>,
    /// Every batch that left, as (when, size): equal runs have equal traces.
    pub(crate) trace: Vec<(Duration, usize)>,
}

struct Keys {
    client: PrivateKey,
    server: PrivateKey,
}

impl World {
    /// A world over `link`; connects at once.
    pub(crate) fn new(link: &LinkConfig, seed: u64) -> Self {
        Self::with_profile(link, seed, Profile::Geo)
    }

    pub(crate) fn with_profile(link: &LinkConfig, seed: u64, profile: Profile) -> Self {
        Self::with_wishes(link, seed, profile, Wishes::default())
    }

    /// A world in which both ends send with `controller`.
    pub(crate) fn with_controller(
        link: &LinkConfig,
        seed: u64,
        profile: Profile,
        controller: Kind,
    ) -> Self {
        let wishes = Wishes {
            controller,
            ..Wishes::default()
        };
        Self::with_wishes(link, seed, profile, wishes)
    }

    fn with_wishes(link: &LinkConfig, seed: u64, profile: Profile, wishes: Wishes) -> Self {
        #[expect(clippy::disallowed_methods, reason = "the origin of virtual time")]
        let start = Instant::now();
        let seed = Seed::new(seed);
        let keys = Keys {
            client: PrivateKey::generate().expect("random numbers"),
            server: PrivateKey::generate().expect("random numbers"),
        };
        let client = Engine::new(config(&keys, seed.stream("client"), false, wishes));
        let server = Engine::new(config(&keys, seed.stream("server"), true, wishes));
        let mut world = Self {
            now: start,
            start,
            link: Duplex::new(link, seed.stream("link"), start),
            client,
            server,
            client_address: ([10, 20, 0, 2], 50_000).into(),
            apps: Apps::default(),
            servers: Servers::default(),
            keys,
            seed,
            profile,
            wishes,
            tunnels: Vec::new(),
            notices: Vec::new(),
            ready: None,
            spins: 0,
            refuse_after: None,
            refusals: Vec::new(),
            trace: Vec::new(),
        };
        world.connect();
        world
    }

    /// Starts another connection from the client.
    pub(crate) fn connect(&mut self) -> ConnectionId {
        let key = self.keys.server.public();
        let crypto = identity::client_crypto(&self.keys.client, key, false, None)
            .expect("keys make a TLS configuration");
        let id = self
            .client
            .connect(self.now, crypto, SERVER.into(), self.profile)
            .expect("a client can connect");
        self.tunnels.push(id);
        id
    }

    /// Replaces the server's process: same key, no memory.
    pub(crate) fn restart_server(&mut self) {
        let seed = self.seed.stream(&format!("server after {:?}", self.at()));
        self.server = Engine::new(config(&self.keys, seed, true, self.wishes));
        self.servers = Servers::default();
    }

    /// Virtual time since the beginning.
    pub(crate) fn at(&self) -> Duration {
        self.now - self.start
    }

    /// The tunnel that flows are opened in.
    pub(crate) fn tunnel(&self) -> ConnectionId {
        self.ready.expect("the tunnel is ready")
    }

    /// True once the tunnel has been ready and was not lost.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready.is_some()
    }

    /// Runs until `done`, for at most `limit` of virtual time; panics beyond that.
    pub(crate) fn run_until(
        &mut self,
        limit: Duration,
        what: &str,
        mut done: impl FnMut(&Self) -> bool,
    ) {
        let deadline = self.now + limit;
        while !done(self) {
            assert!(
                self.now < deadline,
                "{what}: not within {limit:?}; {}",
                self.describe()
            );
            self.step(deadline);
        }
    }

    /// A download of `bytes` over the tunnel; returns its index among the readers.
    pub(crate) fn download(&mut self, bytes: u64, rate: Option<u64>) -> usize {
        let tunnel = self.tunnel();
        self.apps
            .download(self.now, &mut self.client, tunnel, bytes, rate)
    }

    /// How long a download alone takes, from OPEN to the last byte.
    pub(crate) fn timed_download(&mut self, bytes: u64) -> Duration {
        let began = self.now;
        let index = self.download(bytes, None);
        self.run_until(Duration::from_secs(600), "a download", |world| {
            world.apps.readers[index].end.is_some()
        });
        let reader = &self.apps.readers[index];
        assert_eq!(reader.got, bytes);
        assert_eq!(
            reader.end.map(|(_, ending)| ending),
            Some(crate::apps::Ending::Fin)
        );
        reader.end.expect("it ended").0 - began
    }

    /// Lets `span` of virtual time pass.
    pub(crate) fn run_for(&mut self, span: Duration) {
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
        format!(
            "at {:?}: client [{}], server [{}], {:?}",
            self.at(),
            flows(&self.client),
            flows(&self.server),
            self.notices.last()
        )
    }

    /// Everything that happens at this instant, then on to the next one, at most to `deadline`.
    fn step(&mut self, deadline: Instant) {
        self.deliver();
        self.client.handle_timeout(self.now);
        self.server.handle_timeout(self.now);
        self.refuse();
        loop {
            let mut busy = false;
            while let Some(event) = self.client.poll_event(self.now) {
                self.on_client_event(event);
                busy = true;
            }
            while let Some(event) = self.server.poll_event(self.now) {
                self.on_server_event(event);
                busy = true;
            }
            busy |= self.apps.poll(self.now, &mut self.client);
            busy |= self.servers.poll(&mut self.server);
            busy |= self.transmit();
            if !busy {
                break;
            }
        }
        let timeouts = [
            self.client.poll_timeout(),
            self.server.poll_timeout(),
            self.link.poll_timeout(),
            self.apps.poll_timeout(),
            self.refusals.first().map(|(due, ..)| *due),
        ];
        let next = next_wakeup(timeouts).unwrap_or(deadline);
        // In real time this would be a busy loop.
        self.spins = if next > self.now { 0 } else { self.spins + 1 };
        let overdue = timeouts.map(|at| at.map(|at| self.now.saturating_duration_since(at)));
        assert!(
            self.spins < 100,
            "a timer is due and nothing happens: {overdue:?}; {}",
            self.describe()
        );
        self.now = next.clamp(self.now + Duration::from_nanos(1), deadline);
    }

    fn refuse(&mut self) {
        let due = self.refusals.partition_point(|(due, ..)| *due <= self.now);
        for (_, connection, flow) in self.refusals.drain(..due) {
            if let Some(connection) = self.server.connection(connection) {
                let (tunnel, quic) = connection.parts();
                tunnel.reply(quic, flow, ReplyCode::Refused, None);
            }
        }
    }

    fn deliver(&mut self) {
        let client = self.client_address;
        while let Some((_, datagram)) = self.link.forward_link.poll_output(self.now) {
            if datagram.to == client {
                let Datagram {
                    from, ecn, data, ..
                } = datagram;
                self.client.handle_datagram(self.now, from, None, ecn, data);
            }
        }
        while let Some((_, datagram)) = self.link.return_link.poll_output(self.now) {
            let Datagram {
                from, ecn, data, ..
            } = datagram;
            self.server.handle_datagram(self.now, from, None, ecn, data);
        }
    }

    fn transmit(&mut self) -> bool {
        let mut buf = Vec::new();
        let mut busy = false;
        while let Some(output) = self.client.poll_transmit(self.now, &mut buf) {
            let from = self.client_address;
            send(self.now, &mut self.link.return_link, from, &output, &buf);
            self.trace.push((self.now - self.start, output.size));
            buf.clear();
            busy = true;
        }
        while let Some(output) = self.server.poll_transmit(self.now, &mut buf) {
            send(
                self.now,
                &mut self.link.forward_link,
                SERVER.into(),
                &output,
                &buf,
            );
            self.trace.push((self.now - self.start, output.size));
            buf.clear();
            busy = true;
        }
        busy
    }

    fn on_client_event(&mut self, event: Event) {
        let at = self.at();
        match event.notice {
            ConnectionNotice::Tunnel(TunnelEvent::Ready) => self.ready = Some(event.connection),
            ConnectionNotice::Lost(reason) => {
                self.notices.push((at, reason.to_string()));
                self.ready = self.ready.filter(|ready| *ready != event.connection);
            }
            ConnectionNotice::Fault(fault) => panic!("the client found a fault: {fault}"),
            ConnectionNotice::Connected
            | ConnectionNotice::Tunnel(_)
            | ConnectionNotice::Outage(_) => {}
        }
    }

    fn on_server_event(&mut self, event: Event) {
        match event.notice {
            ConnectionNotice::Tunnel(TunnelEvent::Opened(flow, open)) => {
                if let Some(delay) = self.refuse_after {
                    let due = self.now + delay;
                    return self.refusals.push((due, event.connection, flow));
                }
                self.servers
                    .open(&mut self.server, event.connection, flow, &open.destination);
            }
            ConnectionNotice::Fault(fault) => panic!("the server found a fault: {fault}"),
            _ => {}
        }
    }
}

fn send(
    now: Instant,
    pipe: &mut Pipe<Datagram>,
    from: SocketAddr,
    output: &quinn_proto::Transmit,
    bytes: &[u8],
) {
    let segment = output.segment_size.unwrap_or(output.size);
    for data in bytes[..output.size].chunks(segment) {
        let datagram = Datagram {
            from,
            to: output.destination,
            ecn: output.ecn,
            data: data.into(),
        };
        pipe.handle_packet(now, ByteCount::new((data.len() + HEADERS) as u64), datagram);
    }
}

fn config(keys: &Keys, seed: Seed, server: bool, wishes: Wishes) -> EngineConfig {
    let own = if server { &keys.server } else { &keys.client };
    let setup = server.then(|| ServerSetup {
        crypto: identity::server_crypto(own, Arc::new(|_| true), false, None)
            .expect("keys make a TLS configuration"),
        token_key: identity::token_key(own),
    });
    EngineConfig {
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
            max_flows: 40_000,
            ..Hello::default()
        },
        memory: 256 << 20,
        wishes,
        seed,
        deterministic: true,
    }
}
