//! Published comparisons of contenders: ratios, orders, pairs of runs, and ratios that rise.

use serde::{Deserialize, Serialize};

use super::Statistic;
use super::claims::as_printed;

/// Words between a contender and the task that it is compared at, in an order.
pub(super) const IN: &str = " in ";

/// Quantity that a ratio is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// The time that something takes; also of results that were written before files named a quantity.
    #[default]
    Time,
    /// The load of a session at the client's end of the link.
    Load,
}

/// Ratio of a quantity of two contenders, as somebody has published it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PublishedRatio {
    /// Of which contender.
    pub contender: String,
    /// Compared with which.
    pub to: String,
    /// Over which link.
    pub scenario: String,
    /// Doing what.
    pub task: String,
    /// Quantity of the contender as a multiple of the other's.
    pub ratio: f64,
    /// The quantity.
    #[serde(default)]
    pub quantity: Quantity,
    /// Of what the ratio is.
    #[serde(default)]
    pub statistic: Statistic,
    /// Source of the ratio.
    pub source: String,
    /// Claim in words, by which pages show it first; none if it is not among those.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headline: Option<String>,
}

impl PublishedRatio {
    /// The ratio as it is printed, with two decimals at least.
    #[must_use]
    pub fn text(&self) -> String {
        as_printed(self.ratio)
    }
}

/// Order of contenders by their times, as somebody has published it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PublishedOrder {
    /// Over which link.
    pub scenario: String,
    /// Doing what, where a contender's name says nothing else.
    pub task: String,
    /// Number of transactions after which sessions are compared; all if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<usize>,
    /// Contenders, the fastest first; those that stand together were not told apart. `NAME in TASK` is a contender at a task that is
    /// not the order's.
    pub order: Vec<Vec<String>>,
    /// Of what the order is.
    #[serde(default)]
    pub statistic: Statistic,
    /// Source of the order.
    pub source: String,
    /// Claim in words, by which pages show it first; none if it is not among those.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headline: Option<String>,
}

impl PublishedOrder {
    /// Contender and task of a name in the order.
    #[must_use]
    pub fn run<'a>(&'a self, name: &'a str) -> (&'a str, &'a str) {
        name.split_once(IN).unwrap_or((name, &self.task))
    }

    /// Contender and task of each name in the order.
    pub fn runs(&self) -> impl Iterator<Item = (&str, &str)> {
        let names = self.order.iter().flatten();
        names.map(move |name| self.run(name))
    }

    /// The order in one line, with `~` between those that were not told apart.
    #[must_use]
    pub fn text(&self) -> String {
        let places: Vec<String> = self.order.iter().map(|place| place.join(" ~ ")).collect();
        places.join(" < ")
    }
}

/// Two contenders of which neither was faster more often than the other, as somebody has published it: each pair is of two runs that
/// met the same link and content.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PublishedPairs {
    /// One contender.
    pub contender: String,
    /// The other one.
    pub to: String,
    /// Over which link.
    pub scenario: String,
    /// Tasks whose pairs count, together.
    pub tasks: Vec<String>,
    /// Source of the finding.
    pub source: String,
}

/// Ratio of the times of two contenders that rises along the experiment's axis, as somebody has published it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PublishedRise {
    /// Of which contender.
    pub contender: String,
    /// Compared with which.
    pub to: String,
    /// Doing what.
    pub task: String,
    /// Of what the ratio is.
    pub statistic: Statistic,
    /// Source of the finding.
    pub source: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_an_order_may_have_a_task_of_its_own() {
        let order = PublishedOrder {
            scenario: "geo".into(),
            task: "warm".into(),
            after: Some(1),
            order: vec![vec!["a".into()], vec!["b in cold".into()]],
            statistic: Statistic::Mean,
            source: "S".into(),
            headline: None,
        };
        let runs: Vec<_> = order.runs().collect();
        assert_eq!(runs, [("a", "warm"), ("b", "cold")]);
        assert_eq!(order.text(), "a < b in cold");
    }
}
