//! `satellite` in the closed loop of `simulation.rs`.

mod resume;

use std::time::Duration;

use super::super::Kind;
use super::super::simulation::World;
use super::super::tests::link;

const SECOND: Duration = Duration::from_secs(1);

/// Rate in bit/s, round-trip time and queue in ms, loss in permille.
type Case = (u64, u64, u64, u64);

fn world((rate, rtt, queue, loss): Case, kinds: &[Kind]) -> World {
    let mut link = link(rate, rtt, queue);
    link.loss = loss;
    World::new(link, kinds)
}

/// Share of the link that arrives, of what its own loss leaves, and share of packets lost, over `time`.
fn measure(world: &mut World, time: Duration) -> (f64, f64) {
    let sent: u64 = world.senders.iter().map(|sender| sender.sent).sum();
    let lost: u64 = world.senders.iter().map(|sender| sender.lost).sum();
    let kept = 1.0 - world.link.loss as f64 / 1000.0;
    let used = world.run(time) / kept;
    let sent = world.senders.iter().map(|sender| sender.sent).sum::<u64>() - sent;
    let lost = world.senders.iter().map(|sender| sender.lost).sum::<u64>() - lost;
    (used, lost as f64 / sent as f64)
}

/// Random loss up to a tenth, queues down to 25 packets, rates from 0.5 to 250 Mbit/s: the link is full, and what is
/// lost beyond the link's own loss is little.
#[test]
fn every_link_is_filled() {
    for case in [
        (250_000_000, 600, 600, 0),
        (250_000_000, 600, 600, 10),
        (250_000_000, 600, 600, 50),
        (250_000_000, 600, 600, 100),
        (10_000_000, 500, 500, 0),
        (10_000_000, 500, 500, 20),
        (10_000_000, 500, 500, 100),
        (10_000_000, 500, 29, 0),
        (10_000_000, 500, 29, 10),
        (20_000_000, 600, 15, 0),
        (10_000_000, 50, 50, 0),
        (10_000_000, 50, 50, 20),
        (500_000, 600, 600, 0),
        (500_000, 600, 600, 20),
    ] {
        let mut world = world(case, &[Kind::Satellite]);
        world.run(20 * SECOND);
        let (used, lost) = measure(&mut world, 60 * SECOND);
        let (own, excess) = (case.3 as f64 / 1000.0, 0.02);
        println!("{case:?}: used {used:.3}, lost {lost:.4}");
        assert!(used >= 0.96, "{case:?}: {used}");
        assert!(lost <= own + excess, "{case:?}: {lost}");
    }
}

/// A measured rate, in percent of the link's, given to a sender before its first packet: what share of the link it has in
/// its first three seconds, what share of packets it loses, and what it has in a minute.
fn start_with(case: Case, percent: u64) -> [f64; 3] {
    let mut world = world(case, &[Kind::Satellite]);
    let now = world.now;
    let rate = case.0.saturating_mul(percent) / 100;
    assert!(
        world.senders[0]
            .controller
            .hint(now, super::super::simulation::bits(rate))
    );
    let (first, lost) = measure(&mut world, 3 * SECOND);
    world.run(10 * SECOND);
    let (used, _) = measure(&mut world, 60 * SECOND);
    println!("{case:?} at {percent} %: first {first:.3}, lost {lost:.4}, then {used:.3}");
    [first, lost, used]
}

/// Three seconds of which six tenths pass before anything is acknowledged.
#[test]
fn a_measured_rate_is_used_at_once() {
    for case in [
        (250_000_000, 600, 600, 0),
        (250_000_000, 600, 600, 10),
        (20_000_000, 600, 15, 0),
    ] {
        let [first, lost, used] = start_with(case, 98);
        let own = case.3 as f64 / 1000.0;
        assert!(first >= 0.65, "{case:?}: {first}");
        assert!(lost <= own + 0.02, "{case:?}: {lost}");
        assert!(used >= 0.96, "{case:?}: {used}");
    }
}

