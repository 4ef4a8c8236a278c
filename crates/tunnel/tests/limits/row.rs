//! A row of the table: an experiment, what it measures and what is asked of it.

use std::fmt;

use bentpipe_congestion::Kind;

/// Seeds of a row in which chance plays a part, and of one in which it decides next to nothing.
const SEEDS: [u64; 2] = [20, 3];
/// Seeds of a row in which it plays a part, but that takes minutes with so many.
const FEWER: u64 = 7;

/// An experiment and its figures.
pub(crate) struct Row {
    pub(crate) scenario: String,
    pub(crate) workload: String,
    pub(crate) figures: Vec<Figure>,
    /// Seeds that the whole table runs.
    pub(crate) seeds: u64,
    /// If `make test` runs the row: its seeds, and what the first figures hold today. The others keep their goals.
    pub(crate) check: Option<(u64, Vec<f64>)>,
    pub(crate) experiment: Experiment,
}

/// Runs with any controller and seed; measures one value per figure of the row.
pub(crate) type Experiment = Box<dyn Fn(Kind, u64) -> Sample + Send + Sync>;

/// What one run measured.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    pub(crate) values: Vec<f64>,
    /// For the reader: seconds behind a ratio, say.
    pub(crate) note: String,
}

/// One thing that an experiment measures.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    pub(crate) goal: Goal,
    /// The goal is one of the 95th percentile over the seeds.
    pub(crate) tail: bool,
    /// Time as a multiple of T*: below 1 there is a fault.
    pub(crate) is_ratio: bool,
}

/// What is asked of the median, or of the 95th percentile (the fifth, if much is good).
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Goal {
    AtMost(f64),
    AtLeast(f64),
    /// Nothing; it is of interest.
    Shown,
}

impl Goal {
    pub(crate) fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtMost(most) => value <= most,
            Self::AtLeast(least) => value >= least,
            Self::Shown => true,
        }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(most) => f.pad(&format!("<= {}", trimmed(*most))),
            Self::AtLeast(least) => f.pad(&format!(">= {}", trimmed(*least))),
            Self::Shown => f.pad("-"),
        }
    }
}

/// At most three decimals.
fn trimmed(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

impl Figure {
    pub(crate) const fn ratio(goal: Goal) -> Self {
        Self {
            name: "time / T*",
            goal,
            tail: false,
            is_ratio: true,
        }
    }

    pub(crate) const fn new(name: &'static str, goal: Goal) -> Self {
        Self {
            name,
            goal,
            tail: false,
            is_ratio: false,
        }
    }

    /// The goal is one of the 95th percentile over the seeds.
    pub(crate) const fn tail(mut self) -> Self {
        self.tail = true;
        self
    }
}

impl Row {
    /// A row whose experiment is a function.
    pub(crate) fn new(
        scenario: impl Into<String>,
        workload: impl Into<String>,
        figures: Vec<Figure>,
        experiment: impl Fn(Kind, u64) -> Sample + Send + Sync + 'static,
    ) -> Self {
        Self {
            scenario: scenario.into(),
            workload: workload.into(),
            figures,
            seeds: SEEDS[1],
            check: None,
            experiment: Box::new(experiment),
        }
    }

    /// Chance plays a part.
    pub(crate) fn random(mut self) -> Self {
        self.seeds = SEEDS[0];
        self
    }

    /// Chance plays a part, in a row that takes long.
    pub(crate) fn random_and_slow(mut self) -> Self {
        self.seeds = FEWER;
        self
    }

    /// With one more figure: the first one, as a multiple of what the first one of `other` is with the same seed.
    pub(crate) fn relative_to(mut self, other: Self, figure: Figure) -> Self {
        let (own, count) = (self.experiment, self.figures.len());
        self.figures.push(figure);
        self.experiment = Box::new(move |kind, seed| {
            let mut sample = own(kind, seed);
            sample.values.truncate(count);
            let other = (other.experiment)(kind, seed).values[0];
            sample.values.push(sample.values[0] / other);
            sample
        });
        self
    }

    /// Run by `make test` with so many seeds; the first figure holds this bound today.
    pub(crate) fn checked(mut self, seeds: u64, today: f64) -> Self {
        self.check = Some((seeds, vec![today]));
        self
    }

    /// What the row is found by.
    pub(crate) fn title(&self) -> String {
        format!("{} {}", self.scenario, self.workload)
    }
}
