//! Flows that the server opens: they carry like others, within the client's credit, and only where ports are published.

use bentpipe_tunnel::engine::{Connection, ConnectionId};
use bentpipe_tunnel::transport::{FlowKey, Incoming, OpenError, Tunnel};
use std::net::SocketAddr;
use std::time::Duration;

use bentpipe_link::LinkConfig;
use bentpipe_proto::relay::End;
use bentpipe_proto::tunnel::{FlowId, Inbound, Open, Publish, PublishCode, ReplyCode, StreamKind};
use bentpipe_testbed::world::{Setup, World, preset, source};
use bytes::Bytes;
use quinn_proto::Dir;

const PATIENCE: Duration = Duration::from_secs(60);

/// First credit of the simulated ends, in bytes.
const CREDIT: usize = 1 << 20;

fn link() -> LinkConfig {
    let link = preset("geo").expect("a preset");
    link.link_config().expect("a link")
}

/// A world whose client, and whose server, know of published ports.
fn world(publish: [bool; 2]) -> World {
    let link = link();
    let mut world = World::with(&Setup {
        publish,
        ..Setup::new(&link, 1)
    });
    world.run_until(PATIENCE, "the handshake", World::is_ready);
    world.run_for(Duration::from_secs(2));
    world
}

pub(crate) fn server(world: &mut World) -> &mut Connection {
    let (id, _) = world.server.connections().next().expect("a client");
    world.server.connection(id).expect("it is there")
}

pub(crate) fn client(world: &mut World) -> &mut Connection {
    let id: ConnectionId = world.tunnel();
    let connection = world.terminals[0].engine.connection(id);
    connection.expect("it is there")
}

pub(crate) fn open(world: &mut World) -> Result<FlowKey, OpenError> {
    let address = |text: &str| text.parse::<SocketAddr>().ok();
    let (tunnel, quic) = server(world).parts();
    tunnel.open_inbound(quic, 3, address("198.51.100.7:40000"), address("[::1]:443"))
}

/// Takes what has come of a flow.
fn take(tunnel: &mut Tunnel, flow: FlowKey) -> usize {
    tunnel.take_notice(flow);
    let ready = tunnel.ready(flow).map(Bytes::len).sum();
    tunnel.consume(flow, ready as u64);
    ready
}

#[test]
fn a_flow_from_the_server_carries_both_ways_within_its_credit() {
    let mut world = world([true; 2]);
    let from = open(&mut world).expect("a flow");
    let mut pushed = 0;
    for _ in 0..20 {
        let (tunnel, _) = server(&mut world).parts();
        let room = tunnel.capacity(from);
        tunnel.push(from, Bytes::from(vec![7; room]));
        pushed += room;
        world.run_for(Duration::from_millis(500));
    }

    let (to, inbound) = world.terminals[0].inbound[0];
    assert_eq!((inbound.entry, inbound.flow), (3, FlowId::OF_SERVER));
    assert_eq!(inbound.source, "198.51.100.7:40000".parse().ok());
    assert_eq!(inbound.destination, "[::1]:443".parse().ok());
    let (tunnel, _) = server(&mut world).parts();
    assert_eq!(tunnel.capacity(from), 0, "nobody has taken anything yet");

    let (tunnel, quic) = client(&mut world).parts();
    let came: usize = tunnel.ready(to).map(Bytes::len).sum();
    assert!(came == CREDIT && pushed > CREDIT, "{came} of {pushed}");
    tunnel.reply(quic, to, ReplyCode::Ok, None);
    let mut got = take(tunnel, to);
    tunnel.push(to, Bytes::from_static(b"answer"));
    tunnel.finish(to);
    // A flow of the client's own beside it has other names.
    world.timed_download(100_000);
    let (tunnel, _) = server(&mut world).parts();
    assert!(tunnel.capacity(from) > 0, "what was taken is credit");
    assert_eq!(take(tunnel, from), 6);
    assert_eq!(tunnel.incoming(from), Incoming::End(End::Fin));
    tunnel.push(from, Bytes::from(vec![7; 1000]));
    tunnel.finish(from);
    world.run_for(Duration::from_secs(2));
    let (tunnel, _) = client(&mut world).parts();
    got += take(tunnel, to);
    assert_eq!(got, pushed + 1000);
    assert_eq!(tunnel.incoming(to), Incoming::End(End::Fin));

    let (tunnel, quic) = client(&mut world).parts();
    tunnel.release(quic, to);
    assert_eq!(tunnel.flow_count(), 0);
    let (tunnel, quic) = server(&mut world).parts();
    tunnel.release(quic, from);
    assert_eq!(tunnel.flow_count(), 0);
}

