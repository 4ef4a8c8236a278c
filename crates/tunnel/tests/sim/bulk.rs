//! How close to the physical limit transfers come.

use std::time::Duration;

use bentpipe_link::{LinkConfig, LossModel};
use bentpipe_testbed::world::World;
use bentpipe_units::Ratio;

use crate::satellite::link;

const SOON: Duration = Duration::from_secs(60);

/// A world whose tunnel has just come up.
pub(crate) fn ready(link: &LinkConfig, seed: u64) -> World {
    let mut world = World::new(link, seed);
    world.run_until(SOON, "the handshake", World::is_ready);
    world
}

/// 1 kB on a new flow: one RTT and serialisation, also after ten minutes of idle.
#[test]
fn a_request_takes_one_round_trip() {
    let mut world = ready(&link("geo", 0.0), 1);
    world.run_for(Duration::from_secs(2));
    let limit = Duration::from_millis(500 + 15);
    let fresh = world.timed_download(1000);
    assert!(fresh <= limit, "{fresh:?}");
    world.run_for(Duration::from_secs(600));
    assert!(world.is_ready(), "{:?}", world.terminals[0].notices);
    let idle = world.timed_download(1000);
    assert!(idle <= limit, "{idle:?}");
}

/// 10 MB at 10 Mbit/s, warm: 8.8 s is the limit.
#[test]
fn a_warm_download_fills_the_link() {
    let mut world = ready(&link("geo", 0.0), 1);
    let cold = world.timed_download(10_000_000);
    world.run_for(Duration::from_secs(5));
    let warm = world.timed_download(10_000_000);
    println!("10 MB at 10 Mbit/s, RTT 500 ms: cold {cold:?}, warm {warm:?}");
    assert!(warm <= Duration::from_millis(9600), "{warm:?}");
}

/// The same when no more than 3 BDP have warmed the tunnel, and slow start was not over with them.
#[test]
fn little_warms_the_tunnel() {
    let mut world = ready(&link("geo", 0.0), 1);
    world.timed_download(2_500_000);
    world.run_for(Duration::from_secs(4));
    let warm = world.timed_download(10_000_000);
    println!("10 MB at 10 Mbit/s, RTT 500 ms, after 2.5 MB: {warm:?}");
    assert!(warm <= Duration::from_millis(9600), "{warm:?}");
    let dropped = world.link.forward_link.stats().dropped_queue;
    assert!(dropped < 50, "{dropped} packets overflowed the queue");
}

/// Equal seeds give equal runs, packet for packet, also where many flows share out one budget at once.
#[test]
fn a_run_repeats() {
    let run = || {
        let mut lossy = link("g1", 0.0);
        lossy.forward_link.loss = LossModel::Iid(Ratio::new(0.01).expect("a ratio"));
        let mut world = ready(&lossy, 7);
        for _ in 0..20 {
            world.download(50_000_000, Some(100_000));
        }
        world.timed_download(10_000_000);
        world.trace
    };
    assert!(run() == run(), "two runs with one seed differ");
}
