//! Times and rates of several contenders who did one task over one link, from one place of one work.

use super::super::deviation::{APART, bracket, deviation, is_settled};
use super::{Finding, Ground, Subject, Verdict, work};
use crate::experiment::{Comparable, Published, PublishedValue};
use crate::results::{Known, Row};

pub(super) fn findings(ground: &Ground<'_>) -> Vec<Finding> {
    let published = ground.outline.claims.published.iter();
    let mut groups: Vec<Vec<&Published>> = Vec::new();
    for one in published.filter(|one| !matches!(one.value, PublishedValue::Failed(_))) {
        let known = groups.iter_mut().find(|group| alike(group[0], one));
        match known {
            Some(group) => group.push(one),
            None => groups.push(vec![one]),
        }
    }
    let finding = |group: &Vec<&Published>| finding(group, ground);
    groups.iter().map(finding).collect()
}

/// True if two figures are of one statement: of one work, link, task and statistic, and values of one kind.
fn alike<'a>(one: &'a Published, other: &'a Published) -> bool {
    let texts = |figure: &'a Published| {
        let Published {
            source,
            scenario,
            task,
            ..
        } = figure;
        [work(source).0, scenario, task]
    };
    let kinds = |figure: &Published| {
        let rate = figure.value.bits_per_s().is_some();
        (
            figure.statistic.name(),
            rate,
            figure.comparable == Comparable::All,
        )
    };
    texts(one) == texts(other) && kinds(one) == kinds(other)
}

fn finding(group: &[&Published], ground: &Ground<'_>) -> Finding {
    let first = group[0];
    let (mut here, mut ratios) = (Vec::new(), Vec::new());
    let row = |one: &Published| ground.summary.row(&one.contender, &one.scenario, &one.task);
    let ran = |one: &&Published| row(one).and_then(|row| row.over(one)).is_some();
    // Who was measured comes first, in both columns.
    let (there, missing): (Vec<&Published>, Vec<&Published>) =
        group.iter().partition(|one| ran(one));
    let all = there.iter().chain(&missing);
    let published: Vec<_> = all
        .map(|one| format!("{} {}", one.contender, one.value))
        .collect();
    for one in &there {
        let contender = &one.contender;
        let row = row(one);
        match row.and_then(|row| row.over(one)) {
            None => {}
            Some(ratio) if !is_settled(ratio) => {
                let own = row.map(|row| measured(row, one)).unwrap_or_default();
                here.push(format!("{contender} {own}, given up before it shows"));
            }
            Some(ratio) => {
                let apart = deviation(ratio);
                let own = row.map(|row| measured(row, one)).unwrap_or_default();
                here.push(format!("{contender} {own}{}", bracket(apart.as_deref())));
                ratios.push((*one, ratio, apart.is_none()));
            }
        }
    }
    here.extend(absences(&missing, ground));
    let (here, verdict) = match first.comparable {
        Comparable::All => (here.join("; "), judge(&ratios)),
        Comparable::Ratio => (
            "of other content: ratios alone are compared".into(),
            Verdict::NotRun,
        ),
    };
    let far = ratios.iter().filter(|(.., near)| !near);
    let far: Vec<_> = far.map(|(one, ..)| [one.contender.as_str()]).collect();
    let differing: Vec<(&[&str], &str)> = far
        .iter()
        .map(|contender| (contender.as_slice(), first.scenario.as_str()))
        .collect();
    let names: Vec<&str> = group.iter().map(|one| &*one.contender).collect();
    let statistic = first.statistic.name();
    Finding {
        subject: Subject::new(&names, &first.scenario, &first.task, statistic),
        headline: None,
        claim: format!(
            "{}: {}",
            first.statistic.name(),
            ground.outline.titles.place(&first.scenario, &first.task)
        ),
        source: first.source.clone(),
        published: published.join("; "),
        here,
        verdict,
        because: ground.because(verdict, &differing, &first.task),
    }
}

/// Why figures are missing: by name of few contenders, by number of many.
fn absences(missing: &[&Published], ground: &Ground<'_>) -> Vec<String> {
    let reason = |one: &Published| ground.absence(&one.contender, &one.scenario, &one.task);
    let alike = |one: &Published| reason(one) == reason(missing[0]);
    if missing.len() > 3 && missing.iter().all(|one| alike(one)) {
        return vec![format!("{} others {}", missing.len(), reason(missing[0]))];
    }
    let text = |one: &&Published| format!("{} {}", one.contender, reason(one));
    missing.iter().map(text).collect()
}

