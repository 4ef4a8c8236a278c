//! What crosses as packets: pings beside bulk, and transports with a congestion control of their own.

use std::time::Duration;

use bentpipe_congestion::Kind;
use bentpipe_testbed::limit::DOWN;
use bentpipe_testbed::tcp::Config;

use super::probe::{ENDLESS, alone, percentile, tcp_rate};
use super::share::CUBIC;
use crate::row::Goal::{AtLeast, AtMost, Shown};
use crate::row::{Figure, Row, Sample};
use crate::scenario::Scenario;

const SECOND: Duration = Duration::from_secs(1);

/// What bulk in the same tunnel adds to the round trips of pings.
pub(crate) fn ping(scenario: Scenario) -> Row {
    let figures = vec![
        Figure::new("added p50, ms", AtMost(20.0)),
        Figure::new("added p95, ms", AtMost(60.0)),
        Figure::new("lost, %", AtMost(0.0)),
    ];
    Row::new(
        scenario.name,
        "ping beside bulk",
        figures,
        move |kind, seed| {
            let round_trips = |bulk| {
                let mut world = alone(&scenario, kind, seed);
                world.timed_download(3 * scenario.bdp(DOWN));
                if bulk {
                    world.download(ENDLESS, None);
                }
                world.run_for(20 * SECOND);
                let span = 60 * SECOND;
                let call = world.inner.ping(world.now, span);
                world.run_for(span + 3 * SECOND);
                let call = &world.inner.calls[call];
                let mut times: Vec<_> = call
                    .delays
                    .iter()
                    .map(|time| time.as_secs_f64() * 1e3)
                    .collect();
                let lost = 100.0 * (1.0 - times.len() as f64 / call.sent as f64);
                ([0.5, 0.95].map(|share| percentile(&mut times, share)), lost)
            };
            let (alone, _) = round_trips(false);
            let (beside, lost) = round_trips(true);
            Sample {
                values: vec![beside[0] - alone[0], beside[1] - alone[1], lost],
                note: format!("alone {:.1} ms", alone[0]),
            }
        },
    )
}

/// A CUBIC download inside, as packets, against the same on the bare link.
pub(crate) fn nested(scenario: Scenario) -> Row {
    let figures = vec![
        Figure::new("goodput / bare path", AtLeast(0.95)),
        Figure::new("bare / rate", Shown),
    ];
    let row = Row::new(scenario.name, "CUBIC inside", figures, move |kind, seed| {
        let [inside, bare] = [true, false].map(|inside| goodput(&scenario, inside, kind, seed));
        Sample {
            values: vec![inside / bare, bare / scenario.rates[DOWN]],
            note: format!("{inside:.2} Mbit/s, bare {bare:.2}"),
        }
    });
    if scenario.is_random() {
        row.random()
    } else {
        row
    }
}

fn goodput(scenario: &Scenario, inside: bool, kind: Kind, seed: u64) -> f64 {
    let mut world = alone(scenario, kind, seed);
    if inside {
        world.inner.bulk(Config::new(CUBIC));
    } else {
        world.compete(Config::new(CUBIC), true, Duration::ZERO);
    }
    let received = |world: &bentpipe_testbed::world::World| {
        let receivers = world.inner.bulks.iter().map(|bulk| &bulk.receiver);
        let receivers = receivers.chain(world.competitors.iter().map(|flow| &flow.receiver));
        receivers.map(|receiver| receiver.received()).sum::<u64>()
    };
    world.run_for(40 * SECOND);
    let before = received(&world);
    // A few losses make the difference where there are few packets.
    let span = if scenario.is_random() { 960 } else { 240 } * SECOND;
    world.run_for(span);
    tcp_rate(received(&world) - before, span)
}
