//! What repairs bring, and what they cost those who need none.

use bentpipe_tunnel::engine::Wishes;
use std::time::Duration;

use bentpipe_congestion::Kind;
use bentpipe_proto::fec::Fec;
use bentpipe_testbed::limit::{DOWN, UP};
use bentpipe_testbed::world::{Setup, World};
use bentpipe_units::Seed;

use super::probe::percentile;
use super::share;
use crate::row::Goal::{AtLeast, AtMost, Shown};
use crate::row::{Figure, Row, Sample};
use crate::scenario::{Loss, Queue, Scenario};
use crate::transfer::{connect, warm};

const SECOND: Duration = Duration::from_secs(1);
/// What a session may spend on repairs: so many times the share lost, and this on top.
const ALLOWED: [f64; 2] = [1.5, 0.01];

pub(super) fn clean(scenario: Scenario) -> Scenario {
    Scenario {
        loss: Loss::None,
        ..scenario
    }
}

/// Share of packets that the path lost, both ways: in bursts they are not as many in each session.
fn share_lost(world: &World) -> f64 {
    let ways = [
        world.link.forward_link.stats(),
        world.link.return_link.stats(),
    ];
    let lost: u64 = ways.iter().map(|way| way.dropped_loss).sum();
    let all: u64 = ways.iter().map(|way| way.offered).sum();
    lost as f64 / all as f64
}

/// A world on `scenario` that repairs as `fec` says; not connected yet.
fn world(scenario: &Scenario, kind: Kind, fec: Fec, seed: u64) -> World {
    let link = scenario.link(seed);
    World::with(&Setup {
        profile: scenario.profile,
        wishes: Wishes {
            controller: kind,
            fec,
            ..Wishes::default()
        },
        dns: true,
        ..Setup::new(&link, seed)
    })
}

/// A world like [`world`], connected and warm.
pub(super) fn warmed(scenario: &Scenario, kind: Kind, fec: Fec, seed: u64) -> World {
    let mut world = world(scenario, kind, fec, seed);
    connect(&mut world);
    warm(&mut world, scenario, DOWN, 0);
    world
}

/// Bytes of repairs and copies, and all bytes, that both ends sent.
fn spent(world: &World) -> [f64; 2] {
    let ends = [&world.server, &world.terminals[0].engine];
    let connections = ends.iter().flat_map(|engine| engine.connections());
    let accounts = connections.map(|(_, connection)| connection.ledger().sent);
    accounts.fold([0.0; 2], |[repair, all], sent| {
        [repair + sent.repair as f64, all + sent.total() as f64]
    })
}

/// What repairs took of what they may take.
pub(super) fn overhead(world: &World) -> f64 {
    let [repair, all] = spent(world);
    repair / all / (ALLOWED[0] * share_lost(world) + ALLOWED[1])
}

/// Short flows, one after the other, in several sessions, against one without losses. A session is what came before as well.
pub(crate) fn short_flows(scenario: Scenario) -> Row {
    const SESSIONS: u64 = 5;
    const FLOWS: u64 = 100;
    const SIZE: u64 = 20_000;
    // A burst takes more packets than such a flow has: nothing that is worth its bytes brings them back.
    let goal = match scenario.loss {
        Loss::Bursts(..) => Shown,
        _ => AtMost(1.15),
    };
    let figures = vec![
        Figure::new("p99 / without losses", goal),
        Figure::new("of 100 later than 1.15", Shown),
        Figure::new("overhead / allowed", AtMost(1.0)),
        Figure::new("p99 without repairs", Shown),
    ];
    let times = move |scenario: &Scenario, kind, fec, seed, flows| {
        let mut world = warmed(scenario, kind, fec, seed);
        let pauses = Seed::new(seed).stream("pauses");
        let one = |flow: u64| {
            let pause = 300 + pauses.stream(&flow.to_string()).as_u64() % 1000;
            world.run_for(Duration::from_millis(pause));
            world.timed_download(SIZE).as_secs_f64()
        };
        let times: Vec<_> = (0..flows).map(one).collect();
        (times, overhead(&world))
    };
    Row::new(scenario.name, "20 kB flows", figures, move |kind, seed| {
        let (mut bare, _) = times(&clean(scenario), kind, Fec::Auto, seed, 5);
        let least = percentile(&mut bare, 0.5);
        let (mut off, _) = times(&scenario, kind, Fec::Off, seed, FLOWS);
        let sessions = (0..SESSIONS).map(|session| seed * SESSIONS + session);
        let sessions = sessions.map(|seed| times(&scenario, kind, Fec::Auto, seed, FLOWS));
        let (flows, overheads): (Vec<_>, Vec<_>) = sessions.unzip();
        let mut flows = flows.concat();
        let late = flows.iter().filter(|time| **time > 1.15 * least).count();
        Sample {
            values: vec![
                percentile(&mut flows, 0.99) / least,
                late as f64 / SESSIONS as f64,
                overheads.iter().sum::<f64>() / SESSIONS as f64,
                percentile(&mut off, 0.99) / least,
            ],
            note: format!("without losses {:.0} ms", least * 1e3),
        }
    })
    .random()
}

