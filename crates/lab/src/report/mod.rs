//! Results as one HTML page, which needs nothing but itself: per experiment its question, tables with bars, distributions,
//! what was not valid and why, and how to run it again.
//!
//! Tables are there without any script, for print and for the smallest browser; distributions are drawn by uPlot, as the plots
//! of [`bentpipe_emulator::plot`] are.
//!
//! ```text
//!  DIR/results.jsonl, DIR/manifest.json ──► Summary ──► tables, bars ─► report.html
//!                                       └─► figures ──► curves ──┘
//! ```

mod absent;
mod deviation;
mod failures;
mod goodput;
mod heat;
mod lines;
mod orders;
mod ratios;
mod series;
mod sweep;
mod table;
mod twins;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::experiment::RunKey;
use crate::results::{Manifest, Record, Row, Summary, read, shares};
use bentpipe_plot::{Page, escape};
use table::table;

const HEAD: &str = include_str!("head.html");

/// Fewer figures than this make no distribution.
const FEWEST: usize = 5;

/// Writes a page about what the directories hold.
///
/// # Errors
/// One of them holds no results, or the page cannot be written.
pub fn report(directories: &[PathBuf], page: &Path) -> Result<()> {
    let (mut body, mut figures) = (String::new(), Vec::new());
    for directory in directories {
        let (manifest, records) = read(directory)?;
        experiment(&manifest, &records, &mut body, &mut figures);
    }
    let text = Page {
        title: "bentpipe lab",
        style: include_str!("page.css"),
        body: &(HEAD.to_owned() + &body),
        script: include_str!("page.js"),
    }
    .with(&figures)?;
    fs::write(page, text).with_context(|| format!("cannot write {}", page.display()))
}

fn experiment(
    manifest: &Manifest,
    records: &BTreeMap<RunKey, Record>,
    body: &mut String,
    figures: &mut Vec<Value>,
) {
    let summary = Summary::new(&manifest.outline, records);
    let name = escape(&manifest.experiment);
    // Writing into a String cannot fail, here and below.
    let _ = write!(
        body,
        "<h2>{name}, {}</h2>\n<p>{}</p>\n",
        escape(&manifest.extent),
        escape(&summary.question)
    );
    for rows in summary
        .rows
        .chunk_by(|one, other| place(one) == place(other))
    {
        let (scenario, task) = place(&rows[0]);
        let _ = writeln!(body, "<h3>{}, {}</h3>", escape(scenario), escape(task));
        body.push_str(&table(rows));
        let curves: Vec<Value> = rows.iter().filter_map(|row| curve(row, records)).collect();
        if !curves.is_empty() {
            let title = "Share of figures that are no larger";
            draw(
                json!({ "kind": "shares", "title": title, "curves": curves }),
                body,
                figures,
            );
        }
    }
    let over = [goodput::figures, sweep::figures, series::figures];
    for (heading, figure) in over.map(|of| of(manifest, &summary, records)).concat() {
        let _ = writeln!(body, "<h3>{}</h3>", escape(&heading));
        draw(figure, body, figures);
    }
    body.push_str(&twins::sentence(manifest, &summary));
    body.push_str(&ratios::table(&manifest.outline, &summary));
    body.push_str(&orders::table(&manifest.outline, &summary));
    body.push_str(&failures::table(&manifest.outline, &summary));
    body.push_str(&heat::maps(&manifest.outline, &summary));
    body.push_str(&absent::list(&manifest.outline, &summary));
    faults(&summary, body);
    colophon(manifest, body);
}

/// Leaves room for a figure, which the page's script fills.
fn draw(mut figure: Value, body: &mut String, figures: &mut Vec<Value>) {
    let id = format!("figure-{}", figures.len());
    let _ = writeln!(body, "<div class=\"plot\" id=\"{id}\"></div>");
    figure["id"] = id.into();
    figures.push(figure);
}

fn place(row: &Row) -> (&str, &str) {
    (&row.scenario, &row.task)
}

/// The figures of a row in order, if they are enough, and how many they are with those of runs that were given up.
fn curve(row: &Row, records: &BTreeMap<RunKey, Record>) -> Option<Value> {
    let names = [&*row.contender, &*row.scenario, &*row.task];
    let own = records
        .values()
        .filter(|record| record.key.names() == names);
    let (seconds, of) = shares(&own.collect::<Vec<_>>());
    (seconds.len() >= FEWEST)
        .then(|| json!({ "name": row.contender, "seconds": seconds, "of": of }))
}

