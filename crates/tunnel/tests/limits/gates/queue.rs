//! What bulk does to a queue that is its own: delay, drops, marks, policers, steps.

use std::time::Duration;

use bentpipe_congestion::Kind;
use bentpipe_link::{Change, CoDel, Law, Marking, Policer, Schedule};
use bentpipe_testbed::limit::DOWN;
use bentpipe_testbed::world::Packet;
use bentpipe_units::ByteCount;

use super::probe::{
    ENDLESS, LOOK, alone, dropped, percentile, read, restart, tunnel_rate, wait, watch,
};
use crate::row::Goal::{AtLeast, AtMost, Shown};
use crate::row::{Figure, Row, Sample};
use crate::scenario::{Loss, Queue, Scenario, mbit};
use crate::transfer::{Before, warm};

const SECOND: Duration = Duration::from_secs(1);

/// Added delay and drops of bulk alone, once it has settled, and how long its beginning exceeds 150 ms: of a new tunnel, or of
/// one that takes up the path where an older process left it.
pub(crate) fn steady(scenario: Scenario, before: Before) -> Row {
    let figures = vec![
        Figure::new("queue p50, ms", AtMost(20.0)),
        Figure::new("queue p95, ms", AtMost(60.0)),
        Figure::new("dropped by queue, %", AtMost(0.5)),
        Figure::new("utilisation", AtLeast(0.95)),
        Figure::new("start > 150 ms, RTT", AtMost(2.0)),
    ];
    let queue = match scenario.queue {
        Queue::Bdp(bdp) => format!("{bdp} BDP"),
        Queue::Packets(packets) => format!("{packets} packets"),
    };
    let resumed = match before {
        Before::Resumed => ", resumed",
        _ => "",
    };
    let name = format!("steady, queue {queue}{resumed}");
    Row::new(scenario.name, name, figures, move |kind, seed| {
        let rate = scenario.rates[DOWN];
        let rtt = scenario.rtt().as_secs_f64();
        let mut world = alone(&scenario, kind, seed);
        if before == Before::Resumed {
            warm(&mut world, &scenario, DOWN, seed);
            restart(&mut world, Duration::ZERO);
        }
        world.download(ENDLESS, None);
        let mut above = 0;
        watch(&mut world, 30 * SECOND, |world| {
            above += u32::from(wait(world, rate) > 150.0);
        });
        let before = (world.link.forward_link.stats(), read(&world)[0]);
        let mut waits = Vec::new();
        let span = 60 * SECOND;
        watch(&mut world, span, |world| waits.push(wait(world, rate)));
        let got = read(&world)[0] - before.1;
        Sample {
            values: vec![
                percentile(&mut waits, 0.5),
                percentile(&mut waits, 0.95),
                dropped(&before.0, &world.link.forward_link.stats()),
                tunnel_rate(got, span) / rate,
                f64::from(above) * LOOK.as_secs_f64() / rtt,
            ],
            note: String::new(),
        }
    })
}

/// A queue that is managed, not only limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Managed {
    /// Queue that marks what has waited longer than 5 ms.
    Threshold,
    /// CoDel with an interval of a round trip (RFC 8289 §4.3), at least the usual one, which marks or drops.
    CoDel {
        /// It marks.
        ecn: bool,
    },
}

impl Managed {
    pub(super) fn marking(self, rtt: Duration) -> Marking<Packet> {
        let usual = CoDel::default();
        let interval = usual.interval.max(rtt);
        Marking {
            law: match self {
                Self::Threshold => Law::Threshold(usual.target),
                Self::CoDel { .. } => Law::CoDel(CoDel { interval, ..usual }),
            },
            mark: match self {
                Self::CoDel { ecn: false } => |_| false,
                _ => Packet::mark,
            },
        }
    }
}