/// Files of 1.6 MB, one after the other in a warm session, over a path that loses little: one of them loses a packet or two.
pub(crate) fn files(scenario: Scenario) -> Row {
    const FILES: u64 = 40;
    const SIZE: u64 = 1_600_000;
    let figures = vec![
        Figure::new("mean / without losses", AtMost(1.1)),
        Figure::new("of 40 later than 1.15", Shown),
        Figure::new("overhead / allowed", AtMost(1.0)),
        Figure::new("mean without repairs", Shown),
    ];
    let times = move |scenario: &Scenario, kind, fec, seed, files| -> (Vec<f64>, f64) {
        let mut world = warmed(scenario, kind, fec, seed);
        let one = |_| {
            world.run_for(5 * SECOND);
            world.timed_download(SIZE).as_secs_f64()
        };
        ((0..files).map(one).collect(), overhead(&world))
    };
    Row::new(scenario.name, "1.6 MB files", figures, move |kind, seed| {
        let (mut bare, _) = times(&clean(scenario), kind, Fec::Auto, seed, 5);
        let least = percentile(&mut bare, 0.5);
        let mean = |times: &[f64]| times.iter().sum::<f64>() / times.len() as f64 / least;
        let (off, _) = times(&scenario, kind, Fec::Off, seed, FILES);
        let (with, overhead) = times(&scenario, kind, Fec::Auto, seed, FILES);
        let late = with.iter().filter(|time| **time > 1.15 * least).count();
        Sample {
            values: vec![mean(&with), late as f64, overhead, mean(&off)],
            note: format!("without losses {:.0} ms", least * 1e3),
        }
    })
    .random()
}

/// DNS queries, one after the other, against one without losses: both messages leave twice.
pub(crate) fn queries(scenario: Scenario) -> Row {
    const QUERIES: u64 = 200;
    let figures = vec![
        Figure::new("p99 / without losses", AtMost(1.15)),
        Figure::new("of 200 later than 1.15", Shown),
        Figure::new("p99 without copies", Shown),
    ];
    let times = move |scenario: &Scenario, kind, fec, seed, queries| -> Vec<f64> {
        let mut world = warmed(scenario, kind, fec, seed);
        let one = |_| {
            world.run_for(Duration::from_millis(300));
            world.timed_query().as_secs_f64()
        };
        (0..queries).map(one).collect()
    };
    Row::new(scenario.name, "DNS", figures, move |kind, seed| {
        let mut bare = times(&clean(scenario), kind, Fec::Auto, seed, 5);
        let least = percentile(&mut bare, 0.5);
        let mut off = times(&scenario, kind, Fec::Off, seed, QUERIES);
        let mut with = times(&scenario, kind, Fec::Auto, seed, QUERIES);
        let late = with.iter().filter(|time| **time > 1.15 * least).count();
        Sample {
            values: vec![
                percentile(&mut with, 0.99) / least,
                late as f64,
                percentile(&mut off, 0.99) / least,
            ],
            note: format!("without losses {:.0} ms", least * 1e3),
        }
    })
    .random()
}

/// Flows of 200 kB that a handover meets: every 15 s nothing comes through for 30 ms, a burst of losses of which no code over
/// what went before knows anything.
pub(crate) fn handovers(scenario: Scenario) -> Row {
    const SIZE: u64 = 200_000;
    const FLOWS: u32 = 40;
    const EVERY: Duration = Duration::from_secs(15);
    const GAP: Duration = Duration::from_millis(30);
    let figures = vec![
        Figure::new("median / undisturbed", Shown),
        Figure::new("p95 / undisturbed", Shown),
        Figure::new("median without repairs", Shown),
        Figure::new("p95 without repairs", Shown),
    ];
    // Every other flow is begun somewhere in the 60 ms before a gap, the others in the middle between two.
    let times = move |kind, fec, seed| {
        let mut world = warmed(&scenario, kind, fec, seed);
        let offsets = Seed::new(seed).stream("offsets");
        let mut times = [Vec::new(), Vec::new()];
        for flow in 0..FLOWS {
            world.run_for(EVERY / 2);
            times[0].push(world.timed_download(SIZE).as_secs_f64());
            world.run_for(EVERY / 2);
            let before = offsets.stream(&flow.to_string()).as_u64() % 60;
            let index = world.download(SIZE, None);
            world.run_for(Duration::from_millis(before));
            for outage in [true, false] {
                let now = world.now;
                world.link.forward_link.set_outage(now, outage);
                world.link.return_link.set_outage(now, outage);
                world.run_for(GAP);
            }
            let ends = |world: &World| world.reader(index).end.is_some();
            world.run_until(60 * SECOND, "a flow", ends);
            let reader = world.reader(index);
            let (at, _) = reader.end.expect("it has ended");
            times[1].push((at - reader.since).as_secs_f64());
        }
        times
    };
    Row::new(
        scenario.name,
        "200 kB, handovers",
        figures,
        move |kind, seed| {
            let ([mut bare, mut auto], [_, mut off]) =
                (times(kind, Fec::Auto, seed), times(kind, Fec::Off, seed));
            let least = percentile(&mut bare, 0.5);
            let mut of = |share| {
                [&mut auto, &mut off].map(|times: &mut Vec<f64>| percentile(times, share) / least)
            };
            let ([median, without], [p95, late]) = (of(0.5), of(0.95));
            Sample {
                values: vec![median, p95, without, late],
                note: format!("undisturbed {:.0} ms", least * 1e3),
            }
        },
    )
    .random()
}

