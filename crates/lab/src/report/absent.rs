//! Published findings that these runs do not hold, so that every one of an experiment is on its page.

use std::fmt::Write as _;

use crate::results::{Outline, Summary};
use bentpipe_plot::escape;

/// A folded list of figures and ratios without a run of theirs; empty if all have one.
pub(super) fn list(outline: &Outline, summary: &Summary) -> String {
    let claims = &outline.claims;
    let there = |contender: &str, scenario: &str, task: &str| {
        let names = [contender, scenario, task];
        let mut rows = summary.rows.iter();
        rows.any(|row| [&row.contender, &row.scenario, &row.task] == names)
    };
    let why = |contender: &String| match claims.not_built.contains(contender) {
        true => "not built yet",
        false => "not run",
    };
    let mut lines = Vec::new();
    for figure in &claims.published {
        let (contender, scenario, task) = (&figure.contender, &figure.scenario, &figure.task);
        if !there(contender, scenario, task) {
            let text = figure.text();
            let (source, why) = (&figure.source, why(contender));
            lines.push(format!(
                "{contender}, {scenario}, {task}: {text} ({source}); {why}"
            ));
        }
    }
    for one in &claims.published_ratios {
        let (contender, scenario, task) = (&one.contender, &one.scenario, &one.task);
        // Ratios of tasks that were done have a table of their own.
        if !(outline.scenarios.contains(scenario) && outline.tasks.contains(task)) {
            let (to, ratio, source, why) = (&one.to, one.ratio, &one.source, why(contender));
            lines.push(format!(
                "{contender} compared with {to}, {scenario}, {task}: {ratio:.2} × ({source}); {why}"
            ));
        }
    }
    for one in &claims.published_orders {
        if !(outline.scenarios.contains(&one.scenario) && outline.tasks.contains(&one.task)) {
            let (scenario, task, source) = (&one.scenario, &one.task, &one.source);
            lines.push(format!(
                "{}, {scenario}, {task} ({source}); not run",
                one.text()
            ));
        }
    }
    if lines.is_empty() {
        return String::new();
    }
    let mut text = format!(
        "<details><summary>Published findings that these runs do not hold: {}</summary><ul>\n",
        lines.len()
    );
    for line in lines {
        // Writing into a String cannot fail.
        let _ = writeln!(text, "<li>{}</li>", escape(&line));
    }
    text + "</ul></details>\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Claims, Comparable, Published, PublishedValue, Statistic};
    use crate::results::Row;

    #[test]
    fn what_is_not_built_or_not_run_is_named() {
        let figure = |contender: &str| Published {
            contender: contender.into(),
            scenario: "geo".into(),
            task: "get".into(),
            value: PublishedValue::Seconds(22.465),
            statistic: Statistic::Mean,
            comparable: Comparable::All,
            source: "S & co".into(),
        };
        let outline = Outline {
            claims: Claims {
                published: ["plain", "dssl", "qpep"].map(figure).to_vec(),
                not_built: vec!["dssl".into()],
                ..Claims::default()
            },
            ..Outline::default()
        };
        let row = Row {
            contender: "plain".into(),
            scenario: "geo".into(),
            task: "get".into(),
            ..Row::default()
        };
        let question = String::new();
        let text = list(
            &outline,
            &Summary {
                question,
                rows: vec![row],
            },
        );
        for part in [
            "do not hold: 2</summary>",
            "<li>dssl, geo, get: 22.465 s, mean (S &amp; co); not built yet</li>",
            "<li>qpep, geo, get: 22.465 s, mean (S &amp; co); not run</li>",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
