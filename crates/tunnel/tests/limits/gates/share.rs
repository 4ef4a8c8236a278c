//! Tunnels beside TCP: what we leave to others, and what we get.

use std::time::Duration;

use bentpipe_congestion::Kind;
use bentpipe_testbed::limit::DOWN;
use bentpipe_testbed::tcp::{Algorithm, Config};
use bentpipe_testbed::world::World;
use bentpipe_units::Seed;

use super::probe::{ENDLESS, alone, dropped, read, received, restart, tcp_rate, tunnel_rate};
use crate::row::Goal::{AtLeast, AtMost, Shown};
use crate::row::{Figure, Row, Sample};
use crate::scenario::{Queue, Scenario};
use crate::transfer::{Before, warm};

const SECOND: Duration = Duration::from_secs(1);
/// How long shares are measured.
const SPAN: Duration = Duration::from_secs(240);
/// One of many transfers, in bytes.
const TRANSFER: u64 = 1_000_000;

pub(crate) const CUBIC: Algorithm = Algorithm::Cubic { hystart: true };

fn name(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::Cubic { .. } => "CUBIC",
        Algorithm::NewReno => "Reno",
    }
}

/// One TCP flow, and one tunnel with `flows` in it that joins; against the same with a CUBIC flow that joins instead of the
/// tunnel. A tunnel is one flow, whatever is in it.
pub(crate) fn beside(scenario: Scenario, algorithm: Algorithm, bdp: f64, flows: u32) -> Row {
    let scenario = Scenario {
        queue: Queue::Bdp(bdp),
        ..scenario
    };
    // What is asked at half a BDP is less: there CUBIC itself hardly fills the link.
    let left = if bdp < 1.0 { 0.5 } else { 0.7 };
    let figures = vec![
        Figure::new("left to it / by CUBIC", AtLeast(left)),
        Figure::new("ours / fair share", AtLeast(0.5)),
        Figure::new("... at most", AtMost(2.0)),
        Figure::new("utilisation", Shown),
    ];
    let many = match flows {
        1 => String::new(),
        _ => format!(", {flows} flows"),
    };
    let title = format!("beside {}, {bdp} BDP{many}", name(algorithm));
    Row::new(scenario.name, title, figures, move |kind, seed| {
        let rate = scenario.rates[DOWN];
        let by_cubic = run(&scenario, algorithm, None, seed)[0];
        let [its, ours] = run(&scenario, algorithm, Some((kind, flows)), seed);
        let share = ours / (rate / 2.0);
        Sample {
            values: vec![its / by_cubic, share, share, (its + ours) / rate],
            note: format!("{its:.2} + {ours:.2} Mbit/s; by CUBIC {by_cubic:.2}"),
        }
    })
    .random()
}

/// IP-layer Mbit/s of the first flow, and of the tunnel, with so many flows in it, or flow that joins it 20 to 30 s later.
fn run(
    scenario: &Scenario,
    algorithm: Algorithm,
    tunnel: Option<(Kind, u32)>,
    seed: u64,
) -> [f64; 2] {
    let (kind, flows) = tunnel.unwrap_or_default();
    let mut world = alone(scenario, kind, seed);
    world.compete(Config::new(algorithm), true, Duration::ZERO);
    world.run_for(20 * SECOND + jitter(seed));
    for _ in 0..flows {
        world.download(ENDLESS, None);
    }
    if tunnel.is_none() {
        world.compete(Config::new(CUBIC), true, Duration::ZERO);
    }
    world.run_for(40 * SECOND);
    let before = (received(&world), read(&world)[0]);
    world.run_for(SPAN);
    let tcp: Vec<_> = received(&world)
        .iter()
        .zip(before.0)
        .map(|(after, before)| tcp_rate(after - before, SPAN))
        .collect();
    let ours = tunnel_rate(read(&world)[0] - before.1, SPAN);
    [tcp[0], tcp.get(1).copied().unwrap_or(ours)]
}

