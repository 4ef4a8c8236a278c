//! Files that are almost experiments: whatever is read makes a plan whose shards are all of it, whatever is not names a line.

use std::path::Path;

use bentpipe_config::Source;
use bentpipe_units::Seed;
use rand_core::Rng as _;

use super::{Experiment, Extent, Filter, Shard};
use crate::workload::generator;

const SHIPPED: [&str; 3] = [
    include_str!("../../../../scenarios/cnes.toml"),
    include_str!("../../../../scenarios/qpep-goodput.toml"),
    include_str!("../../../../scenarios/policer.toml"),
];
const ROUNDS: u64 = 1500;
/// Larger plans are not wrong; here many are wanted.
const RUNS: usize = 300;

/// Some of its bytes removed, doubled, or replaced by what means something in such a file.
fn changed(text: &str, seed: Seed) -> String {
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
    let mut numbers = generator(seed);
    let mut draw = |below: usize| (numbers.next_u64() % below.max(1) as u64) as usize;
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..=draw(3) {
        let start = draw(bytes.len());
        let end = bytes.len().min(start + draw(24));
        let part = bytes[start..end].to_vec();
        let new = match draw(3) {
            0 => Vec::new(),
            1 => [part.clone(), part].concat(),
            _ => PIECES[draw(PIECES.len())].as_bytes().to_vec(),
        };
        bytes.splice(start..end, new);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

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
        let text = changed(&text, Seed::new(round));
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
