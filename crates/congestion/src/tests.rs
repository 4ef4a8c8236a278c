//! Behaviour of the controllers, the sampler and the pacer in virtual time.
//!
//! The figures asserted are those of `simulation.rs`'s link: drop-tail queue, eight ACKs per round trip.

use std::time::Duration;

use super::simulation::{Link, MTU, World, bits, origin};
use super::*;

const SECOND: Duration = Duration::from_secs(1);
const BYTES: u64 = MTU as u64;

pub(super) fn link(rate: u64, rtt_ms: u64, queue_ms: u64) -> Link {
    let one_way = Duration::from_millis(rtt_ms / 2);
    Link {
        rate,
        one_way,
        queue: Duration::from_millis(queue_ms),
        loss: 0,
        burst: None,
        frames: None,
        mark: None,
    }
}

#[test]
fn names_round_trip() {
    for kind in Kind::ALL {
        assert_eq!(kind.to_string().parse(), Ok(kind));
    }
    assert!("reno".parse::<Kind>().is_err());
}

#[test]
fn fills_a_geo_link_with_few_startup_losses() {
    let mut world = World::new(link(10_000_000, 500, 500), &[Kind::Cubic]);
    world.run(5 * SECOND);
    let share = world.senders[0].lost as f64 / world.senders[0].sent as f64;
    assert!(share < 0.06, "lost {share} of start-up");
    let utilisation = world.run(30 * SECOND);
    assert!(utilisation >= 0.97, "{utilisation}");
}

#[test]
fn fills_a_fast_geo_link_without_startup_losses() {
    let mut world = World::new(link(250_000_000, 600, 600), &[Kind::Cubic]);
    world.run(7 * SECOND);
    assert_eq!(world.senders[0].lost, 0);
    let utilisation = world.run(30 * SECOND);
    assert!(utilisation >= 0.99, "{utilisation}");
}

#[test]
fn hystart_spares_the_queue_what_loss_based_startup_overfills() {
    let [with, without] = [Kind::Cubic, Kind::CubicNoHystart].map(|kind| {
        let mut world = World::new(link(10_000_000, 500, 500), &[kind]);
        world.run(8 * SECOND);
        world.senders[0].lost
    });
    assert!(with * 3 < without, "{with} {without}");
}

#[test]
fn idle_keeps_the_window_and_does_not_advance_the_curve() {
    let mut world = World::new(link(10_000_000, 500, 500), &[Kind::Cubic]);
    world.run(10 * SECOND);
    world.set_busy(0, false);
    world.run(60 * SECOND);
    let before = world.senders[0].controller.window();
    let lost = world.senders[0].lost;
    world.set_busy(0, true);
    let rate = world.senders[0].controller.pacing_rate().as_u64();
    assert!(rate >= 10_000_000, "{rate}");
    // One way until the first packet arrives; from then on the link is full.
    world.run(SECOND / 4);
    let utilisation = world.run(5 * SECOND);
    assert!(utilisation >= 0.97, "{utilisation}");
    let after = world.senders[0].controller.window();
    assert!(
        after >= before * 7 / 10 && after <= before * 3 / 2,
        "{before} {after}"
    );
    // One overflow of CUBIC's own, no burst.
    let overflow = world.senders[0].lost - lost;
    assert!(overflow < 50 * BYTES, "{overflow}");
}

#[test]
fn a_single_loss_cuts_the_window_once_to_seven_tenths() {
    let mut world = World::new(link(10_000_000, 500, 5000), &[Kind::Cubic]);
    world.run(6 * SECOND);
    let before = world.senders[0].controller.window();
    world.senders[0].drop_next = true;
    // Until the loss is seen, and one round trip with its queue after it.
    world.run(3 * SECOND);
    let after = world.senders[0].controller.window();
    assert_eq!(world.senders[0].lost, BYTES);
    let share = after as f64 / before as f64;
    assert!((0.69..0.95).contains(&share), "{share}");
}

#[test]
fn two_flows_share_the_link() {
    let mut world = World::new(link(20_000_000, 100, 100), &[Kind::Cubic, Kind::Cubic]);
    world.senders[1].busy = false;
    world.run(10 * SECOND);
    world.set_busy(1, true);
    world.run(60 * SECOND);
    let before = [world.senders[0].delivered, world.senders[1].delivered];
    world.run(120 * SECOND);
    let [a, b] = [0, 1].map(|i| (world.senders[i].delivered - before[i]) as f64);
    let jain = (a + b).powi(2) / (2.0 * (a * a + b * b));
    assert!(jain > 0.9, "{a} {b} {jain}");
}

#[test]
fn samples_show_the_rate_of_the_link() {
    let mut world = World::new(link(10_000_000, 500, 500), &[Kind::Cubic]);
    world.run(12 * SECOND);
    let rate = world.senders[0].last_rate as f64;
    assert!((rate / 10_000_000.0 - 1.0).abs() < 0.02, "{rate}");
}

