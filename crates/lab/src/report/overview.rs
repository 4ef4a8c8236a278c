//! Head of the page: when and where it was measured, and every published finding with its verdict, by work.

use std::fmt::Write as _;

use jiff::Timestamp;

use super::Results;
use super::findings::{Finding, Verdict};
use bentpipe_plot::escape;

/// Title, date, machines and the experiments of the page.
pub(super) fn head(parts: &[Results]) -> String {
    let of = match parts {
        [part] => escape(&part.manifest.experiment),
        _ => format!("{} experiments", parts.len()),
    };
    let mut text = format!("<h1>bentpipe lab: {of}</h1>\n");
    let mut machines: Vec<String> = Vec::new();
    for manifest in parts.iter().flat_map(|part| part.manifest.parts()) {
        let machine = format!("{}, {}", manifest.machine, manifest.bentpipe.version);
        let machine = machine.lines().next().unwrap_or_default().to_owned();
        if !machines.contains(&machine) {
            machines.push(machine);
        }
    }
    let began = || {
        let records = parts.iter().flat_map(|part| part.records.values());
        records
            .map(|record| record.began)
            .filter(|began| *began > 0)
    };
    let dates = [began().min(), began().max()].map(|began| began.map(date));
    let dates = match dates {
        [Some(first), Some(last)] if first == last => format!("Measured {first}"),
        [Some(first), Some(last)] => format!("Measured {first} to {last}"),
        _ => "Not measured yet".into(),
    };
    // Writing into a String cannot fail, here and below.
    let _ = writeln!(
        text,
        "<p class=\"note\">{dates}. {}</p>",
        escape(&machines.join("; "))
    );
    text
}

/// Day of a time in seconds since 1970, in UTC.
fn date(began: u64) -> String {
    let seconds = i64::try_from(began).unwrap_or(i64::MAX);
    let day = Timestamp::from_second(seconds).unwrap_or_default();
    day.strftime("%Y-%m-%d").to_string()
}

/// Links to the experiments of the page.
pub(super) fn experiments(parts: &[Results]) -> String {
    if parts.len() < 2 {
        return String::new();
    }
    let link = |(place, part): (usize, &Results)| {
        let name = escape(&part.manifest.experiment);
        format!("<a href=\"#experiment-{place}\">{name}</a>")
    };
    let links: Vec<String> = parts.iter().enumerate().map(link).collect();
    format!("<nav>{}</nav>\n", links.join(" · "))
}

/// Findings of one work, each with the place of its experiment.
type Work<'a> = (&'a str, Vec<(usize, &'a Finding)>);

/// All published findings by the work that they are from, in the order in which works are met.
pub(super) fn by_work(parts: &[Results]) -> Vec<Work<'_>> {
    let mut works: Vec<Work<'_>> = Vec::new();
    for (place, part) in parts.iter().enumerate() {
        for finding in &part.findings {
            let (work, _) = finding.work();
            match works.iter_mut().find(|(known, _)| *known == work) {
                Some((_, own)) => own.push((place, finding)),
                None => works.push((work, vec![(place, finding)])),
            }
        }
    }
    works
}

/// All published findings as HTML, by the work that they are from; empty if there are none.
pub(super) fn findings(parts: &[Results]) -> String {
    let works = by_work(parts);
    let all: Vec<&Finding> = parts.iter().flat_map(|part| &part.findings).collect();
    if all.is_empty() {
        return String::new();
    }
    let score = Verdict::ALL.map(|verdict| {
        let number = count(all.iter().copied(), verdict);
        format!(
            "<b class=\"{}\">{number}</b> {}",
            verdict.class(),
            verdict.text()
        )
    });
    let mut text = format!(
        "<section class=\"claims\"><h2>Published findings, and what was found here</h2>\n<p>{} findings of {} works: {}.</p>\n",
        all.len(),
        works.len(),
        score.join(", ")
    );
    text.push_str(&headlines(parts));
    for (work, own) in &works {
        text.push_str(&one_work(work, own));
    }
    text.push_str(
        "<p class=\"note\">Open a line for its findings, each with the reason where it differs. Reproduced: within 15 % of what was published, or in the published order. In \
         order only: whoever is slower there is slower here, but by more or by less. Not reproduced: somebody else is slower, or nobody is. Not run: these \
         runs have nothing to compare, mostly because the quick size leaves it out, a run was given up or a program was not given. “X compared with Y: 1.25 ×” \
         means that X takes 1.25 times as long; “X &lt; Y” that X takes less time, “X ~ Y” that they are not told apart.</p></section>\n",
    );
    text
}

