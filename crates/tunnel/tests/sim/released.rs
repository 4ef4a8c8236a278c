//! Peers of release 0.1.0, played from the bytes that it wrote: a QUIC endpoint that knows nothing
//! of this code's frames.
//!
//! ```text
//! client of 0.1.0 ─ HELLO, OPEN, payload ──► engine as a server
//! server of 0.1.0 ─ HELLO, REPLY, payload ─► engine as a client
//! ```

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bentpipe_proto::tunnel::{Families, Hello, ReplyCode, VERSION};
use bentpipe_tunnel::engine::identity::{self, PrivateKey, PublicKey};
use bentpipe_tunnel::engine::{
    Arrival, ConnectionId, ConnectionNotice, Engine, EngineConfig, Link, Profile, ServerSetup,
    Wishes,
};
use bentpipe_tunnel::transport::{FlowKey, TunnelEvent};
use bentpipe_units::Seed;
use bytes::{Bytes, BytesMut};
use quinn_proto::{
    ClientConfig, Connection, ConnectionHandle, DatagramEvent, Dir, Endpoint, EndpointConfig,
    ServerConfig, StreamId, TransportConfig,
};

use rustls::crypto::aws_lc_rs::kx_group::X25519MLKEM768;

use crate::identity::peers::{self, Gullible, Shown, Tickets};
use crate::identity::wire::{key, start};

/// What 0.1.0 wrote.
const WRITTEN: &str = include_str!("../../../proto/src/tests/released/0.1.0.txt");

/// No conversation takes longer.
const LIMIT: Duration = Duration::from_secs(60);
/// One way of the link.
const WAY: Duration = Duration::from_millis(20);

/// Kind of the control stream, as 0.1.0 wrote it.
const CONTROL: u8 = 0;
/// Type of HELLO.
const HELLO: u8 = 1;

/// Numbers of keys.
const SERVER: u8 = 0;
const CLIENT: u8 = 1;

const QUESTION: &[u8] = b"GET / HTTP/1.0\r\n\r\n";
const ANSWER: &[u8] = b"HTTP/1.0 200 OK\r\n\r\nhello";

/// The bytes that 0.1.0 wrote for the vector called `name`.
fn written(name: &str) -> Vec<u8> {
    let section = WRITTEN.split_once(&format!("\n**{name}**"));
    let block = section.and_then(|(_, rest)| rest.split("```").nth(1));
    let block = block.expect("a vector").trim_start_matches("text");
    let digits: Vec<u8> = block.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("hex"), 16);
    digits
        .chunks(2)
        .map(|pair| byte(pair).expect("hex"))
        .collect()
}

fn address(port: u16) -> SocketAddr {
    ([192, 0, 2, 1], port).into()
}

/// The peer: QUIC alone.
pub(crate) struct Peer {
    endpoint: Endpoint,
    quic: Option<(ConnectionHandle, Connection)>,
    /// Bytes of each stream.
    pub(crate) came: BTreeMap<StreamId, Vec<u8>>,
}

impl Peer {
    fn new(own: &PrivateKey, listener: Option<ServerConfig>) -> Self {
        let config = EndpointConfig::new(identity::reset_key(own));
        Self {
            endpoint: Endpoint::new(Arc::new(config), listener.map(Arc::new), false, None),
            quic: None,
            came: BTreeMap::new(),
        }
    }

    pub(crate) fn quic(&mut self) -> &mut Connection {
        &mut self.quic.as_mut().expect("a connection").1
    }

    fn receive(&mut self, now: Instant, from: SocketAddr, datagram: &[u8]) {
        let mut buf = Vec::new();
        let data = BytesMut::from(datagram);
        match self.endpoint.handle(now, from, None, None, data, &mut buf) {
            Some(DatagramEvent::NewConnection(incoming)) => {
                let accepted = self.endpoint.accept(incoming, now, &mut buf, None);
                self.quic = Some(accepted.expect("the engine's first datagram"));
            }
            Some(DatagramEvent::ConnectionEvent(_, event)) => self.quic().handle_event(event),
            Some(DatagramEvent::Response(_)) | None => {}
        }
    }

