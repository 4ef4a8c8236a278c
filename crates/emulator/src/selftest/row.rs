//! One line of the table: what was checked, what came out, what had to.

use std::fmt;
use std::ops::RangeInclusive;

/// Verdict of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RowVerdict {
    /// Within the tolerance.
    Pass,
    /// Outside.
    Fail,
    /// The machine was too busy, or lost packets itself: the figure would be the machine's.
    Invalid(String),
}

/// A line of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) property: &'static str,
    pub(super) case: String,
    pub(super) figure: String,
    /// Value that is asked for, with its tolerance.
    pub(super) expected: String,
    pub(super) verdict: RowVerdict,
}

impl Row {
    /// A row of a check that has an answer.
    pub(super) fn new(
        property: &'static str,
        case: impl Into<String>,
        figure: impl Into<String>,
        expected: impl Into<String>,
        holds: bool,
    ) -> Self {
        Self {
            property,
            case: case.into(),
            figure: figure.into(),
            expected: expected.into(),
            verdict: if holds {
                RowVerdict::Pass
            } else {
                RowVerdict::Fail
            },
        }
    }

    /// A figure that has to lie in a range, both in `unit` with `digits` digits.
    pub(super) fn within(
        property: &'static str,
        case: impl Into<String>,
        figure: f64,
        range: RangeInclusive<f64>,
        unit: &str,
        digits: usize,
    ) -> Self {
        let expected = format!(
            "{:.digits$} to {:.digits$} {unit}",
            range.start(),
            range.end()
        );
        let shown = format!("{figure:.digits$} {unit}");
        Self::new(property, case, shown, expected, range.contains(&figure))
    }

    /// True if the figure is within its tolerance.
    pub(super) fn holds(&self) -> bool {
        self.verdict == RowVerdict::Pass
    }

    /// The row without a figure: the run that the row is from was not sound.
    pub(super) fn invalid(mut self, reason: &str) -> Self {
        self.figure = "-".into();
        self.verdict = RowVerdict::Invalid(reason.to_owned());
        self
    }

    /// The table's head.
    pub(super) fn head() -> String {
        line("property", "case", "figure", "expected", "verdict")
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match &self.verdict {
            RowVerdict::Pass => "PASS".to_owned(),
            RowVerdict::Fail => "FAIL".to_owned(),
            RowVerdict::Invalid(reason) => format!("INVALID: {reason}"),
        };
        f.write_str(&line(
            self.property,
            &self.case,
            &self.figure,
            &self.expected,
            &verdict,
        ))
    }
}

fn line(property: &str, case: &str, figure: &str, expected: &str, verdict: &str) -> String {
    format!("{property:<16} {case:<44} {figure:>22}  {expected:<34} {verdict}")
}

/// The middle 99 % of how often an event of probability `p` happens in `n` trials: the normal approximation, half a
/// trial wider.
pub(super) fn binomial_interval(n: u64, p: f64) -> RangeInclusive<f64> {
    /// Of the standard normal distribution.
    const QUANTILE_995: f64 = 2.5758;
    let n = n as f64;
    let half = QUANTILE_995 * (n * p * (1.0 - p)).sqrt() + 0.5;
    ((n * p - half) / n).max(0.0)..=((n * p + half) / n).min(1.0)
}

/// The value that `share` of the sorted values do not exceed.
pub(super) fn quantile(sorted: &[f64], share: f64) -> f64 {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted
        .get(rank.saturating_sub(1))
        .copied()
        .unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_and_quantiles_are_those_of_the_books() {
        let interval = binomial_interval(10_000, 0.01);
        assert!(
            (interval.start() - 0.007_387).abs() < 1e-5
                && (interval.end() - 0.012_613).abs() < 1e-5
        );
        let sorted: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(
            (
                quantile(&sorted, 0.5),
                quantile(&sorted, 0.99),
                quantile(&sorted, 1.0)
            ),
            (50.0, 99.0, 100.0)
        );
        assert!(quantile(&[], 0.5).is_nan());
    }

    #[test]
    fn a_figure_outside_fails_and_an_unsound_run_shows_none() {
        let row = Row::within("rate", "x", 9.9, 9.95..=10.05, "Mbit/s", 2);
        assert_eq!(row.verdict, RowVerdict::Fail);
        let text = row.invalid("busy").to_string();
        assert!(
            !text.contains("9.90") && text.contains("INVALID: busy"),
            "{text}"
        );
    }
}
