//! Results in few numbers: per contender, link and task the median, how sure it is, and how far from the limit.
//!
//! Only valid runs have figures here; all others are counted by what they are.

use std::collections::BTreeMap;
use std::fmt;

use super::{Outcome, Outline, Record, Status};
use crate::contender::Repairs;
use crate::experiment::RunKey;

/// A whole experiment's.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// What it is to answer.
    pub question: String,
    /// By link, task and contender, in the order of the experiment.
    pub rows: Vec<Row>,
}

/// One contender, over one link, doing one thing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Row {
    /// The link.
    pub scenario: String,
    /// What was done.
    pub task: String,
    /// Who did it.
    pub contender: String,
    /// What was measured; none if no run was valid.
    pub figures: Option<Figures>,
    /// The median of ratios to the physical limit.
    pub ratio: Option<f64>,
    /// The patience that ended runs, in seconds.
    pub longer_than: Option<f64>,
    /// When there was something to see of pages, in seconds: the median.
    pub first_paint: Option<f64>,
    /// The share of a call's datagrams that did not arrive, or too late: the median of runs.
    pub lost: Option<f64>,
    /// Bytes that repairs brought back, bytes of repairs that were not needed, and the share of all bytes sent that repairs were:
    /// medians of runs that were carried by somebody who repairs.
    pub repairs: [Option<f64>; 3],
    /// What others have published, in seconds.
    pub published: Option<f64>,
    /// Runs by status: valid, invalid, unfinished, failed, unsupported.
    pub runs: [usize; 5],
    /// What is to be said against the runs that are not valid, each text once.
    pub remarks: Vec<String>,
}

/// Figures of one kind.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figures {
    /// How many.
    pub count: usize,
    /// Seconds.
    pub median: f64,
    /// Nineteen of twenty are no larger.
    pub p95: f64,
    /// Bounds that hold the true median with 95 % confidence, from order statistics; none with fewer than six figures.
    pub interval: Option<[f64; 2]>,
}

impl Figures {
    /// Of these seconds; none of none.
    #[must_use]
    pub fn of(mut seconds: Vec<f64>) -> Option<Self> {
        seconds.sort_by(f64::total_cmp);
        let count = seconds.len();
        let last = seconds.last()?;
        let median = (seconds[(count - 1) / 2] + seconds[count / 2]) / 2.0;
        // Nearest rank.
        let p95 = seconds.get((count * 95).div_ceil(100) - 1).unwrap_or(last);
        Some(Self {
            count,
            median,
            p95: *p95,
            interval: rank(count).map(|rank| [seconds[rank], seconds[count - 1 - rank]]),
        })
    }
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    Figures::of(values.collect()).map(|figures| figures.median)
}

/// The largest rank, from 0, such that the figures of this rank from below and from above hold the median between them
/// with at least 95 %: how many of `count` figures lie below the median is binomial with one half.
fn rank(count: usize) -> Option<usize> {
    // Of at most so many below: the sum of the distribution's first terms. Far above 1000 figures the first underflows.
    let mut term = 0.5f64.powi(i32::try_from(count.min(1000)).unwrap_or(1000));
    let count = count.min(1000);
    let mut below = 0.0;
    let mut found = None;
    for rank in 0..count / 2 {
        below += term;
        if below > 0.025 {
            break;
        }
        found = Some(rank);
        term *= (count - rank) as f64 / (rank + 1) as f64;
    }
    found
}

impl Summary {
    /// Of what came of an experiment.
    #[must_use]
    pub fn new(outline: &Outline, records: &BTreeMap<RunKey, Record>) -> Self {
        let mut rows = Vec::new();
        for scenario in &outline.scenarios {
            for task in &outline.tasks {
                for contender in &outline.contenders {
                    let names = [&**contender, &**scenario, &**task];
                    let own = records
                        .values()
                        .filter(|record| record.key.names() == names);
                    let own: Vec<&Record> = own.collect();
                    if own.is_empty() {
                        continue;
                    }
                    let published = outline.published(contender, scenario, task);
                    rows.push(Row::new(
                        names,
                        &own,
                        published.map(|figure| figure.seconds),
                    ));
                }
            }
        }
        Self {
            question: outline.question.clone(),
            rows,
        }
    }
}

