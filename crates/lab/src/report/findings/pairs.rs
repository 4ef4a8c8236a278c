//! Pairs of runs in which one contender was faster as often as the other: a sign test.

use super::{Finding, Ground, Subject, Verdict};
use crate::experiment::PublishedPairs;
use crate::results::Known;

/// Probability below which chance alone is not believed.
const SIGNIFICANT: f64 = 0.05;

pub(super) fn findings(ground: &Ground<'_>) -> Vec<Finding> {
    let pairs = ground.outline.claims.published_pairs.iter();
    pairs.map(|one| finding(one, ground)).collect()
}

fn finding(one: &PublishedPairs, ground: &Ground<'_>) -> Finding {
    let ratios: Vec<Known> = one
        .tasks
        .iter()
        .flat_map(|task| ratios(one, task, ground))
        .collect();
    let contenders = [one.contender.as_str(), one.to.as_str()];
    let task = one.tasks.first().map_or("", String::as_str);
    let (here, verdict) = match ratios.is_empty() {
        true => {
            let reason = ground.absence_of(&contenders, &one.scenario, task);
            (reason, Verdict::NotRun)
        }
        false => judge(&ratios),
    };
    let titles = &ground.outline.titles;
    Finding {
        subject: Subject::new(&contenders, &one.scenario, task, ""),
        headline: None,
        claim: format!(
            "pairs of {} and {}: {}",
            one.contender,
            one.to,
            titles.link(&one.scenario)
        ),
        source: one.source.clone(),
        published: "neither faster more often".into(),
        here,
        verdict,
        because: ground.because(verdict, &[(&contenders, &one.scenario)], task),
    }
}

/// Ratio of both contenders' times in each repeat of a task that both have.
fn ratios(one: &PublishedPairs, task: &str, ground: &Ground<'_>) -> Vec<Known> {
    let repeats = |contender: &str| {
        let row = ground.summary.row(contender, &one.scenario, task);
        row.map(|row| &row.repeats)
    };
    let Some((own, others)) = repeats(&one.contender).zip(repeats(&one.to)) else {
        return Vec::new();
    };
    let ratio = |(repeat, time): (&u32, &Known)| Some(time.over(*others.get(repeat)?));
    own.iter().filter_map(ratio).collect()
}

/// Text about pairs with these ratios, and the verdict on them. Pairs of which nobody knows who was faster say nothing.
fn judge(ratios: &[Known]) -> (String, Verdict) {
    let faster = ratios.iter().filter(|ratio| ratio.most() < 1.0).count();
    let slower = ratios.iter().filter(|ratio| ratio.least() > 1.0).count();
    let pairs = faster + slower;
    if pairs == 0 {
        return ("given up before it shows".into(), Verdict::NotRun);
    }
    let chance = sign_test(faster, slower);
    let mut known: Vec<f64> = ratios.iter().filter_map(|ratio| ratio.value()).collect();
    known.sort_by(f64::total_cmp);
    let middle = known.get(known.len() / 2);
    let middle = middle.map_or_else(String::new, |middle| {
        format!(", {middle:.3} × in the middle")
    });
    let said = format!("faster in {faster} of {pairs}{middle}");
    match sign_test(0, pairs) < SIGNIFICANT {
        // All on one side would be chance as well.
        false => (format!("{said}: too few"), Verdict::NotRun),
        true => {
            let verdict = match chance < SIGNIFICANT {
                true => Verdict::NotReproduced,
                false => Verdict::Reproduced,
            };
            (format!("{said}, p = {chance:.2}"), verdict)
        }
    }
}

/// Probability that chance alone divides pairs at least as unevenly, where either side is as likely.
fn sign_test(one: usize, other: usize) -> f64 {
    let pairs = one + other;
    // In logarithms: half to the power of a thousand is no number.
    let mut term = -(pairs as f64) * std::f64::consts::LN_2;
    let mut sum = term.exp();
    for taken in 0..one.min(other) {
        term += ((pairs - taken) as f64).ln() - ((taken + 1) as f64).ln();
        sum += term.exp();
    }
    (2.0 * sum).min(1.0)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::findings;
    use super::*;
    use crate::experiment::Claims;
    use crate::results::{Outline, Row, Summary};

    #[test]
    fn probabilities_are_those_of_the_binomial_distribution() {
        for (one, other, expected) in [
            (0, 5, 0.0625),
            (6, 0, 0.031_25),
            (21, 39, 0.027_3),
            (39, 21, 0.027_3),
            (30, 30, 1.0),
            (900, 1100, 8.5e-6),
        ] {
            let found = sign_test(one, other);
            assert!(
                (found / expected - 1.0).abs() < 0.01,
                "{one}, {other}: {found}"
            );
        }
    }

    /// Of two tasks, with as many repeats as there are `ratios` for each.
    fn found(ratios: [&[f64]; 2]) -> Finding {
        let row = |contender: &str, task: &str, times: Vec<Known>| Row {
            contender: contender.into(),
            scenario: "s1".into(),
            task: task.into(),
            repeats: (1..).zip(times).collect::<BTreeMap<u32, Known>>(),
            ..Row::default()
        };
        let rows = ["a", "b"].iter().zip(ratios).flat_map(|(task, ratios)| {
            let own = ratios.iter().map(|ratio| Known::exactly(10.0 * ratio));
            let others = ratios.iter().map(|_| Known::exactly(10.0));
            [
                row("sle", task, own.collect()),
                row("clear", task, others.collect()),
            ]
        });
        let summary = Summary {
            question: String::new(),
            rows: rows.collect(),
        };
        let pairs = PublishedPairs {
            contender: "sle".into(),
            to: "clear".into(),
            scenario: "s1".into(),
            tasks: vec!["a".into(), "b".into(), "c".into()],
            source: "S".into(),
        };
        let outline = Outline {
            claims: Claims {
                published_pairs: vec![pairs],
                ..Claims::default()
            },
            ..Outline::default()
        };
        findings(&outline, &summary).remove(0)
    }

    #[test]
    fn pairs_are_even_or_one_side_wins_too_often_or_they_are_too_few() {
        let even = found([&[0.99, 1.01, 1.02], &[0.98, 1.01, 0.97]]);
        assert_eq!(even.claim, "pairs of sle and clear: s1");
        assert_eq!(
            even.here,
            "faster in 3 of 6, 1.010 × in the middle, p = 1.00"
        );
        assert_eq!(even.verdict, Verdict::Reproduced);
        let slower = found([&[1.01, 1.01, 1.02], &[1.01, 1.01, 1.01]]);
        assert_eq!(
            slower.here,
            "faster in 0 of 6, 1.010 × in the middle, p = 0.03"
        );
        assert_eq!(slower.verdict, Verdict::NotReproduced);
        let few = found([&[1.01, 1.01, 1.02], &[1.01, 1.01]]);
        assert!(few.here.ends_with(": too few"), "{}", few.here);
        assert_eq!(few.verdict, Verdict::NotRun);
        assert_eq!(found([&[], &[]]).here, "no run is valid");
    }
}
