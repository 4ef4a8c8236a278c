//! Carries an experiment out: run after run, each in namespaces of its own, each result on the disk before the next, as a line
//! and in the table.
//!
//! It may be killed at any moment: finished runs are kept, the next start removes what was left and goes on with the rest.
//!
//! ```text
//!  plan ─► residue of the killed ─► link check ─► run ─► line, table ─► run ─► line, table …
//! ```

mod bounds;
mod check;
mod course;
mod done;
mod judge;
mod keep;
mod perform;
mod police;
mod prepared;
mod residue;
mod single;
mod target;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::Result;

use crate::contender::Available;
use crate::experiment::{Experiment, Filter, Run, RunKey, Shard, remaining};
use crate::results::{Build, Manifest, Record, Status, Store, Summary};
use crate::workload::Chromium;
use bentpipe_emulator::Awake;
use bentpipe_emulator::Stop;
use course::Course;
pub use keep::Keep;
pub use residue::prefix;

/// Runs that are to be made, and the directory of their results.
#[derive(Debug)]
pub struct RunnerConfig {
    /// The experiment.
    pub experiment: Experiment,
    /// Choice of its runs.
    pub filter: Filter,
    /// Share of those.
    pub shard: Option<Shard>,
    /// As the user said it.
    pub selection: Vec<String>,
    /// The binary `bentpipe`.
    pub bentpipe: PathBuf,
    /// The directory of results.
    pub output: PathBuf,
    /// Runs that are done again.
    pub retry: Retry,
    /// Files of runs that are kept.
    pub keep: Keep,
}

/// Results for which a run is done again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Retry {
    /// Those of runs that could not be made: what was missing may be there by now.
    #[default]
    Unsupported,
    /// Those whose figures are doubted, too.
    Invalid,
    /// All that are not valid, as failures and runs that were given up.
    All,
}

impl Retry {
    /// True if a run with this status is not done again.
    fn leaves(self, status: Status) -> bool {
        match status {
            Status::Valid => true,
            Status::Unsupported => false,
            Status::Invalid => self == Self::Unsupported,
            Status::Unfinished | Status::Failed => self != Self::All,
        }
    }
}

impl FromStr for Retry {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "all" => Ok(Self::All),
            "invalid" => Ok(Self::Invalid),
            _ => Err("`--retry` alone, or with `=invalid` or `=all`"),
        }
    }
}

/// Tools that every run needs.
#[derive(Debug)]
struct Kit {
    available: Available,
    /// Looked for where a task needs it; else none.
    chromium: Option<Result<Chromium, String>>,
    prefix: String,
}

impl RunnerConfig {
    /// The runs, whether finished or not.
    #[must_use]
    pub fn plan(&self) -> Vec<Run> {
        let plan = self.experiment.plan(&self.filter);
        match self.shard {
            Some(shard) => shard.share(plan),
            None => plan,
        }
    }
}

/// Carries out what is not finished yet; `say` is told how it goes, a line at a time.
///
/// # Errors
/// The machine failed, the results cannot be kept, or `stop` was thrown. What was finished by then is kept.
pub fn run(config: &RunnerConfig, stop: &Stop, say: &mut dyn FnMut(&str)) -> Result<Summary> {
    let removed = residue::clear()?;
    if removed > 0 {
        say(&format!(
            "removed what {removed} killed experiments had left"
        ));
    }
    let prefix = prefix()?;
    let experiment = &config.experiment;
    let browses = experiment
        .tasks
        .iter()
        .any(|named| named.task.needs_chromium());
    let kit = Kit {
        available: Available::new(config.bentpipe.clone(), &prefix)?,
        chromium: browses.then(|| Chromium::find(&config.bentpipe)),
        prefix,
    };
    let build = Build::of(&config.bentpipe)?;
    let mut versions = kit.available.list();
    let programs = experiment.contenders.iter().filter(|one| one.is_program());
    versions.extend(programs.map(|one| (one.name().to_owned(), one.version(&kit.available))));
    if let Some(found) = &kit.chromium {
        let version = found.as_ref().map(|found| found.version().to_owned());
        versions.push(("chromium".to_owned(), version.map_err(Clone::clone)));
    }
    let manifest = Manifest::new(experiment, config.selection.clone(), build, versions);
    let mut store = Store::open(&config.output, &manifest)?;
    let finished = finished(&store, config.retry);
    let runs = remaining(config.plan(), &finished);
    let mut course = Course::new(experiment.estimates(&runs));
    say(&opening(config, runs.len(), &course));
    for caveat in store.manifest().caveats() {
        say(&format!("note: {caveat}"));
    }
    let _awake = Awake::start()?;
    let mut faults = BTreeMap::new();
    for run in &runs {
        if let Entry::Vacant(unchecked) = faults.entry(run.scenario) {
            let named = &experiment.scenarios[run.scenario];
            let check = check::check(&kit, named, stop)?;
            say(&format!("{}: {check}", named.name));
            unchecked.insert(check.fault());
            store.add_check(&named.name, check)?;
        }
        let place = keep::KeptFiles::new(config.keep, &config.output, &run.key)?;
        let mut record = single::measure(&kit, experiment, run, place.as_ref(), stop)?;
        if let Some(Some(fault)) = faults.get(&run.scenario) {
            record.doubt_link(fault);
        }
        say(&course.line(&record));
        store.add(record)?;
    }
    // For those that were killed after a line and had nothing left to run.
    let table = store.tabulate()?;
    say(&format!("results: {}", table.display()));
    Ok(Summary::new(&store.manifest().outline, store.records()))
}

fn finished(store: &Store, retry: Retry) -> BTreeSet<RunKey> {
    let counts = |record: &&Record| retry.leaves(record.status());
    let records = store.records().values().filter(counts);
    records.map(|record| record.key.clone()).collect()
}

fn opening(config: &RunnerConfig, left: usize, course: &Course) -> String {
    let all = config.plan().len();
    let name = &config.experiment.name;
    let extent = config.experiment.extent.name();
    let known = match all - left {
        0 => String::new(),
        done => format!(", {done} of them finished before"),
    };
    format!("{name}, {extent}: {all} runs{known}, {}", course.left())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_results_unless_all_is_done_again() {
        let again = |retry: Retry| {
            let all = [
                Status::Valid,
                Status::Invalid,
                Status::Unfinished,
                Status::Failed,
                Status::Unsupported,
            ];
            all.map(|status| !retry.leaves(status))
        };
        assert_eq!(again(Retry::default()), [false, false, false, false, true]);
        assert_eq!(
            again("invalid".parse().unwrap()),
            [false, true, false, false, true]
        );
        assert_eq!(
            again("all".parse().unwrap()),
            [false, true, true, true, true]
        );
        assert!("some".parse::<Retry>().is_err());
    }
}
