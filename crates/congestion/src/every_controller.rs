//! What every published controller has to do, whatever its law. `satellite` has gates of its own.

use std::time::Duration;

use super::simulation::{MTU, World, bits};
use super::tests::link;
use super::{Config, Controller, Kind};

const SECOND: Duration = Duration::from_secs(1);
const PUBLISHED: [Kind; 4] = [Kind::Cubic, Kind::CubicNoHystart, Kind::NewReno, Kind::Bbr3];

/// Rate in bit/s, round-trip time and queue in ms.
const LINKS: [(u64, u64, u64); 3] = [
    (10_000_000, 500, 500),
    (250_000_000, 600, 600),
    (50_000_000, 50, 50),
];

#[test]
fn a_clean_link_is_filled() {
    for kind in PUBLISHED {
        for (rate, rtt, queue) in LINKS {
            let mut world = World::new(link(rate, rtt, queue), &[kind]);
            world.run(20 * SECOND);
            let (used, lost) = world.measure(30 * SECOND);
            // ProbeRTT costs bbr3 6 % where a round trip is long.
            assert!(used >= 0.92, "{kind} at {rate}, {rtt} ms: {used}");
            assert!(lost <= 0.02, "{kind} at {rate}, {rtt} ms: {lost}");
        }
    }
}

#[test]
fn marks_keep_the_queue_from_overflowing() {
    for kind in PUBLISHED {
        let mut link = link(20_000_000, 100, 400);
        link.mark = Some(SECOND / 20);
        let mut world = World::new(link, &[kind]);
        world.run(10 * SECOND);
        let (used, lost) = world.measure(30 * SECOND);
        assert!(used >= 0.85, "{kind}: {used}");
        assert!(lost < 1e-9, "{kind}: {lost}");
        assert!(world.queue() <= SECOND / 10, "{kind}: {:?}", world.queue());
    }
}

/// After idle the window is sent at the path's rate, or a quarter above it, not at once.
#[test]
fn idle_does_not_end_in_a_burst() {
    for kind in PUBLISHED {
        for (rate, rtt, queue) in LINKS {
            let mut world = World::new(link(rate, rtt, queue), &[kind]);
            world.run(30 * SECOND);
            world.set_busy(0, false);
            world.run(60 * SECOND);
            world.set_busy(0, true);
            let rtt = Duration::from_millis(rtt);
            let first = (0..8).map(|_| {
                world.run(rtt / 8);
                world.queue()
            });
            let longest = first.max().unwrap_or_default();
            assert!(longest <= rtt * 3 / 5, "{kind} at {rate}: {longest:?}");
        }
    }
}

#[test]
fn two_of_a_kind_share() {
    for kind in PUBLISHED {
        for (rate, rtt, queue) in [(20_000_000, 100, 100), (50_000_000, 50, 50)] {
            let mut world = World::new(link(rate, rtt, queue), &[kind; 2]);
            world.senders[1].busy = false;
            world.run(10 * SECOND);
            world.set_busy(1, true);
            world.run(60 * SECOND);
            let shares = world.shares(120 * SECOND);
            assert!(
                shares[1] >= 0.35 && shares[0] >= 0.35,
                "{kind} at {rate}: {shares:?}"
            );
        }
    }
}

/// The operator's ceiling is kept, reached, and not mistaken for a full link.
#[test]
fn a_ceiling_below_the_link_is_kept() {
    for kind in PUBLISHED {
        let mut world = World::new(link(10_000_000, 500, 500), &[kind]);
        let config = Config {
            initial_window: 64 * u64::from(MTU),
            mtu: MTU,
            initial_rtt: SECOND / 2,
            max_rate: Some(bits(5_000_000)),
            provisioned: None,
            in_order: false,
        };
        world.senders[0].controller = Controller::new(kind, &config, world.now);
        world.run(20 * SECOND);
        let (used, lost) = world.measure(20 * SECOND);
        assert!((0.45..=0.505).contains(&used), "{kind}: {used}");
        assert!(lost < 1e-9, "{kind}: {lost}");
        assert!(world.queue() < SECOND / 50, "{kind}: {:?}", world.queue());
    }
}
