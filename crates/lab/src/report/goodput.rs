//! Goodput by size: what one transfer gets of a link, a line per contender over all sizes that an experiment has.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::experiment::{Direction, RunKey, Task};
use crate::results::{Manifest, Record, Row, Summary};

/// The part of an experiment's file that is asked for here.
#[derive(Deserialize)]
struct File {
    task: BTreeMap<String, Task>,
}

/// Sizes of files that go the same way after the same warm-up, by the task's name.
type Sizes = BTreeMap<String, u64>;

/// A figure per link and kind of transfer that has several sizes, with the link's name.
pub(super) fn figures(
    manifest: &Manifest,
    summary: &Summary,
    records: &BTreeMap<RunKey, Record>,
) -> Vec<(String, Value)> {
    let mut figures = Vec::new();
    for (title, sizes) in kinds(&manifest.text) {
        for scenario in &manifest.outline.scenarios {
            let own = |row: &&Row| &row.scenario == scenario && sizes.contains_key(&row.task);
            let rows: Vec<&Row> = summary.rows.iter().filter(own).collect();
            let found = figure(&title, &rows, &sizes, &manifest.outline.contenders, records);
            figures.extend(found.map(|figure| (scenario.clone(), figure)));
        }
    }
    figures
}

/// The kinds of transfer in the text of an experiment, with a title each.
fn kinds(text: &str) -> Vec<(String, Sizes)> {
    // Results that were read have been an experiment; what is none has no figure.
    let tasks = toml::from_str::<File>(text).map_or_else(|_| BTreeMap::new(), |file| file.task);
    let mut kinds: BTreeMap<String, Sizes> = BTreeMap::new();
    for (name, task) in tasks {
        if let Task::Transfer {
            size,
            direction,
            warm_up,
        } = task
        {
            let way = match direction {
                Direction::Down => "down",
                Direction::Up => "up",
            };
            let after = match warm_up.as_u64() {
                0 => String::new(),
                _ => format!(", after {warm_up}"),
            };
            let title = format!("Goodput in Mbit/s by size in MB, {way}{after}");
            kinds.entry(title).or_default().insert(name, size.as_u64());
        }
    }
    kinds.into_iter().collect()
}

fn figure(
    title: &str,
    rows: &[&Row],
    sizes: &Sizes,
    contenders: &[String],
    records: &BTreeMap<RunKey, Record>,
) -> Option<Value> {
    let measured = |row: &&&Row| row.figures.is_some();
    let mut x: Vec<u64> = rows
        .iter()
        .filter(measured)
        .map(|row| sizes[&row.task])
        .collect();
    x.sort_unstable();
    x.dedup();
    if x.len() < 2 {
        return None;
    }
    // A value per size, where there is one.
    let column =
        |contender: Option<&str>, value: &dyn Fn(&Row) -> Option<f64>| -> Vec<Option<f64>> {
            let of = |size: &u64| {
                let own = rows.iter().filter(|row| {
                    sizes[&row.task] == *size && contender.is_none_or(|name| row.contender == name)
                });
                let seconds = own.filter_map(|row| value(row)).reduce(f64::min)?;
                Some(*size as f64 * 8.0 / seconds / 1e6)
            };
            x.iter().map(of).collect()
        };
    let mut curves = Vec::new();
    for name in contenders {
        let middle = column(Some(name), &|row| Some(row.figures?.median));
        if middle.iter().all(Option::is_none) {
            continue;
        }
        curves.push(json!({
            "name": name,
            "y": middle,
            "low": column(Some(name), &|row| Some(row.figures?.interval?[1])),
            "high": column(Some(name), &|row| Some(row.figures?.interval?[0])),
            "published": column(Some(name), &|row| row.published),
        }));
    }
    let limit = column(None, &|row| least(row, records));
    let x: Vec<f64> = x.iter().map(|bytes| *bytes as f64 / 1e6).collect();
    Some(json!({ "kind": "goodput", "title": title, "x": x, "curves": curves, "limit": limit }))
}

/// The least that physics allowed for the row's runs.
fn least(row: &Row, records: &BTreeMap<RunKey, Record>) -> Option<f64> {
    let names = [&*row.contender, &*row.scenario, &*row.task];
    let own = records
        .values()
        .filter(|record| record.key.names() == names);
    own.filter_map(|record| record.limit_s).reduce(f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfers_of_one_kind_make_one_figure() {
        let kinds = kinds(
            "[task.a]\nkind = \"transfer\"\nsize = \"1 MB\"\n[task.b]\nkind = \"transfer\"\nsize = \"2 MB\"\n\
             [task.c]\nkind = \"transfer\"\nsize = \"2 MB\"\ndirection = \"up\"\n[task.d]\nkind = \"request\"\ncount = 2\n",
        );
        let found: Vec<_> = kinds
            .iter()
            .map(|(title, sizes)| (title.as_str(), sizes.len()))
            .collect();
        let title = |way: &str| format!("Goodput in Mbit/s by size in MB, {way}");
        assert_eq!(found, [(&*title("down"), 2), (&*title("up"), 1)]);
    }
}
