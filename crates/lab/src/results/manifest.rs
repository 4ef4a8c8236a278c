//! What results were made with: enough for somebody else to make them again, or to see why theirs differ.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use aws_lc_rs::digest;
use bentpipe_sys::command::{run_command, tool};
use bentpipe_units::Seed;
use serde::{Deserialize, Serialize};

use crate::experiment::{Axis, Experiment, Published, PublishedRatio};

/// Settings of the machine that TCP's figures depend on.
const SYSCTLS: [&str; 8] = [
    "net/ipv4/tcp_congestion_control",
    "net/ipv4/tcp_available_congestion_control",
    "net/ipv4/tcp_rmem",
    "net/ipv4/tcp_wmem",
    "net/ipv4/tcp_ecn",
    "net/core/rmem_max",
    "net/core/wmem_max",
    "net/core/default_qdisc",
];

/// The manifest of a directory of results.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// The experiment's name.
    pub experiment: String,
    /// `full` or `quick`.
    pub extent: String,
    /// Its seed.
    pub seed: Seed,
    /// What the runs of this directory were chosen by, as on the command line.
    pub selection: Vec<String>,
    /// The experiment's file, as it was named.
    pub file: String,
    /// Its text.
    pub text: String,
    /// What of the experiment results are shown by.
    pub outline: Outline,
    /// The program.
    pub bentpipe: Build,
    /// The machine.
    pub machine: Machine,
    /// Each kind of contender: its version, or what is missing.
    pub contenders: BTreeMap<String, String>,
    /// Each link without a contender, before the first run over it.
    #[serde(default)]
    pub link_checks: BTreeMap<String, LinkCheck>,
    /// Of merged results: the manifests of what was merged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub merged: Vec<Self>,
}

/// What of an experiment results are shown by.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Outline {
    /// What it is to answer.
    pub question: String,
    /// The contenders, in the order of the file.
    pub contenders: Vec<String>,
    /// The links.
    pub scenarios: Vec<String>,
    /// The tasks.
    pub tasks: Vec<String>,
    /// Figures of others.
    pub published: Vec<Published>,
    /// Ratios of others.
    #[serde(default)]
    pub published_ratios: Vec<PublishedRatio>,
    /// What the links are a sweep of.
    #[serde(default)]
    pub axis: Option<Axis>,
}

/// Which program it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Build {
    /// As it calls itself.
    pub version: String,
    /// The file's SHA-256.
    pub sha256: String,
    /// The commit of the work tree that the file lies in, with `-dirty` behind it if that has changes; none outside of one.
    pub revision: Option<String>,
}

/// Where it ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Name and release of the kernel.
    pub kernel: String,
    /// The processor's name.
    pub cpu: String,
    /// How many of them.
    pub cpus: usize,
    /// Settings of the kernel.
    pub sysctls: BTreeMap<String, String>,
}

/// A link as a datagram finds it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkCheck {
    /// The round-trip time that the model promises, in milliseconds.
    pub expected_rtt_ms: f64,
    /// The median of those measured.
    pub rtt_ms: f64,
    /// Datagrams that came back, of those sent.
    pub answered: [u32; 2],
    /// The emulator's verdict.
    pub verdict: String,
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
            selection,
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

    /// Whether results of `other` may stand beside those of this one, which is in `directory`.
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
            machine: Machine::here(),
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
            published: experiment.published.clone(),
            published_ratios: experiment.published_ratios.clone(),
            axis: experiment.axis.clone(),
        }
    }

    /// The figure that others have published for this, if there is one.
    #[must_use]
    pub fn published(&self, contender: &str, scenario: &str, task: &str) -> Option<&Published> {
        self.published.iter().find(|figure| {
            [&*figure.contender, &*figure.scenario, &*figure.task] == [contender, scenario, task]
        })
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

/// The SHA-256 of the file at `path`.
///
/// # Errors
/// It cannot be read.
pub(crate) fn sha256(path: &Path) -> Result<String> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let sum = digest::digest(&digest::SHA256, &bytes);
    Ok(sum
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect())
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

impl Machine {
    /// This one.
    #[must_use]
    pub fn here() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let info = read("/proc/cpuinfo");
        let value = |line: &str| {
            line.split_once(':')
                .map(|(_, value)| value.trim().to_owned())
        };
        let sysctl = |key: &&str| {
            let text = fs::read_to_string(format!("/proc/sys/{key}")).ok()?;
            let words: Vec<&str> = text.split_whitespace().collect();
            Some((key.replace('/', "."), words.join(" ")))
        };
        Self {
            kernel: format!("Linux {}", read("/proc/sys/kernel/osrelease").trim()),
            cpu: info
                .lines()
                .find(|line| line.starts_with("model name"))
                .and_then(value)
                .unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            cpus: std::thread::available_parallelism().map_or(1, Into::into),
            sysctls: SYSCTLS.iter().filter_map(sysctl).collect(),
        }
    }
}
