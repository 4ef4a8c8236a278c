//! Which runs are wanted, by parts of their names.

use super::{Experiment, Run};

/// Choice that `--filter` makes. Nothing said: everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter(Vec<Vec<String>>);

impl Filter {
    /// Each of `texts` is words with blanks between; a run is wanted if all words of one text are parts of its names.
    pub fn new<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> Self {
        let words = |text: T| {
            let words = text.as_ref().split_whitespace();
            words.map(str::to_owned).collect()
        };
        Self(texts.into_iter().map(words).collect())
    }

    /// True if `run` of `experiment` is wanted. A word that is somebody's whole name means nobody else, however long
    /// other names that begin so are.
    #[must_use]
    pub fn wants(&self, experiment: &Experiment, run: &Run) -> bool {
        let names = run.key.names();
        let is_part = |word: &String| {
            let part = names.iter().any(|name| name.contains(word.as_str()));
            let whole = names.contains(&word.as_str());
            whole || part && !is_name(experiment, word)
        };
        self.0.is_empty() || self.0.iter().any(|words| words.iter().all(is_part))
    }
}

fn is_name(experiment: &Experiment, word: &str) -> bool {
    let contenders = experiment.contenders.iter().map(|one| one.name());
    let scenarios = experiment.scenarios.iter().map(|one| one.name.as_str());
    let tasks = experiment.tasks.iter().map(|one| one.name.as_str());
    contenders
        .chain(scenarios)
        .chain(tasks)
        .any(|name| name == word)
}
