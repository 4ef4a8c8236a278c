//! What few ACKs might do: bursts when one comes, and losses that are noticed late.

use std::time::Duration;

use bentpipe_testbed::limit::DOWN;
use bentpipe_testbed::world::World;
use bentpipe_units::Seed;

use super::probe::{ENDLESS, alone, percentile};
use crate::row::Goal::{AtMost, Shown};
use crate::row::{Figure, Row, Sample};
use crate::scenario::{Scenario, mbit};
use crate::transfer::warm;

const SECOND: Duration = Duration::from_secs(1);
/// What the pacer lets out together (DESIGN §2): what the rate carries in this time, 1 to 10 packets.
const QUANTUM: Duration = Duration::from_millis(1);
/// UDP payload of a full packet.
const FULL: u64 = 1472;
/// Losses of each run.
const LOSSES: u32 = 20;
/// How often it is looked whether a loss is known.
const LOOK: Duration = Duration::from_micros(500);

/// The longest burst of bulk, and how long after the round trip in which it could have been known a loss is.
pub(crate) fn thinned(scenario: Scenario) -> Row {
    let figures = vec![
        Figure::new("longest burst / quantum", AtMost(1.0)),
        Figure::new("loss known late p95, RTT", AtMost(0.25)),
        Figure::new("packets per ACK", Shown),
    ];
    Row::new(
        scenario.name,
        "bursts and losses",
        figures,
        move |kind, seed| {
            let mut world = alone(&scenario, kind, seed);
            warm(&mut world, &scenario, DOWN, 0);
            world.download(ENDLESS, None);
            world.run_for(20 * SECOND);
            let (mark, sent) = (world.trace.len(), world.sent);
            world.run_for(60 * SECOND);
            let per_ack = (world.sent[0].packets - sent[0].packets) as f64
                / (world.sent[1].packets - sent[1].packets) as f64;
            let carried = mbit(scenario.rates[DOWN]).bytes_in(QUANTUM).as_u64();
            let quantum = carried.div_ceil(FULL).clamp(1, 10) * FULL;
            let burst = longest(&world.trace[mark..]);
            let phases = Seed::new(seed).stream("losses");
            let mut late: Vec<_> = (0..LOSSES)
                .map(|loss| {
                    let phase = phases.stream(&loss.to_string()).as_u64() % 1000;
                    world.run_for(3 * SECOND + Duration::from_millis(phase));
                    let known = lose_one(&mut world);
                    known.as_secs_f64() / scenario.rtt().as_secs_f64() - 1.0
                })
                .collect();
            Sample {
                values: vec![
                    burst as f64 / quantum as f64,
                    percentile(&mut late, 0.95),
                    per_ack,
                ],
                note: format!("longest burst {:.1} packets", burst as f64 / FULL as f64),
            }
        },
    )
}

/// The most bytes that left the server's socket at one instant.
fn longest(trace: &[(Duration, usize, usize)]) -> u64 {
    let mut most = 0;
    let (mut last, mut together) = (Duration::ZERO, 0);
    for (at, _, size) in trace.iter().filter(|(_, way, _)| *way == DOWN) {
        together = if *at == last {
            together + *size as u64
        } else {
            *size as u64
        };
        last = *at;
        most = most.max(together);
    }
    most
}

/// The forward link loses the next packet that it has sent; the time until the server knows.
fn lose_one(world: &mut World) -> Duration {
    let before = declared(world);
    let taken = |world: &World| world.link.forward_link.stats().dropped_outage;
    let gone = taken(world);
    let now = world.now;
    world.link.forward_link.set_outage(now, true);
    while taken(world) == gone {
        world.run_for(LOOK);
    }
    let now = world.now;
    world.link.forward_link.set_outage(now, false);
    while declared(world) == before {
        world.run_for(LOOK);
    }
    world.now - now
}

/// Packets that the server has declared lost.
fn declared(world: &mut World) -> u64 {
    let (id, _) = world.server.connections().next().expect("a tunnel");
    let connection = world.server.connection(id).expect("it lives");
    connection.parts().1.stats().path.lost_packets
}
