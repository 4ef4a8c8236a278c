//! Clients that want more than their share: of the link, by acknowledging what has not come, and of the server's memory.

use bentpipe_tunnel::engine::Connection;
use bentpipe_tunnel::transport::{FlowKey, Incoming};
use std::sync::Arc;
use std::time::Duration;

use bentpipe_proto::tunnel::{FlowId, Open, StreamKind};
use bentpipe_testbed::world::{Setup, World, preset, source};
use bytes::Bytes;
use quinn_proto::{Dir, StreamId};

use crate::forger::Forger;

const SOON: Duration = Duration::from_secs(60);
/// What HELLO lets every flow send.
const CREDIT: usize = 1 << 20;

fn ready() -> World {
    let link = preset("geo").expect("a preset");
    let mut world = World::new(&link.link_config().expect("a link"), 1);
    world.run_until(SOON, "the handshake", World::is_ready);
    world
}

fn client(world: &mut World) -> &mut Connection {
    let tunnel = world.tunnel();
    let engine = &mut world.terminals[0].engine;
    engine.connection(tunnel).expect("it lives")
}

fn server(world: &mut World) -> &mut Connection {
    let (id, _) = world.server.connections().next().expect("a connection");
    world.server.connection(id).expect("it lives")
}

/// Why the client's connection ended, if it did.
fn ended(world: &World) -> Option<&str> {
    let (_, said) = world.terminals[0].notices.last()?;
    Some(said)
}

/// A sender leaves out packet numbers, which only a liar acknowledges (RFC 9000 §21.4): who claims that all has come, to be
/// sent more, is closed.
#[test]
fn who_acknowledges_what_was_never_sent_is_closed() {
    for liar in [false, true] {
        let mut world = ready();
        world.connect_with(0, |honest| {
            if liar {
                Arc::new(Forger(honest))
            } else {
                honest
            }
        });
        world.run_for(Duration::from_secs(3));
        world.download(20_000_000, None);
        world.run_for(Duration::from_secs(5));
        match ended(&world) {
            Some(reason) => assert!(liar && reason.contains("unsent packet acked"), "{reason}"),
            None => assert!(!liar, "it goes on"),
        }
    }
}

/// A flow opened by hand, without a sender that knows its credit, to a destination that reads nothing.
#[test]
fn who_sends_more_than_its_credit_is_closed() {
    for (bytes, too_many) in [(CREDIT, false), (CREDIT + 1, true)] {
        let mut world = ready();
        (world.behaviour.silent, world.behaviour.expects_fault) = (true, true);
        // So little that no flow is granted more.
        server(&mut world).parts().0.set_memory(2 * CREDIT as u64);
        let mut open = Vec::new();
        let header = Open {
            flow: FlowId(1000),
            destination: source(1000),
            source: None,
            credit: 0,
            page: false,
        };
        header.encode(&mut open);
        let (_, quic) = client(&mut world).parts();
        let stream = quic.streams().open(Dir::Bi).expect("room for a stream");
        quic.send_stream(stream).write(&open).expect("room");
        // What comes with OPEN would be taken, and be new credit.
        world.run_for(Duration::from_secs(1));
        let (_, quic) = client(&mut world).parts();
        let written = quic.send_stream(stream).write(&vec![0; bytes]);
        assert_eq!(written.expect("room"), bytes);
        world.run_for(Duration::from_secs(30));
        match ended(&world) {
            Some(reason) => assert!(too_many && reason.contains("credit ends at"), "{reason}"),
            None => assert!(!too_many, "{bytes} bytes were taken"),
        }
    }
}

