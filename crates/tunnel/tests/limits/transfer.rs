//! Transfers against the limit of their link: cold, warm, down, up, one flow or several.

use bentpipe_tunnel::engine::Wishes;
use std::time::Duration;

use bentpipe_congestion::Kind;
use bentpipe_link::LinkConfig;
use bentpipe_testbed::limit::{DOWN, Transfer, UP, earliest, realised_loss};
use bentpipe_testbed::world::{Ending, Setup, World};

use crate::row::{Figure, Goal, Row, Sample};
use crate::scenario::{Scenario, Variation, mbit};

/// Longest that the pauses before warm transfers take, by seed: warm means 2 to 60 s.
const PAUSES: [u64; 5] = [2, 10, 60, 30, 5];

/// A warm tunnel has carried so many BDP in the same direction.
const WARMTH: u64 = 3;

const SOON: Duration = Duration::from_secs(120);

/// What came before the transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Before {
    /// Nothing: the clock starts with connecting, and one round trip of handshake is part of the limit.
    Cold,
    /// A transfer of 3 BDP in the same direction that ended 2 to 60 s ago.
    Warm,
    /// The same in another connection, of which the server remembers the path; the new tunnel is up.
    Resumed,
    /// The same, and the rate that was sold is configured.
    Sold,
    /// Nothing, as [`Self::Cold`], but the rate that was sold is configured.
    ColdSold,
}

/// One or more equal transfers that begin together.
pub(crate) struct Transfers {
    pub(crate) scenario: &'static Scenario,
    pub(crate) before: Before,
    pub(crate) direction: usize,
    pub(crate) bytes: u64,
    pub(crate) flows: u64,
}

/// A download of `bytes` in one flow.
pub(crate) fn download(scenario: &'static Scenario, before: Before, bytes: u64, goal: Goal) -> Row {
    row(
        Transfers {
            scenario,
            before,
            direction: DOWN,
            bytes,
            flows: 1,
        },
        goal,
    )
}

/// An upload of `bytes` in one flow.
pub(crate) fn upload(scenario: &'static Scenario, before: Before, bytes: u64, goal: Goal) -> Row {
    row(
        Transfers {
            scenario,
            before,
            direction: UP,
            bytes,
            flows: 1,
        },
        goal,
    )
}

pub(crate) fn row(transfers: Transfers, goal: Goal) -> Row {
    let before = match transfers.before {
        Before::Cold => "cold",
        Before::Warm => "warm",
        Before::Resumed => "resumed",
        Before::Sold => "resumed, rate sold",
        Before::ColdSold => "cold, rate sold",
    };
    let up = if transfers.direction == UP { " up" } else { "" };
    let flows = if transfers.flows > 1 {
        format!("{} x ", transfers.flows)
    } else {
        String::new()
    };
    let megabytes = transfers.bytes as f64 / 1e6;
    let name = format!("{flows}{megabytes:.3} MB{up} {before}").replace(".000", "");
    let scenario = transfers.scenario;
    let figures = figures(scenario, goal);
    let run = move |kind, seed| transfers.run(kind, seed);
    let row = Row::new(scenario.name, name, figures, run);
    if scenario.is_random() {
        row.random()
    } else {
        row
    }
}

/// What a transfer on `scenario` measures: in a fade the goal is a share of what the link could have carried.
fn figures(scenario: &Scenario, goal: Goal) -> Vec<Figure> {
    match (scenario.variation, goal) {
        (Variation::Planned(_), Goal::AtLeast(_)) => vec![
            Figure::ratio(Goal::Shown),
            Figure::new("share of capacity", goal),
        ],
        _ => vec![Figure::ratio(goal)],
    }
}

/// A world on the scenario's link in which both ends send with `controller`.
pub(crate) fn world(scenario: &Scenario, link: &LinkConfig, controller: Kind, seed: u64) -> World {
    let wishes = Wishes {
        controller,
        ..Wishes::default()
    };
    world_with(scenario, link, wishes, seed)
}

fn world_with(scenario: &Scenario, link: &LinkConfig, wishes: Wishes, seed: u64) -> World {
    World::with(&Setup {
        profile: scenario.profile,
        wishes,
        ..Setup::new(link, seed)
    })
}

/// Waits for the tunnel.
pub(crate) fn connect(world: &mut World) {
    world.run_until(SOON, "the handshake", World::is_ready);
}

/// Warms the tunnel and lets it rest.
pub(crate) fn warm(world: &mut World, scenario: &Scenario, direction: usize, seed: u64) {
    let bytes = WARMTH * scenario.bdp(direction);
    if direction == DOWN {
        world.timed_download(bytes);
    } else {
        world.timed_upload(bytes);
    }
    let pause = PAUSES[(seed % PAUSES.len() as u64) as usize];
    world.run_for(Duration::from_secs(pause));
}

