//! One experiment on the page: its question, the answer, one figure, the table; everything else is folded.

use std::fmt::Write as _;
use std::path::Path;

use super::figures::{Drawn, all, first};
use super::findings::Finding;
use super::{Results, answer, findings, kept, table, timelines, twins};
use crate::contender::{Contender, Road};
use crate::experiment::{Experiment, Extent, Filter};
use crate::results::{Manifest, Outline, Row, TABLE};
use bentpipe_plot::escape;

/// The experiment that has this place on the page, which is to be the file `page`.
pub(super) fn section(place: usize, part: &Results, page: &Path, drawn: &mut Drawn) -> String {
    let Results {
        manifest, summary, ..
    } = part;
    let outline = &manifest.outline;
    let mut text = format!(
        "<section id=\"experiment-{place}\"><h2>{}</h2>\n<p class=\"note\">{}, {}</p>\n<p class=\"answer\">{}</p>\n",
        escape(&summary.question),
        escape(&manifest.experiment),
        escape(&manifest.extent),
        escape(&answer::answer(outline, summary))
    );
    let mut figures = all(part);
    if let Some(place) = first(outline.figure, &figures) {
        text.push_str(&drawn.show(figures.remove(place)));
    }
    text.push_str(&table::table(&summary.rows, &outline.titles));
    text.push_str(&reasons(&part.findings));
    text.push_str(&twins::sentence(manifest, summary));
    for caveat in manifest.caveats() {
        // Writing into a String cannot fail, here and below.
        let _ = writeln!(text, "<p class=\"note\">{}</p>", escape(&caveat));
    }
    let more = figures.into_iter().map(|figure| drawn.show(figure));
    for (title, content) in [
        ("More figures", more.collect()),
        (
            "Spread, and what else was measured",
            table::more(&summary.rows, &outline.titles),
        ),
        (
            "Rate and round trip of each run over time",
            timelines::rows(part.records.values(), &outline.titles),
        ),
        ("Who ends TCP, and where it is encrypted", roads(outline)),
        ("Failed runs", findings::failure_table(outline, summary)),
        ("Runs that count in no median", faults(&summary.rows)),
        ("Files that were kept", kept::list(&part.kept, page)),
        (
            "How to run it again, and what it was made with",
            colophon(part, page),
        ),
    ] {
        if !content.is_empty() {
            let _ = writeln!(
                text,
                "<details><summary>{title}</summary>\n{content}</details>"
            );
        }
    }
    text + "</section>\n"
}

/// Why figures differ from published ones, each reason once; empty if none does.
fn reasons(findings: &[Finding]) -> String {
    let mut known: Vec<&str> = Vec::new();
    for reason in findings.iter().filter_map(|one| one.because.as_deref()) {
        if !known.contains(&reason) {
            known.push(reason);
        }
    }
    let lines = known
        .iter()
        .map(|reason| format!("<li>{}</li>", escape(reason)));
    let lines: String = lines.collect();
    match lines.is_empty() {
        true => lines,
        false => format!(
            "<p class=\"note why\">Why figures differ from published ones:</p>\n<ul class=\"why\">{lines}</ul>\n"
        ),
    }
}

/// Drawing of each contender's road from host to origin.
fn roads(outline: &Outline) -> String {
    let road = |name: &String| {
        let contender: Contender = name.parse().ok()?;
        Some(format!("{}  {name}", Road::of(&contender)?.drawing()))
    };
    let roads: Vec<String> = outline.contenders.iter().filter_map(road).collect();
    format!(
        "<pre>host     terminal  gateway  origin\n{}</pre>\n<p class=\"note\">● TCP ends here; ┼ it passes; ═ encrypted; ─ in clear</p>\n",
        escape(&roads.join("\n"))
    )
}

/// Everything that counts in no median, with its reasons.
fn faults(rows: &[Row]) -> String {
    let faulty = rows.iter().filter(|row| !row.remarks.is_empty());
    let line = |row: &Row| {
        let [contender, scenario, task] =
            [&row.contender, &row.scenario, &row.task].map(|name| escape(name));
        let remarks: Vec<String> = row.remarks.iter().map(|remark| escape(remark)).collect();
        format!(
            "<li>{contender}, {scenario}, {task} ({}): {}</li>\n",
            row.counts(),
            remarks.join("; ")
        )
    };
    let lines: String = faulty.map(line).collect();
    match lines.is_empty() {
        true => lines,
        false => format!("<ul class=\"faults\">\n{lines}</ul>\n"),
    }
}

/// Time that the whole size takes on one machine, as the program estimates it; empty of an experiment that is not its own.
fn whole(name: &str) -> String {
    let own = Experiment::names().any(|known| known == name);
    let whole = own.then(|| Experiment::load(Path::new(name), Extent::Full, &[]).ok());
    let Some(whole) = whole.flatten() else {
        return String::new();
    };
    let minutes = whole.estimate(&whole.plan(&Filter::default())).as_secs() / 60;
    let about = match minutes / 60 {
        0 | 1 => format!("{minutes} min"),
        hours => format!("{hours} h"),
    };
    format!("<p class=\"note\">The whole experiment takes one machine about {about}.</p>\n")
}

/// Commands that make the figures again, the figures as a table, and what they were made with.
fn colophon(part: &Results, page: &Path) -> String {
    let manifest = &part.manifest;
    let size = match &*manifest.extent {
        "full" => String::new(),
        part => format!(" --{part}"),
    };
    let mut selections: Vec<&str> = manifest
        .parts()
        .flat_map(|part| part.selection.iter().map(String::as_str))
        .collect();
    // All of it is more than any part.
    if selections.is_empty() || selections.contains(&"") {
        selections = vec![""];
    }
    let mut text = String::new();
    for selection in selections {
        let command = format!("bentpipe lab run {}{size} {selection}", manifest.file);
        let command = escape(command.trim_end());
        let _ = writeln!(text, "<p class=\"note\">Again: <code>{command}</code></p>");
    }
    text.push_str(&whole(&manifest.experiment));
    if let Some(table) = &part.table {
        let link = kept::link(table, page, TABLE);
        let _ = writeln!(text, "<p class=\"note\">Every figure: {link}</p>");
    }
    let mut lines = vec![format!("seed {}", manifest.seed.as_u64())];
    manifest
        .parts()
        .for_each(|part| made_with(part, &mut lines));
    let lines: Vec<String> = lines.iter().map(|line| escape(line)).collect();
    text + &format!("<small>{}</small>", lines.join("<br>\n"))
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
    use super::super::findings::{Subject, Verdict};
    use super::*;

    #[test]
    fn the_whole_size_of_the_programs_own_experiments_has_its_time() {
        let time = whole("qpep-tuning");
        assert!(
            time.contains("takes one machine about ") && time.contains(" h."),
            "{time}"
        );
        assert_eq!(whole("nobody"), "");
    }

    #[test]
    fn a_reason_stands_once_however_many_findings_have_it() {
        let finding = |because: Option<&str>| Finding {
            subject: Subject::default(),
            headline: None,
            claim: "c".into(),
            source: "s".into(),
            published: "1".into(),
            here: "2".into(),
            verdict: Verdict::OrderOnly,
            because: because.map(str::to_owned),
        };
        let text = reasons(&[Some("It is <so>."), None, Some("It is <so>.")].map(finding));
        assert_eq!(
            text.matches("<li>It is &lt;so&gt;.</li>").count(),
            1,
            "{text}"
        );
        assert_eq!(reasons(&[finding(None)]), "");
    }
}
