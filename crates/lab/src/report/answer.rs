//! The sentence that answers an experiment's question, made of what was measured.

use crate::experiment::{Axis, PublishedRatio, Quantity};
use crate::results::{Outline, Row, Summary};

/// Contender whose figures the sentence is about, if it was measured.
const SUBJECT: &str = "bentpipe";

/// The sentence: the first published ratio of the product that was measured, else the first of anybody, else the product beside the
/// first contender of the file.
pub(super) fn answer(outline: &Outline, summary: &Summary) -> String {
    let ratios = outline.claims.published_ratios.iter();
    let (own, others): (Vec<_>, Vec<_>) = ratios.partition(|one| one.contender == SUBJECT);
    let ratios = own.into_iter().chain(others);
    let mut ratios = ratios.filter_map(|one| of_ratio(one, outline, summary));
    let along = || along_axis(outline.axis.as_ref()?, outline, summary);
    let sentence = ratios.next().or_else(along);
    sentence
        .or_else(|| of_place(outline, summary))
        .unwrap_or_else(|| "No run was valid: there is no answer yet.".into())
}

fn of_ratio(one: &PublishedRatio, outline: &Outline, summary: &Summary) -> Option<String> {
    let ratio = summary.ratio(one)?;
    let titles = &outline.titles;
    let (does, than) = match one.quantity {
        Quantity::Time => ("takes", "as long as"),
        Quantity::Load => ("has", "the load of"),
    };
    // No paper has figures of the product.
    let whose = match one.contender == SUBJECT {
        true => " of the program in whose place it stands",
        false => "",
    };
    Some(format!(
        "{} {does} {} times {than} {} ({}); published{whose} {}.",
        one.contender,
        ratio.ratio(2),
        one.to,
        titles.place(&one.scenario, &one.task),
        one.text()
    ))
}

/// The subject and the first other contender, for the first task at both ends of the axis of links.
fn along_axis(axis: &Axis, outline: &Outline, summary: &Summary) -> Option<String> {
    let task = &summary.rows.first()?.task;
    let measured = summary.rows.iter().filter(|row| {
        row.task == *task && axis.at.contains_key(&row.scenario) && row.figures.is_some()
    });
    let mut links: Vec<(f64, &str)> = measured
        .map(|row| (axis.at[&row.scenario], &*row.scenario))
        .collect();
    links.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (first, last) = (links.first()?, links.last()?);
    let at = |contender: &str| {
        let median = |link| Some(summary.row(contender, link, task)?.figures?.median);
        let [low, high] = [first.1, last.1].map(median);
        Some(format!("{} and {}", low?.seconds(), high?.seconds()))
    };
    let [subject, other] = pair(outline, summary)?;
    Some(format!(
        "At {} and {} ({}) {subject} takes {}, {other} {} ({}).",
        first.0,
        last.0,
        axis.of,
        at(subject)?,
        at(other)?,
        outline.titles.task(task)
    ))
}

/// The subject and the first other contender that was measured.
fn pair<'a>(outline: &Outline, summary: &'a Summary) -> Option<[&'a str; 2]> {
    let measured = |name: &String| {
        let mut rows = summary.rows.iter();
        let row = rows.find(|row| row.contender == *name && row.figures.is_some())?;
        Some(row.contender.as_str())
    };
    let there: Vec<&str> = outline.contenders.iter().filter_map(measured).collect();
    let subject = there
        .iter()
        .find(|name| **name == SUBJECT)
        .or(there.last())?;
    let other = there.iter().find(|name| *name != subject)?;
    Some([subject, other])
}

fn of_place(outline: &Outline, summary: &Summary) -> Option<String> {
    let [subject, other] = pair(outline, summary)?;
    let both = |row: &&Row| {
        let others = summary.row(other, &row.scenario, &row.task)?;
        Some([row.figures?.median, others.figures?.median])
    };
    let rows = summary.rows.iter();
    let mut own = rows.filter(|row| row.contender == subject);
    let own = own.find(|row| both(row).is_some())?;
    let [mine, theirs] = both(&own)?;
    let limit = own
        .ratio
        .map(|ratio| format!(", {} times the physical limit", ratio.ratio(2)));
    Some(format!(
        "{subject} takes {}{}; {other} takes {}, {} times as long ({}).",
        mine.seconds(),
        limit.unwrap_or_default(),
        theirs.seconds(),
        theirs.over(mine).ratio(2),
        outline.titles.place(&own.scenario, &own.task)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Along, Statistic};
    use crate::results::{Figures, Known};

    fn row(contender: &str, scenario: &str, seconds: f64) -> Row {
        Row {
            contender: contender.into(),
            scenario: scenario.into(),
            task: "get".into(),
            figures: Figures::of(seconds),
            ratio: Some(Known::exactly(1.1)),
            ..Row::default()
        }
    }

    #[test]
    fn the_answer_is_of_what_was_published_else_of_the_product() {
        let rows = vec![
            row("plain", "a", 10.0),
            row("bentpipe", "a", 4.0),
            row("plain", "b", 30.0),
            row("bentpipe", "b", 5.0),
        ];
        let question = String::new();
        let summary = Summary { question, rows };
        let mut outline = Outline {
            contenders: vec!["plain".into(), "bentpipe".into()],
            ..Outline::default()
        };
        assert_eq!(
            answer(&outline, &summary),
            "bentpipe takes 4.00 s, 1.10 times the physical limit; plain takes 10.00 s, 2.50 times as long (a, get)."
        );
        outline.axis = Some(Axis {
            of: "loss in dB".into(),
            along: Along::Links,
            at: [("b".to_owned(), 9.0), ("a".to_owned(), 1.5)].into(),
        });
        assert_eq!(
            answer(&outline, &summary),
            "At 1.5 and 9 (loss in dB) bentpipe takes 4.00 s and 5.00 s, plain 10.00 s and 30.00 s (get)."
        );
        let ratio = |contender: &str, to: &str, ratio: f64| PublishedRatio {
            contender: contender.into(),
            to: to.into(),
            scenario: "b".into(),
            task: "get".into(),
            ratio,
            quantity: Quantity::Time,
            statistic: Statistic::Median,
            source: "S".into(),
            headline: None,
        };
        outline.claims.published_ratios = vec![ratio("plain", "bentpipe", 5.0)];
        assert_eq!(
            answer(&outline, &summary),
            "plain takes 6.00 times as long as bentpipe (b, get); published 5.00."
        );
        // Whoever stands first in the file, the answer is about the product.
        let own = ratio("bentpipe", "plain", 0.35);
        outline.claims.published_ratios.push(own);
        assert_eq!(
            answer(&outline, &summary),
            "bentpipe takes 0.17 times as long as plain (b, get); published of the program in whose place it stands 0.35."
        );
        let nothing = Summary {
            question: String::new(),
            rows: Vec::new(),
        };
        assert!(answer(&Outline::default(), &nothing).contains("no answer yet"));
    }
}
