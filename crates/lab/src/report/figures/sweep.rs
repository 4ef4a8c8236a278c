//! What a parameter changes: a line per contender over the links or tasks that an experiment places on its axis, and over the
//! values of a setting that contenders are tuned with.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::lines::{self, Point};
use crate::experiment::{Along, Axis, Direction, RunKey, Task};
use crate::results::{Manifest, Record, Row, Summary};

/// A figure per task and axis, with its heading.
pub(super) fn figures(
    manifest: &Manifest,
    summary: &Summary,
    records: &BTreeMap<RunKey, Record>,
) -> Vec<(String, Value)> {
    let tasks = lines::tasks(&manifest.text);
    let mut figures = match &manifest.outline.axis {
        None => Vec::new(),
        Some(axis) => match axis.along {
            Along::Links => along_links(axis, manifest, summary, &tasks, records),
            Along::Tasks => along_tasks(axis, manifest, summary, &tasks, records),
        },
    };
    figures.extend(settings(manifest, summary, &tasks, records));
    figures
}

fn along_links(
    axis: &Axis,
    manifest: &Manifest,
    summary: &Summary,
    tasks: &BTreeMap<String, Task>,
    records: &BTreeMap<RunKey, Record>,
) -> Vec<(String, Value)> {
    let figure = |name: &String| {
        let rows = summary.rows.iter().filter(|row| row.task == *name);
        let points = rows.filter_map(|row| {
            let x = *axis.at.get(&row.scenario)?;
            Some(point(&row.contender, x, row, tasks))
        });
        let points: Vec<Point<'_>> = points.collect();
        let figure = lines::figure(&title(&points, &axis.of), "", &points, records)?;
        let task = manifest.outline.titles.task(name);
        Some((format!("{task}, by {}", axis.of), figure))
    };
    manifest.outline.tasks.iter().filter_map(figure).collect()
}

/// A figure per link and direction.
fn along_tasks(
    axis: &Axis,
    manifest: &Manifest,
    summary: &Summary,
    tasks: &BTreeMap<String, Task>,
    records: &BTreeMap<RunKey, Record>,
) -> Vec<(String, Value)> {
    let mut figures = Vec::new();
    for scenario in &manifest.outline.scenarios {
        for direction in [Direction::Down, Direction::Up] {
            let rows = summary.rows.iter().filter(|row| row.scenario == *scenario);
            let points = rows.filter_map(|row| {
                let goes = tasks.get(&row.task)?.direction() == direction;
                let x = *axis.at.get(&row.task).filter(|_| goes)?;
                Some(point(&row.contender, x, row, tasks))
            });
            let points: Vec<Point<'_>> = points.collect();
            let found = lines::figure(&title(&points, &axis.of), "", &points, records);
            let link = manifest.outline.titles.link(scenario);
            let heading = || format!("{link}, {direction}, by {}", axis.of);
            figures.extend(found.map(|figure| (heading(), figure)));
        }
    }
    figures
}

/// Contenders that differ in one setting: `bentpipe-cubic:ack_packets=10`.
fn settings(
    manifest: &Manifest,
    summary: &Summary,
    tasks: &BTreeMap<String, Task>,
    records: &BTreeMap<RunKey, Record>,
) -> Vec<(String, Value)> {
    let place = |row: &Row| (row.scenario.clone(), row.task.clone());
    let places: BTreeSet<(String, String)> = summary.rows.iter().map(place).collect();
    let settings = summary.rows.iter().filter_map(|row| tuned(&row.contender));
    let keys: BTreeSet<&str> = settings.map(|(_, key, _)| key).collect();
    let mut figures = Vec::new();
    for (scenario, task) in places {
        for key in &keys {
            let own = summary
                .rows
                .iter()
                .filter(|row| row.scenario == scenario && row.task == task);
            let points = own.filter_map(|row| {
                let (name, known, x) = tuned(&row.contender)?;
                (known == *key).then(|| point(name, x, row, tasks))
            });
            let points: Vec<Point<'_>> = points.collect();
            let found = lines::figure(&title(&points, key), "", &points, records);
            let place = manifest.outline.titles.place(&scenario, &task);
            figures.extend(found.map(|figure| (format!("{place}, by {key}"), figure)));
        }
    }
    figures
}

/// Name, setting and value of a tuned contender.
fn tuned(contender: &str) -> Option<(&str, &str, f64)> {
    let (name, setting) = contender.split_once(':')?;
    let (key, value) = setting.split_once('=')?;
    let (value, _tcp) = value.split_once('/').unwrap_or((value, ""));
    Some((name, key, value.parse().ok()?))
}

