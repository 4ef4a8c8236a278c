//! Results as one HTML page, which needs nothing but itself: every published finding with its verdict first, then each experiment
//! with its question, the answer, one figure and one table; the rest is folded.
//!
//! Tables and bars are there without any script, for print and for the smallest browser; lines and distributions are drawn by
//! uPlot, as the plots of [`bentpipe_emulator::plot`] are.
//!
//! ```text
//!  DIR/results.jsonl, DIR/manifest.json ──► Results ──► findings ──► overview ─┐
//!                                            ├─────► answer, table ► section ├─► report.html
//!                                            └─────► figures ─► data ─► script ┘
//!                     findings, answer ─► markdown ─► FILE.md;  figures ─► data ─► svg ─► DIR/EXPERIMENT-NUMBER.svg
//! ```

mod answer;
mod colours;
mod dashes;
mod deviation;
mod figures;
mod findings;
mod kept;
mod markdown;
mod overview;
mod section;
mod svg;
mod table;
mod timelines;
mod twins;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::experiment::{Experiment, RunKey};
use crate::results::{Manifest, Record, Summary, TABLE, read};
use bentpipe_plot::Page;
use colours::Look;
use figures::Drawn;
use findings::Finding;

/// Results of one experiment, and what they say of others' findings.
struct Results {
    /// Files of runs that were kept beside the results.
    kept: Vec<PathBuf>,
    /// The figures as a table; none if they are not in a directory.
    table: Option<PathBuf>,
    manifest: Manifest,
    records: BTreeMap<RunKey, Record>,
    summary: Summary,
    findings: Vec<Finding>,
}

impl Results {
    fn new(manifest: Manifest, records: BTreeMap<RunKey, Record>) -> Self {
        let summary = Summary::new(&manifest.outline, &records);
        let findings = findings::findings(&manifest.outline, &summary);
        Self {
            kept: Vec::new(),
            table: None,
            manifest,
            records,
            summary,
            findings,
        }
    }
}

/// Report about the results of experiments.
pub struct ResultsReport(Vec<Results>);

impl ResultsReport {
    /// Reads the results in these directories. What others have found, and titles, are taken from the program's own experiment, where results
    /// are of the same runs: findings and reasons may be known better by now.
    ///
    /// # Errors
    /// One of them holds no results.
    pub fn read(directories: &[PathBuf]) -> Result<Self> {
        let read = directories.iter().map(|directory| {
            let (mut manifest, records) = read(directory)?;
            let known = Experiment::known_words(&manifest.experiment, &manifest.text);
            if let Some((claims, titles)) = known {
                (manifest.outline.claims, manifest.outline.titles) = (claims, titles);
            }
            Ok(Results {
                kept: kept::files(directory)?,
                table: Some(directory.join(TABLE)),
                ..Results::new(manifest, records)
            })
        });
        Ok(Self(read.collect::<Result<_>>()?))
    }

    /// Writes the page.
    ///
    /// # Errors
    /// The page cannot be written.
    pub fn write_page(&self, path: &Path) -> Result<()> {
        let mut drawn = Drawn::default();
        let sections = self.0.iter().enumerate();
        let sections: String = sections
            .map(|(place, part)| section::section(place, part, path, &mut drawn))
            .collect();
        let figures = drawn.into_data();
        let text = Page {
            title: "bentpipe lab",
            style: colours::STYLE,
            body: &[
                overview::head(&self.0),
                overview::findings(&self.0),
                overview::experiments(&self.0),
                include_str!("legend.html").into(),
                sections,
            ]
            .concat(),
            script: include_str!("page.js"),
        }
        .with(&json!({ "looks": looks(&figures), "figures": figures }))?;
        write(path, &text)
    }

    /// Writes the published findings and the answers as Markdown.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write_markdown(&self, path: &Path) -> Result<()> {
        write(path, &markdown::text(&self.0))
    }

    /// Writes each figure as `EXPERIMENT-NUMBER.svg` into a directory, which is made if it is not there, and returns their number.
    /// Each experiment's first is the one that its page shows.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write_figures(&self, directory: &Path) -> Result<usize> {
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        let mut written = 0;
        for part in &self.0 {
            let figures = figures::data(part);
            let looks = looks(&figures);
            for (figure, number) in figures.iter().zip(1..) {
                let name = format!("{}-{number}.svg", part.manifest.experiment);
                write(&directory.join(name), &svg::text(figure, &looks)?)?;
                written += 1;
            }
        }
        Ok(written)
    }
}

