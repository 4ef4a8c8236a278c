//! Published figures about the runs of an experiment, and reasons why they differ here.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::comparisons::{PublishedOrder, PublishedPairs, PublishedRatio, PublishedRise};

/// Everything that an experiment's file says of others' findings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Claims {
    /// Figures.
    #[serde(default)]
    pub published: Vec<Published>,
    /// Ratios of one to another, where others have published those alone.
    #[serde(default)]
    pub published_ratios: Vec<PublishedRatio>,
    /// Orders of contenders, best first.
    #[serde(default)]
    pub published_orders: Vec<PublishedOrder>,
    /// Pairs of contenders that are told apart by single runs, or are not.
    #[serde(default)]
    pub published_pairs: Vec<PublishedPairs>,
    /// Ratios that rise along the experiment's axis.
    #[serde(default)]
    pub published_rises: Vec<PublishedRise>,
    /// Names that only published findings have: nobody can start them yet.
    #[serde(default)]
    pub not_built: Vec<String>,
    /// Reasons why figures here differ from published ones.
    #[serde(default)]
    pub explanations: Vec<Explanation>,
}

impl Claims {
    /// Contenders that findings over this link at this task name; empty if there are none. Pairs are made of the runs that there are,
    /// and ask for none.
    #[must_use]
    pub fn contenders(&self, scenario: &str, task: &str) -> BTreeSet<&str> {
        let here = |link: &str, work: &str| (link, work) == (scenario, task);
        let figures = self.published.iter();
        let figures = figures
            .filter(|one| here(&one.scenario, &one.task))
            .map(|one| &one.contender);
        let ratios = self.published_ratios.iter();
        let ratios = ratios
            .filter(|one| here(&one.scenario, &one.task))
            .flat_map(|one| [&one.contender, &one.to]);
        let rises = self.published_rises.iter();
        let rises = rises
            .filter(|one| one.task == task)
            .flat_map(|one| [&one.contender, &one.to]);
        let orders = self.published_orders.iter();
        let orders = orders
            .filter(|one| one.scenario == scenario)
            .flat_map(PublishedOrder::runs)
            .filter(|(_, work)| *work == task);
        let all = figures.chain(ratios).chain(rises).map(String::as_str);
        all.chain(orders.map(|(contender, _)| contender)).collect()
    }

    /// Reason why figures of any of `contenders` over this link at this task differ from published ones: the first that fits.
    #[must_use]
    pub fn explanation(
        &self,
        contenders: &[&str],
        scenario: &str,
        task: &str,
    ) -> Option<&Explanation> {
        let mut known = self.explanations.iter();
        known.find(|one| one.is_about(contenders, scenario, task))
    }
}

/// Reason why figures here differ from published ones, in one sentence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// Contenders that it is about; all if empty.
    pub contenders: Vec<String>,
    /// Links that it is about; all if empty.
    pub scenarios: Vec<String>,
    /// Tasks that it is about; all if empty.
    pub tasks: Vec<String>,
    /// The sentence.
    pub because: String,
}

impl Explanation {
    /// True if it is about any of `contenders` over this link at this task.
    #[must_use]
    pub fn is_about(&self, contenders: &[&str], scenario: &str, task: &str) -> bool {
        let holds = |names: &[String], wanted: &[&str]| {
            names.is_empty()
                || wanted
                    .iter()
                    .any(|name| names.iter().any(|own| own == name))
        };
        holds(&self.contenders, contenders)
            && holds(&self.scenarios, &[scenario])
            && holds(&self.tasks, &[task])
    }
}

/// Statistic of a published figure; what is measured is summed up in the same way before both are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Statistic {
    /// The arithmetic mean.
    Mean,
    /// The median; also of results that were written before files named a statistic.
    #[default]
    Median,
    /// The 95th percentile.
    P95,
}

impl Statistic {
    /// As tables call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Mean => "mean",
            Self::Median => "median",
            Self::P95 => "p95",
        }
    }
}

/// Part of a published figure that may be judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Comparable {
    /// The figure itself.
    #[default]
    All,
    /// Ratio to other figures of the same source alone: the figure was measured over other content.
    Ratio,
}

/// Number of failed runs, as in `2 of 5`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FailureCount {
    failed: u32,
    of: u32,
}

impl FailureCount {
    /// Failed runs of so many; none of none.
    #[must_use]
    pub fn new(failed: u32, of: u32) -> Option<Self> {
        (of > 0 && failed <= of).then_some(Self { failed, of })
    }

    /// Number of runs that failed.
    #[must_use]
    pub fn failed(self) -> u32 {
        self.failed
    }

    /// Number of all runs.
    #[must_use]
    pub fn of(self) -> u32 {
        self.of
    }

    /// Share of the runs that failed.
    #[must_use]
    pub fn share(self) -> f64 {
        f64::from(self.failed) / f64::from(self.of)
    }
}

