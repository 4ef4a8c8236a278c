//! Rates and round trip of each run over time, as small figures in a row.

use std::fmt::Write as _;

use crate::experiment::Titles;
use crate::results::{Record, Timeline};
use bentpipe_plot::escape;

/// Runs of an experiment that are shown: more would make the page long, and nobody looks through them.
const MOST: usize = 150;

/// Size of a figure, in units of its own.
const WIDTH: f64 = 200.0;
const HEIGHT: f64 = 30.0;

/// A row of figures for each run that has them; empty if none has.
pub(super) fn rows<'a>(records: impl Iterator<Item = &'a Record>, titles: &Titles) -> String {
    let runs: Vec<(&Record, Timeline)> = records
        .filter_map(|record| Some((record, record.timeline()?)))
        .collect();
    let Some(left_out) = runs.len().checked_sub(MOST) else {
        return table(&runs, titles);
    };
    let mut text = table(&runs[..MOST], titles);
    // Writing into a String cannot fail.
    let _ = writeln!(
        text,
        "<p class=\"note\">{left_out} more runs are in results.jsonl, as <code>timeline</code> of their <code>link</code>.</p>"
    );
    text
}

fn table(runs: &[(&Record, Timeline)], titles: &Titles) -> String {
    if runs.is_empty() {
        return String::new();
    }
    let lines: String = runs
        .iter()
        .map(|(record, line)| row(record, line, titles))
        .collect();
    format!(
        "<p class=\"note\">Solid: from gateway to terminal; dotted: from terminal to gateway. Round trip: propagation, and the longest wait \
         in the queues of both directions.</p>\n<div class=\"table\"><table class=\"words\"><tr><th>run</th><th>rate</th>\
         <th>round trip</th></tr>\n{lines}</table></div>\n"
    )
}

fn row(record: &Record, line: &Timeline, titles: &Titles) -> String {
    let key = &record.key;
    let run = format!(
        "{}, {}, #{}",
        key.contender,
        titles.place(&key.scenario, &key.task),
        key.repeat
    );
    let [forward, back] = [&line.forward_bps, &line.return_bps].map(|rates| megabits(rates));
    let most = highest(forward.iter().chain(&back));
    let least = line.rtt_ms.iter().copied().fold(f64::INFINITY, f64::min);
    let longest = highest(line.rtt_ms.iter());
    let time = line.t_s.last().copied().unwrap_or_default();
    let rates = figure(
        &format!("up to {most:.2} Mbit/s in {time:.0} s"),
        &[(&forward, "0"), (&back, "1 2")],
        line,
        most,
    );
    let delays = figure(
        &format!("{least:.0} to {longest:.0} ms"),
        &[(&line.rtt_ms, "0")],
        line,
        longest,
    );
    format!(
        "<tr><td>{}</td><td>{rates}</td><td>{delays}</td></tr>\n",
        escape(&run)
    )
}

fn megabits(rates: &[u64]) -> Vec<f64> {
    rates.iter().map(|rate| *rate as f64 / 1e6).collect()
}

fn highest<'a>(values: impl Iterator<Item = &'a f64>) -> f64 {
    values.copied().fold(0.0, f64::max)
}

/// Curves, each with its dashes, over the time of a run from 0 to `most`, with what they say in words.
fn figure(words: &str, curves: &[(&Vec<f64>, &str)], line: &Timeline, most: f64) -> String {
    let last = line
        .t_s
        .last()
        .copied()
        .unwrap_or_default()
        .max(f64::MIN_POSITIVE);
    let curve = |(values, dash): &(&Vec<f64>, &str)| {
        let mut points = String::new();
        for (time, value) in line.t_s.iter().zip(*values) {
            let (x, y) = (
                WIDTH * time / last,
                HEIGHT * (1.0 - value / most.max(f64::MIN_POSITIVE)),
            );
            // Writing into a String cannot fail.
            let _ = write!(points, "{x:.0},{y:.1} ");
        }
        format!(
            "<polyline points=\"{}\" stroke-dasharray=\"{dash}\"/>",
            points.trim_end()
        )
    };
    let curves: String = curves.iter().map(curve).collect();
    format!(
        "<svg class=\"spark\" viewBox=\"0 -1 {WIDTH} {}\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{words}\">{curves}</svg>\
         <small>{words}</small>",
        HEIGHT + 2.0
    )
}

#[cfg(test)]
mod tests {
    use bentpipe_units::Seed;

    use super::*;
    use crate::experiment::RunKey;
    use crate::results::Outcome;

    fn record(repeat: u32, timeline: Option<Timeline>) -> Record {
        let key = RunKey {
            contender: "<x>".into(),
            scenario: "geo".into(),
            task: "get".into(),
            repeat,
        };
        let outcome = Outcome::Unfinished { after_s: 1.0 };
        let mut link = serde_json::json!({});
        if let Some(line) = timeline {
            line.put_into(&mut link).unwrap();
        }
        Record {
            link: Some(link),
            ..Record::new(key, Seed::new(1), outcome)
        }
    }

    #[test]
    fn runs_are_drawn_up_to_a_bound_and_the_rest_is_counted() {
        let line = Timeline {
            t_s: vec![1.0, 2.0],
            forward_bps: vec![0, 4_000_000],
            return_bps: vec![1_000_000, 2_000_000],
            rtt_ms: vec![500.0, 750.0],
        };
        let titles = Titles::default();
        assert_eq!(rows([record(1, None)].iter(), &titles), "");
        let one = rows([record(7, Some(line.clone()))].iter(), &titles);
        for part in [
            "<td>&lt;x&gt;, geo, get, #7</td>",
            "points=\"100,30.0 200,0.0\"",
            "points=\"100,22.5 200,15.0\"",
            "<small>up to 4.00 Mbit/s in 2 s</small>",
            "aria-label=\"500 to 750 ms\"",
        ] {
            assert!(one.contains(part), "{part}: {one}");
        }
        let many: Vec<Record> = (0..200)
            .map(|repeat| record(repeat, Some(line.clone())))
            .collect();
        let text = rows(many.iter(), &titles);
        assert_eq!(text.matches("<tr><td>").count(), MOST);
        assert!(text.contains("50 more runs"), "{text}");
    }
}
