//! How close to the physical limit transfers come with the controller `satellite`.

use std::time::Duration;

use bentpipe_link::{LinkConfig, LossModel, preset};
use bentpipe_pep::engine::Profile;
use bentpipe_proto::congestion::Kind;
use bentpipe_units::Ratio;

use crate::world::World;

const SOON: Duration = Duration::from_secs(60);
/// Payload per IP byte: what headers and framing leave of a full packet.
const EFFICIENCY: f64 = 0.9647;

pub(crate) fn link(name: &str, loss: f64) -> LinkConfig {
    let preset = preset(name).expect("a preset");
    let mut link = preset.link_config().expect("a link");
    if loss > 0.0 {
        link.forward_link.loss = LossModel::Iid(Ratio::new(loss).expect("a ratio"));
    }
    link
}

fn profile(name: &str) -> Profile {
    if name == "leo" {
        Profile::Leo
    } else {
        Profile::Geo
    }
}

/// One transfer in a fresh tunnel and one after 5 s of idle, each as a ratio to the limit: one round trip, and the bytes
/// at the link's rate.
pub(crate) fn transfers(
    name: &str,
    rate: f64,
    rtt: f64,
    bytes: u64,
    loss: f64,
    kind: Kind,
    seed: u64,
) -> [f64; 2] {
    let mut world = World::with_controller(&link(name, loss), seed, profile(name), kind);
    world.run_until(SOON, "the handshake", World::is_ready);
    world.run_for(Duration::from_secs(1));
    let cold = world.timed_download(bytes);
    world.run_for(Duration::from_secs(5));
    let warm = world.timed_download(bytes);
    let serial = bytes as f64 * 8.0 / (rate * EFFICIENCY * (1.0 - loss));
    let stats = world.link.forward_link.stats();
    let [cold, warm] = [cold, warm].map(|time| time.as_secs_f64());
    let limit = rtt + serial;
    println!(
        "{name:4} {:3} MB loss {:>2} % seed {seed} {:>9}: limit {limit:6.2} s, cold {cold:6.2} s = {:.3}, warm {warm:6.2} s = {:.3}, {} overflowed",
        bytes / 1_000_000,
        loss * 100.0,
        kind.name(),
        cold / (limit + rtt),
        warm / limit,
        stats.dropped_queue,
    );
    [cold / (limit + rtt), warm / limit]
}

/// Without loss the rate is found in a few round trips and kept through idle; with it, the rate is the same, and what is
/// lost last is repaired in a few round trips more.
#[test]
fn a_link_is_filled() {
    for (name, rate, rtt, bytes, loss, ceilings) in [
        ("g1", 250e6, 0.6, 100_000_000, 0.0, [1.75, 1.05]),
        ("g1", 250e6, 0.6, 100_000_000, 0.01, [2.2, 1.5]),
        ("geo", 10e6, 0.5, 10_000_000, 0.0, [1.15, 1.04]),
        ("geo", 10e6, 0.5, 10_000_000, 0.01, [1.25, 1.15]),
        ("geo", 10e6, 0.5, 10_000_000, 0.02, [1.3, 1.2]),
        ("leo", 150e6, 0.05, 30_000_000, 0.0, [1.2, 1.06]),
        ("leo", 150e6, 0.05, 30_000_000, 0.02, [1.35, 1.15]),
    ] {
        let ratios = transfers(name, rate, rtt, bytes, loss, Kind::Satellite, 1);
        assert!(
            ratios[0] <= ceilings[0] && ratios[1] <= ceilings[1],
            "{name} at loss {loss}: {ratios:?}"
        );
    }
}

/// One packet in twenty is lost: a long transfer still has the rate of the link.
#[test]
fn heavy_loss_does_not_slow_a_long_transfer() {
    let [_, warm] = transfers("g1", 250e6, 0.6, 400_000_000, 0.05, Kind::Satellite, 1);
    assert!(warm <= 1.25, "{warm}");
}

/// 20 readers that take 100 kB/s each slow a bulk flow that starts with them down by their share and by the first windows
/// that they fill, and no more. Measured: 0.78 of the rate alone.
#[test]
fn slow_readers_leave_bulk_most_of_its_rate() {
    let bytes = 100_000_000;
    let with = |readers: usize| {
        let lossy = link("g1", 0.05);
        let mut world = World::with_controller(&lossy, 3, Profile::Geo, Kind::Satellite);
        world.run_until(SOON, "the handshake", World::is_ready);
        for _ in 0..readers {
            world.download(50_000_000, Some(100_000));
        }
        let time = world.timed_download(bytes);
        (world, time)
    };
    let (_, alone) = with(0);
    let (world, beside) = with(20);
    let tunnel = world.terminals[0]
        .engine
        .peek(world.tunnel())
        .expect("it lives");
    let (held, ceiling) = tunnel.tunnel.memory();
    println!(
        "100 MB, 250/3 Mbit/s, 600 ms, 5 %: alone {alone:?}, beside 20 readers {beside:?}, {held} of {ceiling} held"
    );
    assert!(
        alone.as_secs_f64() / beside.as_secs_f64() >= 0.7,
        "{alone:?} {beside:?}"
    );
    assert!(held <= ceiling / 2, "{held} of {ceiling}");
    for reader in &world.terminals[0].apps.readers[..20] {
        assert!(
            reader.end.is_none() && reader.got > 500_000,
            "{}",
            reader.got
        );
    }
}