/// Everything that counts in no median, with its reasons.
fn faults(summary: &Summary, body: &mut String) {
    let faulty: Vec<&Row> = summary
        .rows
        .iter()
        .filter(|row| !row.remarks.is_empty())
        .collect();
    if faulty.is_empty() {
        return;
    }
    body.push_str("<h3>Runs that count in no median</h3>\n<ul class=\"faults\">\n");
    for row in faulty {
        let [contender, scenario, task] =
            [&row.contender, &row.scenario, &row.task].map(|name| escape(name));
        let _ = write!(
            body,
            "<li>{contender}, {scenario}, {task} ({}): ",
            row.counts()
        );
        let remarks: Vec<String> = row.remarks.iter().map(|remark| escape(remark)).collect();
        let _ = writeln!(body, "{}</li>", remarks.join("; "));
    }
    body.push_str("</ul>\n");
}

/// Writes where the figures are from, and how to get them again.
fn colophon(manifest: &Manifest, body: &mut String) {
    let quick = if manifest.extent == "quick" {
        " --quick"
    } else {
        ""
    };
    for caveat in manifest.caveats() {
        let _ = writeln!(body, "<p class=\"note\">{}</p>", escape(&caveat));
    }
    let mut selections: Vec<&str> = manifest
        .parts()
        .flat_map(|part| part.selection.iter().map(String::as_str))
        .collect();
    // All of it is more than any part.
    if selections.is_empty() || selections.contains(&"") {
        selections = vec![""];
    }
    for selection in selections {
        let command = format!("bentpipe lab run {}{quick} {selection}", manifest.file);
        let command = escape(command.trim_end());
        let _ = writeln!(body, "<p class=\"note\">Again: <code>{command}</code></p>");
    }
    let mut lines = vec![format!("seed {}", manifest.seed.as_u64())];
    manifest
        .parts()
        .for_each(|part| made_with(part, &mut lines));
    let lines: Vec<String> = lines.iter().map(|line| escape(line)).collect();
    let _ = writeln!(
        body,
        "<details><summary>What it was made with</summary><small>{}</small></details>",
        lines.join("<br>\n")
    );
}

fn made_with(part: &Manifest, lines: &mut Vec<String>) {
    let (build, machine) = (&part.bentpipe, &part.machine);
    let revision = build.revision.as_deref().unwrap_or("no work tree");
    lines.push(format!(
        "{} ({revision}, SHA-256 {})",
        build.version, build.sha256
    ));
    lines.push(machine.to_string());
    let named = [&machine.sysctls, &machine.tools, &part.contenders];
    for (name, value) in named.into_iter().flatten() {
        lines.push(format!("{name}: {value}"));
    }
    for (link, checks) in &part.link_checks {
        lines.extend(checks.iter().map(|check| format!("{link}: {check}")));
    }
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
        report(&[place], &page).unwrap();
        let text = fs::read_to_string(&page).unwrap();
        for (name, share) in names.iter().zip(shares) {
            let rows = text
                .lines()
                .filter(|line| line.starts_with(&format!("<tr><td>{name}</td>")));
            let marks: Vec<bool> = rows
                .map(|row| row.contains(" % more</b>") || row.contains(" % less</b>"))
                .collect();
            let far = (share - 1.0_f64).abs() > 0.15;
            assert_eq!(marks, [far, far], "{name}: {share}");
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
        report(&[place], &page).unwrap();
        let text = fs::read_to_string(&page).unwrap();
        for part in [
            "&lt;/script&gt; &amp; why?",
            "1.38 s",
            "1.00 – 2.00 s, min–max",
            "y, geo, get (1 failed): &lt;b&gt;its SHA-256 is wrong",
            "\"seconds\":[1.0,1.0,1.25,1.5,1.75,2.0]",
            "id=\"figure-0\"",
        ] {
            assert!(text.contains(part), "{part}");
        }
        let scripts = ["<script", "</script>"].map(|tag| text.matches(tag).count());
        assert_eq!(scripts, [3, 3]);
        for outside in [
            "src=",
            "href=",
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
