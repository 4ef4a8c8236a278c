//! Outages, restarts and changed addresses.

use std::time::Duration;

use bentpipe_testbed::world::{Ending, World, preset};
use bentpipe_units::BitRate;

use crate::satellite::link;

const SOON: Duration = Duration::from_secs(60);

fn world(seed: u64) -> World {
    let link = preset("geo")
        .expect("a preset")
        .link_config()
        .expect("a link");
    let mut world = World::new(&link, seed);
    world.run_until(SOON, "the handshake", World::is_ready);
    world
}

pub(crate) fn set_outage(world: &mut World, outage: bool) {
    world.link.forward_link.set_outage(world.now, outage);
    world.link.return_link.set_outage(world.now, outage);
}

/// The slowest that an ended outage may be noticed: one probe interval, its jitter, two RTTs.
const NOTICED: Duration = Duration::from_millis(3000 + 750 + 1000);

#[test]
fn a_download_survives_an_outage() {
    for (seed, seconds) in [(1, 5), (2, 60), (3, 180)] {
        let mut world = world(seed);
        let index = world.download(10_000_000, None);
        world.run_for(Duration::from_secs(4));
        set_outage(&mut world, true);
        world.run_for(Duration::from_secs(seconds));
        set_outage(&mut world, false);
        let (before, ended) = (world.reader(index).got, world.now);
        world.run_until(SOON, "new bytes", |world| world.reader(index).got > before);
        let silence = world.now - ended;
        assert!(
            silence <= NOTICED,
            "{seconds} s of outage: {silence:?} until the first byte"
        );
        world.run_until(SOON, "the rest", |world| world.reader(index).end.is_some());
        assert_eq!(world.reader(index).end.map(|end| end.1), Some(Ending::Fin));
        assert_eq!(world.reader(index).got, 10_000_000);
    }
}

/// Longest time until a path that is blocked in one direction is known for it: twice what answers are waited for.
const KNOWN: Duration = Duration::from_secs(20);

#[test]
fn a_peer_that_is_heard_and_answers_nothing_is_silent() {
    let mut world = world(4);
    let index = world.download(100_000_000, None);
    world.run_for(Duration::from_secs(4));
    world.link.return_link.set_outage(world.now, true);
    let client = |world: &World| {
        let terminal = &world.terminals[0];
        let (id, _) = terminal.ready.expect("a tunnel");
        let connection = terminal.engine.peek(id).expect("a connection");
        (connection.silent_since(world.now), connection.heard())
    };
    world.run_until(KNOWN, "silence", |world| client(world).0.is_some());
    let (mut spoken, mut last) = (0, None);
    for _ in 0..60 {
        world.run_for(Duration::from_secs(1));
        let (silent, heard) = client(&world);
        assert!(silent.is_some(), "silent until something is answered");
        spoken += usize::from(std::mem::replace(&mut last, heard) != heard);
    }
    assert!(
        spoken > 20,
        "the server probes, and was heard {spoken} times"
    );
    world.link.return_link.set_outage(world.now, false);
    world.run_until(NOTICED, "an answer", |world| client(world).0.is_none());
    let before = world.reader(index).got;
    world.run_until(SOON, "new bytes", |world| world.reader(index).got > before);
}

/// A tunnel at rest has not been heard for long, and owed nothing: one answer that is late does not make it silent.
#[test]
fn a_tunnel_at_rest_is_not_silent_for_one_late_answer() {
    let mut world = world(6);
    let ask = |world: &mut World| {
        let now = world.now;
        let terminal = &mut world.terminals[0];
        let (id, _) = terminal.ready.expect("a tunnel");
        let connection = terminal.engine.connection(id).expect("a connection");
        connection.ask_for_answer(now, Duration::ZERO);
    };
    let client = |world: &World| {
        let terminal = &world.terminals[0];
        let (id, _) = terminal.ready.expect("a tunnel");
        let connection = terminal.engine.peek(id).expect("a connection");
        let silent = connection.silent_since(world.now);
        (connection.unanswered_since(), silent, connection.heard())
    };
    let unheard = |world: &World| world.now - client(world).2.expect("it was heard");
    world.run_until(SOON, "rest", |world| {
        unheard(world) > Duration::from_secs(8)
    });
    set_outage(&mut world, true);
    ask(&mut world);
    let asked = world.now;
    world.run_until(NOTICED, "a late answer", |world| client(world).0.is_some());
    for _ in 0..10 {
        assert_eq!(client(&world).1, None, "{:?} after", world.now - asked);
        world.run_for(Duration::from_millis(100));
    }
    set_outage(&mut world, false);
    world.run_until(NOTICED + Duration::from_secs(5), "an answer", |world| {
        client(world).0.is_none()
    });
    assert_eq!(client(&world).1, None);
    // Where none comes at all it is silent since it was asked.
    set_outage(&mut world, true);
    ask(&mut world);
    let asked = world.now;
    world.run_until(KNOWN, "silence", |world| client(world).1.is_some());
    assert_eq!(client(&world).1, Some(asked));
}

