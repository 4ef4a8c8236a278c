//! Results in few numbers: per contender, link and task the median, how sure it is, and how far from the limit.
//!
//! Valid runs have figures here, and those that were given up: they are longer than their patience. All others are counted by what
//! they are.

use std::collections::BTreeMap;
use std::fmt;

use super::sample::{Figures, Sample, means_by_place};
use super::{Known, Outcome, Outline, Record, Status};
use crate::contender::Repairs;
use crate::experiment::{
    FailureCount, Published, PublishedRatio, PublishedValue, Quantity, RunKey, Statistic,
};

/// A whole experiment's.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// Question that it is to answer.
    pub question: String,
    /// By link, task and contender, in the order of the experiment.
    pub rows: Vec<Row>,
}

/// One contender, over one link, doing one thing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Row {
    /// The link.
    pub scenario: String,
    /// Task that was done.
    pub task: String,
    /// Contender that did it.
    pub contender: String,
    /// Figures that were measured, in seconds; none if no run counts.
    pub figures: Option<Figures>,
    /// The median of ratios to the physical limit.
    pub ratio: Option<Known>,
    /// Median of the times at which there was something to see of pages, in seconds.
    pub first_paint: Option<Known>,
    /// The share of a call's datagrams that did not arrive, or too late: the median of valid runs.
    pub lost: Option<f64>,
    /// Bytes that repairs brought back, bytes of repairs that were not needed, and the share of all bytes sent that repairs were:
    /// medians of valid runs that were carried by somebody who repairs.
    pub repairs: [Option<f64>; 3],
    /// Figures that others have published.
    pub published: Vec<Published>,
    /// Content of one figure, in bytes, where all figures of a run have the same or there is one.
    pub content: Option<f64>,
    /// The mean load of sessions at the client's end of the link, in bit/s.
    pub load: Option<f64>,
    /// Means of all times so far after each transaction of a session; empty where there is none, or one was given up.
    pub means_so_far: Vec<f64>,
    /// Mean figure of each run that counts, in seconds, by its repeat: who has the same number has met the same link and content.
    pub repeats: BTreeMap<u32, Known>,
    /// Runs by status: valid, invalid, unfinished, failed, unsupported.
    pub runs: [usize; 5],
    /// Objections to the runs that are not valid, each text once.
    pub remarks: Vec<String>,
}

/// The median of what is known for certain.
fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let runs = values.map(|value| vec![Known::exactly(value)]);
    Sample::new(runs.collect()).figures()?.median.value()
}

/// The arithmetic mean; none of none.
fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    Known::mean(values.map(Known::exactly))?.value()
}

/// Means of all times so far of `records`, which are of one row.
fn means_so_far(records: &[&Record]) -> Vec<f64> {
    let given_up = |record: &&Record| record.status() == Status::Unfinished;
    if records.iter().any(given_up) {
        return Vec::new();
    }
    let sessions = records
        .iter()
        .filter(|record| record.status() == Status::Valid && !record.transactions.is_empty());
    let runs: Vec<_> = sessions.map(|record| record.means_so_far()).collect();
    means_by_place(&runs).unwrap_or_default()
}

/// Repeat of a run that counts, and the mean of its figures.
fn by_repeat(record: &&Record) -> Option<(u32, Known)> {
    let figure = match (record.status(), &record.outcome) {
        (Status::Valid, _) => Known::exactly(mean(record.seconds().iter().copied())?),
        (Status::Unfinished, Outcome::Unfinished { after_s }) => Known::more_than(*after_s),
        _ => return None,
    };
    Some((record.key.repeat, figure))
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
                    rows.push(Row::new(names, &own, outline.published(names)));
                }
            }
        }
        Self {
            question: outline.question.clone(),
            rows,
        }
    }

    /// The row of these names; none if there is no run of them.
    #[must_use]
    pub fn row(&self, contender: &str, scenario: &str, task: &str) -> Option<&Row> {
        let names = [contender, scenario, task];
        let mut rows = self.rows.iter();
        rows.find(|row| [&*row.contender, &row.scenario, &row.task] == names)
    }

    /// Ratio that was measured between the contenders of a published one; none if one of the two contenders has no figure.
    #[must_use]
    pub fn ratio(&self, published: &PublishedRatio) -> Option<Known> {
        let figure = |contender: &str| {
            let row = self.row(contender, &published.scenario, &published.task)?;
            match published.quantity {
                Quantity::Time => Some(row.figures?.statistic(published.statistic)),
                Quantity::Load => row.load.map(Known::exactly),
            }
        };
        Some(figure(&published.contender)?.over(figure(&published.to)?))
    }
}