/// Whoever measured wrong, or lies, costs one round trip, and not the rate.
#[test]
fn a_wrong_measurement_does_not_last() {
    for case in [
        (10_000_000, 500, 500, 0),
        (10_000_000, 500, 29, 10),
        (50_000_000, 600, 600, 0),
    ] {
        for percent in [50, 80, 200, 1000, u64::MAX] {
            let [_, _, used] = start_with(case, percent);
            assert!(used >= 0.94, "{case:?} at {percent} %: {used}");
        }
    }
}

/// The queue that stands in steady state is a fraction of a round trip.
#[test]
fn the_queue_stays_short() {
    let mut world = world((250_000_000, 600, 600, 0), &[Kind::Satellite]);
    world.run(20 * SECOND);
    let longest = (0..600).map(|_| {
        world.run(SECOND / 10);
        world.queue()
    });
    let mut delays: Vec<_> = longest.collect();
    delays.sort();
    let (median, high) = (delays[300], delays[570]);
    println!("queue: median {median:?}, p95 {high:?}");
    assert!(
        median <= SECOND / 50 && high <= SECOND / 10,
        "{median:?} {high:?}"
    );
}

/// Idle does not make the tunnel forget.
#[test]
fn idle_keeps_the_model() {
    let mut world = world((250_000_000, 600, 600, 50), &[Kind::Satellite]);
    world.run(20 * SECOND);
    world.set_busy(0, false);
    world.run(300 * SECOND);
    world.set_busy(0, true);
    world.run(SECOND * 3 / 10);
    let (used, _) = measure(&mut world, 3 * SECOND);
    assert!(used >= 0.93, "{used}");
}

/// A link that becomes five times slower, or a path that becomes longer, is believed within some ten round trips.
#[test]
fn steps_are_followed() {
    let mut world = world((50_000_000, 600, 600, 0), &[Kind::Satellite]);
    world.run(20 * SECOND);
    world.link.rate = 10_000_000;
    world.run(10 * SECOND);
    let (used, lost) = measure(&mut world, 20 * SECOND);
    assert!(used >= 0.93 && lost <= 0.01, "slower: {used} {lost}");
    world.link.rate = 50_000_000;
    world.run(20 * SECOND);
    let (used, _) = measure(&mut world, 20 * SECOND);
    assert!(used >= 0.93, "faster: {used}");
}

/// ACKs that wait for the return link's frames, and at first for capacity on it, are no queue.
#[test]
fn frames_of_the_return_link_are_no_queue() {
    for rate in [20_000_000, 50_000_000, 180_000_000] {
        let mut world = world((rate, 500, 500, 0), &[Kind::Satellite]);
        world.link.frames = Some(Duration::from_micros(26_500));
        world.run(8 * SECOND);
        let (used, lost) = measure(&mut world, 20 * SECOND);
        println!("{rate}: {used:.3} {lost:.4}");
        assert!(used >= 0.9 && lost <= 0.01, "{rate}: {used} {lost}");
    }
}

/// A handover lengthens a low orbit's path within an instant.
#[test]
fn handovers_do_not_stop_the_flow() {
    let mut world = world((150_000_000, 40, 40, 0), &[Kind::Satellite]);
    world.run(5 * SECOND);
    for (step, one_way) in [50, 20, 60, 15].into_iter().enumerate() {
        world.link.one_way = Duration::from_millis(one_way);
        let (used, lost) = measure(&mut world, 15 * SECOND);
        println!("handover {step}: {used:.3} {lost:.4}");
        assert!(used >= 0.8, "handover {step}: {used}");
    }
}

/// Shares of the second minute of two senders, the second of which starts 10 s later.
fn shares(case: Case, kinds: [Kind; 2]) -> [f64; 2] {
    let mut world = world(case, &kinds);
    world.senders[1].busy = false;
    world.run(10 * SECOND);
    world.set_busy(1, true);
    world.run(60 * SECOND);
    let before = [0, 1].map(|index| world.senders[index].delivered);
    let lost = world.senders.iter().map(|sender| sender.lost).sum::<u64>();
    world.run(120 * SECOND);
    let [a, b] = [0, 1].map(|index| (world.senders[index].delivered - before[index]) as f64);
    let lost = world.senders.iter().map(|sender| sender.lost).sum::<u64>() - lost;
    println!(
        "{case:?} {kinds:?}: {:.3} to {:.3}, {:.3} of the link, lost {:.4}",
        a / (a + b),
        b / (a + b),
        (a + b) * 8.0 / (case.0 as f64 * 120.0),
        lost as f64 / (a + b)
    );
    [a / (a + b), b / (a + b)]
}

