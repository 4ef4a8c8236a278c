//! Flows that begin together on a thin link: the last of them are heard of long after the first.

use std::time::Duration;

use bentpipe_link::Scenario;
use bentpipe_testbed::world::{Setup, World, source};
use bentpipe_tunnel::transport::{FlowKey, Incoming};
use bentpipe_units::BitRate;
use bytes::Bytes;

/// Flows whose first packets take longer to cross than an OPEN may that has begun.
const FLOWS: usize = 90;

/// A query passes what waits of flows, and with it all streams of lower numbers are open: that is not the beginning of an OPEN.
#[test]
fn an_open_that_waits_behind_others_is_not_late() {
    let (forward, back) = (
        BitRate::megabits_per_second(10),
        BitRate::kilobits_per_second(64),
    );
    let link = Scenario::constant("thin", Duration::from_millis(300), forward, back);
    let mut world = World::with(&Setup {
        dns: true,
        ..Setup::new(&link.link_config().expect("a link"), 1)
    });
    world.run_until(Duration::from_secs(60), "the handshake", World::is_ready);
    world.behaviour.silent = true;
    let tunnel = world.tunnel();
    let connection = world.terminals[0].engine.connection(tunnel);
    let (held, quic) = connection.expect("it is ready").parts();
    let first = Bytes::from_static(&[0; 1400]);
    let open = |_| {
        held.open(quic, source(1000), None, first.clone())
            .expect("a flow")
    };
    let flows: Vec<FlowKey> = (0..FLOWS).map(open).collect();
    let connection = world.terminals[0].engine.connection(tunnel);
    let asked = connection.expect("it lives").ask(&[0x5a; 40]);
    asked.expect("it carries DNS");
    let answered = |world: &World| {
        let connection = world.terminals[0].engine.peek(tunnel).expect("it lives");
        let is_answered = |flow: &&FlowKey| connection.tunnel.incoming(**flow) == Incoming::Data;
        flows.iter().filter(is_answered).count()
    };
    world.run_for(Duration::from_secs(12));
    let early = answered(&world);
    assert_eq!(world.terminals[0].answers.len(), 1, "the query passes");
    world.run_for(Duration::from_secs(48));
    println!("of {FLOWS} flows {early} are answered after 12 s");
    assert!(early < FLOWS * 9 / 10, "{early}: the test shows nothing");
    assert_eq!(answered(&world), FLOWS);
}
