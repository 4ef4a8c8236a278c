//! A path that is remembered: when that is believed, and what becomes of it (RFC 9959 §3).

use std::time::{Duration, Instant};

use bentpipe_units::{BitRate, Ratio};

use super::super::super::simulation::{World, bits, origin};
use super::super::super::{AckSample, Config, Controller, Kind, Saved};
use super::world;

const RTT: Duration = Duration::from_millis(600);
const REMEMBERED: BitRate = BitRate::bits_per_second(20_000_000);

fn saved(rate: BitRate) -> Saved {
    Saved {
        rate,
        rtt: RTT,
        loss: Ratio::ZERO,
        age: Duration::ZERO,
    }
}

/// The ACK of a packet of the handshake that took `rtt`.
fn ack(now: Instant, rtt: Duration) -> AckSample {
    AckSample {
        now,
        newly_acked: 1200,
        rtt: Some(rtt),
        newest_sent: now - rtt,
        in_flight: 0,
        app_limited: true,
        rate: None,
    }
}

/// One that has sent nothing yet.
fn controller() -> Controller {
    let world = world((20_000_000, 600, 600, 0), &[Kind::Satellite]);
    world.senders[0].controller.clone()
}

/// A controller's pacing, in permille of the remembered rate, when the handshake took so many milliseconds; it is told of the
/// path before the first packet, as by a client, or after it, as by a server.
fn pace_after(rtt: u64, before: bool) -> u64 {
    let (start, rtt) = (origin(), Duration::from_millis(rtt));
    let mut controller = controller();
    if before {
        assert!(controller.resume(start, saved(REMEMBERED)));
    }
    let now = start + rtt;
    controller.on_ack(&ack(now, rtt));
    if !before {
        controller.resume(now, saved(REMEMBERED));
    }
    controller.pacing_rate().as_u64() * 1000 / REMEMBERED.as_u64()
}

#[test]
fn half_of_what_is_remembered_is_tried() {
    for before in [true, false] {
        let pace = pace_after(620, before);
        assert!((450..=560).contains(&pace), "{pace}, {before}");
    }
}

/// Another sender fills the path: the handshake says so.
#[test]
fn a_queue_that_the_handshake_meets_makes_wary() {
    for before in [true, false] {
        let pace = pace_after(1000, before);
        assert!((50..=150).contains(&pace), "{pace}, {before}");
    }
}

#[test]
fn another_path_is_not_taken_for_the_one_that_is_remembered() {
    for rtt in [290, 6100] {
        let [remembered, fresh] = [true, false].map(|before| {
            let mut controller = controller();
            let (start, rtt) = (origin(), Duration::from_millis(rtt));
            if before {
                assert!(controller.resume(start, saved(REMEMBERED)));
            }
            controller.on_ack(&ack(start + rtt, rtt));
            let late = controller.resume(start + rtt, saved(REMEMBERED));
            assert!(!late, "{rtt:?}");
            (controller.window(), controller.pacing_rate())
        });
        assert_eq!(remembered, fresh, "{rtt} ms");
    }
}

/// A path that holds less than the initial window, as is remembered or was sold, is sent what fills it and no more.
#[test]
fn a_thin_path_is_not_sent_an_initial_window() {
    const THIN: BitRate = BitRate::bits_per_second(512_000);
    // What the path holds: 38 kB.
    let (start, full) = (origin(), 512_000 / 8 * 600 / 1000);
    let window = |provisioned: Option<BitRate>, memory: bool| {
        let config = Config {
            initial_window: 96_000,
            mtu: 1200,
            initial_rtt: RTT,
            max_rate: None,
            provisioned,
            in_order: false,
        };
        let mut controller = Controller::new(Kind::Satellite, &config, start);
        if memory {
            controller.resume(start, saved(THIN));
        }
        controller.on_ack(&ack(start + RTT, RTT));
        controller.window()
    };
    let free = window(None, false);
    assert!(free > 2 * full, "{free}");
    for (sold, memory) in [(Some(THIN), false), (None, true), (Some(THIN), true)] {
        let held = window(sold, memory);
        assert!((full..full * 3 / 2).contains(&held), "{held}, {full}");
    }
    // What was sold since is more.
    assert!(window(Some(BitRate::bits_per_second(20_000_000)), true) >= free);
}