/// Time in which a path that is blocked in one direction is no place for something new: a few probe timeouts.
const DOUBTED: Duration = Duration::from_secs(6);

/// A deaf peer probes all the time, and each probe keeps a timer of QUIC's near: that of the ACK. Probes of this end may give way to it
/// for a while, and not for ever.
#[test]
fn a_peer_that_probes_and_answers_nothing_is_doubted_within_seconds() {
    let mut world = world(5);
    world.download(100_000_000, None);
    world.run_for(Duration::from_secs(4));
    // The server hears nothing, so it probes; the client hears it, and has nothing to say of its own.
    world.link.return_link.set_outage(world.now, true);
    let client = |world: &mut World| {
        let now = world.now;
        let terminal = &mut world.terminals[0];
        let (id, _) = terminal.ready.expect("a tunnel");
        let connection = terminal.engine.connection(id).expect("a connection");
        connection.ask_for_answer(now, Duration::from_secs(3));
        connection.unanswered_since()
    };
    let until = world.now + DOUBTED;
    while client(&mut world).is_none() {
        assert!(world.now < until, "it counts as healthy");
        world.run_for(Duration::from_millis(250));
    }
}

/// What the smaller path takes, bytes of UDP payload: packets of 1280 bytes over IPv4.
const PASSES: u16 = 1252;

/// What the end that sends believes of the path, bytes of UDP payload.
fn sender_mtu(world: &mut World, up: bool) -> u16 {
    let (engine, id) = match up {
        true => {
            let terminal = &mut world.terminals[0];
            let (id, _) = terminal.ready.expect("a tunnel");
            (&mut terminal.engine, id)
        }
        false => {
            let (id, _) = world.server.connections().next().expect("a tunnel");
            (&mut world.server, id)
        }
    };
    let sender = engine.connection(id).expect("a tunnel");
    sender.parts().1.current_mtu()
}

/// A tunnel that has filled a link of 200 Mbit/s, in one direction, for eight seconds.
fn busy_world(milliseconds: u64, up: bool) -> World {
    let mut config = preset("geo")
        .expect("a preset")
        .link_config()
        .expect("a link");
    for one in [&mut config.forward_link, &mut config.return_link] {
        one.rate = BitRate::megabits_per_second(200);
        one.one_way_delay = Duration::from_millis(milliseconds) / 2;
    }
    let mut world = World::new(&config, 1);
    world.run_until(SOON, "the handshake", World::is_ready);
    let (now, terminal) = (world.now, &mut world.terminals[0]);
    let _ = match up {
        true => terminal.upload(now, 1 << 39),
        false => terminal.download(now, 1 << 39, None),
    };
    world.run_for(Duration::from_secs(8));
    assert!(sender_mtu(&mut world, up) > PASSES, "the path is known");
    world
}

/// Bytes that have arrived in that direction.
fn arrived(world: &World, up: bool) -> u64 {
    if up {
        let (_, server) = world.server.connections().next().expect("a tunnel");
        server.tunnel.stats().lan_out
    } else {
        world.reader(0).got
    }
}

/// Time until more than a trifle has arrived.
fn time_to_new_bytes(world: &mut World, up: bool) -> Duration {
    let (before, began) = (arrived(world, up), world.now);
    world.run_until(SOON, "new bytes", |world| {
        arrived(world, up) > before + 100_000
    });
    world.now - began
}

/// A path that loses datagrams of the size that it took before is found out within some round trips, whoever sends.
#[test]
fn a_path_that_takes_smaller_datagrams_only_is_found_out() {
    for (milliseconds, up) in [
        (2, false),
        (2, true),
        (5, false),
        (5, true),
        (10, true),
        (30, true),
        (560, false),
    ] {
        let mut world = busy_world(milliseconds, up);
        world.impairments.largest = Some(PASSES.into());
        // What was under way with the old size.
        world.run_for(Duration::from_millis(milliseconds));
        let wait = time_to_new_bytes(&mut world, up);
        println!("{milliseconds} ms, up {up}: {wait:?}");
        assert!(
            wait < Duration::from_millis(100 + 3 * milliseconds),
            "{milliseconds} ms, up {up}: {wait:?}"
        );
    }
}

/// An outage after which the path takes smaller datagrams only (a backup link, a machine that was busy meanwhile) ends as soon
/// as any other.
#[test]
fn a_path_that_takes_smaller_datagrams_after_an_outage_is_found_out() {
    for (milliseconds, up, outage) in [
        (2, false, 20),
        (2, false, 100),
        (2, true, 300),
        (2, false, 30_000),
        (10, false, 300),
        (30, true, 20),
        (30, true, 5_000),
        (560, true, 5_000),
    ] {
        let mut world = busy_world(milliseconds, up);
        world.impairments.largest = Some(PASSES.into());
        set_outage(&mut world, true);
        world.run_for(Duration::from_millis(outage));
        set_outage(&mut world, false);
        let wait = time_to_new_bytes(&mut world, up);
        println!("{milliseconds} ms, up {up}, after {outage} ms: {wait:?}");
        assert!(
            wait < Duration::from_millis(300 + 3 * milliseconds),
            "{milliseconds} ms, up {up}, after {outage} ms: {wait:?}"
        );
    }
}

