//! BBR's phases and bounds in the closed loop of `simulation.rs`, after the draft's example test cases.

use std::time::Duration;

use super::super::simulation::{Link, World};
use super::super::tests::link;
use super::super::{Controller, Kind};
use super::{Bbr3, State};

const SECOND: Duration = Duration::from_secs(1);

fn world(link: Link) -> World {
    World::new(link, &[Kind::Bbr3])
}

fn lossy(rate: u64, rtt: u64, loss: u64, seed: u64) -> World {
    let mut link = link(rate, rtt, rtt);
    link.loss = loss;
    let mut world = world(link);
    world.random = seed;
    world
}

fn bbr(world: &World) -> &Bbr3 {
    match &world.senders[0].controller {
        Controller::Bbr3(bbr) => bbr,
        other => panic!("{}", other.kind()),
    }
}

/// Runs, at most for `limit`, until the controller is in `state`; the states on the way.
fn until(world: &mut World, state: State, limit: Duration) -> Vec<State> {
    let deadline = world.now + limit;
    let mut seen = vec![bbr(world).state];
    while bbr(world).state != state {
        assert!(world.now < deadline, "never in {state:?}: {seen:?}");
        world.run(SECOND / 1000);
        if seen.last() != Some(&bbr(world).state) {
            seen.push(bbr(world).state);
        }
    }
    seen
}

#[test]
fn startup_finds_the_rate_and_the_cycle_follows() {
    let mut world = world(link(10_000_000, 500, 500));
    let seen = until(&mut world, State::Drain, 10 * SECOND);
    assert_eq!(seen, [State::Startup, State::Drain]);
    let rate = bbr(&world).model.max_rate() as f64 * 8.0 / 10_000_000.0;
    assert!((0.98..1.02).contains(&rate), "{rate}");
    // The ACK that ends Drain finds the queue gone, and DOWN with it.
    until(&mut world, State::Cruise, 2 * SECOND);
    let drained = world.queue();
    assert!(drained < SECOND / 20, "{drained:?}");
    let seen = until(&mut world, State::Down, 20 * SECOND);
    let cycle = [State::Cruise, State::Refill, State::Up];
    assert_eq!(seen[..3], cycle);
}

#[test]
fn an_idle_sender_never_ends_startup() {
    let mut world = world(link(10_000_000, 500, 500));
    for _ in 0..100 {
        world.set_busy(0, true);
        world.run(Duration::from_millis(2));
        world.set_busy(0, false);
        world.run(SECOND / 2);
    }
    assert_eq!(bbr(&world).state, State::Startup);
}

/// 1 % is below the threshold of 2 %, 4 % is above.
#[test]
fn loss_below_the_threshold_costs_little_and_above_it_much() {
    for (rate, rtt, seeds, floor) in [
        (10_000_000, 500, 8, 0.88),
        (250_000_000, 600, 1, 0.88),
        (50_000_000, 50, 4, 0.86),
    ] {
        for seed in 1..=seeds {
            let mut world = lossy(rate, rtt, 10, seed * 7919);
            world.run(40 * SECOND);
            let (used, _) = world.measure(40 * SECOND);
            assert!(used >= floor, "{rate} {rtt}, seed {seed}: {used}");
        }
    }
    let mut world = lossy(10_000_000, 500, 40, 1);
    world.run(40 * SECOND);
    let (used, _) = world.measure(40 * SECOND);
    assert!(used < 0.5, "{used}");
}

/// Bursts of six packets, 1.2 % in all.
#[test]
fn bursts_below_the_threshold_cost_little() {
    let mut link = link(10_000_000, 500, 500);
    link.burst = Some((2, 167));
    let mut world = world(link);
    world.run(20 * SECOND);
    let used = world.run(100 * SECOND);
    assert!(used >= 0.85, "{used}");
}

