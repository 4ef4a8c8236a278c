//! Ratios of one contender's times to another's that rise along the experiment's axis.

use super::super::deviation::APART;
use super::{Finding, Ground, Subject, Verdict};
use crate::experiment::{PublishedRatio, PublishedRise, Quantity};
use crate::results::Known;

/// Fewest places at which something is seen to rise: of two, one is larger in any case.
const LEAST_PLACES: usize = 3;

pub(super) fn findings(ground: &Ground<'_>) -> Vec<Finding> {
    let rises = ground.outline.claims.published_rises.iter();
    rises.map(|one| finding(one, ground)).collect()
}

fn finding(one: &PublishedRise, ground: &Ground<'_>) -> Finding {
    let places = places(one, ground);
    let verdict = judge(
        &places
            .iter()
            .map(|(_, _, ratio)| *ratio)
            .collect::<Vec<_>>(),
    );
    let said = places
        .iter()
        .map(|(at, _, ratio)| format!("{at}: {} ×", ratio.ratio(2)));
    let said: Vec<_> = said.collect();
    let here = match (said.is_empty(), verdict) {
        (true, _) => absence(one, ground),
        (false, Verdict::NotRun) => format!("{}: too few to see it rise", said.join(", ")),
        (false, _) => said.join(", "),
    };
    let contenders = [one.contender.as_str(), one.to.as_str()];
    let differing: Vec<(&[&str], &str)> = places
        .iter()
        .map(|(_, link, _)| (contenders.as_slice(), *link))
        .collect();
    let axis = ground.outline.axis.as_ref();
    Finding {
        subject: Subject::new(&contenders, "", &one.task, one.statistic.name()),
        headline: None,
        claim: format!(
            "{} compared with {}, by {}: {}",
            one.contender,
            one.to,
            axis.map_or("the link", |axis| axis.of.as_str()),
            ground.outline.titles.task(&one.task)
        ),
        source: one.source.clone(),
        published: format!("rising ({})", one.statistic.name()),
        here,
        verdict,
        because: ground.because(verdict, &differing, &one.task),
    }
}

/// Reason why there is no ratio at the first place of the axis.
fn absence(one: &PublishedRise, ground: &Ground<'_>) -> String {
    let places = ground.outline.axis.iter().flat_map(|axis| &axis.at);
    let first = places.min_by(|one, other| one.1.total_cmp(other.1));
    let link = first.map_or("", |(link, _)| link.as_str());
    ground.absence_of(&[&one.contender, &one.to], link, &one.task)
}

/// Places of the axis at which both contenders were measured, in its order: number, link and ratio.
fn places<'a>(one: &PublishedRise, ground: &Ground<'a>) -> Vec<(f64, &'a str, Known)> {
    let axis = ground.outline.axis.iter();
    let places = axis.flat_map(|axis| &axis.at).filter_map(|(link, at)| {
        let ratio = ground.summary.ratio(&PublishedRatio {
            contender: one.contender.clone(),
            to: one.to.clone(),
            scenario: link.clone(),
            task: one.task.clone(),
            ratio: 1.0,
            quantity: Quantity::Time,
            statistic: one.statistic,
            source: String::new(),
            headline: None,
        })?;
        Some((*at, link.as_str(), ratio))
    });
    let mut places: Vec<_> = places.collect();
    places.sort_by(|(one, ..), (other, ..)| one.total_cmp(other));
    places
}

/// Rising is what falls nowhere below an earlier place, and ends above where it began, by more than is told apart.
fn judge(ratios: &[Known]) -> Verdict {
    let Some(values) = ratios
        .iter()
        .map(|ratio| ratio.value())
        .collect::<Option<Vec<f64>>>()
    else {
        return Verdict::NotRun;
    };
    let (Some(first), Some(last)) = (values.first(), values.last()) else {
        return Verdict::NotRun;
    };
    if values.len() < LEAST_PLACES {
        return Verdict::NotRun;
    }
    let mut highest = f64::MIN;
    let falls = values.iter().any(|value| {
        highest = highest.max(*value);
        highest > value * (1.0 + APART)
    });
    match !falls && *last > first * (1.0 + APART) {
        true => Verdict::Reproduced,
        false => Verdict::NotReproduced,
    }
}

#[cfg(test)]
mod tests {
    use super::super::findings;
    use super::*;
    use crate::experiment::{Along, Axis, Claims, Statistic};
    use crate::results::{Figures, Outline, Row, Summary};

    /// At 500, 1000, 1500 … ms.
    fn found(ratios: &[f64]) -> Finding {
        let at = |place: usize| 500.0 * (place as f64 + 1.0);
        // Not in the order of their names.
        let link = |place: usize| format!("rtt-{}", at(place));
        let row = |contender: &str, place: usize, seconds: f64| Row {
            contender: contender.into(),
            scenario: link(place),
            task: "get".into(),
            figures: Figures::of(seconds),
            ..Row::default()
        };
        let rows = ratios.iter().enumerate().flat_map(|(place, ratio)| {
            [row("ipsec", place, 10.0 * ratio), row("clear", place, 10.0)]
        });
        let summary = Summary {
            question: String::new(),
            rows: rows.collect(),
        };
        let rise = PublishedRise {
            contender: "ipsec".into(),
            to: "clear".into(),
            task: "get".into(),
            statistic: Statistic::Mean,
            source: "S".into(),
        };
        let outline = Outline {
            claims: Claims {
                published_rises: vec![rise],
                ..Claims::default()
            },
            axis: Some(Axis {
                of: "round trip in ms".into(),
                along: Along::Links,
                at: (0..5).map(|place| (link(place), at(place))).collect(),
            }),
            ..Outline::default()
        };
        findings(&outline, &summary).remove(0)
    }

    #[test]
    fn what_rises_is_told_from_what_does_not() {
        let rises = found(&[1.12, 1.18, 1.43, 1.42, 1.63]);
        assert_eq!(
            rises.claim,
            "ipsec compared with clear, by round trip in ms: get"
        );
        assert_eq!(
            rises.here,
            "500: 1.12 ×, 1000: 1.18 ×, 1500: 1.43 ×, 2000: 1.42 ×, 2500: 1.63 ×"
        );
        assert_eq!(rises.verdict, Verdict::Reproduced);
        for falls in [
            &[1.12, 1.5, 1.3, 1.6][..],
            &[1.2, 1.22, 1.24],
            &[1.5, 1.3, 1.1],
        ] {
            assert_eq!(found(falls).verdict, Verdict::NotReproduced, "{falls:?}");
        }
        let two = found(&[1.1, 1.6]);
        assert_eq!(
            two.here,
            "500: 1.10 ×, 1000: 1.60 ×: too few to see it rise"
        );
        assert_eq!(two.verdict, Verdict::NotRun);
        assert_eq!(found(&[]).here, "not in this size");
    }
}
