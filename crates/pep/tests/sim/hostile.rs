//! Clients that want more than their share: of the link, by acknowledging what has not come, and of the server's memory.

use std::sync::Arc;
use std::time::Duration;

use bentpipe_pep::engine::Connection;
use bentpipe_pep::transport::{FlowKey, Incoming};
use bentpipe_proto::tunnel::{FlowId, Open};
use bytes::Bytes;
use quinn_proto::Dir;

use crate::forger::Forger;
use crate::world::{World, preset, source};

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
        (world.silent, world.expects_fault) = (true, true);
        // So little that no flow is granted more.
        server(&mut world).parts().0.set_memory(2 * CREDIT as u64);
        let mut open = Vec::new();
        let header = Open {
            flow: FlowId(1000),
            destination: source(1000),
            source: None,
            credit: 0,
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
    world.silent = true;
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
