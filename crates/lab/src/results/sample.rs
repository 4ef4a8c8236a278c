//! Figures of runs that know nothing of each other: their median, and how sure that is.
//!
//! The figures within a run are not independent: all pages of a run meet the same tunnel and the same losses. So whatever asks
//! how sure something is draws runs, each with all of its figures. A run that was given up is longer than its patience and ranks
//! so: the median of those that were lucky is nobody's median.

use rand_core::Rng;

use bentpipe_units::{Seed, median_rank};

use super::{Known, Outcome, Record, Status};
use crate::experiment::Statistic;
use crate::workload::generator;

/// With fewer runs than these nothing holds a median with 95 %: 2 × 0.5^5 is more than 5 %.
pub(super) const MANY: usize = 6;
/// Of a bootstrap.
pub(super) const RESAMPLES: usize = 4000;

/// Figures of one kind, in few numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figures {
    /// Number of figures.
    pub count: usize,
    /// Of how many runs.
    pub runs: usize,
    /// Half of them are no larger.
    pub median: Known,
    /// The arithmetic mean.
    pub mean: Known,
    /// The arithmetic mean of their inverses, of which rates are made, per second.
    pub mean_inverse: Known,
    /// Nineteen of twenty are no larger.
    pub p95: Known,
    /// Distance that the median may have from the true one; none of a single figure.
    pub spread: Option<Spread>,
}

/// Bounds of a median.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// From here to there.
    pub ends: [Known; 2],
    /// The bounds hold the true median with 95 % confidence. Of fewer than six runs they are the least and the largest figure.
    pub confident: bool,
}

impl Figures {
    /// The figure that a published one of this kind is compared with.
    #[must_use]
    pub fn statistic(&self, statistic: Statistic) -> Known {
        match statistic {
            Statistic::Mean => self.mean,
            Statistic::Median => self.median,
            Statistic::P95 => self.p95,
        }
    }

    /// The inverse that a published rate is compared with, per second.
    #[must_use]
    pub fn inverse(&self, statistic: Statistic) -> Known {
        match statistic {
            Statistic::Mean => self.mean_inverse,
            Statistic::Median | Statistic::P95 => {
                Known::exactly(1.0).over(self.statistic(statistic))
            }
        }
    }
}

#[cfg(test)]
impl Figures {
    /// Of one run with one figure.
    pub(crate) fn of(seconds: f64) -> Option<Self> {
        Sample::new(vec![vec![Known::exactly(seconds)]]).figures()
    }
}

/// The figures, in order.
#[derive(Debug, Clone)]
pub(super) struct Sample {
    /// Each with its run.
    sorted: Vec<(Known, usize)>,
    /// Number of figures of each run.
    sizes: Vec<usize>,
}

impl Sample {
    /// Of each run all of its figures.
    pub(super) fn new(runs: Vec<Vec<Known>>) -> Self {
        let runs: Vec<_> = runs.into_iter().filter(|run| !run.is_empty()).collect();
        let sizes = runs.iter().map(Vec::len).collect();
        let each = runs.into_iter().enumerate();
        let mut sorted: Vec<(Known, usize)> = each
            .flat_map(|(run, figures)| figures.into_iter().map(move |figure| (figure, run)))
            .collect();
        sorted.sort_by(|(one, _), (other, _)| one.order(other));
        Self { sorted, sizes }
    }

    pub(super) fn runs(&self) -> usize {
        self.sizes.len()
    }

    /// The figures that are known, in order.
    pub(super) fn values(&self) -> impl Iterator<Item = f64> {
        self.sorted.iter().filter_map(|(figure, _)| figure.value())
    }

    /// In few numbers; none of none.
    pub(super) fn figures(&self) -> Option<Figures> {
        let count = self.sorted.len();
        let figures = self.sorted.iter().map(|(figure, _)| *figure);
        let inverses = figures.map(|figure| Known::exactly(1.0).over(figure));
        // Nearest rank.
        let (p95, _) = self
            .sorted
            .get((count * 95).div_ceil(100).checked_sub(1)?)?;
        Some(Figures {
            count,
            runs: self.runs(),
            median: self.weighed(&vec![1; self.runs()])?,
            mean: Known::mean(self.sorted.iter().map(|(figure, _)| *figure))?,
            mean_inverse: Known::mean(inverses)?,
            p95: *p95,
            spread: self.spread(),
        })
    }

