//! NewReno where it differs from CUBIC, which `tests.rs` of the crate runs in the closed loop.

use std::time::{Duration, Instant};

use super::super::simulation::{MTU, World, origin};
use super::super::tests::link;
use super::super::{AckSample, Config, Controller, Kind, LossSample};

const SECOND: Duration = Duration::from_secs(1);
const BYTES: u64 = MTU as u64;

fn new_reno(packets: u64, now: Instant) -> Controller {
    let config = Config {
        initial_window: packets * BYTES,
        mtu: MTU,
        initial_rtt: SECOND,
        max_rate: None,
        provisioned: None,
        in_order: false,
    };
    Controller::new(Kind::NewReno, &config, now)
}

fn loss(now: Instant, newest_sent: Instant, in_flight: u64) -> LossSample {
    LossSample {
        now,
        lost: BYTES,
        newest_sent,
        in_flight,
        persistent: false,
        ecn: false,
        at_send: None,
    }
}

/// A full window of bulk is acknowledged at `now`.
fn ack(now: Instant, newly_acked: u64, in_flight: u64) -> AckSample {
    AckSample {
        now,
        newly_acked,
        rtt: Some(SECOND),
        newest_sent: now - SECOND,
        in_flight,
        app_limited: false,
        rate: None,
    }
}

#[test]
fn new_reno_halves_once_per_round_trip() {
    let mut world = World::new(link(10_000_000, 500, 5000), &[Kind::NewReno]);
    world.run(6 * SECOND);
    let before = world.senders[0].controller.window();
    world.senders[0].drop_next = true;
    world.run(SECOND / 10);
    world.senders[0].drop_next = true;
    world.run(3 * SECOND);
    assert_eq!(world.senders[0].lost, 2 * BYTES);
    let share = world.senders[0].controller.window() as f64 / before as f64;
    assert!((0.49..0.56).contains(&share), "{share}");
}

#[test]
fn new_reno_grows_by_a_packet_per_round_trip() {
    let mut world = World::new(link(10_000_000, 500, 5000), &[Kind::NewReno]);
    world.run(6 * SECOND);
    world.senders[0].drop_next = true;
    world.run(5 * SECOND);
    let before = world.senders[0].controller.window();
    let rounds = 20;
    world.run(rounds * SECOND / 2);
    let grown = (world.senders[0].controller.window() - before) / BYTES;
    // The queue that stands lengthens the round trip.
    assert!((10..=20).contains(&grown), "{grown} packets");
}

#[test]
fn persistent_congestion_leaves_new_reno_two_packets_and_slow_start() {
    let start = origin();
    let mut controller = new_reno(100, start);
    let mut outage = loss(start + 10 * SECOND, start + SECOND, 0);
    (outage.persistent, outage.lost) = (true, 100 * BYTES);
    controller.on_loss(&outage);
    assert_eq!(controller.window(), 2 * BYTES);
    let mut now = start + 12 * SECOND;
    for window in [4, 8, 16, 32] {
        now += SECOND;
        let full = controller.window();
        controller.on_ack(&ack(now, full, full));
        assert_eq!(controller.window(), window * BYTES);
    }
    // Slow start ends where the first reduction led.
    for _ in 0..3 {
        now += SECOND;
        let full = controller.window();
        controller.on_ack(&ack(now, full, full));
    }
    let window = controller.window() / BYTES;
    assert!((64..=67).contains(&window), "{window}");
}

#[test]
fn new_reno_keeps_an_unused_window_for_five_minutes() {
    let start = origin();
    let mut controller = new_reno(100, start);
    let mut now = start;
    for _ in 0..4 {
        now += SECOND;
        let full = controller.window();
        controller.on_ack(&ack(now, full, full));
    }
    let full = controller.window();
    assert_eq!(full, 1600 * BYTES);
    controller.on_sent(now + 299 * SECOND, BYTES, BYTES);
    assert_eq!(controller.window(), full);
    controller.on_sent(now + 301 * SECOND, BYTES, BYTES);
    assert_eq!(controller.window(), full / 2);
    // Never below the initial window, however long it lasts.
    controller.on_sent(now + 100_000 * SECOND, BYTES, BYTES);
    assert_eq!(controller.window(), 100 * BYTES);
}

#[test]
fn a_loss_halves_what_new_reno_used_not_what_it_might_have() {
    let start = origin();
    let mut controller = new_reno(100, start);
    let mut now = start;
    for _ in 0..4 {
        now += SECOND;
        controller.on_ack(&ack(now, 10 * BYTES, 10 * BYTES));
    }
    assert_eq!(controller.window(), 100 * BYTES);
    controller.on_loss(&loss(now, now - SECOND / 2, 19 * BYTES));
    assert_eq!(controller.window(), 10 * BYTES);
}
