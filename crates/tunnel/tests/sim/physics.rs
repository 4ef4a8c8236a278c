//! T*, against which the table of limits measures: closed forms, and what the engine's own packets look like.

use std::time::Duration;

use bentpipe_link::{Change, Schedule};
use bentpipe_testbed::limit::{DOWN, Transfer, UP, earliest, efficiency};
use bentpipe_testbed::world::{Setup, World};
use bentpipe_tunnel::engine::Wishes;
use bentpipe_units::BitRate;

use crate::satellite::link;

fn transfer(direction: usize, payload: u64) -> Transfer {
    Transfer {
        direction,
        began: Duration::ZERO,
        payload,
        packet: 1500,
        loss: 0.0,
    }
}

/// Round trip (half of one upwards) and payload at the rate.
#[test]
fn the_limit_has_its_closed_form() {
    let link = link("g1", 0.0);
    for (direction, rate, rtts) in [(DOWN, 250e6, 0.6), (UP, 3e6, 0.3)] {
        for loss in [0.0, 0.02] {
            let transfer = Transfer {
                loss,
                ..transfer(direction, 100_000_000)
            };
            let share = efficiency(direction, 1500) * (1.0 - loss);
            let expected = rtts + 8e8 / (rate * share);
            let limit = earliest(&link, &transfer).expect("it ends").as_secs_f64();
            assert!((limit - expected).abs() < 1e-4, "{limit} {expected}");
        }
    }
}

/// After a second the rate is a tenth, and the return link takes longer.
#[test]
fn the_limit_follows_the_link() {
    let mut link = link("geo", 0.0);
    let second = Duration::from_secs(1);
    let slow = Change::Rate(BitRate::megabits_per_second(1));
    link.forward_link.schedule = Schedule::new([(second, slow)]);
    let later = Change::OneWayDelay(Duration::from_millis(400));
    link.return_link.schedule = Schedule::new([(Duration::ZERO, later)]);
    let limit = earliest(&link, &transfer(DOWN, 1_000_000)).expect("it ends");
    // Until 0.4 s the request is under way; then 0.6 s at 10 Mbit/s, and the rest at 1 Mbit/s.
    let bits = 8e6 / efficiency(DOWN, 1500);
    let expected = 1.0 + (bits - 6e6) / 1e6 + 0.25;
    assert!(
        (limit.as_secs_f64() - expected).abs() < 1e-3,
        "{limit:?} {expected}"
    );
}

/// The share of payload that T* is computed with is what the engine carries, within 0.3 %: control frames and short packets cost the rest.
#[test]
fn packets_carry_what_the_limit_assumes() {
    let bytes = 10_000_000;
    for direction in [DOWN, UP] {
        // Below the link's rate, so that nothing is lost.
        let wishes = Wishes {
            max_rate: Some(BitRate::megabits_per_second(9)),
            ..Wishes::default()
        };
        let mut world = World::with(&Setup {
            wishes,
            ..Setup::new(&link("geo", 0.0), 1)
        });
        world.run_until(Duration::from_secs(60), "the handshake", World::is_ready);
        // Grows the packets to their full size and finds the rate.
        world.timed_download(3_000_000);
        world.timed_upload(3_000_000);
        world.run_for(Duration::from_secs(10));
        let dropped = |world: &World| {
            let link = &world.link;
            link.forward_link.stats().dropped_queue + link.return_link.stats().dropped_queue
        };
        let (before, lost) = (world.sent[direction].bytes, dropped(&world));
        if direction == DOWN {
            world.timed_download(bytes);
        } else {
            world.timed_upload(bytes);
        }
        assert_eq!(dropped(&world), lost, "nothing is sent twice");
        assert_eq!(world.sent[direction].largest, 1500);
        let measured = bytes as f64 / (world.sent[direction].bytes - before) as f64;
        let assumed = efficiency(direction, 1500);
        println!("payload per IP byte: {measured:.5}, assumed {assumed:.5}");
        assert!(
            measured <= assumed && measured > assumed * 0.997,
            "{measured} {assumed}"
        );
    }
}
