//! `bentpipe doctor`: what may keep a daemon from working on this machine, each fault with its mend.
//!
//! ```text
//! files ─┐
//! kernel ┼─► collect/* ──► Facts ──► judge/* (pure) ──► Finding, one a line
//! server ┘   (the shell)
//! ```
//!
//! Nothing on the machine is changed. What the shell could not look at for want of a privilege is a finding too.

mod collect;
mod facts;
mod judge;

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be.
    Ok,
    /// Something is worse than it could be, or could not be looked at.
    Warn,
    /// Something does not work.
    Fail,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        })
    }
}

/// Result of one look at one thing; displays as one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Severity.
    pub level: Level,
    /// The thing, as one or two words.
    pub area: &'static str,
    /// State of the thing.
    pub text: String,
    /// Command or line of the configuration that mends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mend: Option<String>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<6}{:<15}{}", self.level, self.area, self.text)?;
        match &self.mend {
            Some(mend) => write!(f, "; {mend}"),
            None => Ok(()),
        }
    }
}

/// All findings of one examination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Examination {
    /// Version of this document's schema.
    pub schema: u32,
    /// Version of the program.
    pub version: &'static str,
    /// Configurations that were looked at.
    pub files: Vec<PathBuf>,
    /// One for each thing that was looked at.
    pub findings: Vec<Finding>,
}

impl Examination {
    /// The most severe level among the findings.
    #[must_use]
    pub fn worst(&self) -> Level {
        let levels = self.findings.iter().map(|finding| finding.level);
        levels.max().unwrap_or(Level::Ok)
    }

    /// The document for programs: indented JSON without a newline at the end.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a diagnosis has string keys only")
    }
}

/// Examines this machine, and what the configurations `files` ask of it; `built` is the year of the program's sources, if it
/// is known. Takes up to ten seconds for each server that does not answer.
#[must_use]
pub fn examine(files: &[PathBuf], built: Option<i16>) -> Examination {
    let facts = collect::collect(files, built);
    Examination {
        schema: 1,
        version: env!("CARGO_PKG_VERSION"),
        files: files.to_vec(),
        findings: judge::judge(&facts),
    }
}
