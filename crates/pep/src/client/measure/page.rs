//! Page of a measurement: one file of HTML that loads nothing, with the verdicts in words, a table, and every pair in a figure.
//!
//! Pure. It looks like the page of the daemons, whose style it has.

use std::fmt::Write as _;
use std::io;

use bentpipe_plot::{Page, escape};
use bentpipe_units::ByteCount;
use serde::Serialize;

use super::report::{Report, Row};
use super::statistics::{Conclusion, Pair};
use crate::page::STYLE;

const TITLE: &str = "What the tunnel is worth";

const FIGURE: &str = "<section><h2>Every pair</h2>\n<p class=\"note\">Ratio of the time past the tunnel to the time through it. \
    Above 1 the tunnel is faster.</p>\n<div class=\"plot\" id=\"pairs\"></div></section>\n</main>\n";

const EXPLANATION: &str = "<footer>A pair is one transfer past the tunnel and one through it, one right after the other, over new \
    connections. Medians are of all pairs. The interval holds the true median of the ratios with 95 % confidence (sign test); it needs \
    six pairs. A gain is an interval above 1. A pair of which one transfer failed does not count.</footer>\n";

/// Points of one kind in the figure.
#[derive(Serialize)]
struct Curve {
    name: &'static str,
    /// Ratio of direct to tunnel of each pair, in order.
    ratios: Vec<f64>,
}

impl Report {
    /// The report for people, as a page that is one file.
    ///
    /// # Errors
    /// The figures have no form as JSON.
    pub fn to_html(&self) -> io::Result<String> {
        let curve = |row: &Row| Curve {
            name: row.kind.name(),
            ratios: row.pairs.iter().map(Pair::ratio).collect(),
        };
        let curves: Vec<Curve> = self.rows.iter().map(curve).collect();
        let body = header(self) + &verdicts(self) + &table(self) + FIGURE + EXPLANATION;
        let page = Page {
            title: TITLE,
            style: STYLE,
            body: &body,
            script: include_str!("page.js"),
        };
        page.with(&curves).map_err(io::Error::other)
    }
}

fn header(report: &Report) -> String {
    let Report { version, began, .. } = report;
    format!(
        "<header><h1>{TITLE}</h1>\n<p id=\"where\">Measured with {}.<br>{began}, bentpipe {version}</p></header>\n<main>\n",
        escape(&report.extent())
    )
}

fn verdicts(report: &Report) -> String {
    let mut text =
        String::from("<section><h2>Verdicts</h2>\n<ul class=\"events\" id=\"events\">\n");
    for row in &report.rows {
        let light = match row.result.map(|result| result.verdict) {
            Some(Conclusion::Gain) => "ok",
            Some(Conclusion::Slower) => "bad",
            Some(Conclusion::NoDifference) => "warn",
            Some(Conclusion::TooFew) | None => "",
        };
        let (name, words) = (row.kind.name(), escape(&row.words()));
        // Writing into a String cannot fail, here and below.
        let _ = writeln!(
            text,
            "<li><span class=\"light {light}\"></span><span class=\"text\"><b>{name}</b> {words}</span></li>"
        );
    }
    text + "</ul></section>\n"
}

fn table(report: &Report) -> String {
    let mut text = String::from(
        "<section><h2>Medians</h2>\n<div class=\"table\"><table>\n<tr><th></th><th>size</th><th>direct</th><th>tunnel</th>\
         <th>ratio</th><th>95 % interval</th><th>pairs</th></tr>\n",
    );
    for row in &report.rows {
        let size = ByteCount::new(row.bytes);
        let _ = write!(text, "<tr><td>{}</td><td>{size}</td>", row.kind.name());
        let cells = row.cells();
        let _ = writeln!(text, "<td>{}</td></tr>", cells.join("</td><td>"));
    }
    text.push_str("</table></div>\n");
    for row in &report.rows {
        if let Some(failed) = row.failed_words() {
            let (name, failed) = (row.kind.name(), escape(&failed));
            let _ = writeln!(text, "<p class=\"note\">{name}, failed: {failed}</p>");
        }
    }
    text + "</section>\n"
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::Fault;
    use super::super::plan::{Plan, TaskKind, Way, Wishes};
    use super::*;

    #[test]
    fn a_page_has_every_pair_and_escapes_what_others_wrote() {
        let wishes = Wishes {
            size: ByteCount::new(1000),
            rounds: 6,
            max_bytes: ByteCount::new(1 << 20),
        };
        let plan = Plan::new(TaskKind::OF_URL, &wishes).unwrap();
        let target = "http://a/</script>".into();
        let mut report = Report::new(target, "SOCKS5".into(), Duration::ZERO, &plan);
        for direct_s in [2.0, 2.5, 2.5, 2.5, 2.5, 1e9] {
            report.rows[0].add(Pair {
                direct_s,
                tunnel_s: 1.0,
            });
        }
        report.rows[1].failed(Way::Direct, &Fault::Redirected("<b>".into()));
        let page = report.conclude().unwrap().to_html().unwrap();
        for part in [
            "<b>request</b> gain: 2.50 times as fast",
            "<td>2.500 s</td><td>1.000 s</td><td>2.500</td><td>2.000 to 1000000000.000</td><td>6</td>",
            "<b>download</b> nothing to say: no pair is complete",
            "download, failed: 1 direct, 0 through the tunnel; last, direct: the URL leads on to &lt;b&gt;",
            "\"ratios\":[2.0,2.5,2.5,2.5,2.5,1000000000.0]",
            "http://a/&lt;/script&gt;",
        ] {
            assert!(page.contains(part), "no `{part}`: {page}");
        }
        for outside in ["src=", "href=", "@import", "url(", "NaN"] {
            assert!(!page.contains(outside), "`{outside}`: {page}");
        }
    }
}
