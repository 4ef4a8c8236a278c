//! A run's probes as one HTML page: verdict and totals, then goodput, queue, C/N and MODCOD, delay and drops over time.
//!
//! The page needs nothing but itself (crate `plot`). Curves are made here, so that the page's script only draws.
//!
//! ```text
//!  probes (JSON lines) ──columns──► curves ──► page, page.js ──► FILE.html
//!                          └──────► totals ──► body ──┘
//! ```

mod columns;
mod panel;

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;

use bentpipe_plot::{Page, escape};
use columns::Columns;

use crate::emulator::{EmulatorStats, Verdict};

/// No line of probes is nearly as long, with however many queues.
const LONGEST_LINE: u64 = 1 << 20;

/// Directory of probes that are only wanted for their plot; removed when this is dropped.
#[derive(Debug)]
pub struct Scratch(TempDir);

impl Scratch {
    /// A directory of its own.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn new() -> Result<Self> {
        tempfile::tempdir()
            .map(Self)
            .context("cannot make a directory for the probes")
    }

    /// The file.
    #[must_use]
    pub fn probes(&self) -> PathBuf {
        self.0.path().join("probes.jsonl")
    }
}

/// Draws `probes` into the page `page`, with the title and the verdict of the run's report, if there is one.
///
/// # Errors
/// The probes cannot be read or are none, or the page cannot be written.
pub fn draw(probes: &Path, page: &Path, report: Option<&EmulatorStats>) -> Result<()> {
    let name = probes.display();
    let file = fs::File::open(probes).with_context(|| format!("cannot read {name}"))?;
    let mut columns = Columns::default();
    let (mut file, mut line) = (BufReader::new(file), String::new());
    for number in 1u64.. {
        line.clear();
        let read = file.by_ref().take(LONGEST_LINE).read_line(&mut line);
        if read.with_context(|| format!("cannot read {name}:{number}"))? == 0 {
            break;
        }
        columns
            .add(&line)
            .with_context(|| format!("{name}:{number}: not a line of probes"))?;
    }
    ensure!(!columns.is_empty(), "{name} holds no probes");
    let text = html(&columns, report, &name.to_string())?;
    fs::write(page, text).with_context(|| format!("cannot write {}", page.display()))
}

/// The page of a run; `file` is the place of its probes.
fn html(columns: &Columns, report: Option<&EmulatorStats>, file: &str) -> Result<String> {
    let run = report.map_or(file, |report| &report.scenario);
    let page = Page {
        title: &escape(&format!("bentpipe: {run}")),
        style: include_str!("page.css"),
        body: &body(columns, report, run),
        script: include_str!("page.js"),
    };
    page.with(&columns.curves())
}

