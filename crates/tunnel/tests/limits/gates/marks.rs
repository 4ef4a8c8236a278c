//! Where a lossy path marks: losses are taken for congestion, and nothing is repaired.

use std::time::Duration;

use bentpipe_proto::fec::Fec;
use bentpipe_testbed::world::World;

use super::probe::{ENDLESS, percentile};
use super::queue::Managed;
use super::repair::warmed;
use crate::row::Goal::{AtLeast, AtMost, Shown};
use crate::row::{Figure, Row, Sample};
use crate::scenario::Scenario;

const SECOND: Duration = Duration::from_secs(1);

/// Short flows for a figure, and their bytes.
const FLOWS: usize = 20;
const SIZE: u64 = 20_000;
/// For the tunnel to notice: what it knows of marks fades in some ten thousand packets.
const PAUSE: Duration = Duration::from_secs(30);

/// What some short flows beside bulk saw.
struct Seen {
    /// Percent of the packets that were marked.
    marked: f64,
    /// Bytes of repairs and copies for each flow.
    repairs: f64,
    /// The median of their times, in seconds.
    time: f64,
}

fn short_flows(world: &mut World) -> Seen {
    let before = (world.link.forward_link.stats(), repairs(world));
    let one = |_| {
        world.run_for(SECOND / 2);
        world.timed_download(SIZE).as_secs_f64()
    };
    let mut times: Vec<_> = (0..FLOWS).map(one).collect();
    let after = world.link.forward_link.stats();
    let marks = (after.marked - before.0.marked) as f64;
    Seen {
        marked: 100.0 * marks / (after.offered - before.0.offered) as f64,
        repairs: (repairs(world) - before.1) / FLOWS as f64,
        time: percentile(&mut times, 0.5),
    }
}

/// Bytes of repairs and copies that the server has sent, whose way is the one that marks.
fn repairs(world: &World) -> f64 {
    let connections = world.server.connections();
    let sent = connections.map(|(_, connection)| connection.ledger().sent.repair);
    sent.sum::<u64>() as f64
}

/// Short flows beside bulk, before the path marks, while it does and afterwards.
pub(crate) fn repairs_where(scenario: Scenario, queue: Managed) -> Row {
    let (name, share, kept) = match queue {
        Managed::Threshold => ("ECN queue, 5 ms", AtLeast(1.0), AtMost(0.01)),
        Managed::CoDel { .. } => ("CoDel, marking", AtMost(1.0), AtLeast(0.7)),
    };
    let name = format!("repairs, {name}");
    let figures = vec![
        Figure::new("repairs, marked / not", kept),
        Figure::new("marked, %", share),
        Figure::new("afterwards / before", AtLeast(0.7)),
        Figure::new("repairs before, kB a flow", AtLeast(1.0)),
        Figure::new("flows p50, marked / not", Shown),
    ];
    Row::new(scenario.name, name, figures, move |kind, seed| {
        let mut world = warmed(&scenario, kind, Fec::Auto, seed);
        world.download(ENDLESS, None);
        let marking = queue.marking(scenario.rtt());
        let [before, during, after] = [None, Some(marking), None].map(|marking| {
            world.link.forward_link.set_marking(marking);
            world.run_for(PAUSE);
            short_flows(&mut world)
        });
        Sample {
            values: vec![
                during.repairs / before.repairs,
                during.marked,
                after.repairs / before.repairs,
                before.repairs / 1e3,
                during.time / before.time,
            ],
            note: String::new(),
        }
    })
    .random_and_slow()
}
