//! Orders of contenders by their times.

use super::super::deviation::APART;
use super::{Finding, Ground, Subject, Verdict};
use crate::experiment::PublishedOrder;
use crate::results::{Known, Row};

pub(super) fn findings(ground: &Ground<'_>) -> Vec<Finding> {
    let orders = ground.outline.claims.published_orders.iter();
    orders.map(|one| finding(one, ground)).collect()
}

fn finding(one: &PublishedOrder, ground: &Ground<'_>) -> Finding {
    let (here, verdict, apart) = judged(one, ground);
    let after = match one.after {
        None => String::new(),
        Some(1) => " after a transaction".into(),
        Some(number) => format!(" after {number} transactions"),
    };
    let differing: Vec<(&[&str], &str)> = apart
        .iter()
        .map(|pair| (pair.as_slice(), one.scenario.as_str()))
        .collect();
    let names: Vec<&str> = one.runs().map(|(contender, _)| contender).collect();
    Finding {
        subject: Subject::new(&names, &one.scenario, &one.task, one.statistic.name()),
        headline: one.headline.clone(),
        claim: format!(
            "order{after}: {}",
            ground.outline.titles.place(&one.scenario, &one.task)
        ),
        source: one.source.clone(),
        published: format!("{} ({})", one.text(), one.statistic.name()),
        here,
        verdict,
        because: ground.because(verdict, &differing, &one.task),
    }
}

/// Text about contenders that were measured and that are missing, the verdict on the order of the former, and the pairs of them
/// that stand otherwise here.
fn judged<'a>(
    order: &'a PublishedOrder,
    ground: &Ground<'_>,
) -> (String, Verdict, Vec<[&'a str; 2]>) {
    let row = |name: &str| {
        let (contender, task) = order.run(name);
        let row = ground.summary.row(contender, &order.scenario, task);
        row.filter(|row| row.figures.is_some())
    };
    let places = order.order.iter().zip(0u32..);
    let all = places.flat_map(|(names, place)| names.iter().map(move |name| (name, place)));
    let (there, missing): (Vec<_>, Vec<_>) = all.partition(|(name, _)| row(name).is_some());
    let (mut objections, mut apart) = (Vec::new(), Vec::new());
    let (mut judged, mut given_up) = (0, Vec::new());
    for (index, (first, place)) in there.iter().enumerate() {
        for (second, other_place) in &there[index + 1..] {
            let Some((one, other)) = row(first).zip(row(second)) else {
                continue;
            };
            let Some(found) = compare(one, other, order) else {
                given_up.push(format!("{first} and {second} given up before it shows"));
                continue;
            };
            judged += 1;
            let expected = if place == other_place { "~" } else { "<" };
            if found != expected {
                objections.push(format!("{first} {found} {second}"));
                apart.push([first, second].map(|name| order.run(name.as_str()).0));
            }
        }
    }
    let (said, verdict) = match (judged, objections.is_empty()) {
        (0, _) => (String::new(), Verdict::NotRun),
        (_, true) => ("as published".to_owned(), Verdict::Reproduced),
        (_, false) => (objections.join(", "), Verdict::NotReproduced),
    };
    let missing = missing.iter().map(|(name, _)| {
        let (contender, task) = order.run(name);
        let reason = ground.absence(contender, &order.scenario, task);
        format!("{name} {reason}")
    });
    let said = (!said.is_empty()).then_some(said).into_iter();
    let said: Vec<_> = said.chain(given_up).chain(missing).collect();
    (said.join("; "), verdict, apart)
}

/// `~` if two rows are not told apart: within 5 %, or their intervals overlap; else who is faster. None if both may be: who was given
/// up takes longer than the patience, and nobody knows by how much.
fn compare(one: &Row, other: &Row, order: &PublishedOrder) -> Option<&'static str> {
    let ends = |row: &Row| {
        let spread = row.figures?.spread?;
        (spread.confident && order.after.is_none()).then_some(spread.ends)
    };
    let overlap =
        ends(one)
            .zip(ends(other))
            .is_some_and(|([low, high], [other_low, other_high])| {
                low.least() <= other_high.most() && other_low.least() <= high.most()
            });
    let ratio: Known = figure(one, order)?.over(figure(other, order)?);
    if !overlap && ratio.most() < 1.0 / (1.0 + APART) {
        Some("<")
    } else if !overlap && ratio.least() > 1.0 + APART {
        Some(">")
    } else {
        (overlap || ratio.value().is_some()).then_some("~")
    }
}

