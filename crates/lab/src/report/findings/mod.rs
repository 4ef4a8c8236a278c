//! Findings of others, each beside what was measured here, with a verdict.
//!
//! ```text
//!  Claims, Summary ──► ratios, rises, orders, pairs, figures, failures ──► Finding: published, here, Verdict ──► overview of the page
//! ```

mod failures;
mod figures;
mod orders;
mod pairs;
mod ratios;
mod rises;

use std::collections::BTreeSet;

use crate::results::{Outline, Status, Summary};

pub(super) use failures::table as failure_table;

/// Judgement of a finding by what was measured here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verdict {
    /// Every figure is within 15 % of the published one; or the order is the published one, pairs are even, or what is to rise rises.
    Reproduced,
    /// Contenders stand in the published order, but some figure is more than 15 % away.
    OrderOnly,
    /// The published order, or a published difference, is not that of the runs here.
    NotReproduced,
    /// No run here can be compared with the finding.
    NotRun,
}

impl Verdict {
    /// All verdicts, in the order of tables.
    pub(super) const ALL: [Self; 4] = [
        Self::Reproduced,
        Self::OrderOnly,
        Self::NotReproduced,
        Self::NotRun,
    ];

    /// Words for the verdict.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Reproduced => "reproduced",
            Self::OrderOnly => "in order only",
            Self::NotReproduced => "not reproduced",
            Self::NotRun => "not run",
        }
    }

    /// True if a reader asks why.
    pub(super) fn wants_reason(self) -> bool {
        matches!(self, Self::OrderOnly | Self::NotReproduced)
    }

    /// Name of the verdict's class in the style sheet.
    pub(super) fn class(self) -> &'static str {
        match self {
            Self::Reproduced => "reproduced",
            Self::OrderOnly => "order",
            Self::NotReproduced => "not",
            Self::NotRun => "absent",
        }
    }
}

/// Runs that a finding is about.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Subject {
    /// Contenders, by their names.
    contenders: BTreeSet<String>,
    /// The link; empty if there are several.
    scenario: String,
    /// The task, the first of several.
    task: String,
    /// Statistic of the figures; empty if there is none.
    statistic: &'static str,
}

impl Subject {
    /// Subject of a finding about figures of `contenders`.
    fn new(contenders: &[&str], scenario: &str, task: &str, statistic: &'static str) -> Self {
        Self {
            contenders: contenders.iter().map(|name| (*name).to_owned()).collect(),
            scenario: scenario.to_owned(),
            task: task.to_owned(),
            statistic,
        }
    }

    /// True if `other` differs from it in its task alone.
    fn is_twin(&self, other: &Self) -> bool {
        let of = |one: &Self| (one.contenders.clone(), one.scenario.clone(), one.statistic);
        of(self) == of(other) && self.task != other.task
    }
}

/// Finding of others, and what was measured of it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Finding {
    /// Runs that the finding is about.
    pub(super) subject: Subject,
    /// Claim in words, of the findings that stand first on the page.
    pub(super) headline: Option<String>,
    /// Text about the subject: who did what over which link.
    pub(super) claim: String,
    /// The work, and behind a colon the place in it.
    pub(super) source: String,
    /// Published figures.
    pub(super) published: String,
    /// Figures that were measured here, or the reason why there are none.
    pub(super) here: String,
    /// Judgement.
    pub(super) verdict: Verdict,
    /// Reason why figures differ, if they do and one is known.
    pub(super) because: Option<String>,
}

impl Finding {
    /// True if `other` is the same claim, of the same runs at another task.
    fn is_twin(&self, other: &Self) -> bool {
        // Of several figures those that were measured stand first.
        let figures = |one: &Self| -> BTreeSet<String> {
            one.published.split("; ").map(str::to_owned).collect()
        };
        self.source == other.source
            && self.subject.is_twin(&other.subject)
            && figures(self) == figures(other)
    }

    /// The claim as the source words it and as a text made of names; the latter alone where the source says no more than the work.
    pub(super) fn words(&self) -> (&str, &str) {
        match self.work() {
            (_, "") => (&self.claim, ""),
            (_, words) => (words, &self.claim),
        }
    }

    /// The work that the finding is from, and the place in it.
    pub(super) fn work(&self) -> (&str, &str) {
        work(&self.source)
    }
}

/// Work and place in it of a source: the text on either side of the first colon.
fn work(source: &str) -> (&str, &str) {
    source.split_once(": ").unwrap_or((source, ""))
}

/// Findings of everybody about an experiment, by their kinds: ratios, rises, orders, pairs, figures, failures.
pub(super) fn findings(outline: &Outline, summary: &Summary) -> Vec<Finding> {
    let ground = Ground { outline, summary };
    let all = [
        ratios::findings(&ground),
        rises::findings(&ground),
        orders::findings(&ground),
        pairs::findings(&ground),
        figures::findings(&ground),
        failures::findings(&ground),
    ]
    .concat();
    without_twins(all, &outline.tasks)
}

