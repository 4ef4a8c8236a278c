//! IP packets beside flows: they cross whole, lose no more than the link does, and share it.

use std::time::Duration;

use bentpipe_link::{LinkConfig, LossModel};
use bentpipe_testbed::tcp::{Algorithm, Config, PAYLOAD, SEGMENT};
use bentpipe_testbed::world::World;
use bentpipe_units::Ratio;

use crate::bulk;
use crate::outage::set_outage;
use crate::satellite::link;

const CUBIC: Config = Config::new(Algorithm::Cubic { hystart: true });

fn ready(link: &LinkConfig, seed: u64) -> World {
    let mut world = bulk::ready(link, seed);
    world.run_for(Duration::from_secs(3));
    world
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn packets_of_every_size_cross_both_ways_and_none_is_lost() {
    let mut world = ready(&link("geo", 0.0), 1);
    for down in [true, false] {
        for size in [40, 200, 700, 1434, 1480, 1500] {
            let class = if size == 200 { 46 << 2 } else { size as u8 & 3 };
            world
                .inner
                .stream(world.now, down, seconds(10), size, class);
        }
    }
    world.run_for(seconds(12));
    for call in &world.inner.calls {
        assert_eq!((call.sent, call.delays.len()), (500, 500));
        let slowest = call.delays.iter().max().expect("some");
        assert!(*slowest < Duration::from_millis(270), "{slowest:?}");
    }
}

/// One in two datagrams is, too: the shorter one leaves twice.
#[test]
fn packets_are_lost_as_often_as_datagrams() {
    let mut lossy = link("geo", 0.0);
    lossy.forward_link.loss = LossModel::Iid(Ratio::new(0.02).expect("a ratio"));
    let mut world = ready(&lossy, 3);
    for size in [200, 1500] {
        let class = if size == 200 { 46 << 2 } else { 0 };
        world
            .inner
            .stream(world.now, true, seconds(60), size, class);
    }
    world.run_for(seconds(62));
    let lost = |index: usize| {
        let call = &world.inner.calls[index];
        1.0 - call.delays.len() as f64 / call.sent as f64
    };
    println!(
        "2 % of datagrams lost: voice {:.4}, 1500 bytes {:.4}",
        lost(0),
        lost(1)
    );
    assert!(
        lost(0) <= 0.025 && lost(1) <= 0.025,
        "{} {}",
        lost(0),
        lost(1)
    );
}

/// Payload of an inner bulk in `span`, in bytes.
fn inner_bytes(world: &mut World, bulk: usize, span: Duration) -> f64 {
    let before = world.inner.bulks[bulk].receiver.received();
    world.run_for(span);
    (world.inner.bulks[bulk].receiver.received() - before) as f64 * PAYLOAD.as_u64() as f64
}

#[test]
fn tcp_bulk_and_bulk_inside_packets_share() {
    let mut world = ready(&link("geo", 0.0), 1);
    let download = world.download(1_000_000_000, None);
    let bulk = world.inner.bulk(CUBIC);
    world.run_for(seconds(60));
    let before = world.reader(download).got;
    let packets = inner_bytes(&mut world, bulk, seconds(120));
    let stream = (world.reader(download).got - before) as f64;
    let share = packets / (packets + stream);
    let rate = (packets + stream) * 8.0 / 120e6;
    println!(
        "packets have {share:.3} of {rate:.2} Mbit/s; {:?}",
        stats(&world)
    );
    assert!((0.4..=0.6).contains(&share), "{share}");
    assert!(rate > 8.8, "{rate} Mbit/s of 10");
}

fn stats(world: &World) -> bentpipe_tunnel::transport::PacketStats {
    let (_, server) = world.server.connections().next().expect("a tunnel");
    server.tunnel.packet_stats()
}

/// Bulk inside packets against the same transport on the bare link.
#[test]
fn bulk_inside_packets_has_what_the_bare_path_has_but_for_headers() {
    let bare = {
        let mut world = ready(&link("geo", 0.0), 1);
        let tcp = world.compete(CUBIC, true, Duration::ZERO);
        world.run_for(seconds(40));
        let before = world.competitors[tcp].receiver.received();
        world.run_for(seconds(120));
        (world.competitors[tcp].receiver.received() - before) as f64 * PAYLOAD.as_u64() as f64
    };
    let mut world = ready(&link("geo", 0.0), 1);
    let bulk = world.inner.bulk(CUBIC);
    world.run_for(seconds(40));
    let sent = world.sent[0].bytes;
    let tunnelled = inner_bytes(&mut world, bulk, seconds(120));
    let outer = (world.sent[0].bytes - sent) as f64;
    let inner = tunnelled / PAYLOAD.as_u64() as f64 * SEGMENT.as_u64() as f64;
    let bound = bare * inner / outer;
    println!(
        "bare {:.3} Mbit/s, inside {:.3}, inner/outer {:.4}: {:.4} of it; {:?}",
        bare * 8.0 / 120e6,
        tunnelled * 8.0 / 120e6,
        inner / outer,
        tunnelled / bound,
        stats(&world)
    );
    assert!(tunnelled >= 0.98 * bound, "{tunnelled} of {bound}");
}

#[test]
fn voice_beside_bulk_loses_nothing_and_hardly_waits() {
    let alone = {
        let mut world = ready(&link("geo", 0.0), 1);
        let call = world.inner.call(world.now, true, seconds(60));
        world.run_for(seconds(62));
        world.inner.calls[call].p95()
    };
    for (streams, packets) in [(true, false), (true, true), (false, true)] {
        let mut world = ready(&link("geo", 0.0), 1);
        if streams {
            world.download(1_000_000_000, None);
        }
        if packets {
            world.inner.bulk(CUBIC);
        }
        world.run_for(seconds(30));
        let calls = [true, false].map(|down| world.inner.call(world.now, down, seconds(60)));
        world.run_for(seconds(63));
        for call in calls {
            let call = &world.inner.calls[call];
            let mut delays = call.delays.clone();
            delays.sort_unstable();
            let at = |share: usize| delays[delays.len() * share / 100] - alone;
            println!(
                "voice beside streams {streams}, packets {packets}: {:?} later at p50, {:?} at p90, {:?} at p95, {} of {}",
                at(50),
                at(90),
                at(95),
                delays.len(),
                call.sent
            );
            assert_eq!(call.sent, delays.len() as u64, "all of it comes");
            // The queue that the controller keeps on the link, and its pulses.
            let bound = Duration::from_millis(20);
            assert!(at(95) <= bound, "{:?}", at(95));
        }
    }
}

/// What waited through an outage is not sent: it would hold up what is said now.
#[test]
fn an_outage_leaves_no_old_packets() {
    let mut world = ready(&link("geo", 0.0), 1);
    let call = world.inner.call(world.now, false, seconds(120));
    world.run_for(seconds(5));
    set_outage(&mut world, true);
    world.run_for(seconds(20));
    set_outage(&mut world, false);
    world.run_for(seconds(10));
    let call = &world.inner.calls[call];
    let slowest = call.delays.iter().max().expect("some");
    println!(
        "{} of {} came, the slowest after {slowest:?}",
        call.delays.len(),
        call.sent
    );
    assert!(*slowest < Duration::from_millis(1500), "{slowest:?}");
    let recent = call.delays.last().expect("some");
    assert!(*recent < Duration::from_millis(300), "{recent:?}");
    assert!(
        call.delays.len() as u64 + 1200 > call.sent,
        "{}",
        call.delays.len()
    );
}
