//! The runs of an experiment, and their order.
//!
//! Each repeat is a block: everything once, shuffled. So whatever changes slowly about the machine meets all contenders
//! alike, and an experiment that is ended early has measured all of them equally often. Contenders meet the same link
//! and fetch the same content in the same repeat: random numbers follow from all of a run's names but the contender's.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use bentpipe_units::Seed;
use rand_core::Rng as _;
use serde::{Deserialize, Serialize};

use super::{Experiment, Extent, Filter};
use crate::workload::generator;

/// Key that tells a run from every other of its experiment.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RunKey {
    /// Contender that is measured.
    pub contender: String,
    /// Over which link.
    pub scenario: String,
    /// Doing what.
    pub task: String,
    /// For the how-manieth time, from 1.
    pub repeat: u32,
}

/// One measurement to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Names of the run.
    pub key: RunKey,
    /// The root of its random numbers.
    pub seed: Seed,
    /// Indices into the experiment's lists.
    pub contender: usize,
    /// Of the scenario.
    pub scenario: usize,
    /// Of the task.
    pub task: usize,
}

impl RunKey {
    /// Contender, scenario and task.
    #[must_use]
    pub fn names(&self) -> [&str; 3] {
        [&self.contender, &self.scenario, &self.task]
    }
}

impl fmt::Display for RunKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [contender, scenario, task] = self.names();
        write!(f, "{contender}, {scenario}, {task}, #{}", self.repeat)
    }
}

impl Experiment {
    /// All runs that `filter` wants, in the order in which they are to be made.
    #[must_use]
    pub fn plan(&self, filter: &Filter) -> Vec<Run> {
        let blocks = (1..=self.repeats).flat_map(|repeat| {
            let mut block = self.block(repeat);
            let seed = self.seed.stream("order").nth(repeat.into());
            shuffle(&mut block, seed);
            block
        });
        blocks
            .filter(|run| self.has(&run.key) && filter.wants(self, run))
            .collect()
    }

    /// True if the experiment's size has this run, of those that its contenders, links and tasks permit.
    fn has(&self, run: &RunKey) -> bool {
        if self.extent != Extent::Published {
            return true;
        }
        let named = self.claims.contenders(&run.scenario, &run.task);
        let ours = run.contender == "bentpipe" && !named.is_empty();
        ours || named.contains(&*run.contender)
    }

    /// Everything once.
    fn block(&self, repeat: u32) -> Vec<Run> {
        let mut runs = Vec::new();
        for (scenario, link) in self.scenarios.iter().enumerate() {
            for (task, what) in self.tasks.iter().enumerate() {
                let conditions = format!("{}\n{}", link.name, what.name);
                let seed = self.seed.stream(&conditions).nth(repeat.into());
                runs.extend(
                    self.contenders
                        .iter()
                        .enumerate()
                        .map(|(contender, who)| Run {
                            key: RunKey {
                                contender: who.name().to_owned(),
                                scenario: link.name.clone(),
                                task: what.name.clone(),
                                repeat,
                            },
                            seed,
                            contender,
                            scenario,
                            task,
                        }),
                );
            }
        }
        runs
    }
}

/// Fisher and Yates, with a generator whose numbers are the same for ever. The remainder's bias is below 2^-40.
fn shuffle<T>(list: &mut [T], seed: Seed) {
    let mut numbers = generator(seed);
    for last in (1..list.len()).rev() {
        let other = numbers.next_u64() % (last as u64 + 1);
        list.swap(last, other as usize);
    }
}

/// One machine's share of a plan, as in `2/5`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    number: usize,
    of: usize,
}

impl Shard {
    /// Of the plan, every `of`-th run, from the `number`-th on: all shards together are the plan, each run once.
    #[must_use]
    pub fn share(self, plan: Vec<Run>) -> Vec<Run> {
        let mine = |(index, _): &(usize, Run)| index % self.of == self.number - 1;
        let runs = plan.into_iter().enumerate();
        runs.filter(mine).map(|(_, run)| run).collect()
    }
}