/// Many flows, each within its credit, that nobody reads: those that hold most are reset, and the ceiling holds all along.
#[test]
fn who_fills_the_servers_memory_loses_flows() {
    const FLOWS: usize = 16;
    const CEILING: u64 = 4 << 20;
    let mut world = ready();
    world.behaviour.silent = true;
    server(&mut world).parts().0.set_memory(CEILING);
    let (tunnel, quic) = client(&mut world).parts();
    let open = |_| {
        tunnel
            .open(quic, source(1000), None, Bytes::new())
            .expect("a flow")
    };
    let flows: Vec<_> = (0..FLOWS).map(open).collect();
    let mut most = 0;
    for _ in 0..600 {
        let (tunnel, _) = client(&mut world).parts();
        for flow in &flows {
            let room = tunnel.capacity(*flow);
            tunnel.push(*flow, Bytes::from(vec![0; room]));
        }
        world.run_for(Duration::from_millis(100));
        let (held, ceiling) = server(&mut world).tunnel.memory();
        assert!(held <= ceiling, "{held} of {ceiling}");
        most = most.max(held);
    }
    let shed = server(&mut world).tunnel.stats().shed;
    let client = client(&mut world);
    let is_gone = |flow: &&FlowKey| client.tunnel.incoming(**flow) == Incoming::Gone;
    let gone = flows.iter().filter(is_gone).count();
    println!("at most {most} of {CEILING} bytes held; {shed} flows shed, {gone} gone");
    assert!(most > CEILING / 2, "the ceiling was never near: {most}");
    assert!(shed > 0 && gone as u64 == shed, "{shed} shed, {gone} gone");
    assert!(gone < FLOWS, "some are left");
}

/// Opens streams by hand that begin with `bytes`, as many as the other side lets it.
fn begin(connection: &mut Connection, count: usize, bytes: &[u8]) -> Vec<StreamId> {
    let (_, quic) = connection.parts();
    let open = |_| {
        let stream = quic.streams().open(Dir::Bi)?;
        quic.send_stream(stream).write(bytes).expect("room");
        Some(stream)
    };
    (0..count).map_while(open).collect()
}

/// Number of `streams` of which the other side wants nothing more.
fn refused(connection: &mut Connection, streams: &[StreamId]) -> usize {
    let (_, quic) = connection.parts();
    let is_refused = |stream: &&StreamId| {
        let stopped = quic.send_stream(**stream).stopped();
        !matches!(stopped, Ok(None))
    };
    streams.iter().filter(is_refused).count()
}

/// The beginning of an OPEN, whose body is longer.
const UNENDED: [u8; 3] = [1, 0x44, 0];

/// Streams count as flows from their first byte, and have to say in time what they are.
#[test]
fn who_never_ends_an_open_is_refused() {
    const LIMIT: u64 = 10;
    const QUERIES: usize = 256;
    let mut world = ready();
    world.behaviour.silent = true;
    server(&mut world).parts().0.set_max_flows(LIMIT);
    let streams = begin(client(&mut world), 500, &UNENDED);
    world.run_for(Duration::from_secs(3));
    let held = server(&mut world).tunnel.flow_count();
    let most = (LIMIT as usize + QUERIES).min(streams.len());
    assert_eq!(held, most, "of {}", streams.len());
    let surplus = streams.len() - most;
    assert_eq!(refused(client(&mut world), &streams), surplus);
    world.run_for(Duration::from_secs(10));
    assert_eq!(server(&mut world).tunnel.flow_count(), 0);
    assert_eq!(refused(client(&mut world), &streams), streams.len());
    // The tunnel goes on.
    assert_eq!(ended(&world), None);
    let (tunnel, quic) = client(&mut world).parts();
    let flow = tunnel.open(quic, source(1000), None, Bytes::new());
    let flow = flow.expect("a flow");
    world.run_for(Duration::from_secs(3));
    let (tunnel, _) = client(&mut world).parts();
    assert_eq!(tunnel.incoming(flow), Incoming::Data);
}

/// Queries, and streams that a server opens towards a client with published ports, have to be whole in time as well.
#[test]
fn queries_and_inbound_flows_have_to_be_whole_in_time() {
    let link = preset("geo").expect("a preset");
    let mut world = World::with(&Setup {
        publish: [true; 2],
        dns: true,
        ..Setup::new(&link.link_config().expect("a link"), 1)
    });
    world.run_until(SOON, "the handshake", World::is_ready);
    let mut query = Vec::new();
    StreamKind::Dns.encode(&mut query);
    query.extend([0; 30]);
    let queries = begin(client(&mut world), 20, &query);
    let inbound = begin(server(&mut world), 20, &[3, 0x44, 0]);
    assert_eq!((queries.len(), inbound.len()), (20, 20));
    world.run_for(Duration::from_secs(8));
    assert_eq!(client(&mut world).tunnel.flow_count(), 20);
    assert_eq!(refused(client(&mut world), &queries), 0);
    assert_eq!(refused(server(&mut world), &inbound), 0);
    world.run_for(Duration::from_secs(5));
    assert_eq!(client(&mut world).tunnel.flow_count(), 0);
    assert_eq!(refused(client(&mut world), &queries), 20);
    assert_eq!(refused(server(&mut world), &inbound), 20);
    assert_eq!(ended(&world), None);
}