    fn spread(&self) -> Option<Spread> {
        let count = self.sorted.len();
        let at = |rank: usize| [rank, count - 1 - rank].map(|rank| self.sorted[rank].0);
        let spread = |ends, confident| Some(Spread { ends, confident });
        match median_rank(count) {
            _ if count < 2 => None,
            // A figure per run: order statistics, which take nothing for granted.
            Some(rank) if count == self.runs() => spread(at(rank), true),
            Some(_) if self.runs() >= MANY => {
                let mut numbers = generator(Seed::new(1));
                let drawn = (0..RESAMPLES).filter_map(|_| self.redrawn(&mut numbers));
                let mut drawn: Vec<Known> = drawn.collect();
                drawn.sort_by(Known::order);
                let [low, high] = tails(&drawn)?;
                spread([*low, *high], true)
            }
            _ => spread(at(0), false),
        }
    }

    /// The median of as many runs, drawn from these with replacement.
    pub(super) fn redrawn(&self, numbers: &mut impl Rng) -> Option<Known> {
        let mut times = vec![0; self.runs()];
        for _ in 0..self.runs() {
            times[(numbers.next_u64() % self.runs() as u64) as usize] += 1;
        }
        self.weighed(&times)
    }

    /// The median if each run is there so many times.
    fn weighed(&self, times: &[usize]) -> Option<Known> {
        let count: usize = self.sizes.iter().zip(times).map(|(a, b)| a * b).sum();
        let lower = self.at(times, count.checked_sub(1)? / 2)?;
        Some(lower.middle(self.at(times, count / 2)?))
    }

    /// The figure with this rank, from 0.
    fn at(&self, times: &[usize], rank: usize) -> Option<Known> {
        let mut passed = 0;
        let reaches = |(_, run): &&(Known, usize)| {
            passed += times[*run];
            passed > rank
        };
        self.sorted.iter().find(reaches).map(|(figure, _)| *figure)
    }

    /// Each run as its median.
    pub(super) fn by_run(&self) -> Self {
        let median = |run: usize| {
            let mut times = vec![0; self.runs()];
            times[run] = 1;
            self.weighed(&times).into_iter().collect()
        };
        Self::new((0..self.runs()).map(median).collect())
    }

    /// Least and largest.
    pub(super) fn ends(&self) -> Option<[Known; 2]> {
        let [first, last] = [self.sorted.first()?, self.sorted.last()?];
        Some([first.0, last.0])
    }

    /// The seconds of runs that count: valid ones, and those that were given up. One of these has as many figures as others have.
    pub(super) fn seconds(records: &[&Record]) -> Self {
        let counted = counted(records, |record| record.seconds().to_vec(), 1);
        Self::new(counted.into_iter().map(|(_, run)| run).collect())
    }

    /// Times at which there was something to see.
    pub(super) fn first_paints(records: &[&Record]) -> Self {
        let seen = |record: &Record| record.first_paint_s.iter().flatten().copied().collect();
        let counted = counted(records, seen, 0);
        Self::new(counted.into_iter().map(|(_, run)| run).collect())
    }

    /// Times as multiples of their physical limits.
    pub(super) fn ratios(records: &[&Record]) -> Self {
        let counted = counted(records, |record| record.seconds().to_vec(), 1);
        let ratios = counted.into_iter().map(|(record, run)| {
            let figures = run.into_iter().enumerate();
            let ratio = |(place, seconds): (usize, Known)| {
                Some(seconds.over(Known::exactly(record.limit(place)?)))
            };
            figures.filter_map(ratio).collect()
        });
        Self::new(ratios.collect())
    }
}

/// The mean over `runs` at each place that all of them have; none of none.
#[must_use]
pub fn means_by_place(runs: &[Vec<f64>]) -> Option<Vec<f64>> {
    let length = runs.iter().map(Vec::len).min()?;
    let mean = |place: usize| runs.iter().map(|run| run[place]).sum::<f64>() / runs.len() as f64;
    Some((0..length).map(mean).collect())
}