impl FromStr for Shard {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let numbers = text.split_once('/');
        let parsed =
            numbers.and_then(|(number, of)| Some((number.parse().ok()?, of.parse().ok()?)));
        match parsed {
            Some((number, of)) if (1..=of).contains(&number) => Ok(Self { number, of }),
            _ => Err("write it as in `2/5`: the second of five shards"),
        }
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

/// Part of a plan that is still to be done when `finished` is done.
#[must_use]
pub fn remaining(plan: Vec<Run>, finished: &BTreeSet<RunKey>) -> Vec<Run> {
    let open = |run: &Run| !finished.contains(&run.key);
    plan.into_iter().filter(open).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use bentpipe_config::Source;

    use super::*;

    const TEXT: &str = r#"
[experiment]
name = "e"
question = "?"
contenders = ["plain/cubic", "plain/bbr", "bentpipe"]
scenarios = ["cnes-geo", "cnes-geo-loss"]
repeats = 4
[task.get]
kind = "request"
count = 3
[task.file]
kind = "transfer"
size = "1 MB"
[quick]
scenarios = ["cnes-geo"]
tasks = ["file"]
repeats = 1
"#;

    fn experiment(text: &str, extent: Extent) -> Experiment {
        Experiment::parse(&Source::new(Path::new("e.toml"), text), extent).unwrap()
    }

    fn keys(runs: &[Run]) -> Vec<RunKey> {
        runs.iter().map(|run| run.key.clone()).collect()
    }

    #[test]
    fn each_repeat_is_everything_once_in_an_order_of_its_own() {
        let full = experiment(TEXT, Extent::Full);
        let plan = full.plan(&Filter::default());
        assert_eq!(plan.len(), 3 * 2 * 2 * 4);
        let blocks: Vec<Vec<[String; 3]>> = plan
            .chunks(12)
            .map(|block| {
                block
                    .iter()
                    .map(|run| run.key.names().map(str::to_owned))
                    .collect()
            })
            .collect();
        let all: BTreeSet<_> = blocks[0].iter().collect();
        assert_eq!(all.len(), 12);
        for block in &blocks[1..] {
            assert_eq!(block.iter().collect::<BTreeSet<_>>(), all);
            assert_ne!(*block, blocks[0]);
        }
        // The same for ever, another with another seed.
        assert_eq!(plan, full.plan(&Filter::default()));
        let reseeded = TEXT.replace("repeats = 4", "repeats = 4\nseed = 2");
        let other = experiment(&reseeded, Extent::Full).plan(&Filter::default());
        assert_ne!(keys(&plan), keys(&other));
    }

    #[test]
    fn contenders_meet_the_same_link() {
        let plan = experiment(TEXT, Extent::Full).plan(&Filter::default());
        for one in &plan {
            for other in &plan {
                let conditions = |run: &Run| (run.scenario, run.task, run.key.repeat);
                let same = conditions(one) == conditions(other);
                assert_eq!(one.seed == other.seed, same, "{} {}", one.key, other.key);
            }
        }
    }

    #[test]
    fn shards_are_the_plan_without_overlap() {
        let plan = experiment(TEXT, Extent::Full).plan(&Filter::default());
        let shards = ["1/5", "2/5", "3/5", "4/5", "5/5"].map(|shard| {
            let shard: Shard = shard.parse().unwrap();
            keys(&shard.share(plan.clone()))
        });
        let mut together = shards.concat();
        assert!(shards.iter().all(|shard| shard.len().abs_diff(48 / 5) <= 1));
        together.sort();
        let mut all = keys(&plan);
        all.sort();
        assert_eq!(together, all);
        for wrong in ["0/5", "6/5", "1/0", "1", "a/b", "-1/5"] {
            assert!(wrong.parse::<Shard>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_filter_takes_parts_but_whole_names_exactly() {
        let full = experiment(TEXT, Extent::Full);
        let count = |texts: &[&str]| full.plan(&Filter::new(texts)).len();
        assert_eq!(count(&["plain"]), 32);
        assert_eq!(count(&["cnes-geo"]), 24);
        assert_eq!(count(&["cnes"]), 48);
        assert_eq!(count(&["bentpipe loss file"]), 4);
        assert_eq!(count(&["bentpipe loss file", "plain/bbr file"]), 12);
        assert_eq!(count(&["nobody"]), 0);
    }

    #[test]
    fn the_quick_size_is_what_the_file_says() {
        let quick = experiment(TEXT, Extent::Quick);
        let plan = quick.plan(&Filter::default());
        assert_eq!(plan.len(), 3);
        assert!(plan.iter().all(|run| run.key.scenario == "cnes-geo"));
    }

    #[test]
    fn the_published_size_is_what_findings_are_about_once() {
        let findings = r#"
[[published]]
contender = "plain/bbr"
scenario = "cnes-geo"
task = "file"
seconds = 2.0
statistic = "mean"
source = "S"
[[published_ratio]]
contender = "plain/bbr"
to = "plain/cubic"
scenario = "cnes-geo-loss"
task = "get"
ratio = 2.0
statistic = "mean"
source = "S"
[[published_order]]
scenario = "cnes-geo"
task = "get"
order = ["bentpipe ~ plain/bbr", "plain/cubic"]
statistic = "mean"
source = "S"
"#;
        let published = experiment(&format!("{TEXT}{findings}"), Extent::Published);
        let plan = published.plan(&Filter::default());
        let mut names: Vec<String> = plan.iter().map(|run| run.key.to_string()).collect();
        names.sort();
        let expected = [
            "bentpipe, cnes-geo, file, #1",
            "bentpipe, cnes-geo, get, #1",
            "bentpipe, cnes-geo-loss, get, #1",
            "plain/bbr, cnes-geo, file, #1",
            "plain/bbr, cnes-geo, get, #1",
            "plain/bbr, cnes-geo-loss, get, #1",
            "plain/cubic, cnes-geo, get, #1",
            "plain/cubic, cnes-geo-loss, get, #1",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn what_is_finished_is_not_done_again() {
        let plan = experiment(TEXT, Extent::Full).plan(&Filter::default());
        let finished: BTreeSet<RunKey> = plan.iter().take(7).map(|run| run.key.clone()).collect();
        assert_eq!(remaining(plan.clone(), &finished), plan[7..]);
    }
}