    /// Timers, what has come on streams, and the next datagrams.
    fn drive(&mut self, now: Instant) -> Vec<Vec<u8>> {
        let Some((handle, quic)) = &mut self.quic else {
            return Vec::new();
        };
        if quic.poll_timeout().is_some_and(|due| due <= now) {
            quic.handle_timeout(now);
        }
        while quic.poll().is_some() {}
        while let Some(stream) = quic.streams().accept(Dir::Bi) {
            self.came.insert(stream, Vec::new());
        }
        for (stream, came) in &mut self.came {
            let mut stream = quic.recv_stream(*stream);
            if let Ok(mut chunks) = stream.read(true) {
                while let Ok(Some(chunk)) = chunks.next(usize::MAX) {
                    came.extend_from_slice(&chunk.bytes);
                }
                let _ = chunks.finalize();
            }
        }
        while let Some(event) = quic.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(*handle, event) {
                quic.handle_event(event);
            }
        }
        let mut datagrams = Vec::new();
        let mut buf = Vec::new();
        while quic.poll_transmit(now, 1, &mut buf).is_some() {
            datagrams.push(std::mem::take(&mut buf));
        }
        datagrams
    }

    /// Opens a stream that begins with `bytes`.
    pub(crate) fn begin(&mut self, bytes: &[u8]) -> StreamId {
        let stream = self.quic().streams().open(Dir::Bi).expect("room");
        self.came.insert(stream, Vec::new());
        self.say(stream, bytes);
        stream
    }

    fn say(&mut self, stream: StreamId, bytes: &[u8]) {
        let said = self.quic().send_stream(stream).write(bytes);
        assert_eq!(said, Ok(bytes.len()));
    }
}

fn engine(own: u8, setup: Option<ServerSetup>) -> Engine {
    let own = key(own);
    Engine::new(EngineConfig {
        reset_key: identity::reset_key(&own),
        shard: setup.is_some().then_some(0),
        server: setup,
        hello: Hello {
            version: VERSION,
            families: Families {
                ipv4: true,
                ipv6: true,
            },
            initial_credit: 1 << 20,
            max_flows: 100,
            ..Hello::default()
        },
        memory: 1 << 26,
        pool: Arc::default(),
        wishes: Wishes::default(),
        seed: Seed::new(1),
        deterministic: true,
    })
}

/// A peer of 0.1.0, today's engine, and the link between them.
pub(crate) struct World {
    now: Instant,
    pub(crate) peer: Peer,
    engine: Engine,
    tunnel: Option<ConnectionId>,
    /// Events of the tunnel that the engine has reported.
    pub(crate) events: Vec<TunnelEvent>,
    ended: Option<String>,
}

impl World {
    fn new(peer: Peer, engine: Engine) -> Self {
        Self {
            now: start(),
            peer,
            engine,
            tunnel: None,
            events: Vec::new(),
            ended: None,
        }
    }

    /// Goes on until the closure is done, which sees what has come.
    #[track_caller]
    pub(crate) fn run_until<T>(
        &mut self,
        what: &str,
        mut done: impl FnMut(&mut Self) -> Option<T>,
    ) -> T {
        let end = self.now + LIMIT;
        while self.now < end {
            self.turn();
            if let Some(found) = done(self) {
                return found;
            }
            assert_eq!(self.ended, None, "{what}");
        }
        panic!("{what}: not within {LIMIT:?}");
    }

    fn turn(&mut self) {
        self.engine.handle_timeout(self.now);
        let mut out = Vec::new();
        let mut buf = Vec::new();
        while let Some(transmit) = self.engine.poll_transmit(self.now, &mut buf) {
            let size = transmit.segment_size.unwrap_or(transmit.size).max(1);
            out.extend(buf.chunks(size).map(<[u8]>::to_vec));
            buf.clear();
        }
        let back = self.peer.drive(self.now);
        self.now += WAY;
        for datagram in out {
            self.peer.receive(self.now, address(1), &datagram);
        }
        for datagram in back {
            let arrival = Arrival {
                at: self.now,
                remote: address(2),
                local: None,
                ecn: None,
                data: BytesMut::from(datagram.as_slice()),
            };
            self.engine.handle_datagram(self.now, arrival);
        }
        while let Some(event) = self.engine.poll_event(self.now) {
            self.tunnel = Some(event.connection);
            match event.notice {
                ConnectionNotice::Tunnel(event) => self.events.push(event),
                ConnectionNotice::Lost(reason) => self.ended = Some(format!("{reason:?}")),
                _ => {}
            }
        }
    }

    /// The engine's end.
    pub(crate) fn ours(&mut self) -> &mut bentpipe_tunnel::engine::Connection {
        let id = self.tunnel.expect("a tunnel");
        self.engine.connection(id).expect("it lives")
    }
}

/// Payload of a flow that has come and was not taken yet.
fn said(connection: &mut bentpipe_tunnel::engine::Connection, flow: FlowKey) -> Vec<u8> {
    let (tunnel, _) = connection.parts();
    tunnel.ready(flow).flatten().copied().collect()
}