/// For a distribution: the figures that are known, in order, and how many there are with those of runs that were given up.
#[must_use]
pub fn shares(records: &[&Record]) -> (Vec<f64>, usize) {
    let sample = Sample::seconds(records);
    (sample.values().collect(), sample.sorted.len())
}

/// Runs that count, and what `of` finds in them; where it finds nothing, one that was given up has `least` figures.
fn counted<'a>(
    records: &[&'a Record],
    of: fn(&Record) -> Vec<f64>,
    least: usize,
) -> Vec<(&'a Record, Vec<Known>)> {
    let valid = records
        .iter()
        .filter(|record| record.status() == Status::Valid);
    let size = valid.map(|record| of(record).len()).max().unwrap_or(0);
    let figures = |record: &&'a Record| {
        let run = match (record.status(), &record.outcome) {
            (Status::Valid, _) => of(record).into_iter().map(Known::exactly).collect(),
            (Status::Unfinished, Outcome::Unfinished { after_s }) => {
                vec![Known::more_than(*after_s); size.max(least)]
            }
            _ => return None,
        };
        Some((*record, run))
    };
    records.iter().filter_map(figures).collect()
}

/// Between which 95 % lie of what was drawn and sorted.
pub(super) fn tails<T>(sorted: &[T]) -> Option<[&T; 2]> {
    let cut = sorted.len() / 40;
    Some([
        sorted.get(cut)?,
        sorted.get(sorted.len().checked_sub(1 + cut)?)?,
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A figure per run.
    fn single(seconds: &[f64]) -> Sample {
        let exactly = |seconds: &f64| vec![Known::exactly(*seconds)];
        Sample::new(seconds.iter().map(exactly).collect())
    }

    fn shown(figures: Figures) -> (f64, f64, Option<[f64; 2]>) {
        let value = |known: Known| known.value().unwrap();
        let interval = figures.spread.filter(|spread| spread.confident);
        let ends = interval.map(|spread| spread.ends.map(value));
        (value(figures.median), value(figures.p95), ends)
    }

    #[test]
    fn figures_are_those_of_the_textbook() {
        assert_eq!(Sample::new(Vec::new()).figures(), None);
        let few = single(&[3.0, 1.0, 2.0, 10.0]).figures().unwrap();
        assert_eq!(shown(few), (2.5, 10.0, None));
        // Ranks 40 and 61, as tables of the binomial distribution have it.
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        let hundred = single(&hundred).figures().unwrap();
        assert_eq!(shown(hundred), (50.5, 95.0, Some([40.0, 61.0])));
        // Six figures are the fewest: 2 × 0.5^6 = 3 %.
        assert_eq!(
            [5, 6, 9, 20].map(median_rank),
            [None, Some(0), Some(1), Some(5)]
        );
    }

    #[test]
    fn few_runs_show_their_least_and_largest_and_say_so() {
        let spread = single(&[3.0, 1.0, 2.0]).figures().unwrap().spread.unwrap();
        assert!(!spread.confident);
        assert_eq!(spread.ends, [1.0, 3.0].map(Known::exactly));
        // One run with many figures is one run.
        let pages = Sample::new(vec![(1..=20).map(|n| Known::exactly(n.into())).collect()]);
        let spread = pages.figures().unwrap().spread.unwrap();
        assert!(!spread.confident && spread.ends == [1.0, 20.0].map(Known::exactly));
        assert_eq!(single(&[1.0]).figures().unwrap().spread, None);
    }

    #[test]
    fn figures_of_one_run_do_not_vouch_for_each_other() {
        // Eight runs, each ten times the same: as sure as eight figures, not as eighty.
        let runs = |times| (1..=8).map(move |n| vec![Known::exactly(f64::from(n)); times]);
        let pages = Sample::new(runs(10).collect()).figures().unwrap();
        let spread = pages.spread.unwrap();
        let [low, high] = spread.ends.map(|end| end.value().unwrap());
        assert!(spread.confident && low <= 2.5 && high >= 6.5, "{spread:?}");
        let pooled = single(
            &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
                .map(|n| [n; 10])
                .concat(),
        );
        let [low, high] = pooled.figures().unwrap().spread.unwrap().ends;
        assert!(low.least() >= 3.0 && high.most() <= 6.0);
    }
}