/// Findings without those that the size leaves out and that stand there at another task, one of `tasks`: of twenty pages beside six.
fn without_twins(all: Vec<Finding>, tasks: &[String]) -> Vec<Finding> {
    let left_out =
        |one: &Finding| one.verdict == Verdict::NotRun && !tasks.contains(&one.subject.task);
    let stands = |one: &Finding| {
        let mut others = all.iter().filter(|other| !left_out(other));
        others.any(|other| one.is_twin(other))
    };
    let kept = all.iter().filter(|one| !left_out(one) || !stands(one));
    kept.cloned().collect()
}

/// Results that findings are judged by.
#[derive(Clone, Copy)]
struct Ground<'a> {
    outline: &'a Outline,
    summary: &'a Summary,
}

impl<'a> Ground<'a> {
    /// Reasons why figures at a task differ, where a `verdict` says that they do: a sentence for each of the contenders and links
    /// whose figures do, the same one once.
    fn because(
        &self,
        verdict: Verdict,
        differing: &[(&[&str], &str)],
        task: &str,
    ) -> Option<String> {
        if !verdict.wants_reason() {
            return None;
        }
        let mut sentences: Vec<&str> = Vec::new();
        for (contenders, scenario) in differing {
            let known = self.outline.claims.explanation(contenders, scenario, task);
            let sentence = known.map(|one| one.because.as_str());
            sentences.extend(sentence.filter(|text| !sentences.contains(text)));
        }
        (!sentences.is_empty()).then(|| sentences.join(" "))
    }

    /// Reason why a contender has no figure over a link at a task.
    fn absence(&self, contender: &str, scenario: &str, task: &str) -> String {
        let outline = self.outline;
        let has = |names: &[String], name: &str| names.iter().any(|known| known == name);
        if has(&outline.claims.not_built, contender) {
            return "not built yet".into();
        }
        let Some(row) = self.summary.row(contender, scenario, task) else {
            let in_size = has(&outline.contenders, contender)
                && has(&outline.scenarios, scenario)
                && has(&outline.tasks, task);
            return if in_size {
                "not run"
            } else {
                "not in this size"
            }
            .into();
        };
        // A remark about what cannot be started has the reason first, and behind it what to do.
        let remark = row.remarks.first().map_or("", String::as_str);
        let reason = remark.split(';').next().unwrap_or_default();
        if row.figures.is_some() {
            return "no figure of this kind".into();
        }
        match row.runs[Status::Unsupported as usize] {
            0 => "no run is valid".into(),
            _ => format!("unsupported: {reason}"),
        }
    }

    /// Reason of the first of `contenders` that has no figure over a link at a task.
    fn absence_of(&self, contenders: &[&str], scenario: &str, task: &str) -> String {
        let measured = |contender: &str| {
            let row = self.summary.row(contender, scenario, task);
            row.is_some_and(|row| row.figures.is_some())
        };
        let missing = contenders.iter().find(|name| !measured(name));
        let missing = missing.or(contenders.first());
        missing.map_or_else(String::new, |name| self.absence(name, scenario, task))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Claims, PublishedRatio, Quantity, Statistic};
    use crate::results::{Figures, Row};

    /// Texts about a ratio over two links at two tasks, of which six pages over one link were run.
    fn found(to: &str) -> Vec<String> {
        let places = [
            ("geo", "20", 0.5),
            ("geo", "6", 0.5),
            ("far", "20", 0.5),
            ("far", "6", 0.5),
            // Of another thing.
            ("geo", "file", 0.7),
        ];
        let ratios = places.map(|(scenario, task, ratio)| PublishedRatio {
            contender: "split".into(),
            to: to.into(),
            scenario: scenario.into(),
            task: task.into(),
            ratio,
            quantity: Quantity::Time,
            statistic: Statistic::Mean,
            source: "S".into(),
            headline: None,
        });
        let row = |contender: &str| Row {
            contender: contender.into(),
            scenario: "geo".into(),
            task: "6".into(),
            figures: Figures::of(10.0),
            ..Row::default()
        };
        let outline = Outline {
            contenders: vec!["split".into(), "vpn".into()],
            scenarios: vec!["geo".into()],
            tasks: vec!["6".into()],
            claims: Claims {
                published_ratios: ratios.to_vec(),
                ..Claims::default()
            },
            ..Outline::default()
        };
        let summary = Summary {
            question: String::new(),
            rows: vec![row("split"), row("vpn")],
        };
        let all = findings(&outline, &summary);
        let said = all.iter().map(|one| format!("{}: {}", one.claim, one.here));
        said.collect()
    }

    #[test]
    fn a_finding_that_stands_at_another_task_is_not_missing() {
        let [geo, far, file] = &found("vpn")[..] else {
            panic!("{:?}", found("vpn"));
        };
        assert_eq!(geo, "split compared with vpn: geo, 6: 1.00 × (100 % more)");
        assert_eq!(far, "split compared with vpn: far, 6: not in this size");
        assert_eq!(file, "split compared with vpn: geo, file: not in this size");
        assert_eq!(found("qpep").len(), 3);
    }
}