/// Bulk in a managed queue: what it says is answered, and where it marks nothing is lost.
pub(crate) fn managed(scenario: Scenario, queue: Managed) -> Row {
    let (name, drops) = match queue {
        Managed::Threshold => ("ECN queue, 5 ms", 0.0),
        Managed::CoDel { ecn: true } => ("CoDel, marking", 0.0),
        Managed::CoDel { ecn: false } => ("CoDel, dropping", 0.5),
    };
    let figures = vec![
        Figure::new("dropped by queue, %", AtMost(drops)),
        Figure::new("marked, %", AtMost(5.0)),
        Figure::new("queue p95, ms", AtMost(60.0)),
        Figure::new("utilisation", AtLeast(0.9)),
    ];
    Row::new(scenario.name, name, figures, move |kind, seed| {
        let rate = scenario.rates[DOWN];
        let mut world = alone(&scenario, kind, seed);
        let marking = queue.marking(scenario.rtt());
        world.link.forward_link.set_marking(Some(marking));
        world.download(ENDLESS, None);
        world.run_for(30 * SECOND);
        let before = (world.link.forward_link.stats(), read(&world)[0]);
        let mut waits = Vec::new();
        let span = 60 * SECOND;
        watch(&mut world, span, |world| waits.push(wait(world, rate)));
        let after = world.link.forward_link.stats();
        let marks = (after.marked - before.0.marked) as f64;
        Sample {
            values: vec![
                dropped(&before.0, &after),
                100.0 * marks / (after.offered - before.0.offered) as f64,
                percentile(&mut waits, 0.95),
                tunnel_rate(read(&world)[0] - before.1, span) / rate,
            ],
            note: String::new(),
        }
    })
}

/// Every packet of one round trip is marked: what is sent in the round trip after the report, as a share of before.
pub(crate) fn answered(scenario: Scenario) -> Row {
    let figures = vec![
        // 0.85, rounded up by what arrives of a packet.
        Figure::new("rate after CE / before", AtMost(0.855)),
        Figure::new("... at least", AtLeast(0.7)),
    ];
    Row::new(
        scenario.name,
        "all marked for one RTT",
        figures,
        move |kind, seed| {
            let rtt = scenario.rtt();
            let mut world = alone(&scenario, kind, seed);
            world.download(ENDLESS, None);
            world.run_for(30 * SECOND);
            let sent = |world: &mut bentpipe_testbed::world::World, span| {
                let before = world.sent[DOWN].bytes;
                world.run_for(span);
                (world.sent[DOWN].bytes - before) as f64
            };
            let before = sent(&mut world, 4 * rtt) / 4.0;
            world.impairments.mark_all = true;
            world.run_for(rtt);
            world.impairments.mark_all = false;
            // The reports are under way for another round trip at most, with what their delay adds.
            world.run_for(rtt / 4);
            let share = sent(&mut world, rtt) / before;
            Sample {
                values: vec![share, share],
                note: String::new(),
            }
        },
    )
}

/// A one-bucket policer far below the link's rate.
pub(crate) fn policed(scenario: Scenario, policed: f64, burst: Duration) -> Row {
    let figures = vec![
        Figure::new("goodput / policed rate", AtLeast(0.95)),
        Figure::new("dropped, %", AtMost(2.0)),
    ];
    let name = format!("policed to {policed} Mbit/s, {burst:?}");
    Row::new(scenario.name, name, figures, move |kind, seed| {
        let mut link = scenario.link(seed);
        link.forward_link.policer = Some(Policer {
            rate: mbit(policed),
            burst: mbit(policed).bytes_in(burst).max(ByteCount::new(3000)),
        });
        let mut world = crate::transfer::world(&scenario, &link, kind, seed);
        crate::transfer::connect(&mut world);
        world.download(ENDLESS, None);
        world.run_for(30 * SECOND);
        let before = (world.link.forward_link.stats(), read(&world)[0]);
        let span = 90 * SECOND;
        world.run_for(span);
        let got = read(&world)[0] - before.1;
        Sample {
            values: vec![
                tunnel_rate(got, span) / policed,
                dropped(&before.0, &world.link.forward_link.stats()),
            ],
            note: String::new(),
        }
    })
}