/// The size of datagrams that every path takes is used until the end of an outage alone: the path is measured again after it.
#[test]
fn an_outage_costs_no_packet_size() {
    for up in [false, true] {
        let mut world = busy_world(30, up);
        let before = sender_mtu(&mut world, up);
        set_outage(&mut world, true);
        world.run_for(Duration::from_secs(2));
        assert_eq!(sender_mtu(&mut world, up), 1200, "up {up}");
        set_outage(&mut world, false);
        world.run_for(Duration::from_secs(1));
        assert_eq!(sender_mtu(&mut world, up), before, "up {up}");
    }
}

/// The receiver's probe and the sender's answer, and what a probe waits; without them it takes half a round trip more.
#[test]
fn both_directions_go_on_a_round_trip_after_an_outage() {
    for (seed, up) in [(1, false), (2, false), (1, true), (2, true)] {
        let mut world = world(seed);
        let (now, terminal) = (world.now, &mut world.terminals[0]);
        let _ = match up {
            true => terminal.upload(now, 1 << 39),
            false => terminal.download(now, 1 << 39, None),
        };
        world.run_for(Duration::from_millis(10_000 + 137 * seed));
        let server = |world: &World| {
            let (_, server) = world.server.connections().next().expect("a tunnel");
            (server.tunnel.stats().lan_out, server.rtt().1)
        };
        let arrived = |world: &World| match up {
            true => server(world).0,
            false => world.reader(0).got,
        };
        set_outage(&mut world, true);
        world.run_for(Duration::from_secs(20));
        set_outage(&mut world, false);
        let (before, ended) = (arrived(&world), world.now);
        world.run_until(SOON, "new bytes", |world| arrived(world) > before);
        let rounds = (world.now - ended).div_duration_f64(server(&world).1);
        println!("seed {seed}, up {up}: {rounds} round trips");
        assert!(rounds <= 1.3, "seed {seed}, up {up}: {rounds}");
    }
}

#[test]
fn a_restarted_server_is_noticed() {
    let mut world = world(4);
    let index = world.download(20_000_000, None);
    world.run_for(Duration::from_secs(4));
    world.restart_server();
    let restarted = world.now;
    world.run_until(SOON, "a reset", |world| world.reader(index).end.is_some());
    let (at, ending) = world.reader(index).end.expect("it ended");
    assert_eq!(ending, Ending::TunnelLost);
    assert!(at - restarted <= NOTICED, "{:?}", at - restarted);
}

#[test]
fn a_changed_address_is_followed() {
    for (seed, loss) in [
        (5, 0.0),
        (6, 0.0),
        (7, 0.0),
        (8, 0.02),
        (9, 0.02),
        (10, 0.02),
    ] {
        let mut world = World::new(&link("geo", loss), seed);
        world.run_until(SOON, "the handshake", World::is_ready);
        let index = world.download(10_000_000, None);
        world.run_for(Duration::from_millis(3000 + 137 * seed));
        world.terminals[0].address = ([10, 20, 0, 99], 1234).into();
        let changed = world.now;
        // What was under way to the client when it moved still finds it.
        world.run_for(Duration::from_millis(300));
        let before = world.reader(index).got;
        world.run_until(SOON, "new bytes", |world| world.reader(index).got > before);
        let silence = world.now - changed;
        println!("seed {seed}, loss {loss}: {silence:?}");
        assert!(silence <= NOTICED, "seed {seed}: {silence:?}");
        world.run_until(SOON, "the rest", |world| world.reader(index).end.is_some());
        assert_eq!(world.reader(index).end.map(|end| end.1), Some(Ending::Fin));
    }
}

/// An outage that begins while a new tunnel starts up takes the whole first flight. What is downloaded then takes little
/// longer from its end on than in a tunnel without an outage.
#[test]
fn start_up_begins_anew_after_an_outage() {
    for (name, bytes) in [("geo", 10_000_000), ("g1", 10_000_000), ("leo", 10_000_000)] {
        let fresh = || {
            let mut world = World::new(&link(name, 0.0), 1);
            world.run_until(SOON, "the handshake", World::is_ready);
            world
        };
        let cold = fresh().timed_download(bytes);
        for (before, lasts) in [(0, 3), (100, 3), (300, 3), (700, 3), (100, 14)] {
            let mut world = fresh();
            let index = world.download(bytes, None);
            world.run_for(Duration::from_millis(before));
            set_outage(&mut world, true);
            world.run_for(Duration::from_secs(lasts));
            set_outage(&mut world, false);
            let ended = world.now;
            let patience = Duration::from_secs(100);
            world.run_until(patience, "the rest", |world| {
                world.reader(index).end.is_some()
            });
            let took = world.now - ended;
            let most = cold.mul_f64(1.25) + Duration::from_millis(500);
            println!("{name}: {lasts} s after {before} ms: {took:?}, cold {cold:?}");
            assert!(
                took <= most,
                "{name}: {lasts} s after {before} ms: {took:?}, cold {cold:?}"
            );
        }
    }
}
