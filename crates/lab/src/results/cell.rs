//! Whether a contender became slower, and how sure that is.
//!
//! A cell is a contender over a link doing a task. What counts is the ratio of medians, after to before. With six runs and more
//! on both sides its interval is that of the percentile bootstrap, which draws runs with all of their figures, from a fixed seed.
//! With three to five there is none; then runs that do not even touch are taken for different, which chance makes of three and
//! three in one case of twenty. With fewer nothing is said. Runs that were given up are longer than their patience here too.

use bentpipe_units::Seed;

use super::sample::{MANY, RESAMPLES, Sample, tails};
use super::{Figures, Known};
use crate::workload::generator;

/// Runs for any verdict.
const FEW: usize = 3;

/// A contender over a link doing a task.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// Contender, link and task.
    pub names: [String; 3],
    /// Before and after.
    pub figures: [Option<Figures>; 2],
    /// Of the medians, after to before.
    pub ratio: Option<Known>,
    /// Holds the ratio with 95 %; without an end where one of the medians is more than was waited for.
    pub interval: Option<[f64; 2]>,
    /// Change that it comes to.
    pub change: Change,
}

/// Change of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Surely slower by more than the threshold.
    Worse,
    /// Runs ended before, and none does now.
    Lost,
    /// Surely faster by more than the threshold.
    Better,
    /// No more than the threshold, or it may be chance.
    None,
    /// Too few runs.
    Unknown,
    /// No run was there before.
    New,
}

impl Cell {
    pub(super) fn new(names: [String; 3], old: Sample, new: Sample, threshold: f64) -> Self {
        let many = old.runs().min(new.runs()) >= MANY;
        let interval = many.then(|| bootstrap(&old, &new)).flatten();
        let change = change(&old, &new, interval, 1.0 + threshold);
        let figures = [old, new].map(|sample| sample.figures());
        let [before, after] = figures.map(|figures| figures.map(|figures| figures.median));
        Self {
            names,
            ratio: before.zip(after).map(|(before, after)| after.over(before)),
            figures,
            interval,
            change,
        }
    }
}

fn change(old: &Sample, new: &Sample, interval: Option<[f64; 2]>, most: f64) -> Change {
    let known = |sample: &Sample| sample.values().next().is_some();
    if old.runs() == 0 {
        return match new.runs() {
            0 => Change::Unknown,
            _ => Change::New,
        };
    }
    if known(old) && !known(new) {
        return Change::Lost;
    }
    if old.runs().min(new.runs()) < FEW {
        return Change::Unknown;
    }
    let Some([low, high]) = interval.or_else(|| apart(old, new)) else {
        return Change::Unknown;
    };
    if low > most {
        Change::Worse
    } else if high < 1.0 / most {
        Change::Better
    } else {
        Change::None
    }
}

/// Between which the ratio of any run after to any before lies.
fn apart(old: &Sample, new: &Sample) -> Option<[f64; 2]> {
    let [least, largest] = old.by_run().ends()?;
    let [low, high] = new.by_run().ends()?;
    Some([low.over(largest).least(), high.over(least).most()])
}

/// 95 % of the ratios of medians of resampled runs. The same figures give the same interval.
fn bootstrap(old: &Sample, new: &Sample) -> Option<[f64; 2]> {
    let mut numbers = generator(Seed::new(1));
    let mut ratio = || {
        let (after, before) = (new.redrawn(&mut numbers)?, old.redrawn(&mut numbers)?);
        Some(after.over(before))
    };
    let ratios: Vec<Known> = (0..RESAMPLES).filter_map(|_| ratio()).collect();
    let sorted = |bound: fn(Known) -> f64| {
        let mut bounds: Vec<f64> = ratios.iter().copied().map(bound).collect();
        bounds.sort_by(f64::total_cmp);
        bounds
    };
    let (least, most) = (sorted(Known::least), sorted(Known::most));
    Some([*tails(&least)?[0], *tails(&most)?[1]])
}

impl Change {
    /// As the comparison shows it.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Worse => "WORSE",
            Self::Lost => "LOST: no valid figures any more",
            Self::Better => "better",
            Self::None => "",
            Self::Unknown => "too few runs to tell",
            Self::New => "new",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(old: &[f64], new: &[f64]) -> Cell {
        let single = |seconds: &[f64]| seconds.iter().map(|one| vec![*one]).collect();
        runs([single(old), single(new)])
    }