/// Findings with a claim in words, each with the place of its experiment, in the order of the page.
pub(super) fn in_words(parts: &[Results]) -> impl Iterator<Item = (usize, &str, &Finding)> {
    parts.iter().enumerate().flat_map(|(place, part)| {
        let findings = part.findings.iter();
        findings.filter_map(move |one| Some((place, one.headline.as_deref()?, one)))
    })
}

/// Bytes of figures that are read at a glance.
const BRIEF: usize = 30;

/// Claims in words, a line for each: what was published, what was found here, and the verdict; empty if there are none.
fn headlines(parts: &[Results]) -> String {
    let line = |(place, words, finding): (usize, &str, &Finding)| {
        let (work, _) = finding.work();
        let [words, work, published, here] =
            [words, work, &finding.published, &finding.here].map(escape);
        let verdict = finding.verdict;
        // On a phone an order of names is left out: the claim and the verdict say it in words.
        let long = |text: &str| match text.len() > BRIEF {
            true => " class=\"long\"",
            false => "",
        };
        let [there_long, here_long] = [&finding.published, &finding.here].map(|text| long(text));
        format!(
            "<tr><td data-label=\"claim\"><a href=\"#experiment-{place}\">{words}</a></td>\
             <td data-label=\"verdict\"><b class=\"{}\">{}</b></td><td data-label=\"published\"{there_long}>{published}</td>\
             <td data-label=\"here\"{here_long}>{here}</td><td data-label=\"source\">{work}</td></tr>\n",
            verdict.class(),
            verdict.text()
        )
    };
    let lines: String = in_words(parts).map(line).collect();
    match lines.is_empty() {
        true => lines,
        false => format!(
            "<div class=\"table\"><table class=\"headlines\"><thead><tr><th>claim</th><th>verdict</th><th>published</th>\
             <th>here</th><th>source</th></tr></thead><tbody>\n{lines}</tbody></table></div>\n"
        ),
    }
}

/// Number of findings with this verdict.
pub(super) fn count<'a>(findings: impl Iterator<Item = &'a Finding>, verdict: Verdict) -> usize {
    findings.filter(|one| one.verdict == verdict).count()
}

fn one_work(work: &str, own: &[(usize, &Finding)]) -> String {
    let counts = Verdict::ALL.map(|verdict| {
        let number = count(own.iter().map(|(_, one)| *one), verdict);
        let class = if number == 0 { "none" } else { verdict.class() };
        format!(
            "<span class=\"{class}\"><b>{number}</b> {}</span>",
            verdict.text()
        )
    });
    let mut text = format!(
        "<details><summary><span class=\"work\">{}</span>{}</summary>\n",
        escape(work),
        counts.concat()
    );
    let (absent, judged): (Vec<_>, Vec<_>) = own
        .iter()
        .partition(|(_, one)| one.verdict == Verdict::NotRun);
    if !judged.is_empty() {
        text.push_str(&table(&judged));
    }
    if !absent.is_empty() {
        let _ = writeln!(
            text,
            "<details><summary>{} findings that these runs do not judge</summary>\n{}</details>",
            absent.len(),
            table(&absent)
        );
    }
    text + "</details>\n"
}

/// Findings with the places of their experiments, a row for each.
fn table(findings: &[&(usize, &Finding)]) -> String {
    let mut text = "<div class=\"table\"><table class=\"cards words\">\
         <thead><tr><th>claim</th><th>published</th><th>here</th><th>verdict</th></tr></thead><tbody>\n"
        .to_owned();
    for (place, finding) in findings {
        let verdict = finding.verdict;
        let (words, names) = finding.words();
        let [words, names, published, here] =
            [words, names, &finding.published, &finding.here].map(escape);
        let because = match (&finding.because, verdict.wants_reason()) {
            (Some(because), _) => format!("<small>{}</small>", escape(because)),
            (None, true) => "<small>Why is not known.</small>".into(),
            (None, false) => String::new(),
        };
        let names = match names.is_empty() {
            true => names,
            false => format!("<small>{names}</small>"),
        };
        let _ = writeln!(
            text,
            "<tr><td data-label=\"claim\"><a href=\"#experiment-{place}\">{words}</a>{names}</td>\
             <td data-label=\"published\">{published}</td><td data-label=\"here\">{here}{because}</td>\
             <td data-label=\"verdict\"><b class=\"{}\">{}</b></td></tr>",
            verdict.class(),
            verdict.text()
        );
    }
    text + "</tbody></table></div>\n"
}
