//! A client's machine that has slept: the peer is asked before anything is opened.

use std::time::Duration;

use bentpipe_testbed::world::{World, preset};

use crate::outage::set_outage;

const SOON: Duration = Duration::from_secs(60);

/// Rest before a sleep, shorter than the time after which the tunnel is kept alive.
const REST: Duration = Duration::from_secs(10);

fn world(seed: u64) -> World {
    let link = preset("geo").expect("a preset").link_config();
    let mut world = World::new(&link.expect("a link"), seed);
    world.run_until(SOON, "the handshake", World::is_ready);
    world
}

/// The first terminal's machine wakes up, and somebody wants a connection.
fn wake(world: &mut World) {
    let (now, id) = (world.now, world.tunnel());
    let engine = &mut world.terminals[0].engine;
    let connection = engine.connection(id).expect("a connection");
    connection.doubt(now);
    connection.want();
}

/// Round-trip time of the first terminal's tunnel, and the datagrams that it has sent.
fn figures(world: &World) -> (Duration, u64) {
    let connection = world.terminals[0].engine.peek(world.tunnel());
    let connection = connection.expect("a connection");
    let sent = connection.quic().stats().udp_tx.datagrams;
    (connection.rtt().1, sent)
}

/// Server whose patience has ended during the sleep: it knows the tunnel no more.
#[test]
fn a_tunnel_that_ended_during_a_sleep_is_known_for_lost_after_a_round_trip() {
    for seed in 1..=3 {
        let mut world = world(seed);
        world.run_for(REST);
        let (rtt, _) = figures(&world);
        world.restart_server();
        wake(&mut world);
        let woken = world.at();
        world.run_until(SOON, "the end", |world| {
            !world.terminals[0].notices.is_empty()
        });
        let took = world.terminals[0].notices[0].0 - woken;
        println!("seed {seed}: {took:?}, a round trip takes {rtt:?}");
        assert!(took < rtt * 3 / 2, "seed {seed}: {took:?}");
    }
}

#[test]
fn a_tunnel_at_rest_is_asked_once_after_a_sleep() {
    let mut world = world(4);
    world.run_for(REST);
    let (_, before) = figures(&world);
    wake(&mut world);
    world.run_for(Duration::from_secs(5));
    assert_eq!(figures(&world).1 - before, 1);
    assert!(world.terminals[0].notices.is_empty());
}

/// A short sleep: nothing was lost, and one datagram more leaves.
#[test]
fn a_download_goes_on_after_a_sleep() {
    let times = [false, true].map(|sleeps| {
        let mut world = world(5);
        let (index, begun) = (world.download(10_000_000, None), world.now);
        world.run_for(Duration::from_secs(6));
        if sleeps {
            wake(&mut world);
        }
        world.run_until(SOON, "the rest", |world| world.reader(index).end.is_some());
        assert_eq!(world.reader(index).got, 10_000_000);
        world.now - begun
    });
    println!("{times:?}");
    assert!(times[1] <= times[0].mul_f64(1.02), "{times:?}");
}

/// The question is lost: an outage is found and looked after as at any other time, and whoever waits is not kept for seconds.
#[test]
fn a_question_after_a_sleep_that_is_lost_is_an_outage() {
    let mut world = world(6);
    world.run_for(REST);
    let (rtt, _) = figures(&world);
    set_outage(&mut world, true);
    wake(&mut world);
    world.run_for(Duration::from_secs(20));
    let unanswered = |world: &World| {
        let connection = world.terminals[0].engine.peek(world.tunnel());
        connection.expect("a connection").unanswered_since()
    };
    assert!(unanswered(&world).is_some());
    set_outage(&mut world, false);
    let ended = world.now;
    world.run_until(SOON, "an answer", |world| unanswered(world).is_none());
    let took = world.now - ended;
    println!("{took:?} after the outage");
    assert!(took < rtt * 3 / 2, "{took:?}");
}