    /// Infinity stands for a run that was given up after 60 s.
    fn runs(sides: [Vec<Vec<f64>>; 2]) -> Cell {
        let known = |seconds: f64| match seconds.is_finite() {
            true => Known::exactly(seconds),
            false => Known::more_than(60.0),
        };
        let run = |run: Vec<f64>| run.into_iter().map(known).collect();
        let sample = |runs: Vec<Vec<f64>>| Sample::new(runs.into_iter().map(run).collect());
        let [old, new] = sides.map(sample);
        let names = ["x", "geo", "get"].map(str::to_owned);
        Cell::new(names, old, new, 0.1)
    }

    #[test]
    fn what_is_surely_slower_is_worse_and_what_may_be_chance_is_not() {
        let old = [1.0, 1.01, 1.02, 1.03, 1.04, 1.05, 1.06];
        let slower = old.map(|seconds| seconds * 1.3);
        let worse = cell(&old, &slower);
        assert_eq!(worse.change, Change::Worse);
        assert!((worse.ratio.unwrap().value().unwrap() - 1.3).abs() < 1e-9);
        let [low, high] = worse.interval.unwrap();
        assert!(
            low > 1.25 && low < 1.3 && high > 1.3 && high < 1.35,
            "{low} {high}"
        );
        assert_eq!(cell(&slower, &old).change, Change::Better);
        // Within the threshold, however sure.
        assert_eq!(
            cell(&old, &old.map(|seconds| seconds * 1.05)).change,
            Change::None
        );
        // Half of them slower: the median may be either.
        let mixed = [1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0];
        assert_eq!(cell(&old, &mixed).change, Change::None);
    }

    #[test]
    fn few_figures_are_believed_only_where_they_do_not_touch() {
        assert_eq!(
            cell(&[1.0, 1.1, 1.2], &[1.4, 1.5, 1.6]).change,
            Change::Worse
        );
        assert_eq!(
            cell(&[1.0, 1.1, 1.5], &[1.4, 1.5, 1.6]).change,
            Change::None
        );
        assert_eq!(cell(&[1.0, 1.0], &[9.0, 9.0]).change, Change::Unknown);
        assert_eq!(cell(&[1.0], &[]).change, Change::Lost);
        assert_eq!(cell(&[], &[1.0]).change, Change::New);
        assert_eq!(cell(&[1.0, 1.1, 1.2], &[1.4, 1.5, 1.6]).interval, None);
    }

    #[test]
    fn who_was_given_up_is_slower_than_all_who_were_not() {
        const GIVEN_UP: f64 = f64::INFINITY;
        let old = [20.0, 21.0, 22.0, 23.0, 24.0];
        let one = cell(&old, &[20.0, 21.0, 22.0, 23.0, GIVEN_UP]);
        assert_eq!(one.ratio, Some(Known::exactly(1.0)));
        assert_eq!(one.change, Change::None);
        let three = cell(&old, &[20.0, 21.0, GIVEN_UP, GIVEN_UP, GIVEN_UP]);
        assert_eq!(three.ratio.unwrap().value(), None);
        assert_eq!(three.ratio.unwrap().ratio(3), "> 2.727");
        // All of seven: however often they are drawn.
        let old = [20.0, 21.0, 22.0, 23.0, 24.0, 25.0, 26.0];
        assert_eq!(cell(&old, &[GIVEN_UP; 7]).change, Change::Lost);
        let six = [&[20.0], &[GIVEN_UP; 6][..]].concat();
        assert_eq!(cell(&old, &six).change, Change::Worse);
        assert_eq!(cell(&six, &old).change, Change::Better);
        assert_eq!(cell(&[20.0], &[GIVEN_UP]).change, Change::Lost);
    }

    #[test]
    fn figures_of_one_run_do_not_vouch_for_each_other() {
        // A run of six pages is one run, however slow all of them are.
        let pages = |factor: f64| (1..=6).map(|n| f64::from(n) * factor).collect::<Vec<_>>();
        let few = runs([vec![pages(1.0)], vec![pages(9.0)]]);
        assert_eq!((few.interval, few.change), (None, Change::Unknown));
        // Runs touch or not by their medians: pages of one run are always apart.
        let three = |factor| [1.0, 1.02, 1.04].map(|n| pages(n * factor)).to_vec();
        assert_eq!(runs([three(1.0), three(1.3)]).change, Change::Worse);
        assert_eq!(runs([three(1.0), three(1.02)]).change, Change::None);
        // Runs that differ among themselves leave the ratio open, pages that differ do not.
        let many = |spread: f64| {
            let run = |n: u32| pages(1.0 + spread * f64::from(n));
            (0..8).map(run).collect::<Vec<_>>()
        };
        let width = |spread| {
            let [low, high] = runs([many(spread), many(spread)]).interval.unwrap();
            high - low
        };
        assert!(
            width(0.2) > 0.3 && width(0.001) < 0.3,
            "{} {}",
            width(0.2),
            width(0.001)
        );
    }
}