fn looks(figures: &[Value]) -> BTreeMap<String, Look> {
    colours::looks(figures::names(figures))
        .into_iter()
        .collect()
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Outcome, Store};

    fn record(contender: &str, repeat: u32, outcome: Outcome) -> Record {
        let key = RunKey {
            contender: contender.into(),
            scenario: "geo".into(),
            task: "get".into(),
            repeat,
        };
        Record {
            limit_s: Some(0.5),
            ..Record::new(key, bentpipe_units::Seed::new(1), outcome)
        }
    }

    /// Published are 10 s of everybody, and a ratio of 1 to the first.
    #[test]
    fn whatever_is_far_from_what_was_published_has_a_mark_in_words() {
        let shares = [1.0, 0.5, 0.84, 0.86, 1.14, 1.16, 3.0];
        let names: Vec<String> = (0..shares.len()).map(|place| format!("c{place}")).collect();
        let published = names.iter().map(|name| {
            json!({ "contender": name, "scenario": "geo", "task": "get", "seconds": 10.0, "statistic": "mean", "source": "S" })
        });
        let ratios = names.iter().map(|name| {
            json!({ "contender": name, "to": "c0", "scenario": "geo", "task": "get", "ratio": 1.0, "statistic": "mean", "source": "S" })
        });
        let outline = json!({
            "question": "?", "contenders": names, "scenarios": ["geo"], "tasks": ["get"],
            "published": published.collect::<Vec<_>>(), "published_ratios": ratios.collect::<Vec<_>>(),
        });
        let mut manifest = Manifest::example("e");
        manifest.outline = serde_json::from_value(outline).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().to_owned();
        let mut store = Store::open(&place, &manifest).unwrap();
        for (name, share) in names.iter().zip(shares) {
            let seconds = vec![10.0 * share];
            store
                .add(record(name, 1, Outcome::Measured { seconds, bytes: 1 }))
                .unwrap();
        }
        let page = place.join("r.html");
        ResultsReport::read(&[place])
            .unwrap()
            .write_page(&page)
            .unwrap();
        let text = fs::read_to_string(&page).unwrap();
        for (name, share) in names.iter().zip(shares) {
            // A row of the experiment's table, and findings of the ratio and of the figure.
            let row = format!("<tr><td data-label=\"contender\">{name}</td>");
            let claim =
                format!("<tr><td data-label=\"claim\"><a href=\"#experiment-0\">{name} compared");
            let lines = |start: &str| {
                let line = text.lines().find(|line| line.starts_with(start));
                line.unwrap_or_else(|| panic!("no {start}")).to_owned()
            };
            let marked = |line: String| line.contains(" % more") || line.contains(" % less");
            let far = (share - 1.0_f64).abs() > 0.15;
            assert_eq!(
                [&row, &claim].map(|start| marked(lines(start))),
                [far, far],
                "{name}: {share}"
            );
        }
    }

    #[test]
    fn a_page_shows_figures_and_faults_and_needs_no_other_file() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().to_owned();
        let mut manifest = Manifest::example("e");
        manifest.outline.question = "</script> & why?".into();
        manifest.outline.contenders = vec!["x".into(), "y".into()];
        manifest.outline.scenarios = vec!["geo".into()];
        manifest.outline.tasks = vec!["get".into()];
        let mut store = Store::open(&place, &manifest).unwrap();
        let seconds = vec![1.25, 1.0, 1.5, 1.75, 1.0, 2.0];
        let measured = Outcome::Measured { seconds, bytes: 1 };
        store.add(record("x", 1, measured)).unwrap();
        let reason = "<b>its SHA-256 is wrong".into();
        store
            .add(record("y", 1, Outcome::Failed { reason }))
            .unwrap();
        let page = place.join("r.html");
        ResultsReport::read(&[place])
            .unwrap()
            .write_page(&page)
            .unwrap();
        let text = fs::read_to_string(&page).unwrap();
        for part in [
            "&lt;/script&gt; &amp; why?",
            "1.38 s",
            "1.00 – 2.00 s, min–max",
            "y, geo, get (1 failed): &lt;b&gt;its SHA-256 is wrong",
            "\"seconds\":[1.0,1.0,1.25,1.5,1.75,2.0]",
            "id=\"figure-0\"",
            "<a href=\"results.csv\">results.csv</a>",
        ] {
            assert!(text.contains(part), "{part}");
        }
        let scripts = ["<script", "</script>"].map(|tag| text.matches(tag).count());
        assert_eq!(scripts, [3, 3]);
        for outside in [
            "src=",
            "href=\"h",
            "href=\"/",
            "@import",
            "url(",
            "/*DATA*/",
            "/*SCRIPT*/",
            "/*BODY*/",
        ] {
            assert!(!text.contains(outside), "{outside}");
        }
    }
}
