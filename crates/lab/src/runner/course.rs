//! How far an experiment is, and how long the rest of it takes: what the plan reckons for that, times what the runs that are done
//! took of what it reckoned for them. Runs differ by hours; their number says little.

use std::time::Duration;

use crate::results::Record;

/// Characters of the bar that shows how far it is. A line per run: it reads the same in a terminal and in a log.
const BAR: usize = 20;

pub(super) struct Course {
    /// Times that the plan reckons for each run, in their order.
    reckoned: Vec<Duration>,
    done: usize,
    took_s: f64,
}

impl Course {
    pub(super) fn new(reckoned: Vec<Duration>) -> Self {
        Self {
            reckoned,
            done: 0,
            took_s: 0.0,
        }
    }

    /// The time left, in words.
    pub(super) fn left(&self) -> String {
        let (past, rest) = self.reckoned.split_at(self.done);
        let [past, rest] = [past, rest].map(|runs| runs.iter().sum::<Duration>().as_secs_f64());
        let stretch = if past > 0.0 { self.took_s / past } else { 1.0 };
        format!("{:.0} min left", (rest * stretch / 60.0).ceil())
    }

    /// One more is done: the line that says so.
    pub(super) fn line(&mut self, record: &Record) -> String {
        self.done = (self.done + 1).min(self.reckoned.len());
        self.took_s += record.took_s.max(0.0);
        let figure = match record.seconds() {
            [] => String::new(),
            [one] => format!("{one:.3} s, "),
            several => {
                let sum: f64 = several.iter().sum();
                format!("{:.3} s in the mean, ", sum / several.len() as f64)
            }
        };
        let status = record.status().name();
        let remark = record.remark();
        let but = if remark.is_empty() { "" } else { ": " };
        let (done, all) = (self.done, self.reckoned.len());
        let bar = "=".repeat(BAR * done / all.max(1));
        format!(
            "[{bar:<BAR$}] {done}/{all}, {}  {}: {figure}{status}{but}{remark}",
            self.left(),
            record.key
        )
    }
}

#[cfg(test)]
mod tests {
    use bentpipe_units::Seed;

    use super::*;
    use crate::experiment::RunKey;
    use crate::results::Outcome;

    fn record(took_s: f64, outcome: Outcome) -> Record {
        let key = RunKey {
            contender: "x".into(),
            scenario: "geo".into(),
            task: "get".into(),
            repeat: 1,
        };
        Record {
            took_s,
            ..Record::new(key, Seed::new(1), outcome)
        }
    }

    #[test]
    fn the_rest_takes_what_the_plan_reckons_at_the_pace_so_far() {
        let minutes = [1, 1, 10, 8].map(|minutes| Duration::from_secs(60 * minutes));
        let mut course = Course::new(minutes.to_vec());
        // Nothing is known but the plan.
        assert_eq!(course.left(), "20 min left");
        let measured = Outcome::Measured {
            seconds: vec![1.0, 2.0],
            bytes: 1,
        };
        // Twice as long as reckoned: so the rest is, and not as long as this one.
        let line = course.line(&record(120.0, measured));
        assert_eq!(
            line,
            "[=====               ] 1/4, 38 min left  x, geo, get, #1: 1.500 s in the mean, valid"
        );
        course.line(&record(0.0, Outcome::Unfinished { after_s: 5.0 }));
        assert_eq!(course.left(), "18 min left");
        course.line(&record(300.0, Outcome::Unfinished { after_s: 5.0 }));
        let reason = "it did not\ncome up".to_owned();
        let last = course.line(&record(1.0, Outcome::Failed { reason }));
        assert_eq!(
            last,
            "[====================] 4/4, 0 min left  x, geo, get, #1: failed: it did not come up"
        );
    }

    #[test]
    fn no_runs_are_done_at_once() {
        assert_eq!(Course::new(Vec::new()).left(), "0 min left");
    }
}
