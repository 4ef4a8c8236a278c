//! Downloads from destinations that are some way from the server, and begin slowly themselves.

use std::time::Duration;

use bentpipe_congestion::Kind;
use bentpipe_testbed::limit::DOWN;

use crate::row::Goal::AtMost;
use crate::row::{Figure, Row, Sample};
use crate::scenario::Scenario;
use crate::transfer::{Before, connect, warm, world};

/// Round-trip time from the server to such a destination.
const DISTANCE: Duration = Duration::from_millis(60);
/// Round trips of a destination's slow start in which it is slower than any link here.
const ROUNDS: u32 = 8;

/// A download over a tunnel that is new, or whose path is remembered, beside the same from a destination where the server is.
pub(crate) fn download(scenario: Scenario, before: Before, bytes: u64) -> Row {
    let what = match before {
        Before::Resumed => "resumed",
        _ => "cold",
    };
    let name = format!("{} MB from 60 ms off, {what}", bytes / 1_000_000);
    let figures = vec![Figure::new("beside a near origin", AtMost(1.1))];
    Row::new(scenario.name, name, figures, move |kind, seed| {
        let time = |distance| once(&scenario, before, bytes, (kind, seed), distance);
        let (near, far) = (time(Duration::ZERO), time(DISTANCE));
        let least = near + DISTANCE * ROUNDS;
        Sample {
            values: vec![far.as_secs_f64() / least.as_secs_f64()],
            note: format!("{far:.2?} beside {near:.2?}"),
        }
    })
}

/// Time that the download takes.
fn once(
    scenario: &Scenario,
    before: Before,
    bytes: u64,
    (kind, seed): (Kind, u64),
    distance: Duration,
) -> Duration {
    let link = scenario.link(seed);
    let mut world = world(scenario, &link, kind, seed);
    connect(&mut world);
    if before == Before::Resumed {
        warm(&mut world, scenario, DOWN, seed);
        let known = world.learned();
        world = crate::transfer::world(scenario, &link, kind, seed);
        world.behaviour.known_paths = known;
        connect(&mut world);
    }
    world.origins.rtt = distance;
    world.timed_download(bytes)
}