impl Row {
    fn new(names: [&str; 3], records: &[&Record], published: Vec<Published>) -> Self {
        let [contender, scenario, task] = names.map(str::to_owned);
        let valid = || {
            records
                .iter()
                .filter(|record| record.status() == Status::Valid)
        };
        let middle = |sample: Sample| Some(sample.figures()?.median);
        let mut runs = [0; 5];
        let mut remarks: Vec<String> = Vec::new();
        for record in records {
            runs[record.status() as usize] += 1;
            let remark = record.remark();
            if !remark.is_empty() && !remarks.contains(&remark) {
                remarks.push(remark);
            }
        }
        Self {
            figures: Sample::seconds(records).figures(),
            ratio: middle(Sample::ratios(records)),
            first_paint: middle(Sample::first_paints(records)),
            lost: median(valid().filter_map(|record| record.lost)),
            repairs: [
                |repairs: Repairs| repairs.recovered_bytes as f64,
                |repairs: Repairs| repairs.wasted_bytes as f64,
                |repairs: Repairs| repairs.overhead,
            ]
            .map(|of| median(valid().filter_map(|record| record.repairs.map(of)))),
            published,
            content: median(valid().filter_map(|record| record.content())),
            load: mean(valid().filter_map(|record| record.loads().last().copied())),
            means_so_far: means_so_far(records),
            repeats: records.iter().filter_map(by_repeat).collect(),
            runs,
            remarks,
            scenario,
            task,
            contender,
        }
    }
}

impl Row {
    /// Runs that failed or were given up, of those that a link or a machine did not spoil.
    #[must_use]
    pub fn failures(&self) -> Option<FailureCount> {
        let of = |status: Status| self.runs[status as usize] as u32;
        let failed = of(Status::Unfinished) + of(Status::Failed);
        FailureCount::new(failed, of(Status::Valid) + failed)
    }

    /// The rate that a published one is compared with, in bit/s: of content, of sessions the load.
    #[must_use]
    pub fn rate(&self, statistic: Statistic) -> Option<Known> {
        let load = self.load.map(Known::exactly);
        load.or_else(|| Some(self.figures?.inverse(statistic).times(8.0 * self.content?)))
    }

    /// Measured figure as a multiple of a published one; none of failures, or where nothing was measured.
    #[must_use]
    pub fn over(&self, figure: &Published) -> Option<Known> {
        let (own, published) = match (figure.value, figure.value.bits_per_s()) {
            (PublishedValue::Seconds(seconds), _) => {
                (self.figures?.statistic(figure.statistic), seconds)
            }
            (_, Some(rate)) => (self.rate(figure.statistic)?, rate),
            _ => return None,
        };
        Some(own.over(Known::exactly(published)))
    }

    /// Number of runs, by status.
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
                    "\n{:<34}{:>10}{:>10}{:>9}{:>16}  runs",
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
        let figure = |of: fn(Figures) -> Known| {
            let known = self.figures.map(of);
            known.map_or("-".into(), Known::seconds)
        };
        let published = self.published.first();
        write!(
            f,
            "  {:<32}{:>10}{:>10}{:>9}{:>16}  ",
            self.contender,
            figure(|figures| figures.median),
            figure(|figures| figures.p95),
            self.ratio.map_or("-".into(), |ratio| ratio.ratio(2)),
            published.map_or("-".into(), |figure| figure.value.to_string()),
        )?;
        f.write_str(&self.counts())?;
        self.remarks
            .iter()
            .try_for_each(|remark| write!(f, "\n      {remark}"))
    }
}

#[cfg(test)]
mod tests {
    use bentpipe_units::Seed;

    use super::*;

