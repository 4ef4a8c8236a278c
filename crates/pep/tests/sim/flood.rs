//! Peers that have proved nothing cost the server little, and not for long.

use std::time::Duration;

use crate::world::{World, preset};

fn new_world() -> World {
    let link = preset("geo").expect("a preset");
    World::new(&link.link_config().expect("a link"), 1)
}

#[test]
fn many_handshakes_at_once_have_to_show_their_address() {
    const CLIENTS: usize = 100;
    let mut world = new_world();
    for _ in 1..CLIENTS {
        world.connect(0);
    }
    world.run_until(Duration::from_secs(5), "the first datagrams", |world| {
        world.server.connections().count() >= 64
    });
    world.run_for(Duration::from_millis(300));
    assert_eq!(world.server.connections().count(), 64);
    world.run_for(Duration::from_secs(5));
    assert_eq!(
        world.server.connections().count(),
        CLIENTS,
        "all of them come in"
    );
}

#[test]
fn a_handshake_that_goes_no_further_is_forgotten() {
    let mut world = new_world();
    world.run_until(Duration::from_secs(5), "the first datagram", |world| {
        world.server.connections().count() == 1
    });
    crate::outage::set_outage(&mut world, true);
    world.run_for(Duration::from_secs(60));
    assert_eq!(world.server.connections().count(), 0);
}
