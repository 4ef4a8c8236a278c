//! Several terminals and TCP connections on one link.

use bentpipe_tunnel::engine::{Profile, Wishes};
use std::time::Duration;

use bentpipe_congestion::Kind;
use bentpipe_link::QueueLimit;
use bentpipe_testbed::tcp::{Algorithm, Config};
use bentpipe_testbed::world::{Setup, World, preset};
use bentpipe_units::BitRate;

const SOON: Duration = Duration::from_secs(60);
const CUBIC: Algorithm = Algorithm::Cubic { hystart: true };
const ENDLESS: u64 = 1 << 36;

/// Terminals so far from a link of 20/5 Mbit/s and 50 ms, each way, with `kind` at both ends.
fn world(access: &[Duration], kind: Kind) -> World {
    let link = preset("leo").expect("a preset");
    let mut link = link.link_config().expect("a link");
    for (pipe, megabits) in [(&mut link.forward_link, 20), (&mut link.return_link, 5)] {
        pipe.rate = BitRate::megabits_per_second(megabits);
        pipe.queue = QueueLimit::Bytes(pipe.rate.bytes_in(Duration::from_millis(50)));
    }
    let mut world = World::with(&Setup {
        access: access.to_vec(),
        profile: Profile::Leo,
        wishes: Wishes {
            controller: kind,
            ..Wishes::default()
        },
        ..Setup::new(&link, 5)
    });
    world.run_until(SOON, "the handshakes", World::is_ready);
    world
}

/// Equal seeds give equal runs, packet for packet, whoever takes part.
#[test]
fn a_run_of_many_repeats() {
    let run = || {
        let far = Duration::from_millis(75);
        let mut world = world(&[Duration::ZERO, far, far], Kind::Satellite);
        world.compete(Config::new(CUBIC), true, far);
        world.compete(Config::new(Algorithm::NewReno), false, Duration::ZERO);
        for index in 0..world.terminals.len() {
            let now = world.now;
            world.terminals[index].download(now, ENDLESS, None);
            world.run_for(Duration::from_millis(700));
        }
        let now = world.now;
        world.terminals[1].upload(now, 1_000_000);
        world.run_for(Duration::from_secs(3));
        let stats = |index: usize| world.competitors[index].sender.stats();
        (world.trace.clone(), stats(0), stats(1))
    };
    assert!(run() == run(), "two runs with one seed differ");
}

/// A terminal's own delay adds to the link's, each way.
#[test]
fn access_delay_is_part_of_the_round_trip() {
    let far = Duration::from_millis(225);
    let mut world = world(&[Duration::ZERO, far], Kind::Cubic);
    let mut times = Vec::new();
    for index in 0..2 {
        let now = world.now;
        let reader = world.terminals[index].download(now, 100, None);
        world.run_until(SOON, "a short flow", |world| {
            world.terminals[index].apps.readers[reader].end.is_some()
        });
        let reader = &world.terminals[index].apps.readers[reader];
        times.push(reader.first.expect("it has bytes") - reader.since);
    }
    let added = times[1] - times[0];
    assert!(
        added.abs_diff(2 * far) < Duration::from_millis(1),
        "{times:?}"
    );
}

/// CUBIC of the engine and the model of the kernel's are equals, so what gates measure beside the model means something.
#[test]
fn cubic_shares_with_cubic() {
    let mut world = world(&[Duration::ZERO], Kind::Cubic);
    world.compete(Config::new(CUBIC), true, Duration::ZERO);
    world.download(ENDLESS, None);
    world.run_for(Duration::from_secs(20));
    let read = |world: &World| {
        let segments = world.competitors[0].receiver.received();
        [world.reader(0).got as f64, segments as f64 * 1448.0]
    };
    let before = read(&world);
    world.run_for(Duration::from_secs(60));
    let after = read(&world);
    let [ours, theirs] = [after[0] - before[0], after[1] - before[1]];
    let share = ours / (ours + theirs);
    println!("CUBIC's share beside CUBIC: {share:.2}");
    assert!((0.35..0.65).contains(&share), "{share}");
}