impl Transfers {
    fn run(&self, controller: Kind, seed: u64) -> Sample {
        let mut link = self.scenario.link(seed);
        let wishes = self.wishes(controller);
        let mut world = world_with(self.scenario, &link, wishes, seed);
        if !matches!(self.before, Before::Cold | Before::ColdSold) {
            connect(&mut world);
            warm(&mut world, self.scenario, self.direction, seed);
        }
        if matches!(self.before, Before::Resumed | Before::Sold) {
            world = self.again(&mut world, &link, controller, seed);
        }
        let origin = self.plan(&mut world, &mut link);
        let began = world.at();
        let stats = |world: &World| match self.direction {
            DOWN => world.link.forward_link.stats(),
            _ => world.link.return_link.stats(),
        };
        let before = stats(&world);
        connect(&mut world);
        let ended = self.transfer(&mut world);
        let rtt = link.forward_link.one_way_delay_at(began - origin)
            + link.return_link.one_way_delay_at(began - origin);
        let handshake = match self.before {
            Before::Cold | Before::ColdSold => rtt,
            Before::Warm | Before::Resumed | Before::Sold => Duration::ZERO,
        };
        let transfer = Transfer {
            direction: self.direction,
            began: began - origin + handshake,
            payload: self.bytes * self.flows,
            packet: world.sent[self.direction].largest,
            loss: realised_loss(&before, &stats(&world)),
        };
        let limit = earliest(&link, &transfer).expect("the link carries it") - (began - origin);
        let time = ended.map_or(f64::INFINITY, |ended| (ended - began).as_secs_f64());
        let after = stats(&world);
        let ratio = time / limit.as_secs_f64();
        let dropped = (after.dropped_queue - before.dropped_queue) as f64
            / (after.offered - before.offered) as f64;
        Sample {
            values: vec![ratio, 1.0 / ratio],
            note: format!(
                "{time:.2} s, T* {:.2} s; queue dropped {:.1} %; {}",
                limit.as_secs_f64(),
                100.0 * dropped,
                repairs(&world)
            ),
        }
    }
}

/// What was repaired on the forward link.
fn repairs(world: &World) -> String {
    let sent = world
        .server
        .connections()
        .map(|(_, connection)| connection.lane().fec());
    let sent: u64 = sent.map(|fec| fec.sent.packets).sum();
    let received = world.terminals[0].engine.connections();
    let mended = received.map(|(_, connection)| connection.lane().fec().received);
    let mended: Vec<_> = mended
        .map(|fec| (fec.repairs / 1400, fec.mended / 1400))
        .collect();
    format!("repairs {sent}, came and mended {mended:?}")
}

impl Transfers {
    fn wishes(&self, controller: Kind) -> Wishes {
        let rate = mbit(self.scenario.rates[self.direction]);
        let sold = matches!(self.before, Before::Sold | Before::ColdSold);
        Wishes {
            controller,
            rate: sold.then_some(rate),
            ..Wishes::default()
        }
    }

    /// A new tunnel on the same link, after both processes were restarted.
    fn again(&self, old: &mut World, link: &LinkConfig, controller: Kind, seed: u64) -> World {
        let mut world = world_with(self.scenario, link, self.wishes(controller), seed);
        world.behaviour.known_paths = old.learned();
        // At the rate that was sold nothing may have queued: start-up goes on, and has no figure of its own.
        let known = world.behaviour.known_paths.len();
        assert!(
            known == 1 || self.before == Before::Sold,
            "3 BDP show a path"
        );
        connect(&mut world);
        world
    }

    /// Makes the link change as planned from now on; answers the instant that `link` now counts from.
    fn plan(&self, world: &mut World, link: &mut LinkConfig) -> Duration {
        let Some(plan) = self.scenario.plan() else {
            return Duration::ZERO;
        };
        let now = world.now;
        let pipes = [&mut world.link.forward_link, &mut world.link.return_link];
        let configs = [&mut link.forward_link, &mut link.return_link];
        for ((pipe, config), schedule) in pipes.into_iter().zip(configs).zip(plan.schedules) {
            pipe.plan(now, &schedule, plan.outages.clone());
            config.schedule = schedule;
            config.outages.clone_from(&plan.outages);
        }
        world.at()
    }

    /// When the last flow ended; `None` if that takes unreasonably long.
    fn transfer(&self, world: &mut World) -> Option<Duration> {
        let rate = self.scenario.rates[self.direction] * 1e6;
        let bits = (self.bytes * self.flows) as f64 * 8.0;
        let limit = Duration::from_secs_f64(60.0 + 10.0 * bits / rate);
        let (now, uploads) = (world.now, world.origins.uploads.len());
        let wanted = uploads + usize::try_from(self.flows).expect("few flows");
        let mut indices = Vec::new();
        for _ in 0..self.flows {
            indices.push(match self.direction {
                DOWN => world.download(self.bytes, None),
                _ => world.terminals[0].upload(now, self.bytes),
            });
        }
        let done = |world: &World| match self.direction {
            DOWN => indices
                .iter()
                .all(|index| world.reader(*index).end.is_some()),
            _ => world.origins.uploads.len() >= wanted,
        };
        if !world.run_while(limit, |world| !done(world)) {
            return None;
        }
        for index in indices.iter().filter(|_| self.direction == DOWN) {
            let reader = world.reader(*index);
            let ending = reader.end.map(|(_, ending)| ending);
            assert_eq!((reader.got, ending), (self.bytes, Some(Ending::Fin)));
        }
        for (_, got) in &world.origins.uploads[uploads..wanted] {
            assert!(self.direction == DOWN || *got == self.bytes, "{got}");
        }
        Some(world.at())
    }
}
