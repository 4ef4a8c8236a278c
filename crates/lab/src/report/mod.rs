//! Results as one HTML page, which needs nothing but itself: per experiment its question, tables with bars, distributions,
//! what was not valid and why, and how to run it again.
//!
//! Tables are there without any script, for print and for the smallest browser; distributions are drawn by uPlot, as the plots
//! of [`crate::plot`] are.
//!
//! ```text
//!  DIR/results.jsonl, DIR/manifest.json ──► Summary ──► tables, bars ─► report.html
//!                                       └─► figures ──► curves ──┘
//! ```

mod goodput;
mod heat;
mod lines;
mod ratios;
mod sweep;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::experiment::RunKey;
use crate::page::{Page, escape};
use crate::results::{
    Known, Manifest, Outline, Record, Row, Spread, Status, Summary, read, shares,
};

const HEAD: &str = include_str!("head.html");

/// Columns that only some tasks have: the heading, and what a row has there.
type Column = (&'static str, fn(&Row) -> Option<String>);
const MORE: [Column; 5] = [
    ("first paint", |row| {
        row.first_paint.map(|known| escape(&known.seconds()))
    }),
    ("lost", |row| {
        row.lost.map(|share| format!("{:.2} %", 100.0 * share))
    }),
    ("recovered", |row| row.repairs[0].map(megabytes)),
    ("wasted", |row| row.repairs[1].map(megabytes)),
    ("overhead", |row| {
        row.repairs[2].map(|share| format!("{:.2} %", 100.0 * share))
    }),
];

fn megabytes(bytes: f64) -> String {
    format!("{:.2} MB", bytes / 1e6)
}

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
        body.push_str(&table(rows, &manifest.outline));
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
    let over = [goodput::figures, sweep::figures];
    for (heading, figure) in over.map(|of| of(manifest, &summary, records)).concat() {
        let _ = writeln!(body, "<h3>{}</h3>", escape(&heading));
        draw(figure, body, figures);
    }
    body.push_str(&ratios::table(&manifest.outline, &summary));
    body.push_str(&heat::maps(&manifest.outline, &summary));
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

/// More than this share away from what was published is marked.
const NEAR: f64 = 0.15;

fn table(rows: &[Row], outline: &Outline) -> String {
    let mut sources: Vec<&str> = Vec::new();
    let longest = rows.iter().filter_map(median).fold(0.0, f64::max);
    let seconds =
        |known: Option<Known>| known.map_or("–".into(), |known| escape(&known.seconds()));
    let mut text = String::from(
        "<div class=\"table\"><table><tr><th>contender</th><th></th><th>median</th><th>95 % interval</th><th>p95</th>\
         <th>× limit</th>",
    );
    // What only some tasks have.
    let more = MORE.map(|(name, shown)| (name, rows.iter().any(|row| shown(row).is_some()), shown));
    let more = more.into_iter().filter(|(_, any, _)| *any);
    for (name, ..) in more.clone() {
        let _ = write!(text, "<th>{name}</th>");
    }
    let compared = rows.iter().any(|row| row.published.is_some());
    if compared {
        text.push_str("<th>published</th><th>× published</th>");
    }
    text.push_str("<th>valid runs</th></tr>\n");
    for row in rows {
        let figures = row.figures;
        let spread = figures.and_then(|figures| figures.spread);
        let all: usize = row.runs.iter().sum();
        let more = more
            .clone()
            .map(|(.., shown)| shown(row).unwrap_or("–".into()));
        let more: String = more.map(|text| format!("<td>{text}</td>")).collect();
        let published = match compared {
            true => beside(row, outline, &mut sources),
            false => String::new(),
        };
        let _ = writeln!(
            text,
            "<tr><td>{}</td><td class=\"bar\">{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>{more}{published}\
             <td>{} of {all}</td></tr>",
            escape(&row.contender),
            bar(row, longest),
            seconds(figures.map(|figures| figures.median)),
            spread.map_or("–".into(), between),
            seconds(figures.map(|figures| figures.p95)),
            row.ratio
                .map_or("–".into(), |ratio| escape(&ratio.ratio(2))),
            row.runs[Status::Valid as usize],
        );
    }
    text.push_str("</table></div>\n");
    for (place, source) in sources.iter().enumerate() {
        let number = place + 1;
        let source = escape(source);
        let _ = writeln!(text, "<p class=\"note\"><sup>{number}</sup> {source}</p>");
    }
    text
}

/// What others have published, with the number of its source, and what was measured as a multiple of it.
fn beside<'a>(row: &Row, outline: &'a Outline, sources: &mut Vec<&'a str>) -> String {
    let figure = outline.published(&row.contender, &row.scenario, &row.task);
    let Some(figure) = figure else {
        return "<td>–</td><td>–</td>".into();
    };
    let known = sources.iter().position(|source| *source == figure.source);
    let place = known.unwrap_or(sources.len());
    if known.is_none() {
        sources.push(&figure.source);
    }
    let published = Known::exactly(figure.seconds);
    let ratio = row.figures.map(|own| own.median.over(published));
    let ratio = ratio.map_or("–".into(), |ratio| {
        let far = ratio.least() > 1.0 + NEAR || ratio.most() < 1.0 - NEAR;
        let mark = if far { " !" } else { "" };
        escape(&ratio.ratio(2)) + mark
    });
    let (seconds, number) = (figure.seconds, place + 1);
    format!("<td>{seconds:.2} s<sup>{number}</sup></td><td>{ratio}</td>")
}

