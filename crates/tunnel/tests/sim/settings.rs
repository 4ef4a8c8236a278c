//! What a client wishes of the server's sending, and what the server makes of it.

use bentpipe_tunnel::engine::{Link, Profile, Wishes};
use std::time::Duration;

use bentpipe_congestion::Kind;
use bentpipe_link::LinkConfig;
use bentpipe_proto::fec::Fec;
use bentpipe_proto::tunnel::Forward;
use bentpipe_testbed::world::{Setup, World, preset};
use bentpipe_units::BitRate;

const SOON: Duration = Duration::from_secs(60);

fn link() -> LinkConfig {
    preset("geo")
        .expect("a preset")
        .link_config()
        .expect("a link")
}

/// A world whose client wishes `forward`; the server allows it `ceiling`.
fn world(forward: Forward, ceiling: Option<BitRate>) -> World {
    let link = link();
    let mut world = World::with(&Setup {
        forward,
        ..Setup::new(&link, 1)
    });
    world.run_until(SOON, "a connection", |world| {
        world.server.connections().next().is_some()
    });
    let now = world.now;
    let (id, _) = world.server.connections().next().expect("a connection");
    let connection = world.server.connection(id).expect("it is there");
    connection.set_max_rate(now, ceiling);
    world.run_until(SOON, "the handshake", World::is_ready);
    world
}

fn server_sends_with(world: &World) -> Wishes {
    let (_, connection) = world.server.connections().next().expect("a tunnel");
    connection.sends_with()
}

/// What the server has told the client.
fn told(world: &World) -> Forward {
    let client = world.terminals[0].engine.peek(world.tunnel());
    let hello = client.and_then(|connection| connection.tunnel.agreement().remote());
    hello.expect("the server's HELLO").forward.clone()
}

/// IP-layer rate of the forward link over `span` from now, in bit/s.
fn forward_rate(world: &mut World, span: Duration) -> f64 {
    let before = world.link.forward_link.stats().delivered_bytes.as_u64();
    world.run_for(span);
    let after = world.link.forward_link.stats().delivered_bytes.as_u64();
    (after - before) as f64 * 8.0 / span.as_secs_f64()
}

#[test]
fn the_clients_wishes_are_the_servers_settings() {
    let mbit = BitRate::megabits_per_second;
    let plain = world(Forward::default(), None);
    assert_eq!(server_sends_with(&plain), Wishes::default());
    assert_eq!(
        told(&plain).controller.as_deref(),
        Some(Kind::default().name())
    );

    for kind in Kind::ALL {
        let wished = Forward {
            controller: Some(kind.name().to_owned()),
            max_rate: Some(mbit(5)),
            initial_window: Some(100),
            rate: Some(mbit(4)),
            fec: Some(Fec::Off),
        };
        let mut world = world(wished.clone(), None);
        let sends = server_sends_with(&world);
        assert_eq!(sends.controller, kind);
        let (_, connection) = world.server.connections().next().expect("a tunnel");
        assert_eq!(connection.controller(), kind);
        assert_eq!(told(&world), wished, "{kind}");
        world.download(1 << 30, None);
        world.run_for(Duration::from_secs(10));
        let rate = forward_rate(&mut world, Duration::from_secs(20));
        println!("{kind}: {:.3} Mbit/s of 5 wished", rate / 1e6);
        assert!((4.9e6..=5.01e6).contains(&rate), "{kind}: {rate}");
    }
}

#[test]
fn the_servers_limit_wins() {
    let wished = Forward {
        controller: Some("no-such-controller".to_owned()),
        max_rate: Some(BitRate::megabits_per_second(8)),
        rate: Some(BitRate::megabits_per_second(50)),
        ..Forward::default()
    };
    let limit = BitRate::megabits_per_second(3);
    let mut world = world(wished, Some(limit));
    assert_eq!(server_sends_with(&world).controller, Kind::default());
    let told = told(&world);
    assert_eq!(told.controller.as_deref(), Some(Kind::default().name()));
    assert_eq!((told.max_rate, told.rate), (Some(limit), Some(limit)));
    world.download(1 << 30, None);
    world.run_for(Duration::from_secs(10));
    let rate = forward_rate(&mut world, Duration::from_secs(20));
    assert!((2.94e6..=3.01e6).contains(&rate), "{rate}");
}