    fn record(repeat: u32, outcome: Outcome) -> Record {
        let key = RunKey {
            contender: "x".into(),
            scenario: "geo".into(),
            task: "get".into(),
            repeat,
        };
        Record {
            limit_s: Some(10.0),
            ..Record::new(key, Seed::new(1), outcome)
        }
    }

    fn measured(seconds: &[f64]) -> Outcome {
        Outcome::Measured {
            seconds: seconds.to_vec(),
            bytes: 1,
        }
    }

    const UNFINISHED: Outcome = Outcome::Unfinished { after_s: 600.0 };

    fn row(outcomes: Vec<Outcome>) -> Row {
        let records: Vec<Record> = (1..)
            .zip(outcomes)
            .map(|(repeat, outcome)| record(repeat, outcome))
            .collect();
        let records: Vec<&Record> = records.iter().collect();
        Row::new(["x", "geo", "get"], &records, Vec::new())
    }

    #[test]
    fn who_was_given_up_is_longer_than_all_others() {
        let finished = [20.0, 21.0, 22.0, 23.0].map(|seconds| measured(&[seconds]));
        let one = row([&[UNFINISHED], &finished[..]].concat());
        let figures = one.figures.unwrap();
        assert_eq!(figures.median, Known::exactly(22.0));
        assert_eq!(figures.p95, Known::more_than(600.0));
        let ends = [Known::exactly(20.0), Known::more_than(600.0)];
        assert_eq!(figures.spread.unwrap().ends, ends);
        assert_eq!(one.ratio, Some(Known::exactly(2.2)));
        let text = one.to_string();
        let shown = ["22.00 s", "> 600 s", "2.20", "4 valid, 1 unfinished"];
        assert!(shown.iter().all(|part| text.contains(part)), "{text}");
    }

    #[test]
    fn no_median_is_that_of_the_lucky_ones() {
        let most = [
            vec![UNFINISHED; 3],
            vec![measured(&[20.0]), measured(&[21.0])],
        ];
        let row = row(most.concat());
        let figures = row.figures.unwrap();
        assert_eq!(figures.median, Known::more_than(600.0));
        assert_eq!(row.ratio, Some(Known::more_than(60.0)));
        let text = row.to_string();
        assert!(
            text.contains("> 600 s") && text.contains("> 60.00"),
            "{text}"
        );
        assert!(!text.contains("20.") && !text.contains("21."), "{text}");
    }

    #[test]
    fn whoever_was_given_up_has_as_many_figures_as_others() {
        let pages = measured(&[1.0, 2.0, 3.0]);
        let figures = row(vec![pages.clone(), pages, UNFINISHED]).figures.unwrap();
        assert_eq!((figures.count, figures.runs), (9, 3));
        assert_eq!(figures.median, Known::exactly(3.0));
    }

    #[test]
    fn runs_that_are_doubted_or_failed_are_not_averaged_in() {
        let outline = Outline {
            contenders: vec!["x".into()],
            scenarios: vec!["geo".into()],
            tasks: vec!["get".into()],
            ..Outline::default()
        };
        let failed = Outcome::Failed { reason: "f".into() };
        let outcomes = [
            measured(&[20.0]),
            measured(&[22.0]),
            measured(&[1.0]),
            UNFINISHED,
            failed.clone(),
            failed.clone(),
            failed,
        ];
        let mut records: Vec<Record> = (1..)
            .zip(outcomes)
            .map(|(repeat, outcome)| record(repeat, outcome))
            .collect();
        records[2].doubts.push("late".into());
        // As the emulator and the link's check say it; a doubt about what was carried speaks against figures alone.
        for record in &mut records[3..] {
            record.doubts.push("late".into());
        }
        records[5].link = Some(serde_json::json!({ "verdict": "INVALID" }));
        records[6].doubt_link("none of 15 datagrams came back");
        let records = records
            .into_iter()
            .map(|record| (record.key.clone(), record));
        let summary = Summary::new(&outline, &records.collect());
        let figures = summary.rows[0].figures.unwrap();
        assert_eq!((figures.count, figures.median), (2, Known::exactly(21.0)));
        assert_eq!(summary.rows[0].runs, [2, 4, 0, 1, 0]);
        assert_eq!(summary.rows[0].failures(), FailureCount::new(1, 3));
    }
}
