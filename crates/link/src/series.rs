//! Values over time from a text file: delays of a trace, attenuation of a recorded fade.
//!
//! One point per line, time and value in two columns between which stand blanks, a comma or a semicolon, or the value alone where
//! lines follow each other at equal times; `#` begins a comment. Files come from elsewhere: their size, order and values are checked, and an error names the line.

use std::time::Duration;

/// More points than a day at ten a second are surely a mistake.
const MOST_POINTS: usize = 1_000_000;
/// Later than any run.
const LATEST_SECONDS: f64 = 1e7;

/// A file that is not a series; displays as what is wrong in which line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub(crate) struct SeriesError {
    /// Counted from 1.
    pub(crate) line: usize,
    what: String,
}

impl SeriesError {
    pub(crate) fn new(line: usize, what: impl Into<String>) -> Self {
        Self {
            line,
            what: what.into(),
        }
    }
}

/// Value between two points.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Interpolation {
    /// The value of the earlier point.
    #[default]
    Step,
    /// A straight line.
    Linear,
}

/// Instants of a file's points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Times {
    /// The first column, in this unit.
    Written(Duration),
    /// One line each so often, from 0 on; there is no column for the time.
    Every(Duration),
}

impl Times {
    /// Time of one unit of [`Self::point`].
    const fn unit(self) -> Duration {
        match self {
            Self::Written(unit) | Self::Every(unit) => unit,
        }
    }

    /// Time in units, and value, of a line: the `index`-th from 0 that has a point.
    fn point(self, line: &str, index: usize) -> Option<(f64, f64)> {
        match self {
            Self::Written(_) => columns(line),
            Self::Every(_) => Some((index as f64, line.parse().ok()?)),
        }
    }

    /// Form of a line, with an example.
    const fn form(self) -> &'static str {
        match self {
            Self::Written(_) => "time and value, as in `30 58`",
            Self::Every(_) => "a value alone, as in `58`",
        }
    }
}

/// Points in the order of their times. There is at least one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Series {
    points: Vec<(Duration, f64)>,
    interpolation: Interpolation,
    /// Begin again after the last point; else its value stays for ever.
    repeat: bool,
}

impl Series {
    /// Reads a file with such `times`, whose values lie in `range`.
    ///
    /// # Errors
    /// A line of another form, a time not later than the one before, a value out of range, no line at all.
    pub(crate) fn parse(
        text: &str,
        times: Times,
        range: std::ops::RangeInclusive<f64>,
    ) -> Result<Self, SeriesError> {
        let mut points: Vec<(Duration, f64)> = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let content = line.split('#').next().unwrap_or_default().trim();
            if content.is_empty() {
                continue;
            }
            let error = |what: String| SeriesError::new(number, what);
            let (time, value) = times
                .point(content, points.len())
                .ok_or_else(|| error(format!("`{content}` is not {}", times.form())))?;
            let seconds = time * times.unit().as_secs_f64();
            if !(0.0..=LATEST_SECONDS).contains(&seconds) {
                return Err(error(format!("time {time} is out of range")));
            }
            if !range.contains(&value) {
                let [low, high] = [range.start(), range.end()];
                return Err(error(format!("{value} is not between {low} and {high}")));
            }
            let at = Duration::from_secs_f64(seconds);
            if points.last().is_some_and(|(last, _)| *last >= at) {
                return Err(error("times must increase".into()));
            }
            if points.len() == MOST_POINTS {
                return Err(error(format!("more than {MOST_POINTS} points")));
            }
            points.push((at, value));
        }
        if points.is_empty() {
            return Err(SeriesError::new(
                1,
                format!("no point; write {}", times.form()),
            ));
        }
        Ok(Self {
            points,
            interpolation: Interpolation::Step,
            repeat: false,
        })
    }

    /// The points with other values between and after them.
    #[must_use]
    pub(crate) const fn with(mut self, interpolation: Interpolation, repeat: bool) -> Self {
        self.interpolation = interpolation;
        self.repeat = repeat;
        self
    }

    /// The value at `at`; before the first point that one's.
    pub(crate) fn at(&self, at: Duration) -> f64 {
        let at = self.wrapped(at);
        let after = self.points.partition_point(|(time, _)| *time <= at);
        let (time, value) = self.points[after.saturating_sub(1)];
        let next = self.points.get(after).filter(|_| after > 0);
        match (self.interpolation, next) {
            (Interpolation::Linear, Some((next_time, next_value))) => {
                let share = (at - time).as_secs_f64() / (*next_time - time).as_secs_f64();
                value + (next_value - value) * share
            }
            _ => value,
        }
    }

    /// The largest value of any point.
    pub(crate) fn max(&self) -> f64 {
        self.points.iter().fold(f64::MIN, |max, (_, v)| max.max(*v))
    }

    /// The smallest value of any point.
    pub(crate) fn min(&self) -> f64 {
        self.points.iter().fold(f64::MAX, |min, (_, v)| min.min(*v))
    }

    /// A repeated series lasts from 0 to its last point plus one mean step, so that the last value has its time too.
    fn wrapped(&self, at: Duration) -> Duration {
        let (Some((first, _)), Some((last, _))) = (self.points.first(), self.points.last()) else {
            return at;
        };
        let steps = u32::try_from(self.points.len() - 1).unwrap_or(u32::MAX);
        if !self.repeat || steps == 0 {
            return at;
        }
        let length = *last + (*last - *first) / steps;
        let past = at.as_nanos() % length.as_nanos().max(1);
        Duration::from_nanos(u64::try_from(past).unwrap_or(u64::MAX))
    }
}