/// A queue of 25 packets: the long-term bound is found, and probes cost few packets.
#[test]
fn a_shallow_queue_bounds_what_is_in_flight() {
    let mut world = world(link(10_000_000, 500, 29));
    until(&mut world, State::Drain, 10 * SECOND);
    assert!(bbr(&world).bounds.longterm.is_some(), "losses end Startup");
    world.run(20 * SECOND);
    let bdp = bbr(&world).bdp(1000);
    let longterm = bbr(&world).bounds.longterm.expect("losses set it");
    assert!(longterm < bdp * 5 / 4, "{longterm} of {bdp}");
    let (used, lost) = world.measure(60 * SECOND);
    assert!(used >= 0.9 && lost <= 0.02, "{used} {lost}");
}

#[test]
fn a_mark_ends_startup_and_bounds_the_queue() {
    for (rate, rtt) in [(20_000_000, 100), (10_000_000, 500), (50_000_000, 600)] {
        let mut marking = link(rate, rtt, 4 * rtt);
        marking.mark = Some(Duration::from_millis(rtt / 10));
        let mut world = world(marking);
        let mut startup = Duration::ZERO;
        while bbr(&world).state == State::Startup {
            world.run(SECOND / 100);
            startup = startup.max(world.queue());
        }
        assert!(startup <= Duration::from_millis(rtt), "{startup:?}");
        world.run(20 * SECOND);
        let (mut longest, mut lost) = (Duration::ZERO, 0.0_f64);
        for _ in 0..200 {
            lost = lost.max(world.measure(SECOND / 10).1);
            longest = longest.max(world.queue());
        }
        let used = world.run(20 * SECOND);
        let bound = Duration::from_millis(rtt) * 2 / 5;
        assert!(longest <= bound, "{rate} {rtt}: {longest:?}");
        assert!(used >= 0.9 && lost < 1e-9, "{rate} {rtt}: {used} {lost}");
    }
}

#[test]
fn a_rate_ten_times_higher_or_lower_is_found() {
    let mut world = world(link(10_000_000, 100, 100));
    world.run(20 * SECOND);
    world.link.rate = 100_000_000;
    world.run(8 * SECOND);
    let (used, _) = world.measure(5 * SECOND);
    assert!(used >= 0.9, "faster: {used}");
    world.link.rate = 10_000_000;
    world.run(10 * SECOND);
    let (used, lost) = world.measure(10 * SECOND);
    assert!(used >= 0.9 && lost <= 0.02, "slower: {used} {lost}");
}

/// Alone on a link the queue drains by itself. Where it cannot, because the path became longer, ProbeRTT finds out.
#[test]
fn probe_rtt_only_where_it_shows_something() {
    let mut longer = world(link(50_000_000, 50, 50));
    longer.run(10 * SECOND);
    until(&mut longer, State::Cruise, 5 * SECOND);
    longer.link.one_way = Duration::from_millis(60);
    until(&mut longer, State::ProbeRtt, 6 * SECOND);
    let window = bbr(&longer).window.size();
    assert!(window <= bbr(&longer).probe_rtt_window(), "{window}");
    let began = longer.now;
    until(&mut longer, State::Cruise, 2 * SECOND);
    assert!(longer.now - began >= SECOND / 5);
    longer.run(10 * SECOND);
    let rtt = bbr(&longer).model.min_rtt().unwrap_or_default();
    assert!(rtt >= Duration::from_millis(120), "{rtt:?}");
    let used = longer.run(10 * SECOND);
    assert!(used >= 0.9, "{used}");

    let mut alone = world(link(50_000_000, 50, 50));
    alone.run(10 * SECOND);
    for _ in 0..2000 {
        alone.run(SECOND / 100);
        assert_ne!(bbr(&alone).state, State::ProbeRtt);
    }
}

