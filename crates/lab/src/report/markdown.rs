//! Published findings and the answers of experiments as Markdown, for papers, issues and notes.

use std::fmt::Write as _;

use super::findings::{Finding, Verdict};
use super::overview::{by_work, count, in_words};
use super::{Results, answer};

/// The text: how many findings have which verdict, a table for each work, then a line for each experiment.
pub(super) fn text(parts: &[Results]) -> String {
    let findings = || parts.iter().flat_map(|part| &part.findings);
    let verdicts = Verdict::ALL.map(|verdict| {
        let number = count(findings(), verdict);
        format!("{number} {}", verdict.text())
    });
    let mut text = format!(
        "# Published findings\n\nOf {}: {}.\n",
        findings().count(),
        verdicts.join(", ")
    );
    text.push_str(&headlines(parts));
    for (work, findings) in by_work(parts) {
        // Writing into a String cannot fail, here and below.
        let _ = write!(
            text,
            "\n## {}\n\n| claim | published | here | verdict | why |\n| --- | --- | --- | --- | --- |\n",
            cell(work)
        );
        for (_, finding) in findings {
            let claim = match finding.words() {
                (words, "") => words.to_owned(),
                (words, names) => format!("{words} ({names})"),
            };
            let texts = [
                &*claim,
                &finding.published,
                &finding.here,
                finding.verdict.text(),
                finding.because.as_deref().unwrap_or_default(),
            ];
            let _ = writeln!(text, "| {} |", texts.map(cell).join(" | "));
        }
    }
    text.push_str("\n# Experiments\n\n");
    for part in parts {
        let _ = writeln!(
            text,
            "- **{}** ({}, {}): {}",
            cell(&part.summary.question),
            part.manifest.experiment,
            part.manifest.extent,
            cell(&answer::answer(&part.manifest.outline, &part.summary))
        );
    }
    text
}

/// Claims in words, a line for each; empty if there are none.
fn headlines(parts: &[Results]) -> String {
    let line = |(_, words, finding): (usize, &str, &Finding)| {
        let texts = [
            words,
            finding.verdict.text(),
            &finding.published,
            &finding.here,
            finding.work().0,
        ];
        format!("| {} |\n", texts.map(cell).join(" | "))
    };
    let lines: String = in_words(parts).map(line).collect();
    match lines.is_empty() {
        true => lines,
        false => format!(
            "\n| claim | verdict | published | here | source |\n| --- | --- | --- | --- | --- |\n{lines}"
        ),
    }
}

/// Text that does not end a cell, nor begin an element or a line of its own.
fn cell(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('|', "\\|")
        .replace('<', "\\<")
        .replace('*', "\\*")
        .replace(char::is_control, " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{PublishedOrder, Statistic};
    use crate::results::Manifest;

    #[test]
    fn findings_stand_below_their_work_and_no_text_leaves_its_cell() {
        let mut manifest = Manifest::example("");
        manifest.outline.question = "Who | is *first*?".into();
        manifest.outline.claims.published_orders = vec![PublishedOrder {
            scenario: "geo".into(),
            task: "get".into(),
            after: None,
            order: vec![vec!["a".into()], vec!["b".into()]],
            statistic: Statistic::Mean,
            source: "S & co: table 1".into(),
            headline: Some("The first is first".into()),
        }];
        let text = text(&[Results::new(manifest, Default::default())]);
        for line in [
            "Of 1: 0 reproduced, 0 in order only, 0 not reproduced, 1 not run.",
            "| The first is first | not run | a \\< b (mean) | a not in this size; b not in this size | S & co |",
            "## S & co",
            "| table 1 (order: geo, get) | a \\< b (mean) | a not in this size; b not in this size | not run |  |",
            "- **Who \\| is \\*first\\*?** (e, full): No run was valid: there is no answer yet.",
        ] {
            assert!(text.lines().any(|known| known == line), "{line}: {text}");
        }
    }
}
