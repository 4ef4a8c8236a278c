//! Flows that end in every order leave nothing behind, at either end.

use bentpipe_tunnel::engine::Engine;
use std::time::Duration;

use bentpipe_proto::tunnel::AbortCode;
use bentpipe_testbed::world::{World, preset, source};
use bytes::Bytes;
use quinn_proto::{Dir, VarInt, WriteError};

const SETTLED: Duration = Duration::from_secs(5);

fn ready() -> World {
    let link = preset("geo").expect("a preset");
    let mut world = World::new(&link.link_config().expect("a link"), 1);
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