fn point<'a>(line: &'a str, x: f64, row: &'a Row, tasks: &BTreeMap<String, Task>) -> Point<'a> {
    let bytes = match tasks.get(&row.task) {
        Some(Task::Transfer { size, .. } | Task::Iperf { size, .. }) => Some(size.as_u64()),
        Some(Task::Parallel { size, count, .. }) => Some(size.as_u64() * u64::from(*count)),
        _ => None,
    };
    Point {
        line,
        x,
        row,
        bytes,
    }
}

fn title(points: &[Point<'_>], axis: &str) -> String {
    match points.first() {
        Some(Point { bytes: Some(_), .. }) => format!("Goodput in Mbit/s, by {axis}"),
        _ => format!("Seconds, by {axis}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Figures, Known, Outline};

    fn row(contender: &str, scenario: &str, seconds: f64) -> Row {
        Row {
            scenario: scenario.into(),
            task: "get".into(),
            contender: contender.into(),
            figures: Some(Figures {
                count: 1,
                runs: 1,
                median: Known::exactly(seconds),
                mean: Known::exactly(seconds),
                mean_inverse: Known::exactly(1.0 / seconds),
                p95: Known::exactly(seconds),
                spread: None,
            }),
            ..Row::default()
        }
    }

    fn found(outline: Outline, rows: Vec<Row>) -> Vec<(String, Value)> {
        let mut manifest = Manifest::example("[task.get]\nkind = \"transfer\"\nsize = \"10 MB\"\n");
        manifest.outline = outline;
        let question = String::new();
        figures(&manifest, &Summary { question, rows }, &BTreeMap::new())
    }

    #[test]
    fn links_lie_on_the_axis_in_its_order() {
        let at = [("late", 5.0), ("early", 0.0)].map(|(name, x)| (name.to_owned(), x));
        let outline = Outline {
            tasks: vec!["get".into()],
            axis: Some(Axis {
                of: "loss in dB".into(),
                along: Along::Links,
                at: at.into(),
            }),
            ..Outline::default()
        };
        let rows = vec![
            row("x", "late", 4.0),
            row("x", "early", 1.0),
            row("x", "beside", 1.0),
        ];
        let found = found(outline, rows);
        assert_eq!(found.len(), 1);
        let (heading, figure) = &found[0];
        assert_eq!(heading, "get, by loss in dB");
        assert_eq!(figure["x"], serde_json::json!([0.0, 5.0]));
        assert_eq!(figure["curves"][0]["y"], serde_json::json!([80.0, 20.0]));
        assert_eq!(figure["ratios"], false);
    }

    #[test]
    fn tasks_lie_on_the_axis_and_show_what_all_of_their_files_get() {
        let many = |count| {
            format!(
                "[task.p{count}]\nkind = \"parallel\"\nat = {count}\ncount = {count}\nsize = \"1 MB\"\n"
            )
        };
        let mut manifest = Manifest::example(&(many(1) + &many(8)));
        manifest.outline = Outline {
            scenarios: vec!["geo".into()],
            axis: Some(Axis {
                of: "connections".into(),
                along: Along::Tasks,
                at: [("p1".to_owned(), 1.0), ("p8".to_owned(), 8.0)].into(),
            }),
            ..Outline::default()
        };
        let row = |task: &str, seconds| Row {
            task: task.into(),
            ..row("x", "geo", seconds)
        };
        let rows = vec![row("p8", 16.0), row("p1", 4.0), row("beside", 1.0)];
        let question = String::new();
        let found = figures(&manifest, &Summary { question, rows }, &BTreeMap::new());
        let [(heading, figure)] = &found[..] else {
            panic!("{found:?}");
        };
        assert_eq!(heading, "geo, down, by connections");
        assert_eq!(figure["title"], "Goodput in Mbit/s, by connections");
        assert_eq!(figure["x"], serde_json::json!([1.0, 8.0]));
        assert_eq!(figure["curves"][0]["y"], serde_json::json!([2.0, 4.0]));
    }

    #[test]
    fn settings_of_one_contender_make_one_line() {
        let rows = ["1", "10", "200"].map(|value| {
            let name = format!("bentpipe-cubic:ack_packets={value}/bbr");
            row(&name, "geo", 1.0)
        });
        let mut rows = rows.to_vec();
        rows.push(row("bentpipe-cubic:initial_window=25", "geo", 1.0));
        rows.push(row("bentpipe", "geo", 1.0));
        let found = found(Outline::default(), rows);
        let [(heading, figure)] = &found[..] else {
            panic!("{found:?}");
        };
        assert_eq!(heading, "geo, get, by ack_packets");
        assert_eq!(figure["x"], serde_json::json!([1.0, 10.0, 200.0]));
        assert_eq!(figure["curves"].as_array().map(Vec::len), Some(1));
        assert_eq!(figure["ratios"], true);
    }
}