/// Losses of a jump leave half of what it proved; the rate is found again.
#[test]
fn a_jump_that_meets_losses_retreats() {
    const LINK: u64 = 10_000_000;
    let mut world = world((LINK, 600, 29, 0), &[Kind::Satellite]);
    let now = world.now;
    assert!(
        world.senders[0]
            .controller
            .resume(now, saved(bits(8 * LINK)))
    );
    let pace = |world: &World| world.senders[0].controller.pacing_rate().as_u64();
    while pace(&world) >= 4 * LINK {
        world.run(Duration::from_millis(10));
    }
    assert!(world.senders[0].lost > 100, "it was a jump");
    // Of ACKs that come at 1.08 Mbit/s.
    let after = pace(&world);
    assert!(after <= 600_000, "{after}");
    world.run(Duration::from_secs(20));
    let used = world.run(Duration::from_secs(20));
    assert!(used >= 0.9, "{used}");
}

/// A controller whose rate was sold, behind a handshake of two round trips of `base`.
fn of_sold_rate(start: Instant, base: Duration, sold: BitRate) -> Controller {
    let config = Config {
        initial_window: 64 * 1472,
        mtu: 1472,
        initial_rtt: base,
        max_rate: Some(sold),
        provisioned: Some(sold),
        in_order: false,
    };
    let mut controller = Controller::new(Kind::Satellite, &config, start);
    for round in 1..=2 {
        controller.on_ack(&ack(start + base * round, base));
    }
    controller
}

/// A rate that was sold, and a flight of full packets whose ACKs come 47 ms apart over 575 ms: the first three say nothing of the
/// rate, nor does one of a small packet just before them. Nobody else is there.
#[test]
fn a_sold_rate_survives_the_first_answers() {
    const SOLD: BitRate = BitRate::bits_per_second(502_400);
    let (ms, base) = (Duration::from_millis, Duration::from_millis(575));
    for (late, stray) in [(60, false), (110, false), (60, true), (110, true)] {
        let start = origin();
        let mut controller = of_sold_rate(start, base, SOLD);
        let flight = start + base * 2 + ms(1);
        controller.on_sent(flight, 100, 100);
        if stray {
            controller.on_ack(&ack(flight + ms(late + 25), base));
        }
        for count in 0..8 {
            controller.on_ack(&AckSample {
                newly_acked: 2 * 1472,
                in_flight: 28 * 1472,
                app_limited: false,
                ..ack(flight + ms(late + 640 + 47 * count), ms(615))
            });
            let pace = controller.pacing_rate().as_u64();
            assert!(
                pace >= SOLD.as_u64() * 9 / 10,
                "after {count} answers, {late} ms late: {pace} bit/s"
            );
        }
    }
}

/// A rate that was sold, on a path that has an eighth of it and whose ACKs are so rare that no rate can be told from two: what fills
/// its queue is seen all the same.
#[test]
fn a_sold_rate_is_given_up_where_acks_are_rare() {
    const SOLD: BitRate = BitRate::bits_per_second(2_000_000);
    let (base, apart) = (Duration::from_millis(50), Duration::from_millis(46));
    let start = origin();
    let mut controller = of_sold_rate(start, base, SOLD);
    let flight = start + base * 2;
    controller.on_sent(flight, 1472, 1472);
    // Packets leave 6 ms apart and arrive 46 ms apart.
    for count in 1..=24 {
        let (sent, rtt) = (flight + apart * count / 8, base + apart * count * 7 / 8);
        controller.on_ack(&AckSample {
            newly_acked: 1472,
            in_flight: 35_000,
            app_limited: false,
            ..ack(sent + rtt, rtt)
        });
    }
    // A round trip of what was sold, and its spare: 35 kB.
    let window = controller.window();
    assert!(window <= 12_000, "{window} bytes");
}