#[test]
fn the_server_hears_of_a_refusal_and_the_client_of_a_reset() {
    let mut world = world([true; 2]);
    let [refused, reset] = [(); 2].map(|()| open(&mut world).expect("a flow"));
    world.run_for(Duration::from_secs(1));
    let [(first, _), (second, _)] = world.terminals[0].inbound[..] else {
        panic!("two flows");
    };
    let (tunnel, quic) = client(&mut world).parts();
    tunnel.reply(quic, first, ReplyCode::HostUnreachable, None);
    tunnel.reply(quic, second, ReplyCode::Ok, None);
    world.run_for(Duration::from_secs(1));
    let (tunnel, quic) = server(&mut world).parts();
    let refusal = Incoming::Refused(ReplyCode::HostUnreachable);
    assert_eq!(tunnel.incoming(refused), refusal);
    tunnel.release(quic, refused);
    tunnel.push(reset, Bytes::from_static(b"last"));
    tunnel.abort(quic, reset, bentpipe_proto::tunnel::AbortCode::Reset);
    world.run_for(Duration::from_secs(1));
    let (tunnel, _) = client(&mut world).parts();
    assert_eq!(take(tunnel, second), 4);
    assert!(matches!(
        tunnel.incoming(second),
        Incoming::End(End::Abort(_))
    ));
}

/// What the client says when the server does this to it; `None`: it goes on.
fn said_to(publish: [bool; 2], act: impl FnOnce(&mut Connection)) -> Option<String> {
    let mut world = world(publish);
    world.terminals[0].expects_fault = true;
    act(server(&mut world));
    world.run_for(Duration::from_secs(2));
    let said = world.terminals[0].notices.first();
    let said = said.map(|(_, said)| said.clone());
    if said.is_none() {
        world.timed_download(10_000);
        assert_eq!(client(&mut world).tunnel.flow_count(), 0);
        assert!(world.terminals[0].inbound.is_empty());
    }
    said
}

/// Opens a stream that begins with `bytes`.
fn stream(connection: &mut Connection, bytes: &[u8]) {
    let (_, quic) = connection.parts();
    let stream = quic.streams().open(Dir::Bi).expect("room for a stream");
    let written = quic.send_stream(stream).write(bytes).expect("room");
    assert_eq!(written, bytes.len());
}

fn inbound(flow: u64) -> Vec<u8> {
    let mut header = Vec::new();
    let inbound = Inbound {
        flow: FlowId(flow),
        entry: 0,
        source: None,
        destination: None,
        credit: 0,
    };
    inbound.encode(&mut header);
    header
}

#[test]
fn without_published_ports_a_server_opens_nothing() {
    // The client has given QUIC no room for streams of the server's.
    let mut deaf = world([false, true]);
    assert_eq!(open(&mut deaf), Err(OpenError::LimitReached));
    // It has, but the server has not agreed to anything.
    let said = said_to([true, false], |server| stream(server, &inbound(1 << 61)));
    assert_eq!(
        said.as_deref(),
        Some("peer broke the protocol: server opened a stream")
    );
    let said = said_to([false, true], |server| {
        server.tunnel.published(0, PublishCode::Ok);
    });
    assert!(said.is_some_and(|said| said.contains("nobody asked for")));
}

#[test]
fn streams_of_the_server_are_what_they_may_be() {
    let mut flow = Vec::new();
    Open {
        flow: FlowId(1 << 61),
        destination: source(5),
        source: None,
        credit: 0,
        page: false,
    }
    .encode(&mut flow);
    // Kinds that are the client's, or nobody's, are refused, and the tunnel stays.
    for header in [&flow[..], &[2, 0, 0], &[0x3f, 1, 2]] {
        let said = said_to([true; 2], |server| stream(server, header));
        assert_eq!(said, None, "{header:x?}");
    }
    let mut control = Vec::new();
    StreamKind::Control.encode(&mut control);
    let said = said_to([true; 2], |server| stream(server, &control));
    assert!(said.is_some());
    // Names of flows that are the client's, or that are taken.
    let said = said_to([true; 2], |server| stream(server, &inbound(5)));
    assert!(said.is_some_and(|said| said.contains("a flow id of the other side's")));
    let said = said_to([true; 2], |server| {
        stream(server, &inbound(1 << 61));
        stream(server, &inbound(1 << 61));
    });
    assert!(said.is_some_and(|said| said.contains("used twice")));
    // A client publishes, a server does not ask for ports.
    let said = said_to([true; 2], |server| {
        server.tunnel.publish(Publish {
            entry: 0,
            protocol: 6,
            families: Default::default(),
            port: 80,
        });
    });
    assert!(said.is_some_and(|said| said.contains("cannot be asked for")));
}
