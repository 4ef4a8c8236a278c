//! Heat maps: for each task how far every contender is from the physical limit, over every link.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::results::{Outline, Row, Summary};
use bentpipe_plot::escape;

/// From the limit itself to ten times it and more, evenly on a scale of ratios. Cividis: blue to yellow, in the order of
/// its brightness too, so that neither colour-blind nor grey print changes the order.
const COLOURS: [&str; 7] = [
    "#fee838", "#d9c55c", "#b3a772", "#8e8a79", "#6b6d76", "#434e6c", "#00224e",
];
/// From this colour on text is white.
const DARK: usize = 4;
const MOST: f64 = 10.0;

/// Data of a map per task that was done over several links by several contenders.
pub(super) fn figures(outline: &Outline, summary: &Summary) -> Vec<Value> {
    let map = |task: &String| {
        let rows = summary.rows.iter().filter(|row| &row.task == task);
        let rows: Vec<&Row> = rows.collect();
        let among = |names: &[String], name: fn(&Row) -> &String| -> Vec<String> {
            let met = |known: &&String| rows.iter().any(|row| name(row) == *known);
            names.iter().filter(met).cloned().collect()
        };
        let scenarios = among(&outline.scenarios, |row| &row.scenario);
        let contenders = among(&outline.contenders, |row| &row.contender);
        let several = scenarios.len() > 1 && contenders.len() > 1;
        several.then(|| data(outline, task, [&contenders, &scenarios], &rows))
    };
    outline.tasks.iter().filter_map(map).collect()
}

/// Data of one task's map, with the contenders as rows and the links as columns.
fn data(
    outline: &Outline,
    task: &str,
    [contenders, scenarios]: [&[String]; 2],
    rows: &[&Row],
) -> Value {
    let titles = &outline.titles;
    let line = |contender: &String| {
        let cells = scenarios.iter().map(|scenario| {
            let own = |row: &&&Row| &row.contender == contender && &row.scenario == scenario;
            cell(rows.iter().find(own).copied())
        });
        json!({ "name": contender, "cells": cells.collect::<Vec<_>>() })
    };
    let columns = scenarios.iter().map(|scenario| titles.link(scenario));
    json!({
        "kind": "heat",
        "title": format!("{}: median, × limit", titles.task(task)),
        "columns": columns.collect::<Vec<_>>(),
        "rows": contenders.iter().map(line).collect::<Vec<_>>(),
    })
}

fn cell(row: Option<&Row>) -> Value {
    let plain = |text: String| json!({ "text": text });
    let Some(row) = row else {
        return plain(String::new());
    };
    match (row.ratio, row.figures) {
        (Some(ratio), _) => match ratio.value() {
            Some(value) => coloured(value),
            None => plain(ratio.ratio(2)),
        },
        (None, Some(figures)) => plain(figures.median.seconds()),
        (None, None) => plain(row.counts()),
    }
}

fn coloured(ratio: f64) -> Value {
    let place = ratio.max(1.0).ln() / MOST.ln() * (COLOURS.len() - 1) as f64;
    let index = (place.round() as usize).min(COLOURS.len() - 1);
    let ink = if index >= DARK { "#fff" } else { "#222" };
    json!({ "text": format!("{ratio:.2}"), "colour": COLOURS[index], "ink": ink })
}

/// The map that is made of `data`, as a table.
pub(super) fn html(data: &Value) -> String {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let shown = |value: &Value| escape(value.as_str().unwrap_or_default());
    let mut text = format!(
        "<h3>{}</h3>\n<div class=\"table\"><table class=\"heat\"><tr><th></th>",
        shown(&data["title"])
    );
    for column in list(&data["columns"]) {
        // Writing into a String cannot fail, here and below.
        let _ = write!(text, "<th>{}</th>", shown(&column));
    }
    for row in list(&data["rows"]) {
        let _ = write!(text, "</tr>\n<tr><td>{}</td>", shown(&row["name"]));
        for cell in list(&row["cells"]) {
            let style = match (cell["colour"].as_str(), cell["ink"].as_str()) {
                (Some(colour), Some(ink)) => format!(" style=\"background:{colour};color:{ink}\""),
                _ => String::new(),
            };
            let _ = write!(text, "<td{style}>{}</td>", shown(&cell["text"]));
        }
    }
    text + "</tr></table></div>\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Known;

    fn row(contender: &str, scenario: &str, ratio: Option<f64>) -> Row {
        Row {
            scenario: scenario.into(),
            task: "get".into(),
            contender: contender.into(),
            ratio: ratio.map(Known::exactly),
            runs: [0, 0, 0, 1, 0],
            ..Row::default()
        }
    }

    #[test]
    fn every_cell_has_its_figure_and_the_far_ones_are_dark() {
        let names = |names: [&str; 2]| names.map(str::to_owned).to_vec();
        let outline = Outline {
            contenders: names(["x", "y"]),
            scenarios: names(["geo", "leo"]),
            tasks: vec!["get".into()],
            ..Outline::default()
        };
        let rows = vec![
            row("x", "geo", Some(1.0)),
            row("y", "geo", Some(12.0)),
            row("x", "leo", None),
        ];
        let summary = |rows| Summary {
            question: String::new(),
            rows,
        };
        let [map] = &figures(&outline, &summary(rows.clone()))[..] else {
            panic!("one task");
        };
        let text = html(map);
        for part in [
            "background:#fee838;color:#222\">1.00<",
            "background:#00224e;color:#fff\">12.00<",
            "<td>1 failed</td>",
            "<tr><td>y</td>",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        // One link is no map.
        assert!(figures(&outline, &summary(rows[..2].to_vec())).is_empty());
    }
}
