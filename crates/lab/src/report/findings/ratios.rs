//! Ratios of one contender's times, or loads, to another's.

use super::super::deviation::{APART, bracket, deviation, is_settled};
use super::{Finding, Ground, Subject, Verdict};
use crate::experiment::{PublishedRatio, Quantity};
use crate::results::Known;

pub(super) fn findings(ground: &Ground<'_>) -> Vec<Finding> {
    let ratios = ground.outline.claims.published_ratios.iter();
    ratios.map(|one| finding(one, ground)).collect()
}

fn finding(one: &PublishedRatio, ground: &Ground<'_>) -> Finding {
    let (here, verdict) = match ground.summary.ratio(one) {
        Some(ratio) => {
            let to_published = ratio.over(Known::exactly(one.ratio));
            let apart = deviation(to_published);
            let here = format!("{} ×{}", ratio.ratio(2), bracket(apart.as_deref()));
            match is_settled(to_published) {
                true => (here, judge(ratio, one.ratio, apart.is_none())),
                false => (format!("{here}, given up before it shows"), Verdict::NotRun),
            }
        }
        None => {
            let pair = [&*one.contender, &*one.to];
            (
                ground.absence_of(&pair, &one.scenario, &one.task),
                Verdict::NotRun,
            )
        }
    };
    let pair = [&*one.contender, &*one.to];
    Finding {
        subject: Subject::new(&pair, &one.scenario, &one.task, one.statistic.name()),
        headline: one.headline.clone(),
        claim: format!(
            "{}{} compared with {}: {}",
            match one.quantity {
                Quantity::Time => "",
                Quantity::Load => "load of ",
            },
            one.contender,
            one.to,
            ground.outline.titles.place(&one.scenario, &one.task)
        ),
        source: one.source.clone(),
        published: format!("{} × ({})", one.text(), one.statistic.name()),
        here,
        verdict,
        because: ground.because(
            verdict,
            &[(&[&one.contender, &one.to], &one.scenario)],
            &one.task,
        ),
    }
}

fn judge(ratio: Known, published: f64, near: bool) -> Verdict {
    let same_side = match published {
        slower if slower > 1.0 + APART => ratio.least() > 1.0 + APART,
        faster if faster < 1.0 / (1.0 + APART) => ratio.most() < 1.0 / (1.0 + APART),
        _ => false,
    };
    let opposite = match published {
        slower if slower > 1.0 => ratio.most() < 1.0 / (1.0 + APART),
        faster if faster < 1.0 => ratio.least() > 1.0 + APART,
        _ => false,
    };
    // A cost that is there, and not here, is not found again, however near the two figures are.
    let published_apart = deviation(Known::exactly(published)).is_some();
    match (near, same_side) {
        _ if opposite => Verdict::NotReproduced,
        (true, true) => Verdict::Reproduced,
        (true, false) if !published_apart => Verdict::Reproduced,
        (false, true) => Verdict::OrderOnly,
        (_, false) => Verdict::NotReproduced,
    }
}

#[cfg(test)]
mod tests {
    use super::super::findings;
    use super::*;
    use crate::experiment::{Claims, Explanation, Statistic};
    use crate::results::{Figures, Outline, Row, Summary};

    fn found(contender: &str, published: f64) -> Finding {
        of(contender, published, Quantity::Time)
    }

    /// Times are 10 and 12 s, loads 60 and 90 bit/s.
    fn of(contender: &str, published: f64, quantity: Quantity) -> Finding {
        let row = |contender: &str, seconds: f64, load: f64| Row {
            contender: contender.into(),
            scenario: "s1".into(),
            task: "get".into(),
            figures: Figures::of(seconds),
            load: Some(load),
            ..Row::default()
        };
        let summary = Summary {
            question: String::new(),
            rows: vec![
                row("plain", 10.0, 60.0),
                row("ipsec", 12.0, 90.0),
                row("equal", 10.3, 60.0),
                row("sooner", 9.3, 60.0),
                Row {
                    figures: None,
                    runs: [0, 0, 0, 0, 1],
                    remarks: vec!["no binary is named; say so".into()],
                    ..row("pepsal", 0.0, 0.0)
                },
                Row {
                    figures: None,
                    runs: [0, 1, 0, 0, 0],
                    ..row("vpn", 0.0, 0.0)
                },
            ],
        };
        let ratio = PublishedRatio {
            contender: contender.into(),
            to: "plain".into(),
            scenario: "s1".into(),
            task: "get".into(),
            ratio: published,
            quantity,
            statistic: Statistic::Median,
            source: "S & co: figure 2".into(),
            headline: None,
        };
        let outline = Outline {
            contenders: vec!["split".into()],
            scenarios: vec!["s1".into()],
            tasks: vec!["get".into()],
            claims: Claims {
                published_ratios: vec![ratio],
                not_built: vec!["les".into()],
                explanations: vec![Explanation {
                    contenders: vec!["ipsec".into()],
                    scenarios: Vec::new(),
                    tasks: Vec::new(),
                    because: "It is faster today.".into(),
                }],
                ..Claims::default()
            },
            ..Outline::default()
        };
        findings(&outline, &summary).remove(0)
    }

    #[test]
    fn a_ratio_is_reproduced_or_on_its_side_of_one_or_not() {
        let near = found("ipsec", 1.25);
        assert_eq!(near.claim, "ipsec compared with plain: s1, get");
        assert_eq!(near.work(), ("S & co", "figure 2"));
        assert_eq!(
            (&*near.published, &*near.here),
            ("1.25 × (median)", "1.20 ×")
        );
        assert_eq!((near.verdict, near.because), (Verdict::Reproduced, None));
        let larger = found("ipsec", 2.0);
        assert_eq!(larger.here, "1.20 × (40 % less)");
        assert_eq!(larger.verdict, Verdict::OrderOnly);
        assert_eq!(larger.because.as_deref(), Some("It is faster today."));
        assert_eq!(found("ipsec", 0.5).verdict, Verdict::NotReproduced);
        // A fifth more that is a thirtieth here is not found again; a twentieth more is nothing to find.
        let [fifth, twentieth] = [1.205, 1.07].map(|published| found("equal", published));
        assert_eq!((&*fifth.here, &*twentieth.here), ("1.03 ×", "1.03 ×"));
        assert_eq!(fifth.verdict, Verdict::NotReproduced);
        assert_eq!(twentieth.verdict, Verdict::Reproduced);
        // What is slower there and faster here is the opposite, however little each is.
        assert_eq!(found("sooner", 1.05).verdict, Verdict::NotReproduced);
        let absent = found("les", 1.0);
        assert_eq!(
            (&*absent.here, absent.verdict),
            ("not built yet", Verdict::NotRun)
        );
    }

    #[test]
    fn a_reason_stands_beside_what_was_not_run() {
        for (contender, reason) in [
            ("les", "not built yet"),
            ("qpep", "not in this size"),
            ("split", "not run"),
            ("pepsal", "unsupported: no binary is named"),
            ("vpn", "no run is valid"),
        ] {
            let absent = found(contender, 1.0);
            assert_eq!((&*absent.here, absent.verdict), (reason, Verdict::NotRun));
        }
    }

    #[test]
    fn loads_are_compared_with_loads() {
        let load = of("ipsec", 1.42, Quantity::Load);
        assert_eq!(load.claim, "load of ipsec compared with plain: s1, get");
        assert_eq!((&*load.here, load.verdict), ("1.50 ×", Verdict::Reproduced));
        assert_eq!(of("ipsec", 1.2, Quantity::Load).verdict, Verdict::OrderOnly);
    }
}
