//! Several tunnels on one beam.

use std::time::Duration;

use bentpipe_link::Outage;
use bentpipe_link::Schedule;
use bentpipe_testbed::limit::DOWN;
use bentpipe_testbed::world::World;

use super::probe::{
    ENDLESS, dropped, heaviest, jain, percentile, read, ready, restart, tunnel_rate, wait, watch,
};
use crate::row::Goal::{AtLeast, AtMost, Shown};
use crate::row::{Figure, Row, Sample};
use crate::scenario::Scenario;

const SECOND: Duration = Duration::from_secs(1);
const SPAN: Duration = Duration::from_secs(60);

/// Where the terminals are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Places {
    /// All at the same distance.
    Same,
    /// Every second one has four times the RTT of the others, which is that of the scenario.
    OneToFour,
    /// Every second one is 550 ms of RTT farther than the others.
    LeoAndGeo,
}

/// `count` tunnels with bulk that start one after the other: shares of the last minute.
pub(crate) fn many(scenario: Scenario, count: u32, places: Places) -> Row {
    // Of Jain's index; how much more the near ones may have, or the far ones.
    let (far, least, most) = match places {
        Places::Same => ("", 0.95, Shown),
        Places::OneToFour => (", RTT 1:4", 0.85, Shown),
        Places::LeoAndGeo => (", LEO and GEO", 0.5, AtMost(2.0)),
    };
    let drops = if count > 2 { 2.0 } else { 0.5 };
    let figures = vec![
        Figure::new("Jain's index", AtLeast(least)),
        Figure::new("utilisation", AtLeast(0.95)),
        Figure::new("dropped by queue, %", AtMost(drops)),
        Figure::new("queue p95, ms", Shown),
        Figure::new("unequal by distance", most),
        Figure::new("fair after, RTT", AtMost(20.0)),
    ];
    let name = format!("{count} tunnel(s){far}");
    let row = Row::new(scenario.name, name, figures, move |kind, seed| {
        let rate = scenario.rates[DOWN];
        let extra = match places {
            Places::Same => Duration::ZERO,
            Places::OneToFour => scenario.rtt() * 3 / 2,
            Places::LeoAndGeo => Duration::from_millis(275),
        };
        let access: Vec<_> = (0..count).map(|index| extra * (index % 2)).collect();
        let mut world = ready(&scenario, &access, kind, seed);
        start_all(&mut world, 10 * SECOND / count);
        let converged = settle(&mut world, scenario.rtt() + 2 * extra, least);
        let before = (world.link.forward_link.stats(), read(&world));
        let mut waits = Vec::new();
        watch(&mut world, SPAN, |world| waits.push(wait(world, rate)));
        let rates = rates(&world, &before.1);
        let of = |parity| {
            let mine = rates.iter().skip(parity).step_by(2);
            mine.sum::<f64>()
        };
        Sample {
            values: vec![
                jain(&rates),
                rates.iter().sum::<f64>() / rate,
                dropped(&before.0, &world.link.forward_link.stats()),
                percentile(&mut waits, 0.95),
                (of(0) / of(1)).max(of(1) / of(0)),
                converged,
            ],
            note: String::new(),
        }
    });
    match places {
        // What is dropped depends on when which of them asks the other.
        Places::LeoAndGeo => row.random(),
        _ if scenario.is_random() => row.random_and_slow(),
        _ => row,
    }
}

/// Lets 50 of the longest round trips pass; answers after how many the shares are as fair as asked and stay so, looked at
/// five by five.
fn settle(world: &mut World, rtt: Duration, least: f64) -> f64 {
    let mut unfair_until = 0.0;
    for look in 1..=10 {
        let before = read(world);
        world.run_for(5 * rtt);
        if jain(&rates(world, &before)) < least {
            unfair_until = 5.0 * f64::from(look);
        }
    }
    if unfair_until < 50.0 {
        unfair_until
    } else {
        f64::INFINITY
    }
}

