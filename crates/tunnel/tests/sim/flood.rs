//! Peers that have proved nothing cost the server little, and not for long; those that have get what they use.

use std::time::Duration;

use bentpipe_testbed::world::{Setup, World, preset};

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

#[test]
fn a_handshake_that_its_client_ends_leaves_nothing_behind() {
    let mut world = new_world();
    world.run_until(Duration::from_secs(5), "the first datagram", |world| {
        world.server.connections().count() == 1
    });
    let tunnel = world.terminals[0].tunnels[0];
    let now = world.now;
    let client = world.terminals[0].engine.connection(tunnel);
    client.expect("it lives").close(now, 0, String::new());
    // Half a round trip to the server. Draining would take three PTO of the client's own hint: seconds.
    world.run_for(Duration::from_millis(400));
    assert_eq!(world.server.connections().count(), 0);
}

#[test]
fn streams_are_allowed_once_the_key_is_known_and_as_they_are_used() {
    let mut world = new_world();
    let of_server = |world: &World| {
        let connections = world.server.connections();
        connections
            .map(|(_, connection)| connection.allowed_streams())
            .next()
    };
    world.run_until(Duration::from_secs(5), "the first datagram", |world| {
        of_server(world).is_some()
    });
    assert!(of_server(&world) <= Some(8), "before the key is known");
    world.run_until(Duration::from_secs(5), "the handshake", World::is_ready);
    let idle = of_server(&world).expect("a tunnel");
    // Enough for a page from a dozen hosts with six connections each, and lookups beside; more would be memory of each.
    assert!((100..200).contains(&idle), "{idle} of an idle tunnel");
    let flows = idle as usize * 3 / 4;
    (0..flows).for_each(|_| {
        world.download(1, None);
    });
    world.run_for(Duration::from_secs(2));
    assert!(of_server(&world) > Some(2 * idle), "ahead of what is used");
}

#[test]
fn a_burst_of_flows_costs_a_round_trip_more_at_most() {
    let took = |flows: usize| {
        let mut world = new_world();
        world.run_until(Duration::from_secs(5), "the handshake", World::is_ready);
        let began = world.now;
        (0..flows).for_each(|_| {
            world.download(1, None);
        });
        world.run_until(Duration::from_secs(30), "answers", |world| {
            let mut readers = world.terminals[0].apps.readers.iter();
            readers.all(|reader| reader.end.is_some())
        });
        world.now - began
    };
    let (few, many) = (took(90), took(1000));
    println!("90 flows at once: {few:?}; 1000: {many:?}");
    assert!(
        many <= few.mul_f64(2.5) + Duration::from_millis(700),
        "{few:?}, {many:?}"
    );
    // Every one of thousands is opened, a few round trips later.
    let most = took(5000);
    println!("5000: {most:?}");
}

#[test]
fn lookups_beyond_the_streams_allowed_at_first_wait_a_round_trip() {
    let link = preset("geo").expect("a preset");
    let mut world = World::with(&Setup {
        dns: true,
        ..Setup::new(&link.link_config().expect("a link"), 1)
    });
    world.run_until(Duration::from_secs(5), "the handshake", World::is_ready);
    let few = world.timed_queries(20);
    let many = world.timed_queries(220);
    println!("20 lookups at once: {few:?}; 220: {many:?}");
    assert!(many <= few * 2 + Duration::from_millis(200), "{many:?}");
}