#[test]
fn two_share() {
    for case in [
        (250_000_000, 600, 600, 0),
        (20_000_000, 600, 600, 10),
        (10_000_000, 500, 29, 0),
        (50_000_000, 50, 50, 0),
    ] {
        let [a, b] = shares(case, [Kind::Satellite; 2]);
        assert!(a >= 0.3 && b >= 0.3, "{case:?}: {a} {b}");
    }
}

/// Ten that begin one after the other and ask the path what it carries have equal shares half a minute later.
#[test]
fn ten_come_to_equal_shares() {
    let mut world = world((100_000_000, 600, 600, 0), &[Kind::Satellite; 10]);
    for index in 1..10 {
        world.set_busy(index, false);
    }
    for index in 0..10 {
        let now = world.now;
        let rate = super::super::simulation::bits(100_000_000);
        world.senders[index].controller.hint(now, rate);
        world.set_busy(index, true);
        world.run(SECOND);
    }
    world.run(20 * SECOND);
    let shares = world.shares(20 * SECOND);
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    assert!(1.0 / (10.0 * squares) >= 0.95, "{shares:?}");
}

/// Beside CUBIC, whoever came first, CUBIC keeps at least a third of the link, and this controller a fifth: CUBIC itself
/// needs minutes for more at such round trips.
#[test]
fn cubic_and_this_keep_their_shares() {
    for case in [
        (50_000_000, 600, 600, 0),
        (50_000_000, 50, 50, 0),
        (10_000_000, 500, 500, 0),
    ] {
        for kinds in [
            [Kind::Cubic, Kind::Satellite],
            [Kind::Satellite, Kind::Cubic],
        ] {
            let [a, b] = shares(case, kinds);
            let (cubic, ours) = if kinds[0] == Kind::Cubic {
                (a, b)
            } else {
                (b, a)
            };
            assert!(cubic >= 0.33 && ours >= 0.2, "{case:?} {kinds:?}: {a} {b}");
        }
    }
}

/// Ten that come one after the other at a satellite's distance share alike, without losses, on a full link.
#[test]
fn ten_share() {
    let count = 10;
    let mut world = world((100_000_000, 600, 600, 0), &vec![Kind::Satellite; count]);
    for index in 1..count {
        world.senders[index].busy = false;
    }
    for index in 1..count {
        world.run(SECOND);
        world.set_busy(index, true);
    }
    world.run(75 * SECOND);
    let (used, lost) = measure(&mut world, 15 * SECOND);
    let shares = world.shares(30 * SECOND);
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    let jain = 1.0 / (count as f64 * squares);
    println!("ten: Jain {jain:.3}, used {used:.3}, lost {lost:.4}: {shares:.3?}");
    assert!(jain >= 0.9, "{jain} {shares:?}");
    assert!(used >= 0.95 && lost <= 0.005, "{used} {lost}");
}

/// Rain passes: a path that became slower is asked soon, and often, whether it is as fast as before, and what the weather
/// loses meanwhile is not taken for a policer's doing.
#[test]
fn a_path_that_was_faster_is_found_to_be_so_again() {
    let mut world = world((20_000_000, 600, 600, 0), &[Kind::Satellite]);
    world.run(20 * SECOND);
    let mut used = Vec::new();
    for _ in 0..4 {
        world.link.rate = 5_000_000;
        world.run(20 * SECOND);
        (world.link.rate, world.link.loss) = (20_000_000, 50);
        let lossy = world.run(SECOND);
        world.link.loss = 0;
        used.push((lossy + 14.0 * world.run(14 * SECOND)) / 15.0);
    }
    println!("after rain: {used:?}");
    let mean = used.iter().sum::<f64>() / 4.0;
    assert!(mean >= 0.68, "{used:?}");
}
