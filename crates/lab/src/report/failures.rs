//! Where on the experiment's axis runs failed, beside where they failed for others.

use std::fmt::Write as _;

use crate::experiment::{Along, Axis, FailureCount, PublishedValue};
use crate::results::{Outline, Row, Summary};
use bentpipe_plot::escape;

/// A table of the failures of each contender by task; empty if others have published none.
pub(super) fn table(outline: &Outline, summary: &Summary) -> String {
    let counted = |row: &Row| published(row).is_some();
    let Some(axis) = &outline.axis else {
        return String::new();
    };
    let mut lines = String::new();
    for task in &outline.tasks {
        let here = || summary.rows.iter().filter(|row| row.task == *task);
        if axis.along == Along::Tasks || !here().any(counted) {
            continue;
        }
        for contender in &outline.contenders {
            let rows: Vec<&Row> = here().filter(|row| row.contender == *contender).collect();
            if rows.is_empty() {
                continue;
            }
            let own = places(axis, &rows, Row::failures);
            let others = match rows.iter().any(|row| counted(row)) {
                true => places(axis, &rows, published),
                false => "–".into(),
            };
            let [task, contender] = [task, contender].map(|name| escape(name));
            // Writing into a String cannot fail.
            let _ = writeln!(
                lines,
                "<tr><td>{task}</td><td>{contender}</td><td>{own}</td><td>{others}</td></tr>"
            );
        }
    }
    if lines.is_empty() {
        return lines;
    }
    format!(
        "<h3>Failed runs, by {}</h3>\n<div class=\"table\"><table class=\"words\"><tr><th>task</th><th>contender</th><th>here</th>\
         <th>published</th></tr>\n{lines}</table></div>\n",
        escape(&axis.of)
    )
}

/// The first count of failures that was published for a row.
fn published(row: &Row) -> Option<FailureCount> {
    row.published.iter().find_map(|figure| match figure.value {
        PublishedValue::Failed(count) => Some(count),
        _ => None,
    })
}

/// Places of the axis at which something failed, in its order.
fn places(axis: &Axis, rows: &[&Row], of: fn(&Row) -> Option<FailureCount>) -> String {
    let failed = rows.iter().filter_map(|row| {
        let count = of(row).filter(|count| count.failed() > 0)?;
        Some((*axis.at.get(&row.scenario)?, count))
    });
    let mut failed: Vec<(f64, FailureCount)> = failed.collect();
    failed.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    let said: Vec<String> = failed
        .iter()
        .map(|(at, count)| format!("{at}: {count}"))
        .collect();
    match said.is_empty() {
        true => "none".into(),
        false => said.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Comparable, Published, Statistic};

    #[test]
    fn failures_stand_at_their_places_beside_the_published_ones() {
        let row = |scenario: &str, contender: &str, failed: usize, published: Option<&str>| Row {
            scenario: scenario.into(),
            task: "cold".into(),
            contender: contender.into(),
            runs: [5 - failed, 0, 0, failed, 0],
            published: published
                .map(|count| Published {
                    contender: contender.into(),
                    scenario: scenario.into(),
                    task: "cold".into(),
                    value: PublishedValue::Failed(count.parse().unwrap()),
                    statistic: Statistic::default(),
                    comparable: Comparable::All,
                    source: "S".into(),
                })
                .into_iter()
                .collect(),
            ..Row::default()
        };
        let at = [("low", 10.0), ("high", 10.5)].map(|(name, at)| (name.to_owned(), at));
        let outline = Outline {
            contenders: vec!["qpep".into(), "plain".into()],
            tasks: vec!["cold".into(), "warm".into()],
            axis: Some(Axis {
                of: "SNR in dB".into(),
                along: Along::Links,
                at: at.into(),
            }),
            ..Outline::default()
        };
        let rows = vec![
            row("high", "qpep", 1, Some("2 of 5")),
            row("low", "qpep", 4, Some("5 of 5")),
            row("low", "plain", 0, None),
        ];
        let question = String::new();
        let text = table(&outline, &Summary { question, rows });
        let cells =
            "<td>qpep</td><td>10: 4 of 5, 10.5: 1 of 5</td><td>10: 5 of 5, 10.5: 2 of 5</td>";
        assert!(text.contains(cells) && !text.contains("warm"), "{text}");
        assert!(
            text.contains("<td>plain</td><td>none</td><td>–</td>"),
            "{text}"
        );
    }
}