fn controller(now: Instant) -> Controller {
    let initial_rtt = Duration::from_millis(600);
    let config = Config {
        initial_window: 100 * BYTES,
        mtu: MTU,
        initial_rtt,
        max_rate: Some(bits(50_000_000)),
        provisioned: None,
        in_order: false,
    };
    Controller::new(Kind::Cubic, &config, now)
}

fn loss(now: Instant, newest_sent: Instant) -> LossSample {
    LossSample {
        now,
        lost: BYTES,
        newest_sent,
        in_flight: 0,
        persistent: true,
        ecn: false,
        at_send: None,
    }
}

#[test]
fn losses_of_one_round_cut_once_even_after_an_outage() {
    let start = origin();
    let mut controller = controller(start);
    controller.on_loss(&loss(start + SECOND, start));
    assert_eq!(controller.window(), 70 * BYTES);
    controller.on_loss(&loss(start + 2 * SECOND, start + SECOND / 2));
    assert_eq!(controller.window(), 70 * BYTES);
    controller.on_loss(&loss(start + 3 * SECOND, start + 2 * SECOND));
    assert_eq!(controller.window(), 49 * BYTES);
    for round in 4..40 {
        controller.on_loss(&loss(
            start + round * SECOND,
            start + round * SECOND - SECOND / 2,
        ));
    }
    assert_eq!(controller.window(), 2 * BYTES);
    controller.on_mtu(9000);
    assert_eq!(controller.window(), 18_000);
}

#[test]
fn an_unused_window_does_not_grow_and_the_rate_has_a_ceiling() {
    let start = origin();
    let mut controller = controller(start);
    let before = controller.window();
    let ack = |app_limited, in_flight| AckSample {
        now: start + SECOND,
        newly_acked: 10 * BYTES,
        rtt: Some(SECOND / 2),
        newest_sent: start + SECOND / 2,
        in_flight,
        app_limited,
        rate: None,
    };
    controller.on_ack(&ack(true, 100 * BYTES));
    controller.on_ack(&ack(false, 10 * BYTES));
    assert_eq!(controller.window(), before);
    controller.on_ack(&ack(false, 90 * BYTES));
    assert_eq!(controller.window(), before + 10 * BYTES);
    for _ in 0..1000 {
        let in_flight = controller.window();
        controller.on_ack(&ack(false, in_flight));
    }
    assert_eq!(controller.pacing_rate(), bits(50_000_000));
}

#[test]
fn app_limited_samples_end_when_what_was_in_flight_is_delivered() {
    let start = origin();
    let mut sampler = RateSampler::new(start);
    sampler.on_sent(start, 1000, 1000);
    sampler.set_app_limited(1000);
    sampler.on_sent(start + SECOND, 1000, 2000);
    sampler.on_ack(start, 1000);
    let first = sampler.end_acks(start + SECOND);
    assert!(
        first.is_some_and(|sample| !sample.app_limited && sample.rate == bits(8000)),
        "{first:?}"
    );
    sampler.on_ack(start + SECOND, 1000);
    let second = sampler.end_acks(start + 2 * SECOND);
    assert!(
        second.is_some_and(|sample| sample.app_limited),
        "{second:?}"
    );
    assert!(!sampler.is_app_limited());
    // An MTU probe was never reported as sent.
    sampler.on_ack(start + SECOND / 3, 1500);
    assert_eq!(sampler.end_acks(start + 3 * SECOND), None);
    assert_eq!(sampler.delivered(), 3500);
}

#[test]
fn samples_and_losses_know_what_was_in_flight_and_lost_since() {
    let start = origin();
    let mut sampler = RateSampler::new(start);
    // Two batches of one wake-up, and one of the next.
    sampler.on_sent(start, 1000, 1000);
    sampler.on_sent(start, 1000, 2000);
    sampler.on_sent(start + SECOND / 2, 1000, 3000);
    sampler.on_ack(start, 1000);
    let sample = sampler.end_acks(start + SECOND);
    let at_send = |in_flight, lost| AtSend {
        in_flight,
        lost,
        app_limited: false,
    };
    assert_eq!(sample.map(|sample| sample.at_send), Some(at_send(2000, 0)));
    assert_eq!(sampler.on_loss(start, 1000), Some(at_send(2000, 1000)));
    sampler.on_sent(start + SECOND, 1000, 2000);
    sampler.on_ack(start + SECOND / 2, 1000);
    let sample = sampler.end_acks(start + SECOND * 3 / 2);
    assert_eq!(
        sample.map(|sample| sample.at_send),
        Some(at_send(3000, 1000))
    );
    // A mark is not a loss, and what left after the loss knows nothing of it.
    assert_eq!(sampler.on_loss(start + SECOND, 0), Some(at_send(2000, 0)));
    assert_eq!(sampler.on_loss(start + SECOND / 3, 0), None);
}

/// Shortest round trip of a path that holds any batch.
const FAR: Duration = Duration::from_millis(500);