/// A client with this QUIC transport that is ready, and the server's HELLO.
pub(crate) fn served(transport: TransportConfig) -> (World, Vec<u8>) {
    let shown = Shown::raw_key(&key(CLIENT), &key(CLIENT));
    let crypto = peers::client(shown, Gullible::raw(), &[X25519MLKEM768], &Tickets::new());
    let known = Arc::new(|shown: &PublicKey| *shown == key(CLIENT).public());
    let crypto_of_server = identity::server_crypto(&key(SERVER), known, false, None);
    let setup = ServerSetup {
        crypto: crypto_of_server.expect("a TLS configuration"),
        token_key: identity::token_key(&key(SERVER)),
    };
    let mut world = World::new(Peer::new(&key(CLIENT), None), engine(SERVER, Some(setup)));
    let mut config = ClientConfig::new(crypto);
    config.transport_config(Arc::new(transport));
    let quic = world
        .peer
        .endpoint
        .connect(world.now, config, address(1), "bentpipe");
    world.peer.quic = Some(quic.expect("a connection"));
    world.run_until("a handshake", |world| {
        (!world.peer.quic().is_handshaking()).then_some(())
    });

    let control = [vec![CONTROL], written("HELLO of a client")].concat();
    let control = world.peer.begin(&control);
    let hello = world.run_until("HELLO of the server", |world| {
        let came = &world.peer.came[&control];
        (came.len() > 4).then(|| came.clone())
    });
    (world, hello)
}

#[test]
fn a_client_of_the_first_release_is_served() {
    let (mut world, hello) = served(TransportConfig::default());
    let length = 1 << (hello[1] >> 6);
    assert_eq!(
        (hello[0], hello[1 + length]),
        (HELLO, 1),
        "version 1 is chosen"
    );

    let open = written("OPEN of an IPv4 destination");
    let stream = world.peer.begin(&[&open, QUESTION].concat());
    let (flow, destination) = world.run_until("a flow", |world| {
        world.events.drain(..).find_map(|event| match event {
            TunnelEvent::Opened(flow, open) => Some((flow, open.destination.to_string())),
            _ => None,
        })
    });
    assert_eq!(destination, "192.0.2.1:443");
    assert_eq!(said(world.ours(), flow), QUESTION);
    let (tunnel, quic) = world.ours().parts();
    let bound = "198.51.100.7:40000".parse().ok();
    tunnel.reply(quic, flow, ReplyCode::Ok, bound);
    tunnel.push(flow, Bytes::from_static(ANSWER));
    let reply = world.run_until("an answer", |world| {
        let came = &world.peer.came[&stream];
        came.ends_with(ANSWER).then(|| came.clone())
    });
    // The credit is the server's choice.
    assert_eq!(reply[1..9], written("REPLY, connected")[1..9]);
}

#[test]
fn a_server_of_the_first_release_is_understood() {
    let shown = Shown::raw_key(&key(SERVER), &key(SERVER));
    let crypto = peers::server(shown, Gullible::raw(), &[X25519MLKEM768]);
    let listener = ServerConfig::new(crypto, identity::token_key(&key(SERVER)));
    let peer = Peer::new(&key(SERVER), Some(listener));
    let mut world = World::new(peer, engine(CLIENT, None));
    let crypto = identity::client_crypto(&key(CLIENT), key(SERVER).public(), false, None);
    let crypto = crypto.expect("a TLS configuration");
    let link = Link::from(Profile::Auto);
    let tunnel = world.engine.connect(world.now, crypto, address(2), link);
    world.tunnel = Some(tunnel.expect("a connection"));
    let control = world.run_until("HELLO of the client", |world| {
        let (stream, came) = world.peer.came.first_key_value()?;
        came.starts_with(&[CONTROL, HELLO]).then_some(*stream)
    });
    world.peer.say(control, &written("HELLO of a server"));
    world.run_until("a tunnel", |world| {
        let mut events = world.events.drain(..);
        events.find_map(|event| matches!(event, TunnelEvent::Ready).then_some(()))
    });

    let (tunnel, quic) = world.ours().parts();
    let destination = "192.0.2.1:443".parse().expect("a destination");
    let source = "192.168.1.10:51000".parse().ok();
    let flow = tunnel.open(quic, destination, source, Bytes::from_static(QUESTION));
    let flow = flow.expect("a flow");
    let (stream, open) = world.run_until("a flow", |world| {
        let mut came = world.peer.came.iter();
        let (stream, came) = came.find(|(stream, _)| **stream != control)?;
        came.ends_with(QUESTION).then(|| (*stream, came.clone()))
    });
    // The credit is the client's choice, and the length follows it.
    let wanted = written("OPEN of an IPv4 destination");
    assert_eq!((open[0], &open[2..17]), (wanted[0], &wanted[2..17]));
    let reply = [written("REPLY, connected"), ANSWER.to_vec()].concat();
    world.peer.say(stream, &reply);
    let answer = world.run_until("an answer", |world| {
        let said = said(world.ours(), flow);
        (said.len() >= ANSWER.len()).then_some(said)
    });
    assert_eq!(answer, ANSWER);
}