/// A reload changes the limit of a tunnel in use: what is in flight stays counted, and the new limit is reached.
#[test]
fn a_limit_may_change_under_way() {
    for kind in Kind::ALL {
        let wished = Forward {
            controller: Some(kind.name().to_owned()),
            ..Forward::default()
        };
        let mut world = world(wished, Some(BitRate::megabits_per_second(3)));
        let index = world.download(20_000_000, None);
        world.run_for(Duration::from_secs(10));
        let now = world.now;
        let (id, _) = world.server.connections().next().expect("a connection");
        let connection = world.server.connection(id).expect("it is there");
        let (_, _, before) = connection.congestion();
        connection.set_max_rate(now, Some(BitRate::megabits_per_second(6)));
        assert_eq!(connection.congestion().2, before);
        assert_eq!(connection.controller(), kind);
        assert!(before > 0, "a download is under way");
        world.run_for(Duration::from_secs(10));
        let rate = forward_rate(&mut world, Duration::from_secs(5));
        println!("{kind}: {:.3} Mbit/s of 6", rate / 1e6);
        assert!((5.8e6..=6.03e6).contains(&rate), "{kind}: {rate}");
        world.run_until(SOON, "the rest", |world| world.reader(index).end.is_some());
        world.run_for(Duration::from_secs(3));
        let (_, connection) = world.server.connections().next().expect("a tunnel");
        assert_eq!(
            connection.congestion().2,
            0,
            "{kind}: nothing is in flight any more"
        );
    }
}

/// What the client remembers of the link is in force at both ends with the first packet.
#[test]
fn the_first_packet_tells_the_link() {
    let link = link();
    let known = Link {
        profile: Profile::Geo,
        rtt: Some(Duration::from_millis(512)),
        forward_ack_packets: None,
    };
    let mut world = World::with(&Setup {
        known: Some(known),
        ..Setup::new(&link, 1)
    });
    world.run_until(SOON, "a connection", |world| {
        world.server.connections().next().is_some()
    });
    let (_, server) = world.server.connections().next().expect("a connection");
    assert_eq!(server.link(), known);
    assert_eq!(server.asks().delay, Duration::from_millis(32));
    world.run_until(SOON, "the handshake", World::is_ready);
    let client = world.terminals[0]
        .engine
        .peek(world.tunnel())
        .expect("it lives");
    let acks = client
        .tunnel
        .agreement()
        .remote()
        .and_then(|hello| hello.acks);
    assert_eq!(acks.map(|acks| acks.delay), Some(client.asks().delay));
}

/// What the client sends with is its own affair.
#[test]
fn directions_are_separate() {
    let link = link();
    let own = Wishes {
        controller: Kind::CubicNoHystart,
        max_rate: Some(BitRate::megabits_per_second(1)),
        ..Wishes::default()
    };
    let mut world = World::with(&Setup {
        profile: Profile::Geo,
        own: Some(own),
        ..Setup::new(&link, 1)
    });
    world.run_until(SOON, "the handshake", World::is_ready);
    assert_eq!(server_sends_with(&world), Wishes::default());
    let client = world.terminals[0].engine.peek(world.tunnel());
    assert_eq!(client.expect("it lives").sends_with(), own);
    let down = world.timed_download(3_000_000);
    assert!(down < Duration::from_secs(6), "{down:?}");
    let up = world.timed_upload(3_000_000);
    let limit = 3_000_000.0 * 8.0 / (1e6 * 0.9647);
    let ratio = up.as_secs_f64() / limit;
    println!("3 MB up at 1 Mbit/s: {up:?}, {ratio:.3} of the limit");
    assert!((1.0..=1.1).contains(&ratio), "{up:?}");
}