/// Title, verdict and totals, and the place of the figures.
fn body(columns: &Columns, report: Option<&EmulatorStats>, run: &str) -> String {
    let mut text = format!("<h1>Emulated link: {}</h1>\n", escape(run));
    text.push_str(&match report.map(|report| &report.verdict) {
        None => "<p>Drawn from probes, which hold no verdict on the run.</p>\n".into(),
        Some(Verdict::Valid) => {
            "<p><b class=\"valid\">VALID</b>: nothing but the model has delayed or dropped packets.</p>\n".into()
        }
        Some(Verdict::Invalid(reasons)) => format!(
            "<p><b class=\"invalid\">INVALID</b>: {}.</p>\n",
            escape(&reasons.join("; "))
        ),
    });
    text.push_str(
        "<div class=\"table\"><table><tr><th>terminal</th><th>direction</th><th>goodput, Mbit/s</th><th>packets delivered</th><th>dropped</th></tr>\n",
    );
    for total in columns.totals() {
        // Writing into a String cannot fail.
        let _ = writeln!(
            text,
            "<tr><td>{}</td><td>{}</td><td>{:.3}</td><td>{}</td><td>{}</td></tr>",
            escape(total.terminal),
            total.direction,
            total.goodput / 1e6,
            total.delivered,
            total.dropped
        );
    }
    text + "</table></div>\n<p>Goodput: IP packets that came out of the link, over the whole time. In the figures: drag to zoom in all \
            panels, double-click to zoom out, click a name to hide its curve.</p>\n<div id=\"plots\"></div>\n"
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn a_page_holds_its_data_and_needs_no_other_file() {
        let directory = tempfile::tempdir().unwrap();
        let probes = directory.path().join("p.jsonl");
        let line = |t: f64, bytes: u64| {
            let way = format!(
                r#"{{"cn_db":13.5,"modcod":21,"modcod_name":"16APSK 5/6","capacity_bps":1000000,"one_way_delay_ms":250.0,"queue_bytes":3000,
                "queues":[],"delivered_bytes":{bytes},"dropped":{{"queue_full":{bytes},"codel":0}}}}"#
            )
            .replace('\n', "");
            format!(r#"{{"t_s":{t},"terminal":"</script>","forward":{way},"return":{way}}}"#)
        };
        fs::write(
            &probes,
            format!("{}\n{}\n", line(0.1, 1000), line(0.2, 2000)),
        )
        .unwrap();
        let page = directory.path().join("p.html");
        draw(&probes, &page, None).unwrap();
        let text = fs::read_to_string(&page).unwrap();
        assert!(
            text.contains("\"t\":[0.1,0.2]") && text.contains("[0.08,0.08]"),
            "the curves are there"
        );
        assert_eq!(
            text.matches("</script>").count(),
            text.matches("<script").count()
        );
        for outside in ["src=", "href=", "@import", "url(", "/*DATA*/", "/*SCRIPT*/"] {
            assert!(!text.contains(outside), "{outside}");
        }
        let (_, data) = text
            .split_once("<script id=\"data\" type=\"application/json\">")
            .unwrap();
        let (data, _) = data.split_once("</script>").unwrap();
        let data: Value = serde_json::from_str(data).unwrap();
        assert_eq!(data[0]["name"], "</script>");
        let panels = data[0]["panels"].as_array().unwrap();
        let titles: Vec<_> = panels.iter().map(|panel| &panel["title"]).collect();
        assert_eq!(
            titles,
            [
                "Goodput (IP packets delivered) and capacity",
                "Queue",
                "C/N",
                "MODCOD",
                "One-way delay",
                "Drops"
            ]
        );
        assert_eq!(
            panels[3]["note"],
            "forward: 21 is 16APSK 5/6 · return: 21 is 16APSK 5/6"
        );
        let named = &panels[3]["curves"][1];
        assert_eq!(
            (&named["name"], &named["names"]["21"]),
            (&"return".into(), &"16APSK 5/6".into())
        );
        // 2000 B in 0.2 s, and as many drops.
        let total = "<td>&lt;/script&gt;</td><td>return</td><td>0.080</td><td>0</td><td>2000</td>";
        assert!(
            text.contains(total) && text.contains("hold no verdict"),
            "{total}"
        );
        let curves = panels
            .iter()
            .flat_map(|panel| panel["curves"].as_array().unwrap());
        assert!(
            curves
                .map(|curve| curve["y"].as_array().unwrap().len())
                .all(|points| points == 2),
            "each curve has a point per line"
        );
    }

    #[test]
    fn a_file_that_holds_no_probes_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let probes = directory.path().join("p.jsonl");
        fs::write(&probes, "{\"t_s\": 1}\n").unwrap();
        let error = format!(
            "{:#}",
            draw(&probes, &directory.path().join("x.html"), None).unwrap_err()
        );
        assert!(error.contains("p.jsonl:1: not a line of probes"), "{error}");
        let told = |content: &str| {
            fs::write(&probes, content).unwrap();
            let error = draw(&probes, &directory.path().join("x.html"), None).unwrap_err();
            format!("{error:#}")
        };
        assert!(told("").contains("p.jsonl holds no probes"));
        assert!(told(&" ".repeat(3 << 20)).contains("p.jsonl:1: not a line"));
        let way = "{\"delivered_bytes\":1,\"dropped\":{}}";
        let many: String = (0..=1000)
            .map(|terminal| {
                format!(
                    "{{\"t_s\":1,\"terminal\":\"{terminal}\",\"forward\":{way},\"return\":{way}}}\n"
                )
            })
            .collect();
        assert!(told(&many).contains("p.jsonl:1001: not a line of probes: `1000` is one terminal"));
    }
}
