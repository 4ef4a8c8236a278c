//! How close to the physical limit transfers come with the controller `satellite`.

use std::time::Duration;

use bentpipe_link::{LinkConfig, LossModel, preset};
use bentpipe_proto::congestion::Kind;
use bentpipe_units::Ratio;

use crate::world::World;

const SOON: Duration = Duration::from_secs(60);
/// Payload per IP byte: what headers and framing leave of a full packet.
const EFFICIENCY: f64 = 0.9647;

fn link(name: &str, loss: f64) -> LinkConfig {
    let preset = preset(name).expect("a preset");
    let mut link = preset.link_config().expect("a link");
    if loss > 0.0 {
        link.forward_link.loss = LossModel::Iid(Ratio::new(loss).expect("a ratio"));
    }
    link
}

/// One transfer in a fresh tunnel and one after 5 s of idle, each as a ratio to the limit: one round trip, and the bytes
/// at the link's rate.
fn transfers(
    name: &str,
    rate: f64,
    rtt: f64,
    bytes: u64,
    loss: f64,
    kind: Kind,
    seed: u64,
) -> [f64; 2] {
    let mut world = World::with_controller(&link(name, loss), seed, kind);
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
        "{name:4} {:3} MB loss {:>2} % seed {seed} {:>9}: limit {limit:6.2} s, cold {cold:6.2} s = {:.3}, warm {warm:6.2} s = {:.3} {stats:?}",
        bytes / 1_000_000,
        loss * 100.0,
        kind.name(),
        cold / (limit + rtt),
        warm / limit,
    );
    [cold / (limit + rtt), warm / limit]
}

/// Every link without loss: the rate is found in a few round trips and kept through idle.
#[test]
fn a_clean_link_is_filled() {
    for (name, rate, rtt, bytes, ceilings) in [
        ("g1", 250e6, 0.6, 100_000_000, [2.8, 1.10]),
        ("geo", 10e6, 0.5, 10_000_000, [1.15, 1.04]),
        ("leo", 150e6, 0.05, 30_000_000, [1.2, 1.06]),
    ] {
        let ratios = transfers(name, rate, rtt, bytes, 0.0, Kind::Satellite, 1);
        assert!(
            ratios[0] <= ceilings[0] && ratios[1] <= ceilings[1],
            "{name}: {ratios:?}"
        );
    }
}
