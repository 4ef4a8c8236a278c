//! How close to the physical limit transfers come with the controller `satellite`.

use bentpipe_tunnel::engine::Profile;
use std::time::Duration;

use bentpipe_congestion::Kind;
use bentpipe_link::{LinkConfig, LossModel};
use bentpipe_testbed::world::{World, preset};
use bentpipe_units::Ratio;

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

/// One packet in twenty is lost: a long transfer still has the rate of the link.
#[test]
fn heavy_loss_does_not_slow_a_long_transfer() {
    let mut ratios: Vec<f64> = (1..=5)
        .map(|seed| transfers("g1", 250e6, 0.6, 400_000_000, 0.05, Kind::Satellite, seed)[1])
        .collect();
    ratios.sort_by(f64::total_cmp);
    assert!(ratios[2] <= 1.2 && ratios[4] <= 1.25, "{ratios:?}");
}

/// The rate of a 100 MB download in a tunnel that carried no bulk before, over 250/3 Mbit/s, 600 ms and 5 % loss, beside `readers` that take
/// 100 kB/s each and began `before` it; in MB/s.
fn bulk_beside(readers: usize, before: Duration, seed: u64) -> f64 {
    let lossy = link("g1", 0.05);
    let mut world = World::with_controller(&lossy, seed, Profile::Geo, Kind::Satellite);
    world.run_until(SOON, "the handshake", World::is_ready);
    for _ in 0..readers {
        world.download(50_000_000, Some(100_000));
    }
    world.run_for(before);
    let time = world.timed_download(100_000_000);
    let tunnel = world.terminals[0]
        .engine
        .peek(world.tunnel())
        .expect("it lives");
    let (held, ceiling) = tunnel.tunnel.memory();
    println!(
        "seed {seed}: 100 MB beside {readers} readers: {time:?}, {held} of {ceiling} bytes held"
    );
    assert!(held <= ceiling / 2, "{held} of {ceiling}");
    for reader in 0..readers {
        let reader = world.reader(reader);
        let steady = before.as_secs_f64() * 90_000.0;
        assert!(reader.end.is_none() && reader.got as f64 > steady);
    }
    100.0 / time.as_secs_f64()
}

/// Readers that are slower than the link leave a bulk flow its rate.
#[test]
fn slow_readers_leave_bulk_its_rate() {
    let settled = Duration::from_secs(10);
    for seed in 1..=3 {
        let alone = bulk_beside(0, settled, seed);
        let share = bulk_beside(20, settled, seed) / alone;
        println!("seed {seed}: {share:.3} of the rate alone");
        assert!(share >= 0.9, "seed {seed}: {share}");
    }
}

/// At first each of them is sent what it has credit for, before it is known to be slow.
#[test]
fn slow_readers_that_begin_together_with_bulk_cost_their_first_windows() {
    let share = bulk_beside(20, Duration::ZERO, 1) / bulk_beside(0, Duration::ZERO, 1);
    println!("{share:.3} of the rate alone");
    assert!(share >= 0.6, "{share}");
}
