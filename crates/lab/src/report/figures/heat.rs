//! Heat maps: for each task how far every contender is from the physical limit, over every link.

use std::fmt::Write as _;

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

/// A table per task that was done over several links by several contenders.
pub(super) fn maps(outline: &Outline, summary: &Summary) -> String {
    let mut text = String::new();
    for task in &outline.tasks {
        let rows: Vec<&Row> = summary
            .rows
            .iter()
            .filter(|row| &row.task == task)
            .collect();
        let among = |names: &[String], name: fn(&Row) -> &String| -> Vec<String> {
            let met = |known: &&String| rows.iter().any(|row| name(row) == *known);
            names.iter().filter(met).cloned().collect()
        };
        let scenarios = among(&outline.scenarios, |row| &row.scenario);
        let contenders = among(&outline.contenders, |row| &row.contender);
        if scenarios.len() > 1 && contenders.len() > 1 {
            map(outline, task, [&contenders, &scenarios], &rows, &mut text);
        }
    }
    text
}

/// The table of one task, with the contenders as rows and the links as columns.
fn map(
    outline: &Outline,
    task: &str,
    [contenders, scenarios]: [&[String]; 2],
    rows: &[&Row],
    text: &mut String,
) {
    let titles = &outline.titles;
    // Writing into a String cannot fail, here and below.
    let _ = write!(
        text,
        "<h3>{}: median, × limit</h3>\n<div class=\"table\"><table class=\"heat\"><tr><th></th>",
        escape(titles.task(task))
    );
    for scenario in scenarios {
        let _ = write!(text, "<th>{}</th>", escape(titles.link(scenario)));
    }
    for contender in contenders {
        let _ = write!(text, "</tr>\n<tr><td>{}</td>", escape(contender));
        for scenario in scenarios {
            let own = |row: &&&Row| &row.contender == contender && &row.scenario == scenario;
            text.push_str(&cell(rows.iter().find(own).copied()));
        }
    }
    text.push_str("</tr></table></div>\n");
}

fn cell(row: Option<&Row>) -> String {
    match row {
        None => "<td></td>".into(),
        Some(row) => match (row.ratio, row.figures) {
            (Some(ratio), _) => ratio
                .value()
                .map_or_else(|| format!("<td>{}</td>", escape(&ratio.ratio(2))), coloured),
            (None, Some(figures)) => {
                format!("<td>{}</td>", escape(&figures.median.seconds()))
            }
            (None, None) => format!("<td>{}</td>", escape(&row.counts())),
        },
    }
}

fn coloured(ratio: f64) -> String {
    let place = ratio.max(1.0).ln() / MOST.ln() * (COLOURS.len() - 1) as f64;
    let index = (place.round() as usize).min(COLOURS.len() - 1);
    let ink = if index >= DARK { "#fff" } else { "#222" };
    let colour = COLOURS[index];
    format!("<td style=\"background:{colour};color:{ink}\">{ratio:.2}</td>")
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
        let text = maps(&outline, &summary(rows.clone()));
        for part in [
            "background:#fee838;color:#222\">1.00<",
            "background:#00224e;color:#fff\">12.00<",
            "<td>1 failed</td>",
            "<tr><td>y</td>",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        // One link is no map.
        assert_eq!(maps(&outline, &summary(rows[..2].to_vec())), "");
    }
}
