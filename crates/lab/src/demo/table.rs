//! The result: one table, and what makes it worth believing.

use std::fmt;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::figures::DemoFigures;
use crate::capture::CaptureReport;
use crate::workload::Shape;

/// Figures that were measured. Displays as a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Without bentpipe.
    pub plain: DemoFigures,
    /// With it.
    pub bentpipe: DemoFigures,
    /// Figures that physics allows.
    pub limit: DemoFigures,
    /// Traffic that both ends of the link saw while bentpipe ran.
    pub crossed: CaptureReport,
}

struct DemoRow {
    name: String,
    plain: Duration,
    bentpipe: Duration,
    limit: Duration,
}

impl Report {
    /// # Errors
    /// A time is better than physics allows: then it is the link that is wrong.
    pub(super) fn new(
        plain: DemoFigures,
        bentpipe: DemoFigures,
        limit: DemoFigures,
        crossed: CaptureReport,
    ) -> Result<Self> {
        let report = Self {
            plain,
            bentpipe,
            limit,
            crossed,
        };
        for row in report.rows() {
            let best = row.plain.min(row.bentpipe);
            ensure!(
                best >= row.limit,
                "{} took {best:.3?}, which the link cannot do in less than {:.3?}: the emulated link is wrong",
                row.name,
                row.limit
            );
        }
        Ok(report)
    }

    fn rows(&self) -> [DemoRow; 3] {
        let (objects, hosts) = (Shape::USUAL.objects(), Shape::USUAL.hosts);
        let row = |name: String, time: fn(&DemoFigures) -> Duration| DemoRow {
            name,
            plain: time(&self.plain),
            bentpipe: time(&self.bentpipe),
            limit: time(&self.limit),
        };
        [
            row("1 kB request, new connection".into(), |figures| {
                figures.request
            }),
            row("10 MB download".into(), |figures| figures.download),
            row(
                format!("page: {objects} objects, 2 MB, {hosts} hosts, HTTPS"),
                |figures| figures.page,
            ),
        ]
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = "GEO satellite, 10/2 Mbit/s, RTT 500 ms";
        writeln!(
            f,
            "{name:<42}{:>10}{:>10}{:>16}{:>9}",
            "plain", "bentpipe", "physical limit", "faster"
        )?;
        for row in self.rows() {
            let [plain, bentpipe, limit] =
                [row.plain, row.bentpipe, row.limit].map(|time| time.as_secs_f64());
            let ratio = plain / bentpipe;
            writeln!(
                f,
                "{:<42}{plain:>8.2} s{bentpipe:>8.2} s{limit:>14.2} s{ratio:>7.1} ×",
                row.name
            )?;
        }
        write!(
            f,
            "\nEvery body arrived unchanged (SHA-256). With bentpipe, both ends of the link saw {} packets of the\n\
             tunnel, none in clear and none with readable content.",
            self.crossed.tunnel_packets
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(request: u64, download: u64, page: u64) -> DemoFigures {
        let [request, download, page] = [request, download, page].map(Duration::from_millis);
        DemoFigures {
            request,
            download,
            page,
        }
    }

    #[test]
    fn the_table_shows_all_four_columns() {
        let report = Report::new(
            figures(1003, 11_420, 7400),
            figures(505, 9300, 4700),
            figures(501, 8798, 3600),
            CaptureReport::default(),
        )
        .unwrap();
        let text = report.to_string();
        let rows: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().rev().take(8).collect())
            .collect();
        assert_eq!(rows[1], ["×", "2.0", "s", "0.50", "s", "0.51", "s", "1.00"]);
        assert_eq!(
            rows[2],
            ["×", "1.2", "s", "8.80", "s", "9.30", "s", "11.42"]
        );
        assert_eq!(rows[3], ["×", "1.6", "s", "3.60", "s", "4.70", "s", "7.40"]);
    }

    #[test]
    fn an_impossible_figure_is_refused() {
        let report = Report::new(
            figures(1003, 11_420, 7400),
            figures(499, 9300, 4700),
            figures(501, 8798, 3600),
            CaptureReport::default(),
        );
        let error = report.unwrap_err().to_string();
        assert!(
            error.contains("1 kB request") && error.contains("link is wrong"),
            "{error}"
        );
    }
}