/// The figure of a row that a published one is compared with, as text.
fn measured(row: &Row, figure: &Published) -> String {
    match figure.value {
        PublishedValue::Seconds(_) => row
            .figures
            .map(|figures| figures.statistic(figure.statistic).seconds()),
        _ => row.rate(figure.statistic).map(|rate| match rate.value() {
            Some(rate) => PublishedValue::BitsPerS(rate).to_string(),
            None => format!("< {}", PublishedValue::BitsPerS(rate.most())),
        }),
    }
    .unwrap_or_default()
}

/// Judges figures with the ratio of each to the published one, and whether that is near 1.
fn judge(ratios: &[(&Published, Known, bool)]) -> Verdict {
    if ratios.is_empty() {
        return Verdict::NotRun;
    }
    if ratios.iter().all(|(.., near)| *near) {
        return Verdict::Reproduced;
    }
    let size = |figure: &Published| match (figure.value, figure.value.bits_per_s()) {
        (PublishedValue::Seconds(seconds), _) => seconds,
        (_, rate) => rate.unwrap_or_default(),
    };
    let pairs = ratios.iter().enumerate().flat_map(|(place, one)| {
        let later = ratios[place + 1..].iter();
        later.map(move |other| (one, other))
    });
    let mut told_apart = pairs.filter_map(|((one, own, _), (other, others, _))| {
        let published = size(one) / size(other);
        let here = own.over(*others).times(published);
        let same_side = match published {
            larger if larger > 1.0 + APART => here.least() > 1.0,
            smaller if smaller < 1.0 / (1.0 + APART) => here.most() < 1.0,
            _ => return None,
        };
        Some(same_side)
    });
    match told_apart.next() {
        Some(true) if told_apart.all(|same_side| same_side) => Verdict::OrderOnly,
        _ => Verdict::NotReproduced,
    }
}

#[cfg(test)]
mod tests {
    use super::super::findings;
    use super::*;
    use crate::experiment::{Claims, Statistic};
    use crate::results::{Figures, Outline, Summary};

    /// Finding of published seconds and seconds that were measured here, of one contender after the other.
    fn found(figures: &[(f64, Option<f64>)], comparable: Comparable) -> Finding {
        let names: Vec<String> = (0..figures.len())
            .map(|place| format!("c{place}"))
            .collect();
        let published = names
            .iter()
            .zip(figures)
            .map(|(name, (published, _))| Published {
                contender: name.clone(),
                scenario: "geo".into(),
                task: "get".into(),
                value: PublishedValue::Seconds(*published),
                statistic: Statistic::Mean,
                comparable,
                source: format!("S: table 1, {name}"),
            });
        let rows = names.iter().zip(figures).filter_map(|(name, (_, here))| {
            Some(Row {
                contender: name.clone(),
                scenario: "geo".into(),
                task: "get".into(),
                figures: Figures::of((*here)?),
                ..Row::default()
            })
        });
        let outline = Outline {
            claims: Claims {
                published: published.collect(),
                ..Claims::default()
            },
            ..Outline::default()
        };
        let rows = rows.collect();
        let question = String::new();
        let mut all = findings(&outline, &Summary { question, rows });
        assert_eq!(all.len(), 1);
        all.remove(0)
    }

    #[test]
    fn figures_of_one_place_are_one_finding() {
        let near = found(&[(10.0, Some(11.0)), (20.0, Some(19.0))], Comparable::All);
        assert_eq!(near.claim, "mean: geo, get");
        assert_eq!(near.published, "c0 10.00 s; c1 20.00 s");
        assert_eq!(near.here, "c0 11.00 s; c1 19.00 s");
        assert_eq!(near.verdict, Verdict::Reproduced);
        let order = found(&[(10.0, Some(30.0)), (20.0, Some(33.0))], Comparable::All);
        assert_eq!(order.verdict, Verdict::OrderOnly);
        let reversed = found(&[(10.0, Some(34.0)), (20.0, Some(33.0))], Comparable::All);
        assert_eq!(reversed.verdict, Verdict::NotReproduced);
        let alone = found(&[(10.0, Some(30.0)), (20.0, None)], Comparable::All);
        assert_eq!(alone.here, "c0 30.00 s (200 % more); c1 not in this size");
        assert_eq!(alone.verdict, Verdict::NotReproduced);
        assert_eq!(
            found(&[(10.0, None)], Comparable::All).verdict,
            Verdict::NotRun
        );
        let other = found(&[(10.0, Some(10.0))], Comparable::Ratio);
        assert_eq!(other.verdict, Verdict::NotRun);
    }
}
