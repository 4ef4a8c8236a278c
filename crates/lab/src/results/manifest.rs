//! What results were made with: enough for somebody else to make them again, or to see why theirs differ.

use std::collections::BTreeMap;
use std::mem;
use std::path::Path;

use anyhow::{Result, bail};
use bentpipe_sys::command::{run_command, tool};
use bentpipe_units::Seed;
use serde::{Deserialize, Serialize};

use super::{LinkCheck, Machine};
use crate::contender::sha256;
use crate::experiment::{Axis, Claims, Experiment, FigureKind, Published, Titles};

/// The manifest of a directory of results.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// The experiment's name.
    pub experiment: String,
    /// `full`, `quick` or `published`.
    pub extent: String,
    /// Seed of the experiment.
    pub seed: Seed,
    /// What the runs of this directory were chosen by, as on the command line, each time that it was another choice; empty text
    /// where all were meant.
    pub selection: Vec<String>,
    /// The experiment's file, as it was named.
    pub file: String,
    /// Text of the file.
    pub text: String,
    /// Part of the experiment that results are shown by.
    pub outline: Outline,
    /// The program.
    pub bentpipe: Build,
    /// The machine.
    pub machine: Machine,
    /// Each kind of contender: its version, or what is missing.
    pub contenders: BTreeMap<String, String>,
    /// Each link without a contender, before the first run over it, each time that it was run.
    #[serde(default)]
    pub link_checks: BTreeMap<String, Vec<LinkCheck>>,
    /// What of the results was made elsewhere, or with other versions, and put together with these or continued here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub merged: Vec<Self>,
}

/// Part of an experiment that results are shown by.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Outline {
    /// Question that it is to answer.
    pub question: String,
    /// The contenders, in the order of the file.
    pub contenders: Vec<String>,
    /// The links.
    pub scenarios: Vec<String>,
    /// The tasks.
    pub tasks: Vec<String>,
    /// Findings of others.
    #[serde(flatten)]
    pub claims: Claims,
    /// Axis of which the links or tasks are a sweep.
    #[serde(default)]
    pub axis: Option<Axis>,
    /// Words by which links and tasks are shown.
    #[serde(default)]
    pub titles: Titles,
    /// Figure that is shown first; none where the kind that fits is to be taken.
    #[serde(default)]
    pub figure: Option<FigureKind>,
}

/// Program that it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Build {
    /// As it calls itself.
    pub version: String,
    /// The file's SHA-256.
    pub sha256: String,
    /// The commit of the work tree that the file lies in, with `-dirty` behind it if that has changes; none outside of one.
    pub revision: Option<String>,
}

impl Manifest {
    /// Describes what is about to be run.
    #[must_use]
    pub fn new(
        experiment: &Experiment,
        selection: Vec<String>,
        bentpipe: Build,
        contenders: Vec<(String, Result<String, String>)>,
    ) -> Self {
        let said = |version: Result<String, String>| {
            version.unwrap_or_else(|reason| format!("unsupported: {reason}"))
        };
        Self {
            experiment: experiment.name.clone(),
            extent: experiment.extent.name().to_owned(),
            seed: experiment.seed,
            selection: vec![selection.join(" ")],
            file: experiment.file.clone(),
            text: experiment.text.clone(),
            outline: Outline::of(experiment),
            bentpipe,
            machine: Machine::here(),
            contenders: contenders
                .into_iter()
                .map(|(name, version)| (name, said(version)))
                .collect(),
            link_checks: BTreeMap::new(),
            merged: Vec::new(),
        }
    }

    /// Checks that results of `other` may stand beside those of this one, which is in `directory`.
    pub(super) fn expect_same(&self, other: &Self, directory: &Path) -> Result<()> {
        let differs = if self.text != other.text || self.experiment != other.experiment {
            "another experiment, or another version of its file"
        } else if self.extent != other.extent {
            "the experiment's other size"
        } else if self.bentpipe.sha256 != other.bentpipe.sha256 {
            "another build of bentpipe"
        } else {
            return Ok(());
        };
        let place = directory.display();
        bail!(
            "{place} has results of {differs}: name another directory with --output, or remove this one"
        )
    }

    /// Takes in what else there is of the same experiment, made earlier or elsewhere.
    pub(super) fn absorb(&mut self, mut other: Self) {
        let mut parts = mem::take(&mut other.merged);
        parts.push(other);
        for part in parts {
            let mut parts = std::iter::once(&*self).chain(&self.merged);
            match parts.position(|known| known.differences(&part).is_empty()) {
                Some(0) => self.join(part),
                Some(place) => self.merged[place - 1].join(part),
                None => self.merged.push(part),
            }
        }
    }

    /// Takes in what was made in the same way, before.
    fn join(&mut self, before: Self) {
        for (link, mut checks) in before.link_checks {
            let own = self.link_checks.entry(link).or_default();
            checks.retain(|check| !own.contains(check));
            checks.append(own);
            *own = checks;
        }
        let new = mem::replace(&mut self.selection, before.selection);
        for one in new {
            if !self.selection.contains(&one) {
                self.selection.push(one);
            }
        }
    }

    /// All that results were made with: this, and what was merged.
    pub fn parts(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(&self.merged)
    }

