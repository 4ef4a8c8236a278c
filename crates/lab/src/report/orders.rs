//! Orders of contenders that others have published, and whether they are so here.

use std::fmt::Write as _;

use crate::experiment::PublishedOrder;
use crate::results::{Known, Outline, Row, Summary};
use bentpipe_plot::escape;

/// Share by which two figures differ that are told apart.
const APART: f64 = 0.05;

/// A table of the orders whose tasks were done; empty if none was.
pub(super) fn table(outline: &Outline, summary: &Summary) -> String {
    let done = |order: &&PublishedOrder| {
        outline.scenarios.contains(&order.scenario) && outline.tasks.contains(&order.task)
    };
    let orders = outline.claims.published_orders.iter().filter(done);
    let mut lines = String::new();
    for one in orders {
        let [scenario, task, published, source] =
            [&one.scenario, &one.task, &one.text(), &one.source].map(|text| escape(text));
        let verdict = verdict(one, outline, summary);
        // Writing into a String cannot fail.
        let _ = writeln!(
            lines,
            "<tr><td>{scenario}, {task}</td><td>{published} ({})</td><td>{verdict}</td><td>{source}</td></tr>",
            one.statistic.name()
        );
    }
    if lines.is_empty() {
        return lines;
    }
    format!(
        "<h3>Published orders, the fastest first</h3>\n<div class=\"table\"><table class=\"words\"><tr><th>link, task</th>\
         <th>published</th><th>here</th><th>source</th></tr>\n{lines}</table></div>\n"
    )
}

/// Whether the order holds among those who were measured, and who is missing.
fn verdict(order: &PublishedOrder, outline: &Outline, summary: &Summary) -> String {
    let row = |name: &str| {
        let names = [name, &order.scenario, &order.task];
        let mut rows = summary.rows.iter();
        rows.find(|row| {
            [&row.contender, &row.scenario, &row.task] == names && row.figures.is_some()
        })
    };
    let places = order.order.iter().zip(0u32..);
    let all = places.flat_map(|(names, place)| names.iter().map(move |name| (name, place)));
    let (there, missing): (Vec<_>, Vec<_>) = all.partition(|(name, _)| row(name).is_some());
    let mut objections = Vec::new();
    for (index, (first, place)) in there.iter().enumerate() {
        for (second, other_place) in &there[index + 1..] {
            let Some((one, other)) = row(first).zip(row(second)) else {
                continue;
            };
            let found = compare(one, other, order);
            let expected = if place == other_place { "~" } else { "&lt;" };
            if found != expected {
                objections.push(format!("{} {found} {}", escape(first), escape(second)));
            }
        }
    }
    let mut text = match (there.len(), objections.is_empty()) {
        (0 | 1, _) => "–".to_owned(),
        (_, true) => "as published".to_owned(),
        (_, false) => format!("<b>not as published</b>: {}", objections.join(", ")),
    };
    for (name, _) in missing {
        let why = match outline.claims.not_built.contains(name) {
            true => "not built yet",
            false => "not run",
        };
        let _ = write!(text, "; {} {why}", escape(name));
    }
    text
}

/// `~` if two rows are not told apart: within 5 %, or their intervals overlap; else who is faster.
fn compare(one: &Row, other: &Row, order: &PublishedOrder) -> &'static str {
    let Some((figures, others)) = one.figures.zip(other.figures) else {
        return "~";
    };
    let ends = |row: &Row| {
        let spread = row.figures?.spread?;
        spread.confident.then_some(spread.ends)
    };
    let overlap =
        ends(one)
            .zip(ends(other))
            .is_some_and(|([low, high], [other_low, other_high])| {
                low.least() <= other_high.most() && other_low.least() <= high.most()
            });
    let ratio: Known = figures
        .statistic(order.statistic)
        .over(others.statistic(order.statistic));
    if !overlap && ratio.most() < 1.0 / (1.0 + APART) {
        "&lt;"
    } else if !overlap && ratio.least() > 1.0 + APART {
        "&gt;"
    } else {
        "~"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Claims, Statistic};
    use crate::results::Figures;

    fn judged(order: &[&[&str]]) -> String {
        let row = |(contender, seconds): (&str, f64)| Row {
            contender: contender.into(),
            scenario: "geo".into(),
            task: "get".into(),
            figures: Figures::of(seconds),
            ..Row::default()
        };
        let rows = [("qpep", 10.0), ("split", 10.3), ("vpn", 20.0)]
            .map(row)
            .to_vec();
        let names = |names: &&[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let order = PublishedOrder {
            scenario: "geo".into(),
            task: "get".into(),
            order: order.iter().map(names).collect(),
            statistic: Statistic::Mean,
            source: "S & co".into(),
        };
        let outline = Outline {
            scenarios: vec!["geo".into()],
            tasks: vec!["get".into()],
            claims: Claims {
                published_orders: vec![order],
                not_built: vec!["sle".into()],
                ..Claims::default()
            },
            ..Outline::default()
        };
        let question = String::new();
        table(&outline, &Summary { question, rows })
    }

    #[test]
    fn an_order_holds_or_it_is_said_who_stands_elsewhere() {
        let holds = judged(&[&["qpep", "split"], &["vpn"]]);
        let cells = "<td>qpep ~ split &lt; vpn (mean)</td><td>as published</td><td>S &amp; co</td>";
        assert!(holds.contains(cells), "{holds}");
        let told_apart = judged(&[&["qpep"], &["split"], &["vpn"]]);
        assert!(
            told_apart.contains("<b>not as published</b>: qpep ~ split<"),
            "{told_apart}"
        );
        let reversed = judged(&[&["vpn"], &["split"], &["sle"], &["pepsal"]]);
        let text = "<b>not as published</b>: vpn &gt; split; sle not built yet; pepsal not run";
        assert!(reversed.contains(text), "{reversed}");
    }
}
