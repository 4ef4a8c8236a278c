//! Goodput by size: what one transfer gets of a link, a line per contender over all sizes that an experiment has.

use std::collections::BTreeMap;

use serde_json::Value;

use super::lines::{self, Point};
use crate::experiment::{RunKey, Task};
use crate::results::{Manifest, Record, Summary};

/// Sizes of files that go the same way after the same warm-up, by the task's name.
type Sizes = BTreeMap<String, u64>;

/// A figure per link and kind of transfer that has several sizes, with its heading.
pub(super) fn figures(
    manifest: &Manifest,
    summary: &Summary,
    records: &BTreeMap<RunKey, Record>,
) -> Vec<(String, Value)> {
    let mut figures = Vec::new();
    for (title, sizes) in kinds(lines::tasks(&manifest.text)) {
        for scenario in &manifest.outline.scenarios {
            let rows = summary.rows.iter().filter(|row| row.scenario == *scenario);
            let points = rows.filter_map(|row| {
                let bytes = *sizes.get(&row.task)?;
                Some(Point {
                    line: &row.contender,
                    x: bytes as f64 / 1e6,
                    row,
                    bytes: Some(bytes),
                })
            });
            let points: Vec<Point<'_>> = points.collect();
            let found = lines::figure(&title, "MB", &points, records);
            let link = manifest.outline.titles.link(scenario);
            figures.extend(found.map(|figure| (format!("{link}, goodput by size"), figure)));
        }
    }
    figures
}

/// The kinds of transfer among an experiment's tasks, with a title each.
fn kinds(tasks: BTreeMap<String, Task>) -> Vec<(String, Sizes)> {
    let mut kinds: BTreeMap<String, Sizes> = BTreeMap::new();
    for (name, task) in tasks {
        let after = task.warm_up().map(|(_, size)| format!(", after {size}"));
        let after = after.unwrap_or_default();
        let (size, title) = match task {
            Task::Transfer {
                size, direction, ..
            } => (size, format!("Goodput in Mbit/s, {direction}{after}")),
            Task::Iperf {
                size, direction, ..
            } => (
                size,
                format!("Goodput in Mbit/s, {direction}{after}, iperf3's"),
            ),
            _ => continue,
        };
        kinds.entry(title).or_default().insert(name, size.as_u64());
    }
    kinds.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfers_of_one_kind_make_one_figure() {
        let kinds = kinds(lines::tasks(
            "[task.a]\nkind = \"transfer\"\nsize = \"1 MB\"\n[task.b]\nkind = \"transfer\"\nsize = \"2 MB\"\n\
             [task.c]\nkind = \"transfer\"\nsize = \"2 MB\"\ndirection = \"up\"\n[task.d]\nkind = \"request\"\ncount = 2\n",
        ));
        let found: Vec<_> = kinds
            .iter()
            .map(|(title, sizes)| (title.as_str(), sizes.len()))
            .collect();
        let title = |way: &str| format!("Goodput in Mbit/s, {way}");
        assert_eq!(found, [(&*title("down"), 2), (&*title("up"), 1)]);
    }
}