impl FromStr for FailureCount {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parsed = text.split_once(" of ").and_then(|(failed, of)| {
            let [failed, of] = [failed, of].map(|number| number.trim().parse().ok());
            Self::new(failed?, of?)
        });
        parsed.ok_or("write it as in `2 of 5`: runs that failed, of all")
    }
}

impl TryFrom<String> for FailureCount {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<FailureCount> for String {
    fn from(count: FailureCount) -> Self {
        count.to_string()
    }
}

impl fmt::Display for FailureCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.failed, self.of)
    }
}

/// Value of a published figure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PublishedValue {
    /// A time in seconds.
    Seconds(f64),
    /// A rate in bits per second: content over time, of sessions the load at the client's end of the link.
    BitsPerS(f64),
    /// A rate in bytes per second, likewise.
    BytesPerS(f64),
    /// Runs that failed or were given up.
    Failed(FailureCount),
}

impl PublishedValue {
    /// The rate in bits per second, where it is a rate.
    #[must_use]
    pub fn bits_per_s(self) -> Option<f64> {
        match self {
            Self::BitsPerS(rate) => Some(rate),
            Self::BytesPerS(rate) => Some(8.0 * rate),
            Self::Seconds(_) | Self::Failed(_) => None,
        }
    }
}

impl fmt::Display for PublishedValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Seconds(seconds) => write!(f, "{} s", as_printed(*seconds)),
            Self::BitsPerS(rate) if *rate >= 1e6 => write!(f, "{:.2} Mbit/s", rate / 1e6),
            Self::BitsPerS(rate) if *rate >= 1e3 => write!(f, "{:.2} kbit/s", rate / 1e3),
            Self::BitsPerS(rate) => write!(f, "{rate:.2} bit/s"),
            Self::BytesPerS(rate) => Self::BitsPerS(8.0 * rate).fmt(f),
            Self::Failed(count) => write!(f, "{count} failed"),
        }
    }
}

/// A figure that somebody has published.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Published {
    /// Of which contender.
    pub contender: String,
    /// Over which link.
    pub scenario: String,
    /// Doing what.
    pub task: String,
    /// The figure.
    #[serde(flatten)]
    pub value: PublishedValue,
    /// Of what it is the figure; a count of failures has none.
    #[serde(default)]
    pub statistic: Statistic,
    /// Part of it that may be judged.
    #[serde(default)]
    pub comparable: Comparable,
    /// Source of the figure.
    pub source: String,
}

impl Published {
    /// The figure as tables show it, with its statistic.
    #[must_use]
    pub fn text(&self) -> String {
        match self.value {
            PublishedValue::Failed(_) => self.value.to_string(),
            _ => format!("{}, {}", self.value, self.statistic.name()),
        }
    }
}

/// A number with two decimals, or as many as it was written with.
pub(super) fn as_printed(number: f64) -> String {
    let (two, all) = (format!("{number:.2}"), number.to_string());
    if all.len() > two.len() { all } else { two }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_explanation_is_about_what_it_names_and_else_about_all() {
        let mut about = Explanation {
            contenders: Vec::new(),
            scenarios: vec!["geo".into()],
            tasks: Vec::new(),
            because: "The web has grown.".into(),
        };
        assert!(about.is_about(&["a", "b"], "geo", "get"));
        assert!(!about.is_about(&["a"], "leo", "get"));
        about.contenders = vec!["b".into()];
        assert!(about.is_about(&["a", "b"], "geo", "get"));
        assert!(!about.is_about(&["a"], "geo", "get"));
    }

    #[test]
    fn failures_are_counted_of_all() {
        let count: FailureCount = "2 of 5".parse().unwrap();
        assert_eq!((count.failed(), count.to_string()), (2, "2 of 5".into()));
        for wrong in ["", "2", "6 of 5", "0 of 0", "-1 of 5", "two of 5"] {
            assert!(wrong.parse::<FailureCount>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_figure_is_read_as_it_was_written_before_there_were_others() {
        let text = r#"{"contender":"x","scenario":"s","task":"t","seconds":11.0,"source":"S"}"#;
        let old: Published = serde_json::from_str(text).unwrap();
        assert_eq!(old.value, PublishedValue::Seconds(11.0));
        assert_eq!(old.text(), "11.00 s, median");
        let again = serde_json::to_string(&old).unwrap();
        assert_eq!(serde_json::from_str::<Published>(&again).unwrap(), old);
        let failed = text.replace("\"seconds\":11.0", "\"failed\":\"2 of 5\"");
        let failed: Published = serde_json::from_str(&failed).unwrap();
        assert_eq!(failed.text(), "2 of 5 failed");
        assert_eq!(PublishedValue::Seconds(22.465).to_string(), "22.465 s");
    }
}