#[test]
fn idle_is_as_good_as_probe_rtt_and_does_not_end_in_a_burst() {
    let mut world = world(link(10_000_000, 500, 500));
    world.run(30 * SECOND);
    world.set_busy(0, false);
    world.run(60 * SECOND);
    let window = bbr(&world).window.size();
    world.set_busy(0, true);
    assert_eq!(bbr(&world).rate, bbr(&world).bw() * 99 / 100);
    // One round trip: what leaves is the path's rate.
    for _ in 0..10 {
        world.run(SECOND / 20);
        assert!(world.queue() < SECOND / 100, "{:?}", world.queue());
        assert_ne!(bbr(&world).state, State::ProbeRtt);
    }
    assert!(bbr(&world).window.size() >= window);
    let used = world.run(2 * SECOND);
    assert!(used >= 0.95, "{used}");

    // Nor is a path that became longer meanwhile a reason to drain what has just been empty.
    world.set_busy(0, false);
    world.run(60 * SECOND);
    world.link.one_way += SECOND / 50;
    world.set_busy(0, true);
    for _ in 0..40 {
        world.run(SECOND / 20);
        assert_ne!(bbr(&world).state, State::ProbeRtt);
    }
    let rtt = bbr(&world).model.min_rtt().unwrap_or_default();
    assert!(rtt >= SECOND * 54 / 100, "{rtt:?}");
}

/// Four packets are in flight where the path holds less than one.
#[test]
fn a_path_that_holds_less_than_a_packet_is_filled() {
    let mut world = world(link(1_000_000, 4, 200));
    world.run(10 * SECOND);
    let used = world.run(20 * SECOND);
    assert!(used >= 0.9, "{used}");
}

/// Without losses, what is in flight is bounded by the model, and the model forgets a rate that is no more.
#[test]
fn a_deep_queue_is_not_filled_when_the_rate_halves() {
    let mut world = world(link(10_000_000, 100, 10_000));
    world.run(20 * SECOND);
    world.link.rate = 5_000_000;
    let mut longest = Duration::ZERO;
    for _ in 0..100 {
        world.run(SECOND / 10);
        longest = longest.max(world.queue());
    }
    assert!(longest <= SECOND * 6 / 10, "{longest:?}");
    world.run(10 * SECOND);
    let rate = bbr(&world).model.max_rate() as f64 * 8.0 / 5_000_000.0;
    assert!((0.95..1.05).contains(&rate), "{rate}");
}

#[test]
fn marks_slow_a_cruise_down() {
    let mut marking = link(10_000_000, 100, 1000);
    marking.mark = Some(SECOND / 50);
    let mut world = world(marking);
    world.run(20 * SECOND);
    until(&mut world, State::Refill, 10 * SECOND);
    until(&mut world, State::Cruise, 10 * SECOND);
    world.link.rate = 8_000_000;
    world.run(SECOND);
    assert_eq!(bbr(&world).state, State::Cruise);
    assert!(world.queue() < SECOND / 20, "{:?}", world.queue());
    assert!(bbr(&world).bw() < 8_200_000 / 8);
}

#[test]
fn persistent_congestion_collapses_the_window_for_a_round_trip() {
    let mut world = world(link(10_000_000, 500, 500));
    world.run(20 * SECOND);
    let now = world.now;
    let controller = &mut world.senders[0].controller;
    let before = controller.window();
    controller.on_loss(&super::LossSample {
        now,
        lost: before,
        newest_sent: now - SECOND,
        in_flight: 0,
        persistent: true,
        ecn: false,
        at_send: None,
    });
    assert_eq!(controller.window(), 4 * 1472);
    let ack = |sent| super::AckSample {
        now: now + SECOND,
        newly_acked: 1472,
        rtt: Some(SECOND / 2),
        newest_sent: sent,
        in_flight: 0,
        app_limited: false,
        rate: None,
    };
    controller.on_ack(&ack(now - SECOND / 2));
    assert_eq!(controller.window(), 5 * 1472);
    controller.on_ack(&ack(now + SECOND / 2));
    let after = controller.window();
    assert!(after >= before / 2, "{after} of {before}");
}
