//! A policer far below the link's rate: it queues nothing, so only what is lost shows it.

use bentpipe_tunnel::engine::Profile;
use std::time::Duration;

use bentpipe_congestion::Kind;
use bentpipe_link::{Policer, QueueLimit};
use bentpipe_testbed::world::World;
use bentpipe_units::BitRate;

use crate::satellite::link;

const SECOND: Duration = Duration::from_secs(1);
const POLICED: BitRate = BitRate::megabits_per_second(5);

/// What bulk is dropped of, in percent, and what it gets of the policed rate, once it has settled on a link of 20 Mbit/s.
fn bulk(delay: Duration, profile: Profile, seed: u64) -> [f64; 2] {
    let mut link = link("geo", 0.0);
    for pipe in [&mut link.forward_link, &mut link.return_link] {
        pipe.one_way_delay = delay;
        pipe.rate = BitRate::megabits_per_second(20);
        pipe.queue = QueueLimit::Bytes(pipe.rate.bytes_in(2 * delay));
    }
    link.forward_link.policer = Some(Policer {
        rate: POLICED,
        burst: POLICED.bytes_in(Duration::from_millis(50)),
    });
    let mut world = World::with_controller(&link, seed, profile, Kind::Satellite);
    world.run_until(60 * SECOND, "the handshake", World::is_ready);
    world.download(1 << 39, None);
    world.run_for(30 * SECOND);
    let (before, got) = (world.link.forward_link.stats(), world.reader(0).got);
    let span = 60 * SECOND;
    world.run_for(span);
    let after = world.link.forward_link.stats();
    let dropped = (after.dropped_policer - before.dropped_policer) as f64;
    let dropped = 100.0 * dropped / (after.offered - before.offered) as f64;
    let goodput = (world.reader(0).got - got) as f64 * 8.0 / span.as_secs_f64();
    let share = goodput / POLICED.as_u64() as f64;
    println!("{delay:?} seed {seed}: {dropped:.2} % dropped, {share:.3} of the rate");
    [dropped, share]
}

/// Where a round trip has few packets, no faster path is found that is none.
#[test]
fn a_policer_on_a_low_orbit_is_found() {
    for seed in 1..=6 {
        let [dropped, share] = bulk(Duration::from_millis(25), Profile::Leo, seed);
        assert!(dropped <= 2.0 && share >= 0.91, "{dropped} {share}");
    }
}

#[test]
fn a_policer_on_a_high_orbit_is_found() {
    for seed in 1..=3 {
        let [dropped, share] = bulk(Duration::from_millis(300), Profile::Geo, seed);
        assert!(dropped <= 2.0 && share >= 0.91, "{dropped} {share}");
    }
}
