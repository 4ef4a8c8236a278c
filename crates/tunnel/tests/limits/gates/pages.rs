//! Pages over a path that loses packets: most of their flows end within a round trip or two, and what was lost last of each
//! delays whatever it refers to.

use std::time::Duration;

use bentpipe_congestion::Kind;
use bentpipe_testbed::world::PagePlan;

use super::probe::{alone, percentile};
use super::repair::{clean, overhead};
use crate::row::Goal::{AtMost, Shown};
use crate::row::{Figure, Row, Sample};
use crate::scenario::Scenario;

/// Pages of a session, one after the other.
const PAGES: u64 = 6;
const PAUSE: Duration = Duration::from_secs(1);

/// Pages of a new session, against the same without losses.
pub(crate) fn lossy(scenario: Scenario) -> Row {
    let figures = vec![
        Figure::new("added by losses, mean, s", AtMost(0.25)),
        Figure::new("median, s", AtMost(5.0)),
        Figure::new("first page, s", AtMost(5.6)).tail(),
        Figure::new("median without losses, s", AtMost(4.75)),
        Figure::new("overhead / allowed", Shown),
    ];
    let load = |scenario: &Scenario, kind: Kind, seed: u64| {
        let mut world = alone(scenario, kind, seed);
        let one = |page| {
            world.run_for(PAUSE);
            world
                .timed_page(PagePlan::new(seed * 100 + page))
                .as_secs_f64()
        };
        let times: Vec<_> = (0..PAGES).map(one).collect();
        (times, overhead(&world))
    };
    Row::new(scenario.name, "pages", figures, move |kind, seed| {
        let (mut bare, _) = load(&clean(scenario), kind, seed);
        let (mut times, overhead) = load(&scenario, kind, seed);
        let first = times[0];
        let sum = |times: &[f64]| times.iter().sum::<f64>();
        let added = (sum(&times) - sum(&bare)) / PAGES as f64;
        let [median, least] = [&mut times, &mut bare].map(|times| percentile(times, 0.5));
        Sample {
            values: vec![added, median, first, least, overhead],
            note: String::new(),
        }
    })
    .random()
}
