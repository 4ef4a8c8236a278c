//! Flows that end in every order leave nothing behind, at either end.

use std::time::Duration;

use bentpipe_link::LinkConfig;
use bentpipe_proto::relay::End;
use bentpipe_proto::tunnel::{AbortCode, ReplyCode};
use bentpipe_testbed::world::{Ending, World, preset, source};
use bentpipe_tunnel::engine::{Connection, ConnectionId, Engine};
use bentpipe_tunnel::transport::{FlowKey, Incoming};
use bytes::Bytes;
use quinn_proto::{Dir, VarInt, WriteError};

use crate::outage::set_outage;
use crate::satellite::link;

const SETTLED: Duration = Duration::from_secs(5);

fn ready() -> World {
    let link = preset("geo").expect("a preset");
    ready_on(&link.link_config().expect("a link"))
}

fn ready_on(link: &LinkConfig) -> World {
    let mut world = World::new(link, 1);
    world.run_until(Duration::from_secs(60), "the handshake", World::is_ready);
    world
}

/// Flows and bytes that `engine` still holds.
fn left(engine: &Engine) -> (usize, u64) {
    let tunnels = engine.connections().map(|(_, connection)| {
        let tunnel = &connection.tunnel;
        (tunnel.flow_count(), tunnel.memory().0)
    });
    tunnels.fold((0, 0), |sum, each| (sum.0 + each.0, sum.1 + each.1))
}

fn assert_empty(world: &World) {
    assert_eq!(left(&world.terminals[0].engine), (0, 0), "client");
    assert_eq!(left(&world.server), (0, 0), "server");
}

#[test]
fn flows_that_end_in_order_leave_nothing() {
    let mut world = ready();
    for _ in 0..20 {
        world.timed_download(10_000);
    }
    world.run_for(SETTLED);
    assert_empty(&world);
}

#[test]
fn a_flow_aborted_while_the_server_dials_in_vain_leaves_nothing() {
    let mut world = ready();
    world.behaviour.refuse_after = Some(Duration::from_secs(2));
    let tunnel = world.tunnel();
    let (held, quic) = world.terminals[0]
        .engine
        .connection(tunnel)
        .expect("up")
        .parts();
    let flow = held
        .open(quic, source(1000), None, Bytes::from_static(b"hello"))
        .expect("a flow");
    world.run_for(Duration::from_millis(100));
    let (held, quic) = world.terminals[0]
        .engine
        .connection(tunnel)
        .expect("up")
        .parts();
    held.abort(quic, flow, AbortCode::Reset);
    world.run_for(SETTLED);
    assert_empty(&world);
}

#[test]
fn a_stream_reset_before_its_open_leaves_nothing() {
    let mut world = ready();
    let tunnel = world.tunnel();
    let (_, quic) = world.terminals[0]
        .engine
        .connection(tunnel)
        .expect("up")
        .parts();
    for _ in 0..10 {
        let stream = quic.streams().open(Dir::Bi).expect("a stream");
        quic.send_stream(stream)
            .reset(VarInt::from_u32(0))
            .expect("it is open");
    }
    world.run_for(SETTLED);
    assert_empty(&world);
}

/// PROTOCOL.md §4: a later version may have streams that this one does not know.
#[test]
fn a_stream_of_unknown_kind_is_refused_and_the_tunnel_lives() {
    let mut world = ready();
    let tunnel = world.tunnel();
    let terminal = &mut world.terminals[0].engine;
    let (_, quic) = terminal.connection(tunnel).expect("up").parts();
    let stream = quic.streams().open(Dir::Bi).expect("a stream");
    let unknown = [0x06, 1, 2, 3];
    assert_eq!(quic.send_stream(stream).write(&unknown), Ok(unknown.len()));
    world.run_for(SETTLED);
    let terminal = &mut world.terminals[0].engine;
    let (_, quic) = terminal.connection(tunnel).expect("still up").parts();
    // It was stopped, which our side answers with a reset.
    assert_eq!(
        quic.send_stream(stream).write(&unknown),
        Err(WriteError::ClosedStream)
    );
    world.timed_download(10_000);
    world.run_for(SETTLED);
    assert_empty(&world);
}

/// Closes the tunnel's end at `engine` in order, once that end holds no flow and the peer has acknowledged the end of each.
fn close_when_idle(world: &mut World, end: fn(&mut World) -> &mut Engine) {
    let deadline = world.now + Duration::from_secs(60);
    loop {
        let engine = end(world);
        let (id, connection) = engine.connections().next().expect("a tunnel");
        if connection.tunnel.is_idle() {
            let now = world.now;
            let connection = end(world).connection(id).expect("a tunnel");
            return connection.close(now, 0, "stopped".into());
        }
        assert!(world.now < deadline, "the tunnel is not idle");
        world.run_for(Duration::from_millis(1));
    }
}

fn client(world: &mut World) -> &mut Engine {
    &mut world.terminals[0].engine
}

fn server(world: &mut World) -> &mut Engine {
    &mut world.server
}

/// Bytes of each upload that has ended at its destination; zero if that was by a reset.
fn uploaded(world: &World) -> Vec<u64> {
    world.origins.uploads.iter().map(|(_, got)| *got).collect()
}

#[test]
fn an_upload_that_has_ended_arrives_though_the_client_stops_then() {
    // Of what leaves last, something is lost.
    let mut world = ready_on(&link("geo", 0.1));
    let now = world.now;
    // The destination has ended its direction long before.
    world.terminals[0].upload(now, 2_000_000);
    world.run_for(SETTLED / 5);
    close_when_idle(&mut world, client);
    world.run_for(SETTLED);
    assert_eq!(uploaded(&world), [2_000_000], "zero: it was reset");
}

