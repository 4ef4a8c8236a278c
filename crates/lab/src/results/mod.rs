//! What came of an experiment's runs: one line of JSON each, kept for good in a directory.
//!
//! A run is in the file whole or not at all: a line is appended in one write and reaches the disk before the next run
//! begins; a torn last line, which only a crash can leave, is cut off. Everything else in the directory can be made again
//! from the lines, and is.
//!
//! ```text
//!  DIR/results.jsonl    a line per finished run, valid or not        the last line of a run counts
//!  DIR/results.csv      tidy: a row per figure                       made of the lines, anew after each
//!  DIR/kept/           captures, traces and probes of runs            if they were wanted
//!  DIR/manifest.json    experiment, build, machine, versions
//! ```

mod cell;
mod compare;
mod csv;
#[cfg(test)]
mod hostile;
mod known;
mod link_check;
mod machine;
mod manifest;
mod merge;
mod sample;
mod store;
mod summary;
mod timeline;

use bentpipe_units::Seed;
use serde::{Deserialize, Serialize};

use crate::capture::CaptureReport;
use crate::contender::Repairs;
use crate::experiment::RunKey;
use crate::workload::Exchange;

pub use cell::{Cell, Change};
pub use compare::Comparison;
pub use known::Known;
pub use link_check::LinkCheck;
pub use machine::Machine;
pub use manifest::{Build, Manifest, Outline};
pub use merge::merge;
pub use sample::{Figures, Spread, means_by_place, shares};
pub use store::{KEPT, Store, TABLE, read};
pub use summary::{Row, Summary};
pub use timeline::{Timeline, TimelineRecorder};

/// Key of [`Record::link`] under which stands what the link's check before the run found fault with.
const FAULT_BEFORE: &str = "fault_before";

/// Record of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Key of the run.
    #[serde(flatten)]
    pub key: RunKey,
    /// The root of its random numbers.
    pub seed: Seed,
    /// Version of what was measured, as it calls itself.
    pub version: String,
    /// Time at which it began, in seconds since 1970.
    pub began: u64,
    /// Time that all of it took, in seconds: what the rest of an experiment is reckoned with.
    pub took_s: f64,
    /// Outcome of the run.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Reason why its figures must not be believed; none if they may.
    pub doubts: Vec<String>,
    /// The least that physics allows for one figure, in seconds: with the link's own rate, delay and losses.
    pub limit_s: Option<f64>,
    /// Limits where each figure has one of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits_s: Vec<f64>,
    /// Times at which there was something to see of each page, in seconds; none of a page of which there was nothing in time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub first_paint_s: Vec<Option<f64>>,
    /// Traffic that crossed the satellite, if a tunnel was to carry it.
    pub crossed: Option<Crossed>,
    /// The share of datagrams that did not arrive, or too late, where there were any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<f64>,
    /// Transactions of a session, in order, where it was one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub transactions: Vec<Transaction>,
    /// Repairs without a round trip, and their cost, where bentpipe carried the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repairs: Option<Repairs>,
    /// The emulator's own account, with the [`Timeline`] of the run.
    pub link: Option<serde_json::Value>,
}

/// End of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// All of it was done, and every byte was right.
    Measured {
        /// The figures.
        seconds: Vec<f64>,
        /// Bytes of content in all.
        bytes: u64,
    },
    /// Patience ended first.
    Unfinished {
        /// The patience, in seconds: the figure is larger.
        after_s: f64,
    },
    /// The task could not be done, or what came was not what was sent.
    Failed {
        /// Reason of the failure.
        reason: String,
    },
    /// The run cannot be made on this machine.
    Unsupported {
        /// Thing that is missing.
        reason: String,
    },
}

/// Transaction of a session.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Transaction {
    /// Time from the session's beginning to the last byte of the response, in seconds.
    pub ended_s: f64,
    /// Bytes that crossed the client's end of the link since the transaction before, both ways, with IP headers.
    pub client_bytes: u64,
}

impl From<&Exchange> for Transaction {
    fn from(exchange: &Exchange) -> Self {
        Self {
            ended_s: exchange.ended.as_secs_f64(),
            client_bytes: exchange.bytes,
        }
    }
}

/// Status of a run in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// The run's figures count.
    Valid,
    /// The run has figures, which do not count.
    Invalid,
    /// See [`Outcome::Unfinished`].
    Unfinished,
    /// See [`Outcome::Failed`].
    Failed,
    /// See [`Outcome::Unsupported`].
    Unsupported,
}

/// Traffic of a tunnel that both ends of the satellite link saw.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Crossed {
    /// Packets of the tunnel.
    pub tunnel_packets: u64,
    /// Bytes of the tunnel's packets, with IP headers.
    pub tunnel_bytes: u64,
    /// Questions for names, and answers, beside the tunnel of one who takes TCP alone.
    #[serde(default)]
    pub name_packets: u64,
    /// Packets of anything else.
    pub clear_packets: u64,
    /// Packets with content that can be read.
    pub readable_packets: u64,
    /// The first packets in clear.
    pub clear: Vec<String>,
}