/// Figure by which a row has its place in an order; none of a session that was given up before so many transactions.
fn figure(row: &Row, order: &PublishedOrder) -> Option<Known> {
    match order.after {
        None => Some(row.figures?.statistic(order.statistic)),
        Some(number) => {
            let mean = row.means_so_far.get(number.checked_sub(1)?)?;
            Some(Known::exactly(*mean))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::findings;
    use super::*;
    use crate::experiment::{Claims, Statistic};
    use crate::results::{Figures, Outline, Summary};

    fn found(order: &[&[&str]]) -> Finding {
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
            after: None,
            order: order.iter().map(names).collect(),
            statistic: Statistic::Mean,
            source: "S & co".into(),
            headline: None,
        };
        let outline = Outline {
            claims: Claims {
                published_orders: vec![order],
                not_built: vec!["sle".into()],
                ..Claims::default()
            },
            ..Outline::default()
        };
        let question = String::new();
        findings(&outline, &Summary { question, rows }).remove(0)
    }

    #[test]
    fn an_order_holds_or_it_is_said_who_stands_elsewhere() {
        let holds = found(&[&["qpep", "split"], &["vpn"]]);
        assert_eq!(holds.published, "qpep ~ split < vpn (mean)");
        assert_eq!(
            (&*holds.here, holds.verdict),
            ("as published", Verdict::Reproduced)
        );
        let told_apart = found(&[&["qpep"], &["split"], &["vpn"]]);
        assert_eq!(told_apart.here, "qpep ~ split");
        assert_eq!(told_apart.verdict, Verdict::NotReproduced);
        let reversed = found(&[&["vpn"], &["split"], &["sle"], &["pepsal"]]);
        assert_eq!(
            reversed.here,
            "vpn > split; sle not built yet; pepsal not in this size"
        );
        let alone = found(&[&["qpep"], &["pepsal"]]);
        assert_eq!(
            (&*alone.here, alone.verdict),
            ("pepsal not in this size", Verdict::NotRun)
        );
    }

    /// Keys are in the first transaction of "les", at a task of its own.
    fn crossing(after: Option<usize>, order: [&str; 2]) -> Finding {
        let row = |contender: &str, task: &str, means_so_far: &[f64]| Row {
            contender: contender.into(),
            scenario: "geo".into(),
            task: task.into(),
            figures: Figures::of(means_so_far[1]),
            means_so_far: means_so_far.to_vec(),
            ..Row::default()
        };
        let order = PublishedOrder {
            scenario: "geo".into(),
            task: "warm".into(),
            after,
            order: order.map(|name| vec![name.to_owned()]).into(),
            statistic: Statistic::Mean,
            source: "S".into(),
            headline: None,
        };
        let outline = Outline {
            claims: Claims {
                published_orders: vec![order],
                ..Claims::default()
            },
            ..Outline::default()
        };
        let summary = Summary {
            question: String::new(),
            rows: vec![
                row("ipsec", "warm", &[2.2, 2.9]),
                row("les", "cold", &[5.5, 1.7]),
            ],
        };
        findings(&outline, &summary).remove(0)
    }

    #[test]
    fn an_order_may_turn_in_the_course_of_sessions_at_two_tasks() {
        let first = crossing(Some(1), ["ipsec", "les in cold"]);
        assert_eq!(first.claim, "order after a transaction: geo, warm");
        assert_eq!(first.verdict, Verdict::Reproduced);
        assert_eq!(
            crossing(None, ["les in cold", "ipsec"]).verdict,
            Verdict::Reproduced
        );
        let wrong = crossing(Some(1), ["les in cold", "ipsec"]);
        assert_eq!(wrong.here, "les in cold > ipsec");
        // Nobody has come so far.
        assert_eq!(
            crossing(Some(3), ["ipsec", "les in cold"]).verdict,
            Verdict::NotRun
        );
    }
}