impl Row {
    fn new(names: [&str; 3], records: &[&Record], published: Option<f64>) -> Self {
        let [contender, scenario, task] = names.map(str::to_owned);
        let valid = || {
            records
                .iter()
                .filter(|record| record.status() == Status::Valid)
        };
        let seconds = valid().flat_map(|record| record.seconds().iter().copied());
        let ratios = valid().flat_map(|record| {
            let seconds = record.seconds().iter().enumerate();
            seconds.filter_map(move |(place, seconds)| Some(seconds / record.limit(place)?))
        });
        let mut runs = [0; 5];
        let mut remarks: Vec<String> = Vec::new();
        for record in records {
            runs[record.status() as usize] += 1;
            let remark = record.remark();
            if !remark.is_empty() && !remarks.contains(&remark) {
                remarks.push(remark);
            }
        }
        let patience = records.iter().find_map(|record| match record.outcome {
            Outcome::Unfinished { after_s } if record.status() == Status::Unfinished => {
                Some(after_s)
            }
            _ => None,
        });
        Self {
            figures: Figures::of(seconds.collect()),
            ratio: median(ratios),
            longer_than: patience,
            first_paint: median(valid().flat_map(|record| record.first_paint_s.iter().copied())),
            lost: median(valid().filter_map(|record| record.lost)),
            repairs: [
                |repairs: Repairs| repairs.recovered_bytes as f64,
                |repairs: Repairs| repairs.wasted_bytes as f64,
                |repairs: Repairs| repairs.overhead,
            ]
            .map(|of| median(valid().filter_map(|record| record.repairs.map(of)))),
            published,
            runs,
            remarks,
            scenario,
            task,
            contender,
        }
    }
}

impl Row {
    /// How many runs there were, by status.
    #[must_use]
    pub fn counts(&self) -> String {
        let names = ["valid", "invalid", "unfinished", "failed", "unsupported"];
        let counted = self.runs.iter().zip(names).filter(|(count, _)| **count > 0);
        let counted = counted.map(|(count, name)| format!("{count} {name}"));
        counted.collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.question)?;
        let mut heading = None;
        for row in &self.rows {
            if heading != Some((&row.scenario, &row.task)) {
                heading = Some((&row.scenario, &row.task));
                writeln!(
                    f,
                    "\n{:<34}{:>10}{:>10}{:>9}{:>11}  runs",
                    format!("{}, {}", row.scenario, row.task),
                    "median",
                    "p95",
                    "× limit",
                    "published"
                )?;
            }
            writeln!(f, "{row}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds =
            |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.2} s"));
        let median = match (self.figures, self.longer_than) {
            (None, Some(patience)) => format!("> {patience:.0} s"),
            (figures, _) => seconds(figures.map(|figures| figures.median)),
        };
        write!(
            f,
            "  {:<32}{median:>10}{:>10}{:>9}{:>11}  ",
            self.contender,
            seconds(self.figures.map(|figures| figures.p95)),
            self.ratio.map_or("-".into(), |ratio| format!("{ratio:.2}")),
            seconds(self.published),
        )?;
        f.write_str(&self.counts())?;
        self.remarks
            .iter()
            .try_for_each(|remark| write!(f, "\n      {remark}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_those_of_the_textbook() {
        assert_eq!(Figures::of(Vec::new()), None);
        let few = Figures::of(vec![3.0, 1.0, 2.0, 10.0]).unwrap();
        assert_eq!((few.median, few.p95, few.interval), (2.5, 10.0, None));
        let hundred = Figures::of((1..=100).map(f64::from).collect()).unwrap();
        assert_eq!((hundred.median, hundred.p95), (50.5, 95.0));
        // Ranks 40 and 61, as tables of the binomial distribution have it.
        assert_eq!(hundred.interval, Some([40.0, 61.0]));
        // Six figures are the fewest: 2 × 0.5^6 = 3 %.
        assert_eq!(
            [rank(5), rank(6), rank(9), rank(20)],
            [None, Some(0), Some(1), Some(5)]
        );
    }
}