/// A fixed sequence of wake-up delays up to 3 ms.
fn lateness(step: u64) -> Duration {
    let mixed = step.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    Duration::from_nanos((mixed * 3_000_000) >> 24)
}

#[test]
fn late_wake_ups_do_not_change_the_long_run_rate() {
    for rate in [256_000, 2_000_000, 10_000_000, 250_000_000] {
        let start = origin();
        let (mut now, mut sent) = (start, 0);
        let mut pacer = Pacer::new(start);
        for step in 0.. {
            while let count @ 1.. = pacer.budget(now, bits(rate), MTU, FAR) {
                assert!(count <= MAX_BATCH);
                pacer.on_sent(now, u64::from(count) * BYTES, bits(rate));
                sent += u64::from(count) * BYTES;
            }
            if now > start + 100 * SECOND {
                break;
            }
            now = pacer.poll_timeout().expect("the pacer refused") + lateness(step);
        }
        let measured = (sent - BYTES) as f64 * 8.0 / (now - start).as_secs_f64();
        assert!(
            (measured / rate as f64 - 1.0).abs() < 0.001,
            "{measured} of {rate}"
        );
    }
}

/// A batch at 1 Gbit/s over 0.1 ms, where a queue of one bandwidth-delay product holds eight packets.
#[test]
fn no_batch_is_larger_than_a_path_holds() {
    let now = origin();
    for (min_rtt, batch) in [(100, 10), (300, 25), (1_000, 33)] {
        let mut pacer = Pacer::new(now);
        let budget = pacer.budget(
            now,
            bits(1_000_000_000),
            MTU,
            Duration::from_micros(min_rtt),
        );
        assert_eq!(budget, batch, "at {min_rtt} us");
    }
}

#[test]
fn idle_time_is_worth_one_batch() {
    for (rate, batch) in [
        (256_000, 2),
        (10_000_000, 2),
        (60_000_000, 5),
        (250_000_000, 10),
        (1_000_000_000, 33),
        (10_000_000_000, 40),
    ] {
        let start = origin();
        let mut pacer = Pacer::new(start);
        for wait in [0, 2, 50, 60_000] {
            let now = start + Duration::from_millis(wait) + SECOND * u32::from(wait > 0);
            let mut burst = 0;
            while let count @ 1.. =
                pacer
                    .budget(now, bits(rate), MTU, FAR)
                    .min(if wait == 0 { 1 } else { 10 })
            {
                burst += count;
                pacer.on_sent(now, u64::from(count) * BYTES, bits(rate));
                if wait == 0 {
                    // The caller has no more data: it never waits for the pacer.
                    break;
                }
            }
            if wait > 0 {
                assert!(burst <= batch, "{burst} at {rate} after {wait} ms");
                let ready = pacer.poll_timeout().expect("the pacer refused");
                assert_eq!(pacer.budget(ready, bits(rate), MTU, FAR).min(1), 1);
            }
        }
    }
}

/// A loss halves the window while the pacer is waited for, and half a round trip later an ACK opens it.
#[test]
fn time_with_a_shut_window_is_idle_time() {
    let rate = bits(60_000_000);
    let start = origin();
    let mut pacer = Pacer::new(start);
    while let count @ 1.. = pacer.budget(start, rate, MTU, FAR) {
        pacer.on_sent(start, u64::from(count) * BYTES, rate);
    }
    pacer.on_shut();
    let (opened, mut burst) = (start + SECOND / 4, 0);
    while let count @ 1.. = pacer.budget(opened, rate, MTU, FAR) {
        pacer.on_sent(opened, u64::from(count) * BYTES, rate);
        burst += count;
    }
    assert!(burst <= 5, "{burst}");
}

#[test]
fn a_busy_sender_knows_its_path_and_an_idle_one_does_not() {
    for kind in Kind::ALL {
        let mut world = World::new(link(10_000_000, 500, 500), &[kind]);
        world.run(SECOND);
        let early = world.senders[0].controller.saved(world.now);
        assert_eq!(early, None, "{kind}: two round trips are no knowledge");
        world.run(20 * SECOND);
        let now = world.now;
        let saved = world.senders[0].controller.saved(now);
        let saved = saved.expect("20 s of bulk show the path");
        let rate = saved.rate.as_u64() as f64 / 10_000_000.0;
        assert!((0.95..1.1).contains(&rate), "{kind}: {saved:?}");
        let rtt = saved.rtt.as_secs_f64();
        assert!((0.5..0.52).contains(&rtt), "{kind}: {saved:?}");
        assert!(saved.loss.as_f64() < 0.05, "{kind}: {saved:?}");
        // What was known does not change while nothing is sent, but it ages.
        world.set_busy(0, false);
        world.run(100 * SECOND);
        let later = world.senders[0].controller.saved(world.now);
        let later = later.expect("idle takes nothing away");
        assert!(later.age >= 95 * SECOND, "{kind}: {later:?}");
        assert!(saved.rate.as_u64() * 9 / 10 <= later.rate.as_u64());
    }
}
