//! What the gates measure with: a world with bulk in it, looked at every few milliseconds.

use bentpipe_tunnel::engine::Wishes;
use std::collections::VecDeque;
use std::time::Duration;

use bentpipe_congestion::Kind;
use bentpipe_link::PipeStats;
use bentpipe_testbed::limit::{DOWN, efficiency};
use bentpipe_testbed::world::{Setup, World};

use crate::scenario::Scenario;
use crate::transfer::connect;

/// How often the queue is looked at.
pub(super) const LOOK: Duration = Duration::from_millis(5);

const SOON: Duration = Duration::from_secs(60);

/// More than any run carries.
pub(super) const ENDLESS: u64 = 1 << 39;

/// A world on `scenario`, ready, with one terminal for each access delay.
pub(super) fn ready(scenario: &Scenario, access: &[Duration], kind: Kind, seed: u64) -> World {
    let link = scenario.link(seed);
    let mut world = World::with(&Setup {
        profile: scenario.profile,
        wishes: Wishes {
            controller: kind,
            ..Wishes::default()
        },
        access: access.to_vec(),
        ..Setup::new(&link, seed)
    });
    connect(&mut world);
    world
}

/// A world with one terminal.
pub(super) fn alone(scenario: &Scenario, kind: Kind, seed: u64) -> World {
    ready(scenario, &[Duration::ZERO], kind, seed)
}

/// The gateway's process begins anew with what the old one had learned of its paths; `pause` after all terminals have
/// noticed they are back at once.
pub(super) fn restart(world: &mut World, pause: Duration) {
    let learned = world.learned();
    world.behaviour.known_paths.extend(learned);
    world.restart_server();
    let lost = |world: &World| world.terminals.iter().all(|one| one.ready.is_none());
    world.run_until(SOON, "the end of the old tunnels", lost);
    world.run_for(pause);
    for terminal in 0..world.terminals.len() {
        world.connect(terminal);
    }
    connect(world);
}

/// Lets `span` pass, and looks at the world every [`LOOK`].
pub(super) fn watch(world: &mut World, span: Duration, mut look: impl FnMut(&World)) {
    let end = world.now + span;
    while world.now < end {
        world.run_for(LOOK.min(end - world.now));
        look(world);
    }
}

/// How long a packet would wait before the forward link, in milliseconds, at `rate` Mbit/s.
pub(super) fn wait(world: &World, rate: f64) -> f64 {
    world.link.forward_link.stats().queue_bytes.as_u64() as f64 * 8.0 / rate / 1e3
}

/// Lets `span` pass; the most Mbit/s that all tunnels together offered to the forward link in any `window` of it.
pub(super) fn heaviest(world: &mut World, span: Duration, window: Duration) -> f64 {
    let looks = (window.as_secs_f64() / LOOK.as_secs_f64()).round() as usize;
    let mut sent = VecDeque::from([world.sent[DOWN].bytes]);
    let mut most = 0;
    watch(world, span, |world| {
        sent.push_back(world.sent[DOWN].bytes);
        if sent.len() > looks + 1 {
            sent.pop_front();
        }
        most = most.max(world.sent[DOWN].bytes - sent[0]);
    });
    most as f64 * 8.0 / window.as_secs_f64() / 1e6
}

/// Payload that each terminal has read in all its flows.
pub(super) fn read(world: &World) -> Vec<u64> {
    let of = |terminal: &bentpipe_testbed::world::Terminal| {
        terminal.apps.readers.iter().map(|reader| reader.got).sum()
    };
    world.terminals.iter().map(of).collect()
}

/// Mbit/s of IP packets that carry `payload` bytes of a tunnel in `span`.
pub(super) fn tunnel_rate(payload: u64, span: Duration) -> f64 {
    payload as f64 * 8.0 / efficiency(DOWN, 1500) / span.as_secs_f64() / 1e6
}

/// Mbit/s of IP packets of `segments` in `span`.
pub(super) fn tcp_rate(segments: u64, span: Duration) -> f64 {
    (segments * bentpipe_testbed::tcp::SEGMENT.as_u64()) as f64 * 8.0 / span.as_secs_f64() / 1e6
}

/// Segments that every competitor's receiver has.
pub(super) fn received(world: &World) -> Vec<u64> {
    let flows = world.competitors.iter();
    flows.map(|flow| flow.receiver.received()).collect()
}

/// Percent of what was offered between two looks that the queue, or a policer, dropped.
pub(super) fn dropped(before: &PipeStats, after: &PipeStats) -> f64 {
    let of = |stats: &PipeStats| stats.dropped_queue + stats.dropped_policer;
    100.0 * (of(after) - of(before)) as f64 / (after.offered - before.offered).max(1) as f64
}

/// The share `quantile` of the values is no greater.
pub(super) fn percentile(values: &mut [f64], quantile: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let rank = (values.len() as f64 * quantile).ceil() as usize;
    values.get(rank.max(1) - 1).copied().unwrap_or(f64::NAN)
}

/// Jain's index of fairness: 1 if all are equal, 1/n if one has everything.
pub(super) fn jain(values: &[f64]) -> f64 {
    let sum: f64 = values.iter().sum();
    let squares: f64 = values.iter().map(|value| value * value).sum();
    sum * sum / (values.len() as f64 * squares)
}
