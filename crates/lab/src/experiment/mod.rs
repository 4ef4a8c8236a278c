//! An experiment: who is measured (contenders), over which links (scenarios), doing what (tasks), and how often.
//!
//! Everything that is decided before the first packet is decided here, without clock, network or files but the
//! experiment's own: which runs there are, in which order, and which of them one shard does. [`crate::runner`] carries
//! them out, [`crate::results`] keeps what came of them.
//!
//! ```text
//!  EXPERIMENT.toml ──file──► Experiment ──plan──► runs, in order ──► filter ──► shard ──► not yet finished
//! ```

mod amounts;
mod axis;
mod browsing;
mod builtin;
mod checks;
mod choice;
mod claims;
mod comparisons;
mod estimate;
mod file;
mod filter;
#[cfg(test)]
mod hostile;
mod plan;
mod published;
#[cfg(test)]
mod seeds;
mod task;
mod titles;
mod variant;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use bentpipe_config::{ConfigError, Source};
use bentpipe_link::{Files, Scenario};
use bentpipe_units::{BitRate, Seed};
use serde::{Deserialize, Serialize};

use bentpipe_emulator::topology::{Behind, EndHosts};

use crate::contender::{Binary, Contender};
pub(crate) use axis::PlacedTask;
pub use choice::{
    Background, Browser, Collection, Connections, ContentKind, Direction, HandshakeEnd, Protocol,
    Tls,
};
pub use claims::{
    Claims, Comparable, Explanation, FailureCount, Published, PublishedValue, Statistic,
};
pub use comparisons::{PublishedOrder, PublishedPairs, PublishedRatio, PublishedRise, Quantity};
pub use filter::Filter;
pub use plan::{Run, RunKey, Shard, remaining};
pub use task::Task;
pub use titles::Titles;

/// One of an experiment's three sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Everything.
    Full,
    /// The part that the file's `[quick]` leaves of it.
    Quick,
    /// Everything that a published finding is about, and bentpipe beside it, once.
    Published,
}

impl Extent {
    /// As results and directories call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Quick => "quick",
            Self::Published => "published",
        }
    }
}

/// An experiment as its file describes it.
#[derive(Debug, Clone)]
pub struct Experiment {
    /// Name that results call it by.
    pub name: String,
    /// Question that it is to answer.
    pub question: String,
    /// The root of all its random numbers: order, content, links.
    pub seed: Seed,
    /// One of the experiment's sizes.
    pub extent: Extent,
    /// Contenders that are measured.
    pub contenders: Vec<Contender>,
    /// The links.
    pub scenarios: Vec<NamedScenario>,
    /// Tasks that are done over them.
    pub tasks: Vec<NamedTask>,
    /// Times that each is measured.
    pub repeats: u32,
    /// A run that has not finished by then is given up; it counts as "longer than this".
    pub patience: Duration,
    /// Findings of others, for the same.
    pub claims: Claims,
    /// Axis of which its links or tasks are a sweep.
    pub axis: Option<Axis>,
    /// Words by which pages show its links and tasks.
    pub titles: Titles,
    /// Figure that its page shows first; if absent, the kind that fits what was measured.
    pub figure: Option<FigureKind>,
    /// The file, as it was named.
    pub file: String,
    /// The file's text: results are only added to those of the same.
    pub text: String,
}

/// A link and what the experiment calls it.
#[derive(Debug, Clone)]
pub struct NamedScenario {
    /// As it stands in the file.
    pub name: String,
    /// The link.
    pub scenario: Scenario,
    /// The files that it names.
    pub files: Files,
    /// Rate of UDP that may pass at either end of the satellite link, each way; the rest is dropped. All of it if absent.
    pub udp_policer: Option<BitRate>,
    /// The way between gateway and web. Bounds count its rates alone.
    pub behind: Behind,
    /// TCP of user and web.
    pub end_hosts: EndHosts,
}

/// Things that lie on an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Along {
    /// The experiment's links; also in results that were written before tasks could.
    #[default]
    Links,
    /// Tasks of the experiment.
    Tasks,
}

/// Kind of the figure that an experiment's page shows first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FigureKind {
    /// Median of each contender, with the physical limit and published figures, for each link and task.
    Bars,
    /// Goodput over the size of the transfer.
    BySize,
    /// Figures over the experiment's axis, or over a setting of contenders.
    Axis,
    /// Share of figures that are no larger than a time.
    Ecdf,
    /// Quantities of a session over the number of the transaction.
    Series,
    /// Ratio to the physical limit of each contender over each link.
    Heat,
}

/// A parameter that links or tasks differ in, for figures over it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Axis {
    /// Quantity of the axis, with its unit.
    pub of: String,
    /// Things that lie on it.
    #[serde(default)]
    pub along: Along,
    /// Place of each on the axis, by its name.
    pub at: BTreeMap<String, f64>,
}

/// Something to do and what the experiment calls it.
#[derive(Debug, Clone)]
pub struct NamedTask {
    /// As it stands in the file.
    pub name: String,
    /// The task itself.
    pub task: Task,
}

/// True if what was named is neither there nor looks like a path.
fn is_no_file(name: &Path) -> bool {
    name.components().count() == 1 && name.extension().is_none() && !name.exists()
}

impl Experiment {
    /// The experiment of that name that is part of the program, else that of a file, with the scenarios that it names;
    /// `binaries` stand for those that it may name itself.
    ///
    /// # Errors
    /// `FILE:LINE: message`, with the culprit and the mend.
    pub fn load(
        name_or_file: &Path,
        extent: Extent,
        binaries: &[Binary],
    ) -> Result<Self, ConfigError> {
        let source = match builtin::source(name_or_file) {
            Some(source) => source,
            None if is_no_file(name_or_file) => {
                let text = "no experiment has this name, and there is no such file: `bentpipe lab list` shows the experiments";
                return Err(Source::new(name_or_file, "").error_at_line(1, text));
            }
            None => Source::read(name_or_file)?,
        };
        file::read(&source, extent, binaries)
    }

    /// Names of the experiments that are part of the program, in their order.
    pub fn names() -> impl Iterator<Item = &'static str> {
        builtin::names()
    }

    /// Findings of others and titles, as the program's own experiment of that name has them, if `text`, an experiment's file, differs
    /// from it in these alone.
    #[must_use]
    pub fn known_words(name: &str, text: &str) -> Option<(Claims, Titles)> {
        builtin::words(name, text)
    }

    /// As [`Self::load`], from a text that was read already.
    ///
    /// # Errors
    /// `FILE:LINE: message`, with the culprit and the mend.
    pub fn parse(source: &Source, extent: Extent) -> Result<Self, ConfigError> {
        file::read(source, extent, &[])
    }
}