/// The rate falls to a fifth: when the queue is short again, and what is lost until then.
///
/// Round trips are counted as they are then, queue included: what is sent until the step shows takes four of the link's
/// own to drain, even if nothing is sent meanwhile.
pub(crate) fn step(scenario: Scenario, to: f64) -> Row {
    let figures = vec![
        Figure::new("queue < 100 ms after, RTT", AtMost(3.0)),
        Figure::new("dropped by queue, BDP", AtMost(1.0)),
        Figure::new("in RTT without queue", Shown),
    ];
    let name = format!("step to {to} Mbit/s");
    Row::new(scenario.name, name, figures, move |kind, seed| {
        let rtt = scenario.rtt().as_secs_f64();
        let mut world = alone(&scenario, kind, seed);
        warm(&mut world, &scenario, DOWN, seed);
        world.download(ENDLESS, None);
        world.run_for(10 * SECOND);
        let dropped = world.link.forward_link.stats().dropped_queue;
        slow_down(&mut world, to);
        let look = LOOK.as_secs_f64();
        let (mut rounds, mut short_since) = (0.0, None);
        let (mut at, mut back) = (0.0, None);
        watch(&mut world, 60 * SECOND, |world| {
            let waiting = wait(world, to) / 1e3;
            rounds += look / (rtt + waiting);
            at += look;
            // Short for a moment is not short.
            let long = waiting >= 0.1;
            let since = *short_since.get_or_insert((rounds, at));
            short_since = short_since.filter(|_| !long);
            if !long && at - since.1 >= rtt {
                back.get_or_insert(since);
            }
        });
        let dropped = world.link.forward_link.stats().dropped_queue - dropped;
        let (rounds, at) = back.unwrap_or((f64::INFINITY, f64::INFINITY));
        let bdp = scenario.bdp(DOWN) as f64;
        Sample {
            values: vec![rounds, (dropped * 1500) as f64 / bdp, at / rtt],
            note: String::new(),
        }
    })
}

fn slow_down(world: &mut bentpipe_testbed::world::World, to: f64) {
    let schedule = Schedule::new([(Duration::ZERO, Change::Rate(mbit(to)))]);
    let now = world.now;
    world.link.forward_link.plan(now, &schedule, Vec::new());
}

/// Losses that mean nothing, and then the rate is halved: what is sent in the fourth round trip after it.
pub(crate) fn halved(scenario: Scenario, loss: Loss, name: &str) -> Row {
    let scenario = Scenario { loss, ..scenario };
    let figures = vec![
        Figure::new("sent / fair in 4th RTT", AtMost(1.1)).tail(),
        Figure::new("utilisation before", Shown),
    ];
    let name = format!("{name} loss, then half the rate");
    Row::new(scenario.name, name, figures, move |kind: Kind, seed| {
        let rtt = scenario.rtt();
        let half = scenario.rates[DOWN] / 2.0;
        let mut world = alone(&scenario, kind, seed);
        warm(&mut world, &scenario, DOWN, seed);
        world.download(ENDLESS, None);
        world.run_for(10 * SECOND);
        let got = read(&world)[0];
        // Another phase for each seed.
        world.run_for(10 * SECOND + rtt * seed as u32 / 7);
        let span = 10 * SECOND + rtt * seed as u32 / 7;
        let before = tunnel_rate(read(&world)[0] - got, span) / scenario.rates[DOWN];
        slow_down(&mut world, half);
        world.run_for(3 * rtt);
        let sent = world.sent[DOWN].bytes;
        world.run_for(rtt);
        let sent = (world.sent[DOWN].bytes - sent) as f64 * 8.0 / rtt.as_secs_f64() / 1e6;
        Sample {
            values: vec![sent / half, before],
            note: String::new(),
        }
    })
    .random()
}