/// Bulk in every terminal, one after the other.
fn start_all(world: &mut World, gap: Duration) {
    for index in 0..world.terminals.len() {
        let now = world.now;
        world.terminals[index].download(now, ENDLESS, None);
        world.run_for(gap);
    }
}

fn rates(world: &World, before: &[u64]) -> Vec<f64> {
    let got = read(world);
    let rates = got.iter().zip(before);
    rates
        .map(|(after, before)| tunnel_rate(after - before, SPAN))
        .collect()
}

/// A download goes on after an outage: how soon, and whether anything was reset.
pub(crate) fn outage(scenario: Scenario, length: Duration) -> Row {
    let figures = vec![
        Figure::new("first byte after, RTT", AtMost(1.5)),
        Figure::new("flows reset", AtMost(0.0)),
    ];
    let name = format!("outage of {length:?}");
    Row::new(scenario.name, name, figures, move |kind, seed| {
        let mut world = ready(&scenario, &[Duration::ZERO], kind, seed);
        let index = world.download(ENDLESS, None);
        world.run_for(20 * SECOND + scenario.rtt() * seed as u32 / 7);
        break_links(&mut world, length);
        world.run_for(length);
        let (before, ended) = (world.reader(index).got, world.now);
        let back = world.run_while(60 * SECOND, |world| world.reader(index).got == before);
        let silence = (world.now - ended).as_secs_f64() / scenario.rtt().as_secs_f64();
        Sample {
            values: vec![
                if back { silence } else { f64::INFINITY },
                f64::from(u8::from(world.reader(index).end.is_some())),
            ],
            note: String::new(),
        }
    })
}

/// Both directions lose everything for `length`.
fn break_links(world: &mut World, length: Duration) {
    let now = world.now;
    let outage = Outage {
        start: Duration::ZERO,
        length,
    };
    for pipe in [&mut world.link.forward_link, &mut world.link.return_link] {
        pipe.plan(now, &Schedule::none(), vec![outage]);
    }
}

/// After what all tunnels of a beam come back at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gone {
    /// 10 s in which nothing came through.
    Link,
    /// Another process at the gateway, which remembers what each of them had.
    Gateway,
}

/// All tunnels come back: what they send together in any round trip of the next minute, wherever it begins, and how they
/// share and use the link in that minute.
pub(crate) fn resume(scenario: Scenario, count: u32, gone: Gone) -> Row {
    let figures = vec![
        Figure::new("load / rate, 1 RTT", AtMost(1.5)),
        Figure::new("dropped by queue, %", AtMost(5.0)),
        Figure::new("Jain's index, a minute", AtLeast(0.95)),
        Figure::new("utilisation, a minute", AtLeast(0.95)),
    ];
    let after = match gone {
        Gone::Link => "an outage",
        Gone::Gateway => "a restart",
    };
    let name = format!("{count} tunnels after {after}");
    Row::new(scenario.name, name, figures, move |kind, seed| {
        let (rate, rtt) = (scenario.rates[DOWN], scenario.rtt());
        let mut world = ready(&scenario, &vec![Duration::ZERO; count as usize], kind, seed);
        start_all(&mut world, 10 * SECOND / count);
        world.run_for(40 * SECOND);
        match gone {
            Gone::Link => {
                break_links(&mut world, 10 * SECOND);
                world.run_for(10 * SECOND);
            }
            Gone::Gateway => {
                restart(&mut world, rtt * seed as u32 / 7);
                start_all(&mut world, Duration::ZERO);
            }
        }
        let before = (world.link.forward_link.stats(), read(&world));
        let load = heaviest(&mut world, SPAN, rtt) / rate;
        let remembered = world
            .behaviour
            .known_paths
            .values()
            .map(|path| path.rate.as_u64() as f64);
        let remembered = remembered.sum::<f64>() / 1e6 / rate;
        let rates = rates(&world, &before.1);
        Sample {
            values: vec![
                load,
                dropped(&before.0, &world.link.forward_link.stats()),
                jain(&rates),
                rates.iter().sum::<f64>() / rate,
            ],
            note: format!("together they remember {remembered:.2} of the rate"),
        }
    })
}
