//! Places of the experiment's axis at which runs failed, beside those at which they failed for others.

use std::fmt::Write as _;

use super::super::deviation::{bracket, failures};
use super::{Finding, Ground, Subject, Verdict};
use crate::experiment::{Along, Axis, FailureCount, Published, PublishedValue};
use crate::results::{Outline, Row, Summary};
use bentpipe_plot::escape;

/// Findings of published failures: one for each contender and task.
pub(super) fn findings(ground: &Ground<'_>) -> Vec<Finding> {
    let published = ground.outline.claims.published.iter();
    let mut groups: Vec<Vec<(&Published, FailureCount)>> = Vec::new();
    for one in published {
        let PublishedValue::Failed(count) = one.value else {
            continue;
        };
        let alike = |group: &&mut Vec<(&Published, FailureCount)>| {
            let (first, _) = group[0];
            [&first.contender, &first.task] == [&one.contender, &one.task]
        };
        match groups.iter_mut().find(alike) {
            Some(group) => group.push((one, count)),
            None => groups.push(vec![(one, count)]),
        }
    }
    let finding = |group: &Vec<_>| finding(group, ground);
    groups.iter().map(finding).collect()
}

fn finding(group: &[(&Published, FailureCount)], ground: &Ground<'_>) -> Finding {
    let (first, _) = group[0];
    let titles = &ground.outline.titles;
    let said =
        |one: &Published, count: FailureCount| format!("{}: {count}", titles.link(&one.scenario));
    let measured = group.iter().filter_map(|(one, count)| {
        let row = ground
            .summary
            .row(&one.contender, &one.scenario, &one.task)?;
        Some((*one, *count, row.failures()?))
    });
    let measured: Vec<_> = measured.collect();
    let far = |(_, published, own): &(&Published, FailureCount, FailureCount)| {
        failures(*own, *published).is_some()
    };
    let contender = [first.contender.as_str()];
    let differing: Vec<(&[&str], &str)> = measured
        .iter()
        .filter(|one| far(one))
        .map(|(one, ..)| (contender.as_slice(), one.scenario.as_str()))
        .collect();
    let few = measured
        .iter()
        .find(|(_, published, own)| own.of() < published.of());
    let enough = measured
        .iter()
        .any(|(_, published, own)| own.of() >= published.of());
    let verdict = match (enough, differing.is_empty(), few.is_some()) {
        (false, ..) | (true, true, true) => Verdict::NotRun,
        (true, false, _) => Verdict::NotReproduced,
        (true, true, false) => Verdict::Reproduced,
    };
    let here = measured.iter().map(|(one, published, own)| {
        let apart = bracket(failures(*own, *published));
        format!("{}{apart}", said(one, *own))
    });
    let here = here.collect::<Vec<_>>().join(", ");
    let here = match few {
        _ if measured.is_empty() => ground.absence(&first.contender, &first.scenario, &first.task),
        Some((_, published, own)) => {
            format!("{here}; {} of {} runs: too few", own.of(), published.of())
        }
        None => here,
    };
    let published = group.iter().map(|(one, count)| said(one, *count));
    Finding {
        subject: Subject::new(&contender, "", &first.task, ""),
        headline: None,
        claim: format!(
            "failed runs of {}: {}",
            first.contender,
            titles.task(&first.task)
        ),
        source: first.source.clone(),
        published: published.collect::<Vec<_>>().join(", "),
        here,
        verdict,
        because: ground.because(verdict, &differing, &first.task),
    }
}

/// A table of the failures of each contender by task; empty if others have published none.
pub(in super::super) fn table(outline: &Outline, summary: &Summary) -> String {
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
    use super::super::findings;
    use super::*;
    use crate::experiment::{Claims, Comparable, Published, Statistic};

    /// Finding about this many runs over a link, of which none failed, where three of five were published.
    fn of_runs(runs: usize) -> Finding {
        let published = Published {
            contender: "split".into(),
            scenario: "low".into(),
            task: "cold".into(),
            value: PublishedValue::Failed("3 of 5".parse().unwrap()),
            statistic: Statistic::default(),
            comparable: Comparable::All,
            source: "S".into(),
        };
        let row = Row {
            contender: "split".into(),
            scenario: "low".into(),
            task: "cold".into(),
            runs: [runs, 0, 0, 0, 0],
            ..Row::default()
        };
        let outline = Outline {
            claims: Claims {
                published: vec![published],
                ..Claims::default()
            },
            ..Outline::default()
        };
        let (question, rows) = (String::new(), vec![row]);
        findings(&outline, &Summary { question, rows }).remove(0)
    }

    #[test]
    fn fewer_runs_than_were_published_judge_nothing() {
        let one = of_runs(1);
        assert_eq!(one.here, "low: 0 of 1; 1 of 5 runs: too few");
        assert_eq!(one.verdict, Verdict::NotRun);
        let five = of_runs(5);
        assert_eq!(five.here, "low: 0 of 5 (fewer)");
        assert_eq!(five.verdict, Verdict::NotReproduced);
    }

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
