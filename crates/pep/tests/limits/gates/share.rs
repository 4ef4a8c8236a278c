//! Tunnels beside TCP: what we leave to others, and what we get.

use std::time::Duration;

use bentpipe_link::tcp::{Algorithm, Config};
use bentpipe_proto::congestion::Kind;
use bentpipe_units::Seed;

use super::probe::{ENDLESS, alone, dropped, read, received, tcp_rate, tunnel_rate};
use crate::limit::DOWN;
use crate::row::Goal::{AtLeast, AtMost, Shown};
use crate::row::{Figure, Row, Sample};
use crate::scenario::{Queue, Scenario};
use crate::transfer::warm;
use crate::world::World;

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

/// One TCP flow, and one tunnel that joins it; against the same with a CUBIC flow that joins instead of the tunnel.
pub(crate) fn beside(scenario: Scenario, algorithm: Algorithm, bdp: f64) -> Row {
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
    let title = format!("beside {}, {bdp} BDP", name(algorithm));
    Row::new(scenario.name, title, figures, move |kind, seed| {
        let rate = scenario.rates[DOWN];
        let by_cubic = run(&scenario, algorithm, None, seed)[0];
        let [its, ours] = run(&scenario, algorithm, Some(kind), seed);
        let share = ours / (rate / 2.0);
        Sample {
            values: vec![its / by_cubic, share, share, (its + ours) / rate],
            note: format!("{its:.2} + {ours:.2} Mbit/s; by CUBIC {by_cubic:.2}"),
        }
    })
}

/// IP-layer Mbit/s of the first flow, and of the tunnel or flow that joins it 20 to 30 s later.
fn run(scenario: &Scenario, algorithm: Algorithm, kind: Option<Kind>, seed: u64) -> [f64; 2] {
    let mut world = alone(scenario, kind.unwrap_or_default(), seed);
    world.compete(Config::new(algorithm), true, Duration::ZERO);
    world.run_for(20 * SECOND + jitter(seed));
    if kind.is_some() {
        world.download(ENDLESS, None);
    } else {
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

/// Up to 10 s, another for each seed.
fn jitter(seed: u64) -> Duration {
    Duration::from_millis(Seed::new(seed).stream("phase").as_u64() % 10_000)
}

/// A tunnel that knows the link's rate comes back when CUBIC has it: what it leaves in the next ten round trips.
pub(crate) fn jump(scenario: Scenario) -> Row {
    let figures = vec![
        Figure::new("victim / fair, 10 RTT", AtLeast(0.8)),
        Figure::new("our drops / sent, %", AtMost(5.0)),
        Figure::new("dropped by queue, %", Shown),
    ];
    Row::new(
        scenario.name,
        "jump onto CUBIC",
        figures,
        move |kind, seed| {
            let rtt = scenario.rtt();
            let mut world = alone(&scenario, kind, seed);
            warm(&mut world, &scenario, DOWN, 0);
            world.compete(Config::new(CUBIC), true, Duration::ZERO);
            world.run_for(50 * SECOND + jitter(seed));
            let before = (
                received(&world)[0],
                world.link.forward_link.stats(),
                ours(&mut world),
            );
            world.download(ENDLESS, None);
            // The first bytes need a round trip; what is lost is known another one later.
            world.run_for(rtt + rtt / 2);
            let held = received(&world)[0];
            world.run_for(10 * rtt);
            let victim = tcp_rate(received(&world)[0] - held, 10 * rtt);
            let (sent, lost) = ours(&mut world);
            let (sent, lost) = (sent - before.2.0, lost - before.2.1);
            Sample {
                values: vec![
                    victim / (scenario.rates[DOWN] / 2.0),
                    100.0 * lost as f64 / sent as f64,
                    dropped(&before.1, &world.link.forward_link.stats()),
                ],
                note: String::new(),
            }
        },
    )
}

/// Packets that the server's tunnels sent, and those of them that it declared lost.
fn ours(world: &mut World) -> (u64, u64) {
    let ids: Vec<_> = world.server.connections().map(|(id, _)| id).collect();
    let mut total = (0, 0);
    for id in ids {
        if let Some(connection) = world.server.connection(id) {
            let path = connection.parts().1.stats().path;
            total = (total.0 + path.sent_packets, total.1 + path.lost_packets);
        }
    }
    total
}