/// New tunnels, from the first datagram until HELLO was answered: two round trips.
pub(crate) fn handshake(scenario: Scenario) -> Row {
    const TUNNELS: u64 = 200;
    let figures = vec![
        Figure::new("ready p99, RTT", AtMost(2.2)),
        Figure::new("p50", Shown),
        Figure::new("packets sent", Shown),
    ];
    Row::new(scenario.name, "handshakes", figures, move |kind, seed| {
        let mut packets = 0;
        let mut times: Vec<_> = (0..TUNNELS)
            .map(|index| {
                let mut world = world(&scenario, kind, Fec::Auto, seed * 10_000 + index);
                connect(&mut world);
                packets += world.sent[DOWN].packets + world.sent[UP].packets;
                world.at().as_secs_f64() / scenario.rtt().as_secs_f64()
            })
            .collect();
        Sample {
            values: vec![
                percentile(&mut times, 0.99),
                percentile(&mut times, 0.5),
                packets as f64 / TUNNELS as f64,
            ],
            note: String::new(),
        }
    })
    .random()
}

/// Where nothing is lost.
pub(crate) fn idle(scenario: Scenario) -> Row {
    let figures = vec![Figure::new("time, auto / off", AtMost(1.002))];
    let title = "20 MB, nothing lost";
    Row::new(scenario.name, title, figures, move |kind, seed| {
        let time = |fec| {
            let mut world = warmed(&scenario, kind, fec, seed);
            world.timed_download(20_000_000).as_secs_f64()
        };
        Sample {
            values: vec![time(Fec::Auto) / time(Fec::Off)],
            note: String::new(),
        }
    })
}

/// A call in both directions, against one without losses.
pub(crate) fn voice(scenario: Scenario, beside: bool) -> Row {
    let figures = vec![
        Figure::new("voice lost, %", AtMost(0.1)),
        Figure::new("latest - without losses, ms", AtMost(40.0)),
        Figure::new("p95 - without losses, ms", Shown),
        Figure::new("lost without repairs, %", Shown),
    ];
    let call = move |scenario: &Scenario, kind, fec, seed| {
        let mut world = warmed(scenario, kind, fec, seed);
        if beside {
            world.download(1 << 39, None);
            world.run_for(10 * SECOND);
        }
        let span = 60 * SECOND;
        let calls = [true, false].map(|down| world.inner.call(world.now, down, span));
        world.run_for(span + 3 * SECOND);
        let calls = calls.map(|call| &world.inner.calls[call]);
        let sent: u64 = calls.iter().map(|call| call.sent).sum();
        let mut delays: Vec<_> = calls
            .iter()
            .flat_map(|call| &call.delays)
            .map(|delay| delay.as_secs_f64() * 1e3)
            .collect();
        let lost = 100.0 * (1.0 - delays.len() as f64 / sent as f64);
        let late = [1.0, 0.95].map(|share| percentile(&mut delays, share));
        (lost, late)
    };
    let title = if beside { "voice beside bulk" } else { "voice" };
    Row::new(scenario.name, title, figures, move |kind, seed| {
        let (_, bare) = call(&clean(scenario), kind, Fec::Off, seed);
        let (off, _) = call(&scenario, kind, Fec::Off, seed);
        let (lost, late) = call(&scenario, kind, Fec::Auto, seed);
        Sample {
            values: vec![lost, late[0] - bare[0], late[1] - bare[1], off],
            note: format!("without losses the latest after {:.1} ms", bare[0]),
        }
    })
    .random()
}

/// What a CUBIC flow keeps on a congested link beside a tunnel that repairs, against one that does not.
pub(crate) fn beside_cubic(scenario: Scenario, bdp: f64) -> Row {
    let scenario = Scenario {
        queue: Queue::Bdp(bdp),
        ..scenario
    };
    let figures = vec![
        Figure::new("CUBIC keeps, auto / off", AtLeast(0.95)),
        Figure::new("ours, auto / off", Shown),
    ];
    let title = format!("repairs beside CUBIC, {bdp} BDP");
    Row::new(scenario.name, title, figures, move |kind, seed| {
        let run = |fec| {
            let mut world = world(&scenario, kind, fec, seed);
            connect(&mut world);
            share::beside_flow(&mut world, seed)
        };
        let ([its, ours], [without, own]) = (run(Fec::Auto), run(Fec::Off));
        Sample {
            values: vec![its / without, ours / own],
            note: format!("{its:.2} + {ours:.2} Mbit/s; off {without:.2} + {own:.2}"),
        }
    })
    .random()
}
