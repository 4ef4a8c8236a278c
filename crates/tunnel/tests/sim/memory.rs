//! What LAN sides push in and do not take out stays within the ceiling.

use std::time::Duration;

use bentpipe_testbed::world::{World, preset, source};
use bentpipe_tunnel::engine::Engine;
use bytes::Bytes;

/// More flows than full send buffers fit.
const FLOWS: usize = 1000;

/// What the destinations send meanwhile and nobody reads, and the flows' headers.
const ANSWERS: u64 = FLOWS as u64 * (1000 + 200);

#[test]
fn uploads_that_wait_for_the_link_stay_within_the_ceiling() {
    let link = preset("geo")
        .expect("a preset")
        .link_config()
        .expect("a link");
    let mut world = World::new(&link, 1);
    world.run_until(Duration::from_secs(60), "the handshake", World::is_ready);
    let tunnel = world.tunnel();
    let (held, quic) = world.terminals[0]
        .engine
        .connection(tunnel)
        .expect("it is ready")
        .parts();
    let open = |_| {
        held.open(quic, source(1000), None, Bytes::new())
            .expect("a flow")
    };
    let flows: Vec<_> = (0..FLOWS).map(open).collect();
    let fill = |client: &mut Engine| {
        let (held, _) = client.connection(tunnel).expect("it lives").parts();
        for flow in &flows {
            let room = held.capacity(*flow);
            held.push(*flow, Bytes::from(vec![0; room]));
        }
        held.memory()
    };
    for _ in 0..4 {
        let (used, ceiling) = fill(&mut world.terminals[0].engine);
        assert!(used <= ceiling / 4 + ANSWERS, "{used} of {ceiling}");
        assert!(
            used >= ceiling / 8,
            "the share is there to be used: {used} of {ceiling}"
        );
        world.run_for(Duration::from_secs(1));
    }
}