    /// Differences in how results were made.
    #[must_use]
    pub fn differences(&self, other: &Self) -> Vec<&'static str> {
        let (here, there) = (&self.machine, &other.machine);
        let pairs = [
            ("kernel", here.kernel == there.kernel),
            (
                "processor",
                here.cpu == there.cpu && here.cpus == there.cpus,
            ),
            ("kernel's settings", here.sysctls == there.sysctls),
            ("tools' versions", here.tools == there.tools),
            ("contenders' versions", self.contenders == other.contenders),
            ("build of bentpipe", self.bentpipe == other.bentpipe),
        ];
        let differ = pairs.into_iter().filter(|(_, same)| !same);
        differ.map(|(what, _)| what).collect()
    }

    /// Differences in a line for each part that was made otherwise than this.
    #[must_use]
    pub fn caveats(&self) -> Vec<String> {
        let caveat = |part: &Self| {
            let what = self.differences(part).join(", ");
            format!(
                "not all runs were made alike; what differs between {} and {}: {what}",
                self.machine, part.machine
            )
        };
        self.merged.iter().map(caveat).collect()
    }

    #[cfg(test)]
    pub(crate) fn example(text: &str) -> Self {
        Self {
            experiment: "e".into(),
            extent: "full".into(),
            seed: Seed::new(1),
            selection: Vec::new(),
            file: "e.toml".into(),
            text: text.into(),
            outline: Outline::default(),
            bentpipe: Build {
                version: "v".into(),
                sha256: "00".into(),
                revision: None,
            },
            machine: Machine::example("Linux 6.1"),
            contenders: BTreeMap::new(),
            link_checks: BTreeMap::new(),
            merged: Vec::new(),
        }
    }
}

impl Outline {
    fn of(experiment: &Experiment) -> Self {
        let contenders = experiment.contenders.iter();
        Self {
            question: experiment.question.clone(),
            contenders: contenders.map(|one| one.name().to_owned()).collect(),
            scenarios: experiment
                .scenarios
                .iter()
                .map(|one| one.name.clone())
                .collect(),
            tasks: experiment
                .tasks
                .iter()
                .map(|one| one.name.clone())
                .collect(),
            claims: experiment.claims.clone(),
            axis: experiment.axis.clone(),
            titles: experiment.titles.clone(),
            figure: experiment.figure,
        }
    }

    /// The figures that others have published for this.
    #[must_use]
    pub fn published(&self, names: [&str; 3]) -> Vec<Published> {
        let own =
            |figure: &&Published| [&*figure.contender, &*figure.scenario, &*figure.task] == names;
        self.claims.published.iter().filter(own).cloned().collect()
    }
}

impl Build {
    /// Describes the program at `path`.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn of(path: &Path) -> Result<Self> {
        let version = run_command(tool(path).arg("--version"))?;
        Ok(Self {
            version: version.trim().to_owned(),
            sha256: sha256(path)?,
            revision: path.parent().and_then(revision),
        })
    }
}

/// As `git` names it; none where there is no `git` or no work tree.
fn revision(directory: &Path) -> Option<String> {
    let mut git = tool("git");
    git.arg("-C").arg(directory);
    git.args([
        "describe",
        "--always",
        "--dirty",
        "--abbrev=40",
        "--exclude=*",
    ]);
    let text = run_command(&mut git).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made_on(kernel: &str, link: &str, selection: &str) -> Manifest {
        let check = LinkCheck {
            began: 1,
            expected_rtt_ms: 20.0,
            rtt_ms: Some(20.1),
            answered: [15, 15],
            verdict: "VALID".into(),
        };
        Manifest {
            machine: Machine::example(kernel),
            link_checks: [(link.to_owned(), vec![check])].into(),
            selection: vec![selection.to_owned()],
            ..Manifest::example("e")
        }
    }

    fn links(manifest: &Manifest) -> Vec<&str> {
        manifest.link_checks.keys().map(String::as_str).collect()
    }

    #[test]
    fn what_was_made_alike_becomes_one_and_what_was_not_is_named() {
        let mut whole = made_on("Linux 6.1", "geo", "--shard 1/3");
        whole.absorb(made_on("Linux 6.1", "leo", "--shard 2/3"));
        assert_eq!(links(&whole), ["geo", "leo"]);
        assert_eq!(whole.selection, ["--shard 2/3", "--shard 1/3"]);
        assert!(whole.caveats().is_empty());
        // Back to the first machine after a run on another.
        let mut elsewhere = made_on("Linux 6.12", "meo", "--shard 3/3");
        elsewhere.absorb(whole);
        let mut again = made_on("Linux 6.1", "heo", "");
        again.absorb(elsewhere);
        assert_eq!(links(&again), ["geo", "heo", "leo"]);
        let parts: Vec<_> = again.parts().map(|part| &*part.machine.kernel).collect();
        assert_eq!(parts, ["Linux 6.1", "Linux 6.12"]);
        assert_eq!(links(&again.merged[0]), ["meo"]);
        let [caveat] = &again.caveats()[..] else {
            panic!("{:?}", again.caveats());
        };
        assert!(caveat.ends_with(": kernel"), "{caveat}");
    }

    #[test]
    fn two_checks_that_found_the_same_are_both_kept_and_one_read_twice_is_one() {
        let mut one = made_on("Linux 6.1", "geo", "--shard 1/2");
        let mut other = made_on("Linux 6.1", "geo", "--shard 2/2");
        for checks in other.link_checks.values_mut() {
            checks[0].began += 60;
        }
        one.absorb(other.clone());
        one.absorb(other);
        assert_eq!(one.link_checks["geo"].len(), 2);
    }
}