fn columns(line: &str) -> Option<(f64, f64)> {
    let separator = |c: char| c.is_whitespace() || c == ',' || c == ';';
    let mut columns = line.split(separator).filter(|column| !column.is_empty());
    let pair = (columns.next()?.parse().ok()?, columns.next()?.parse().ok()?);
    columns.next().is_none().then_some(pair)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn parse(text: &str) -> Result<Series, SeriesError> {
        Series::parse(text, Times::Written(SECOND), 0.0..=1000.0)
    }

    #[test]
    fn steps_lines_and_repetition() {
        let steps = parse("# time delay\n0 10\n30, 20\n60;40 # last\n").unwrap();
        let at = |series: &Series, seconds: f64| series.at(Duration::from_secs_f64(seconds));
        assert_eq!(at(&steps, 29.999), 10.0);
        assert_eq!(at(&steps, 30.0), 20.0);
        assert_eq!(at(&steps, 1e6), 40.0);
        let lines = steps.clone().with(Interpolation::Linear, false);
        assert_eq!(at(&lines, 15.0), 15.0);
        assert_eq!(at(&lines, 90.0), 40.0);
        let again = steps.with(Interpolation::Step, true);
        assert_eq!(
            [at(&again, 89.0), at(&again, 90.0), at(&again, 125.0)],
            [40.0, 10.0, 20.0]
        );
        assert_eq!([again.min(), again.max()], [10.0, 40.0]);
        // Before the first point there is its value.
        let late = parse("5 7\n6 8\n")
            .unwrap()
            .with(Interpolation::Linear, false);
        assert_eq!(at(&late, 1.0), 7.0);
    }

    #[test]
    fn lines_without_times_follow_each_other_at_equal_ones() {
        let every = Times::Every(Duration::from_millis(10));
        let parse = |text: &str| Series::parse(text, every, 0.0..=1000.0);
        let series = parse("24\n18 # a satellite nearer\n\n30\n").unwrap();
        let series = series.with(Interpolation::Step, true);
        let at = |millis| series.at(Duration::from_millis(millis));
        assert_eq!([0, 9, 10, 25, 29].map(at), [24.0, 24.0, 18.0, 30.0, 30.0]);
        // The last line has as much time as the others.
        assert_eq!([30, 40, 59].map(at), [24.0, 18.0, 30.0]);
        let error = parse("24\n0 18\n").unwrap_err().to_string();
        assert_eq!(error, "line 2: `0 18` is not a value alone, as in `58`");
    }

    #[test]
    fn faults_name_their_line() {
        for (text, message) in [
            (
                "0 1\nx 2\n",
                "line 2: `x 2` is not time and value, as in `30 58`",
            ),
            (
                "0 1\n1 2 3\n",
                "line 2: `1 2 3` is not time and value, as in `30 58`",
            ),
            ("0 1\n\n0 2\n", "line 3: times must increase"),
            ("0 -1\n", "line 1: -1 is not between 0 and 1000"),
            ("0 NaN\n", "line 1: NaN is not between 0 and 1000"),
            ("-1 1\n", "line 1: time -1 is out of range"),
            ("inf 1\n", "line 1: time inf is out of range"),
            (
                "# nothing\n",
                "line 1: no point; write time and value, as in `30 58`",
            ),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), message);
        }
    }
}
