//! A run's probes as one HTML page: rate, queue, C/N and MODCOD, delay and drops over time.
//!
//! The page needs nothing but itself (crate `plot`). Curves are made here, so that the page's script only draws.
//!
//! ```text
//!  probes (JSON lines) ──columns──► curves ──► page, page.js ──► FILE.html
//! ```

mod columns;

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;

use bentpipe_plot::Page;
use columns::Columns;

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

/// Draws `probes` into the page `page`.
///
/// # Errors
/// The probes cannot be read or are none, or the page cannot be written.
pub fn draw(probes: &Path, page: &Path) -> Result<()> {
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
    let text = html(&columns)?;
    fs::write(page, text).with_context(|| format!("cannot write {}", page.display()))
}

fn html(columns: &Columns) -> Result<String> {
    let page = Page {
        title: "bentpipe: a run of the emulated link",
        style: include_str!("page.css"),
        body: include_str!("body.html"),
        script: include_str!("page.js"),
    };
    page.with(&columns.curves())
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
                r#"{{"cn_db":13.5,"modcod":21,"capacity_bps":1000000,"one_way_delay_ms":250.0,"queue_bytes":3000,
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
        draw(&probes, &page).unwrap();
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
            ["Rate", "Queue", "C/N", "MODCOD", "One-way delay", "Drops"]
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
            draw(&probes, &directory.path().join("x.html")).unwrap_err()
        );
        assert!(error.contains("p.jsonl:1: not a line of probes"), "{error}");
        let told = |content: &str| {
            fs::write(&probes, content).unwrap();
            let error = draw(&probes, &directory.path().join("x.html")).unwrap_err();
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
