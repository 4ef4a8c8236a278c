//! Files that are almost experiments: whatever is read makes a plan whose shards are all of it, whatever is not names a line.

use std::path::Path;

use bentpipe_config::Source;
use bentpipe_units::Seed;

use super::{Experiment, Extent, Filter, Shard};
use crate::hostile::changed;

const SHIPPED: [&str; 3] = [
    include_str!("../../../../scenarios/cnes.toml"),
    include_str!("../../../../scenarios/qpep-goodput.toml"),
    include_str!("../../../../scenarios/policer.toml"),
];
const ROUNDS: u64 = 1500;
/// Larger plans are not wrong; here many are wanted.
const RUNS: usize = 300;

/// Pieces that mean something in such a file.
const PIECES: [&str; 8] = [
    "\"",
    "[",
    "]\n",
    "=",
    "0",
    "99999999999",
    "task",
    "plain/bbr",
];

#[test]
fn almost_experiments_are_planned_whole_or_refused_with_a_line() {
    let [mut planned, mut refused] = [0; 2];
    for round in 0..ROUNDS {
        // The shorter, the likelier it is met where it hurts.
        let text = SHIPPED[round as usize % 2];
        let text = text
            .split("[[published]]")
            .take(3)
            .collect::<Vec<_>>()
            .join("[[published]]");
        let text = changed(&text, Seed::new(round), 3, 24, &PIECES);
        // Relative to a directory that is not there: only presets are found.
        let source = Source::new(Path::new("/nonexistent/e.toml"), text);
        match Experiment::parse(&source, Extent::Quick) {
            Ok(experiment) => {
                planned += 1;
                check(&experiment);
            }
            Err(error) => {
                refused += 1;
                assert!(error.line() > 0 && !error.message().is_empty(), "{error}");
            }
        }
    }
    assert!(
        planned > ROUNDS / 20 && refused > ROUNDS / 20,
        "{planned}, {refused}"
    );
}

fn check(experiment: &Experiment) {
    let each = experiment.contenders.len() * experiment.scenarios.len() * experiment.tasks.len();
    let all = each * experiment.repeats as usize;
    assert!(all > 0);
    if all > RUNS {
        return;
    }
    let plan = experiment.plan(&Filter::default());
    assert_eq!(plan.len(), all);
    let shards = ["1/3", "2/3", "3/3"].map(|shard| {
        let shard: Shard = shard.parse().unwrap();
        shard.share(plan.clone()).len()
    });
    assert_eq!(shards.iter().sum::<usize>(), all);
}