impl From<&CaptureReport> for Crossed {
    fn from(report: &CaptureReport) -> Self {
        Self {
            tunnel_packets: report.tunnel_packets,
            tunnel_bytes: report.tunnel_bytes,
            name_packets: report.name_packets,
            clear_packets: report.clear_packets,
            readable_packets: report.marker_packets,
            clear: report.clear.iter().map(ToString::to_string).collect(),
        }
    }
}

impl Status {
    /// As the table of results calls it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Valid => "valid",
            Self::Invalid => "invalid",
            Self::Unfinished => "unfinished",
            Self::Failed => "failed",
            Self::Unsupported => "unsupported",
        }
    }
}

impl Record {
    /// A run that ended so, of which nothing else is known.
    #[must_use]
    pub fn new(key: RunKey, seed: Seed, outcome: Outcome) -> Self {
        Self {
            key,
            seed,
            version: String::new(),
            began: 0,
            took_s: 0.0,
            outcome,
            doubts: Vec::new(),
            limit_s: None,
            limits_s: Vec::new(),
            first_paint_s: Vec::new(),
            crossed: None,
            lost: None,
            transactions: Vec::new(),
            repairs: None,
            link: None,
        }
    }

    /// In one word.
    #[must_use]
    pub fn status(&self) -> Status {
        match &self.outcome {
            Outcome::Measured { .. } if self.doubts.is_empty() => Status::Valid,
            Outcome::Measured { .. } => Status::Invalid,
            // How long it would have taken on a sound link is not known either.
            Outcome::Unfinished { .. } if !self.doubts.is_empty() => Status::Invalid,
            Outcome::Unfinished { .. } => Status::Unfinished,
            // Whoever does not come up over a link that is not as promised may have come up over a sound one. Other doubts say nothing
            // against a failure: one that dies leaves nothing to know what it has carried by.
            Outcome::Failed { .. } if self.is_spoiled() => Status::Invalid,
            Outcome::Failed { .. } => Status::Failed,
            Outcome::Unsupported { .. } => Status::Unsupported,
        }
    }

    /// Adds that the link was found unsound before the run, as `fault` says.
    pub fn doubt_link(&mut self, fault: &str) {
        self.doubts.push(fault.to_owned());
        let link = self.link.get_or_insert_with(|| serde_json::json!({}));
        link[FAULT_BEFORE] = fault.into();
    }

    /// True if the link or the machine was not what the run was promised.
    fn is_spoiled(&self) -> bool {
        let invalid = |link: &serde_json::Value| {
            link.get(FAULT_BEFORE).is_some()
                || link.get("verdict").is_some_and(|word| word == "INVALID")
        };
        self.link.as_ref().is_some_and(invalid)
    }

    /// Objection to the run, in one line.
    #[must_use]
    pub fn remark(&self) -> String {
        let own = match &self.outcome {
            Outcome::Measured { .. } => None,
            Outcome::Unfinished { after_s } => Some(format!("not done after {after_s} s")),
            Outcome::Failed { reason } | Outcome::Unsupported { reason } => Some(reason.clone()),
        };
        let all: Vec<String> = own.into_iter().chain(self.doubts.iter().cloned()).collect();
        all.join("; ").replace(char::is_control, " ")
    }

    /// The physical limit of its figure at this place, in seconds.
    #[must_use]
    pub fn limit(&self, place: usize) -> Option<f64> {
        self.limits_s.get(place).copied().or(self.limit_s)
    }

    /// Content of one figure, in bytes, where it was measured.
    #[must_use]
    pub fn content(&self) -> Option<f64> {
        match &self.outcome {
            Outcome::Measured { seconds, bytes } if !seconds.is_empty() => {
                Some(*bytes as f64 / seconds.len() as f64)
            }
            _ => None,
        }
    }

    /// Mean of all figures so far, after each of them, in seconds.
    #[must_use]
    pub fn means_so_far(&self) -> Vec<f64> {
        let mut sum = 0.0;
        let numbered = self.seconds().iter().zip(1u32..);
        let mean = |(seconds, number): (&f64, u32)| {
            sum += seconds;
            sum / f64::from(number)
        };
        numbered.map(mean).collect()
    }

    /// Load at the client's end of the link after each transaction since the session began, in bit/s.
    #[must_use]
    pub fn loads(&self) -> Vec<f64> {
        let mut bytes = 0;
        let so_far = self.transactions.iter().map(|transaction| {
            bytes += transaction.client_bytes;
            bytes as f64 * 8.0 / transaction.ended_s
        });
        so_far.collect()
    }

    /// Rates and round trip of the link over time, where they were recorded.
    #[must_use]
    pub fn timeline(&self) -> Option<Timeline> {
        Timeline::of(self.link.as_ref()?)
    }

    /// Figures of the record, whether they count or not.
    #[must_use]
    pub fn seconds(&self) -> &[f64] {
        match &self.outcome {
            Outcome::Measured { seconds, .. } => seconds,
            _ => &[],
        }
    }
}