/// An outage that holds up the rest of an OPEN is excused.
#[test]
fn an_open_that_an_outage_cuts_in_two_is_taken() {
    let mut world = ready();
    world.behaviour.silent = true;
    let mut open = Vec::new();
    let header = Open {
        flow: FlowId(1000),
        destination: source(1000),
        source: None,
        credit: 0,
        page: false,
    };
    header.encode(&mut open);
    let stream = begin(client(&mut world), 1, &open[..4])[0];
    // Somebody waits, so that the end of the outage is looked for.
    let (tunnel, quic) = client(&mut world).parts();
    tunnel
        .open(quic, source(1000), None, Bytes::new())
        .expect("a flow");
    world.run_for(Duration::from_secs(3));
    crate::outage::set_outage(&mut world, true);
    let (_, quic) = client(&mut world).parts();
    let written = quic.send_stream(stream).write(&open[4..]);
    assert_eq!(written.expect("room"), open.len() - 4);
    world.run_for(Duration::from_secs(25));
    crate::outage::set_outage(&mut world, false);
    world.run_for(Duration::from_secs(15));
    assert_eq!(server(&mut world).tunnel.stats().opened, 2);
    assert_eq!(refused(client(&mut world), &[stream]), 0);
}

/// All tunnels together stay below one ceiling. The one that holds most gives way, also if it does nothing any more, and a client
/// that holds little goes on.
#[test]
fn tunnels_share_the_memory_of_the_process() {
    const CEILING: u64 = 8 << 20;
    const FLOWS: usize = 16;
    let link = preset("geo").expect("a preset");
    let mut world = World::with(&Setup {
        access: vec![Duration::ZERO; 2],
        ..Setup::new(&link.link_config().expect("a link"), 1)
    });
    world.run_until(SOON, "the handshakes", World::is_ready);
    world.behaviour.silent = true;
    world.server.pool().set_ceiling(CEILING);
    let open = |world: &mut World, index: usize, count: usize| -> Vec<FlowKey> {
        let (tunnel, quic) = terminal(world, index).parts();
        let open = |_| tunnel.open(quic, source(1000), None, Bytes::new());
        (0..count)
            .map(open)
            .map(|flow| flow.expect("a flow"))
            .collect()
    };
    let greedy = open(&mut world, 0, FLOWS);
    let push = |world: &mut World, index: usize, flows: &[FlowKey]| {
        let (tunnel, _) = terminal(world, index).parts();
        for flow in flows {
            let room = tunnel.capacity(*flow);
            tunnel.push(*flow, Bytes::from(vec![0; room]));
        }
    };
    let mut most = 0;
    for _ in 0..60 {
        push(&mut world, 0, &greedy);
        world.run_for(Duration::from_secs(1));
        world.server.share_memory();
        most = most.max(world.server.pool().used());
    }
    assert!(most <= CEILING && most > CEILING / 4, "{most}");
    let modest = open(&mut world, 1, 1);
    push(&mut world, 1, &modest);
    for _ in 0..30 {
        push(&mut world, 0, &greedy);
        world.run_for(Duration::from_secs(1));
        world.server.share_memory();
        assert!(world.server.pool().used() <= CEILING);
    }
    let shed = |world: &World| {
        let mut shed: Vec<_> = (world.server.connections())
            .map(|(_, connection)| connection.tunnel.stats().shed)
            .collect();
        shed.sort_unstable();
        shed
    };
    let before = shed(&world);
    assert!(before[0] == 0 && before[1] > 0, "{before:?}");
    let (tunnel, _) = terminal(&mut world, 1).parts();
    assert_ne!(tunnel.incoming(modest[0]), Incoming::Gone);
    // Silence does not keep what is too much.
    world.server.pool().set_ceiling(CEILING / 4);
    for _ in 0..20 {
        world.server.share_memory();
        world.run_for(Duration::from_secs(1));
    }
    let used = world.server.pool().used();
    assert!(used <= CEILING / 4, "{used} are held");
    assert_eq!(shed(&world)[0], 0);
}

fn terminal(world: &mut World, index: usize) -> &mut Connection {
    let terminal = &mut world.terminals[index];
    let (tunnel, _) = terminal.ready.expect("it is ready");
    terminal.engine.connection(tunnel).expect("it lives")
}
