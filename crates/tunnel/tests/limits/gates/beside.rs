//! Short flows and pages beside bulk in the same tunnel, and what the return link carries.

use std::time::Duration;

use bentpipe_congestion::Kind;
use bentpipe_testbed::limit::{DOWN, UP, efficiency};
use bentpipe_testbed::world::World;
use bentpipe_units::Seed;

use super::probe::{ENDLESS, alone, percentile, read, tunnel_rate};
use crate::row::Goal::{AtLeast, AtMost, Shown};
use crate::row::{Figure, Row, Sample};
use crate::scenario::Scenario;

const SECOND: Duration = Duration::from_secs(1);

/// Requests that each run sends.
const REQUESTS: u64 = 40;

/// The first byte of 1 kB beside bulk, against the same without.
pub(crate) fn first_byte(scenario: Scenario) -> Row {
    let figures = vec![
        Figure::new("TTFB p95 beside - alone, ms", AtMost(25.0)).tail(),
        Figure::new("TTFB p50 beside, RTT", Shown),
    ];
    let row = Row::new(
        scenario.name,
        "1 kB beside bulk",
        figures,
        move |kind, seed| {
            let mut without = first_bytes(&scenario, kind, seed, false);
            let mut with = first_bytes(&scenario, kind, seed, true);
            let added = percentile(&mut with, 0.95) - percentile(&mut without, 0.95);
            Sample {
                values: vec![
                    added * 1e3,
                    percentile(&mut with, 0.5) / scenario.rtt().as_secs_f64(),
                ],
                note: String::new(),
            }
        },
    );
    if scenario.is_random() {
        row.random()
    } else {
        row
    }
}

fn first_bytes(scenario: &Scenario, kind: Kind, seed: u64, bulk: bool) -> Vec<f64> {
    let mut world = alone(scenario, kind, seed);
    world.timed_download(3 * scenario.bdp(DOWN));
    if bulk {
        world.download(ENDLESS, None);
    }
    world.run_for(20 * SECOND);
    let phases = Seed::new(seed).stream("requests");
    let mut times = Vec::new();
    for request in 0..REQUESTS {
        let pause = 500 + phases.stream(&request.to_string()).as_u64() % 1000;
        world.run_for(Duration::from_millis(pause));
        let index = world.download(1000, None);
        world.run_until(60 * SECOND, "a short flow", |world| {
            world.reader(index).end.is_some()
        });
        let reader = world.reader(index);
        times.push((reader.first.expect("it has bytes") - reader.since).as_secs_f64());
    }
    times
}

/// Objects of each level of a page, and their size: 70 objects, 2 MB; a level is known when the one before is complete.
const PAGE: [(u64, u64); 3] = [(1, 60_000), (9, 60_000), (60, 23_333)];

/// A page beside bulk, against the same without.
pub(crate) fn page(scenario: Scenario) -> Row {
    let figures = vec![
        Figure::new("page beside / alone", AtMost(1.15)),
        // The goal of pages, so that slow ones alone do not excuse slow ones beside bulk.
        Figure::new("page alone / PLT*", AtMost(1.35)),
    ];
    let row = Row::new(
        scenario.name,
        "page beside bulk",
        figures,
        move |kind, seed| {
            let load = |bulk| {
                let mut world = alone(&scenario, kind, seed);
                world.timed_download(3 * scenario.bdp(DOWN));
                if bulk {
                    world.download(ENDLESS, None);
                }
                world.run_for(20 * SECOND + Duration::from_millis(seed * 37));
                load_page(&mut world).as_secs_f64()
            };
            let (alone, beside) = (load(false), load(true));
            let bytes: u64 = PAGE.iter().map(|(count, size)| count * size).sum();
            let serial = bytes as f64 * 8.0 / (scenario.rates[DOWN] * 1e6 * 0.962);
            let limit = PAGE.len() as f64 * scenario.rtt().as_secs_f64() + serial;
            Sample {
                values: vec![beside / alone, alone / limit],
                note: format!("{beside:.2} s, alone {alone:.2} s, PLT* {limit:.2} s"),
            }
        },
    );
    if scenario.is_random() {
        row.random()
    } else {
        row
    }
}

fn load_page(world: &mut World) -> Duration {
    let began = world.now;
    for (count, size) in PAGE {
        let first = world.download(size, None);
        for _ in 1..count {
            world.download(size, None);
        }
        let last = first + count as usize;
        world.run_until(300 * SECOND, "a page", |world| {
            (first..last).all(|index| world.reader(index).end.is_some())
        });
    }
    world.now - began
}

/// Payload per IP byte of the forward link, of a file whose repaired end is a fifth of it and of one where it is little, and
/// against what [`efficiency`] says of a full packet without losses.
pub(crate) fn overhead(scenario: Scenario, least: f64) -> Row {
    let figures = vec![
        Figure::new("payload share of 20 MB", AtLeast(least)),
        Figure::new("payload share of 100 MB", AtLeast(least)),
        Figure::new("... of the most possible", Shown),
    ];
    let row = Row::new(
        scenario.name,
        "overhead of bulk",
        figures,
        move |kind, seed| {
            let mut world = alone(&scenario, kind, seed);
            world.timed_download(3 * scenario.bdp(DOWN));
            let [short, long] = [20_000_000, 100_000_000].map(|bytes| {
                let before = world.sent[DOWN].bytes;
                world.timed_download(bytes);
                bytes as f64 / (world.sent[DOWN].bytes - before) as f64
            });
            let most = efficiency(DOWN, world.sent[DOWN].largest);
            Sample {
                values: vec![short, long, long / most],
                note: String::new(),
            }
        },
    );
    if scenario.is_random() {
        row.random()
    } else {
        row
    }
}

/// What goes back while bulk comes in.
pub(crate) fn return_traffic(scenario: Scenario) -> Row {
    let figures = vec![
        Figure::new("return link, kbit/s", AtMost(60.0)),
        Figure::new("utilisation forward", AtLeast(0.95)),
    ];
    let row = Row::new(
        scenario.name,
        "return traffic of bulk",
        figures,
        move |kind, seed| {
            let mut world = alone(&scenario, kind, seed);
            world.timed_download(3 * scenario.bdp(DOWN));
            world.download(ENDLESS, None);
            world.run_for(20 * SECOND);
            let before = (world.sent[UP].bytes, read(&world)[0]);
            let span = 60 * SECOND;
            world.run_for(span);
            let back = (world.sent[UP].bytes - before.0) as f64 * 8.0 / span.as_secs_f64() / 1e3;
            let forward = tunnel_rate(read(&world)[0] - before.1, span);
            Sample {
                values: vec![back, forward / scenario.rates[DOWN]],
                note: String::new(),
            }
        },
    );
    if scenario.is_random() {
        row.random()
    } else {
        row
    }
}
