//! Prints the table and decides whether it is passed.

use std::process::ExitCode;

use bentpipe_congestion::Kind;

use crate::row::{Goal, Row, Sample};

/// A transfer that takes less of T* than this shows a fault of the simulator or of T*.
const IMPOSSIBLE: f64 = 0.995;

/// The table being printed.
pub(crate) struct Report {
    /// Judge by the goals; else by what holds today.
    goals: bool,
    short: Vec<String>,
    impossible: Vec<String>,
}

impl Report {
    pub(crate) fn new(goals: bool) -> Self {
        println!(
            "{:9} {:32} {:10} {:24} {:>8} {:>8}  {:12} verdict",
            "scenario", "workload", "controller", "figure", "median", "p95", "ceiling"
        );
        Self {
            goals,
            short: Vec::new(),
            impossible: Vec::new(),
        }
    }

    /// Prints one row, a line for each of its figures.
    pub(crate) fn add(&mut self, row: &Row, controller: Kind, samples: Vec<Sample>) {
        for (index, figure) in row.figures.iter().enumerate() {
            let mut order: Vec<_> = samples
                .iter()
                .map(|sample| (sample.values[index], &sample.note))
                .collect();
            // The worst last. A run that failed is worse than any.
            let good_first = |value: f64| match figure.goal {
                _ if value.is_nan() => f64::INFINITY,
                Goal::AtLeast(_) => -value,
                Goal::AtMost(_) | Goal::Shown => value,
            };
            order.sort_by(|(a, _), (b, _)| good_first(*a).total_cmp(&good_first(*b)));
            let (median, note) = order[(order.len() - 1) / 2];
            let (worst, _) = order[(order.len() * 95).div_ceil(100) - 1];
            let best = samples.iter().map(|sample| sample.values[index]);
            let best = best.fold(f64::INFINITY, f64::min);
            let judged = if figure.tail { worst } else { median };
            let verdict = self.judge(row, controller, index, judged, best);
            let note = if index == 0 { note.as_str() } else { "" };
            println!(
                "{:9} {:32} {:10} {:24} {:>8} {:>8}  {:12} {verdict:7} {note}",
                row.scenario,
                row.workload,
                controller,
                figure.name,
                short(median),
                short(worst),
                format!("{}{}", figure.goal, if figure.tail { " p95" } else { "" }),
            );
        }
    }

    fn judge(
        &mut self,
        row: &Row,
        controller: Kind,
        index: usize,
        value: f64,
        best: f64,
    ) -> String {
        let figure = &row.figures[index];
        let title = format!("{}, {controller}: {}", row.title(), figure.name);
        if figure.is_ratio && best < IMPOSSIBLE {
            self.impossible.push(format!("{title} {best:.4}"));
            return "FAULT".into();
        }
        let check = row.check.as_ref().filter(|_| !self.goals);
        let today = check.and_then(|(_, today)| today.get(index).copied());
        let bound = match (figure.goal, today) {
            (Goal::AtLeast(_), Some(today)) => Goal::AtLeast(today),
            (_, Some(today)) => Goal::AtMost(today),
            (goal, None) => goal,
        };
        if bound.is_met(value) && !value.is_nan() {
            return match (bound == figure.goal, today) {
                (_, None) if figure.goal == Goal::Shown => "".into(),
                (false, Some(_)) => format!("ok ({bound})"),
                _ => "ok".into(),
            };
        }
        self.short.push(format!("{title} {value:.3}, {bound}"));
        "SHORT".into()
    }

    pub(crate) fn finish(self) -> ExitCode {
        for line in &self.impossible {
            println!("faster than physics, so the simulator or T* is wrong: {line}");
        }
        for line in &self.short {
            println!("short of its ceiling: {line}");
        }
        if self.short.is_empty() && self.impossible.is_empty() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }
}

/// Four digits or so, whatever the size.
fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 100.0 => format!("{value:.1}"),
        size if size >= 10.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}