/// Bounds of a median, and which.
fn between(spread: Spread) -> String {
    let [low, high] = spread.ends;
    let low = match low.value() {
        Some(seconds) => format!("{seconds:.2}"),
        None => low.seconds(),
    };
    let which = if spread.confident { "" } else { ", min–max" };
    escape(&format!("{low} – {}{which}", high.seconds()))
}

/// The median, or what it exceeds.
fn median(row: &Row) -> Option<f64> {
    row.figures.map(|figures| figures.median.least())
}

fn bar(row: &Row, longest: f64) -> String {
    let Some(figures) = row.figures else {
        return String::new();
    };
    let class = match figures.median.value() {
        Some(_) => "",
        None => " class=\"more\"",
    };
    let median = figures.median.least();
    let percent = |seconds: f64| (100.0 * seconds / longest).min(100.0);
    let limit = row.ratio.map(|ratio| {
        let place = percent(median / ratio.least());
        format!("<b style=\"left:{place:.1}%\"></b>")
    });
    format!(
        "<div><i{class} style=\"width:{:.1}%\"></i>{}</div>",
        percent(median),
        limit.unwrap_or_default()
    )
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

/// Where the figures are from, and how to get them again.
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
    use crate::experiment::Published;
    use crate::results::{Figures, Outcome, Store};

    #[test]
    fn a_column_is_there_where_a_row_has_it() {
        let row = |lost: Option<f64>| Row {
            lost,
            repairs: lost.map_or([None; 3], |_| [Some(2.5e6), Some(4e5), Some(0.031)]),
            ..Row::default()
        };
        let text = table(&[row(Some(0.0125)), row(None)], &Outline::default());
        let cells = ["<th>lost</th>", "<td>1.25 %</td>", "<td>–</td>"];
        assert!(cells.iter().all(|part| text.contains(part)), "{text}");
        let repairs = "<th>recovered</th><th>wasted</th><th>overhead</th>";
        let shown = "<td>2.50 MB</td><td>0.40 MB</td><td>3.10 %</td>";
        assert!(
            [repairs, shown].iter().all(|part| text.contains(part)),
            "{text}"
        );
        assert!(!text.contains("first paint"), "{text}");
    }

    #[test]
    fn what_was_published_has_its_source_and_what_is_far_from_it_a_mark() {
        let row = |contender: &str, seconds: f64| Row {
            contender: contender.into(),
            figures: Figures::of(seconds),
            published: Some(10.0),
            ..Row::default()
        };
        let figure = |contender: &str| Published {
            contender: contender.into(),
            scenario: String::new(),
            task: String::new(),
            seconds: 10.0,
            source: "S & co".into(),
        };
        let outline = Outline {
            published: vec![figure("near"), figure("far")],
            ..Outline::default()
        };
        let rows = [row("near", 11.4), row("far", 11.6), row("alone", 1.0)];
        let text = table(&rows, &outline);
        for part in [
            "<td>10.00 s<sup>1</sup></td><td>1.14</td>",
            "<td>10.00 s<sup>1</sup></td><td>1.16 !</td>",
            "<td>–</td><td>–</td>",
        ] {
            assert_eq!(text.matches(part).count(), 1, "{part}: {text}");
        }
        assert_eq!(text.matches("<sup>1</sup> S &amp; co</p>").count(), 1);
        assert!(!table(&[Row::default()], &outline).contains("published"));
    }

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