#[test]
fn a_slow_host_gets_all_of_a_download_that_has_crossed_though_the_server_stops_then() {
    let mut world = ready();
    world.timed_download(4_000_000);
    let slow = world.download(1_000_000, Some(40_000));
    world.run_for(SETTLED / 5);
    close_when_idle(&mut world, server);
    world.run_for(3 * SETTLED);
    let reader = world.reader(slow);
    assert!(reader.end.is_none(), "ended early: {:?}", reader.end);
    world.run_for(3 * SETTLED);
    let reader = world.reader(slow);
    let ending = reader.end.map(|(_, ending)| ending);
    assert_eq!((reader.got, ending), (1_000_000, Some(Ending::Fin)));
    world.run_for(SETTLED);
    assert_empty(&world);
    assert_eq!(world.terminals[0].engine.connections().count(), 0);
}

#[test]
fn an_upload_under_way_is_reset_when_the_client_ends_it() {
    let mut world = ready();
    let now = world.now;
    world.terminals[0].upload(now, 2_000_000);
    world.run_for(SETTLED / 5);
    let (now, tunnel) = (world.now, world.tunnel());
    let connection = world.terminals[0].engine.connection(tunnel);
    connection
        .expect("it is up")
        .close(now, 0, "stopped".into());
    world.run_for(SETTLED);
    assert_eq!(uploaded(&world), [0], "it ended in order");
}

#[test]
fn a_flow_that_begins_after_the_close_does_not_keep_the_connection() {
    let mut world = ready();
    world.timed_download(10_000);
    close_when_idle(&mut world, client);
    let tunnel = world.tunnel();
    let (held, quic) = client(&mut world)
        .connection(tunnel)
        .expect("for three PTO")
        .parts();
    held.open(quic, source(1000), None, Bytes::from_static(b"hello"))
        .expect("a flow");
    world.run_for(3 * SETTLED);
    assert_eq!(client(&mut world).connections().count(), 0);
}

/// The two ends of a flow whose destination is the test's own.
struct BothEnds {
    tunnel: ConnectionId,
    flow: FlowKey,
    remote_tunnel: ConnectionId,
    remote: FlowKey,
}

impl BothEnds {
    fn open(world: &mut World) -> Self {
        world.behaviour.opened = Some(Vec::new());
        let tunnel = world.tunnel();
        let (held, quic) = client(world).connection(tunnel).expect("up").parts();
        let flow = held.open(quic, source(0), None, Bytes::from_static(b"hello"));
        let flow = flow.expect("a flow");
        world.run_for(SETTLED / 5);
        let opened = world.behaviour.opened.iter_mut().flatten().next();
        let (remote_tunnel, remote, _) = *opened.expect("the server has heard of it");
        let it = Self {
            tunnel,
            flow,
            remote_tunnel,
            remote,
        };
        let (held, quic) = it.server(world).parts();
        held.reply(quic, remote, ReplyCode::Ok, None);
        world.run_for(SETTLED / 5);
        it
    }

    fn client<'a>(&self, world: &'a mut World) -> &'a mut Connection {
        client(world).connection(self.tunnel).expect("up")
    }

    fn server<'a>(&self, world: &'a mut World) -> &'a mut Connection {
        world.server.connection(self.remote_tunnel).expect("up")
    }
}

/// PROTOCOL.md §8: a stream whose FIN has left cannot be reset, and STOP_SENDING alone does not say how the flow ends.
#[test]
fn a_flow_that_is_let_go_of_after_its_fin_ends_at_the_other_end() {
    let mut world = ready();
    let flow = BothEnds::open(&mut world);
    let (held, _) = flow.server(&mut world).parts();
    held.push(flow.remote, Bytes::from_static(b"answer"));
    held.finish(flow.remote);
    world.run_for(SETTLED / 5);
    let (held, quic) = flow.server(&mut world).parts();
    held.release(quic, flow.remote);
    world.run_for(SETTLED / 5);
    let (held, quic) = flow.client(&mut world).parts();
    assert_eq!(held.incoming(flow.flow), Incoming::Data);
    held.consume(flow.flow, 6);
    assert_eq!(held.incoming(flow.flow), Incoming::End(End::Fin));
    assert!(held.is_aborted(flow.flow), "and then the reset");
    held.release(quic, flow.flow);
    world.run_for(SETTLED);
    assert_empty(&world);
}

/// Control frames leave before flows: after an outage the server hears of every reset before it hears of any of these flows.
#[test]
fn resets_that_overtake_their_opens_are_remembered_however_many_they_are() {
    const FLOWS: usize = 1500;
    let mut world = ready();
    world.behaviour.opened = Some(Vec::new());
    let tunnel = world.tunnel();
    set_outage(&mut world, true);
    world.run_for(SETTLED / 5);
    for _ in 0..FLOWS {
        let (held, quic) = client(&mut world).connection(tunnel).expect("up").parts();
        let hello = Bytes::from_static(b"hello");
        let flow = held.open(quic, source(1000), None, hello).expect("a flow");
        held.abort(quic, flow, AbortCode::Reset);
    }
    world.run_for(SETTLED);
    set_outage(&mut world, false);
    world.run_for(6 * SETTLED);
    let opened = world.behaviour.opened.take().expect("it is given");
    assert_eq!(opened.len(), FLOWS);
    for (id, flow, _) in opened {
        let (held, quic) = world.server.connection(id).expect("up").parts();
        assert!(held.is_aborted(flow));
        held.release(quic, flow);
    }
    world.run_for(SETTLED);
    assert_empty(&world);
}