/// IP-layer Mbit/s of a CUBIC flow, and of endless short transfers of the tunnel that join it: a tunnel that runs dry repairs.
pub(super) fn beside_flow(world: &mut World, seed: u64) -> [f64; 2] {
    world.compete(Config::new(CUBIC), true, Duration::ZERO);
    world.run_for(20 * SECOND + jitter(seed));
    let transfers = |world: &mut World, span: Duration| {
        let end = world.now + span;
        while world.now < end {
            let index = world.download(TRANSFER, None);
            world.run_while(end - world.now, |world| world.reader(index).end.is_none());
        }
    };
    transfers(world, 20 * SECOND);
    let payload = |world: &World| read(world)[0];
    let before = (received(world)[0], payload(world));
    transfers(world, SPAN);
    let its = tcp_rate(received(world)[0] - before.0, SPAN);
    [its, tunnel_rate(payload(world) - before.1, SPAN)]
}

/// What a tunnel has carried that knows its path.
const BULK: u64 = 10_000_000;

/// Up to 10 s, another for each seed.
fn jitter(seed: u64) -> Duration {
    Duration::from_millis(Seed::new(seed).stream("phase").as_u64() % 10_000)
}

/// A tunnel that knows the link's rate comes back when CUBIC has it, from a rest or by a new process with the memory of the
/// old one: what it leaves in the next ten round trips, and what the queue drops of its packets.
///
/// The jump is what leaves in its first two round trips: what comes back until then tells of its beginning alone. What is
/// dropped of that must be a small share of that; and of all that leaves in eleven round trips, lest it only be dropped later.
pub(crate) fn jump(scenario: Scenario, before: Before) -> Row {
    let figures = vec![
        Figure::new("victim / fair, 10 RTT", AtLeast(0.8)),
        Figure::new("dropped / jump, %", AtMost(5.0)),
        Figure::new("our drops / sent, %", AtMost(5.0)),
        Figure::new("dropped by queue, %", Shown),
        Figure::new("ours / fair, 10 RTT", Shown),
    ];
    let resumed = match before {
        Before::Resumed => ", resumed",
        _ => "",
    };
    let name = format!("jump onto CUBIC{resumed}");
    Row::new(scenario.name, name, figures, move |kind, seed| {
        let rtt = scenario.rtt();
        let fair = scenario.rates[DOWN] / 2.0;
        let mut world = alone(&scenario, kind, seed);
        warm(&mut world, &scenario, DOWN, 0);
        // For long enough that there is something to remember where a round trip is short.
        world.timed_download(BULK);
        world.behaviour.known_paths = world.learned();
        world.compete(Config::new(CUBIC), true, Duration::ZERO);
        world.run_for(50 * SECOND);
        if before == Before::Resumed {
            restart(&mut world, jitter(seed));
        } else {
            world.run_for(jitter(seed));
        }
        let link = world.link.forward_link.stats();
        let sent = world.sent[DOWN];
        let share = move |world: &World| {
            let now = world.sent[DOWN];
            let packets = (now.packets - sent.packets).max(1) as f64;
            100.0 * (now.dropped - sent.dropped) as f64 / packets
        };
        world.download(ENDLESS, None);
        // The first bytes need a round trip; what is lost is known another one later.
        world.run_for(rtt + rtt / 2);
        let held = (received(&world)[0], read(&world)[0]);
        world.run_for(rtt);
        let jump = share(&world);
        world.run_for(9 * rtt);
        Sample {
            values: vec![
                tcp_rate(received(&world)[0] - held.0, 10 * rtt) / fair,
                jump,
                share(&world),
                dropped(&link, &world.link.forward_link.stats()),
                tunnel_rate(read(&world)[0] - held.1, 10 * rtt) / fair,
            ],
            note: String::new(),
        }
    })
    .random()
}
