//! Figure of bars: the median of each contender for one task over one link, with the physical limit and published figures.
//!
//! The bars are made by the style sheet alone: they are there without any script.

use std::fmt::Write as _;

use super::super::colours::family;
use super::super::table::place;
use crate::experiment::{Comparable, PublishedValue, Titles};
use crate::results::Row;
use bentpipe_plot::escape;

/// The figure of rows of one link and task; empty if none has a median.
pub(super) fn figure(rows: &[Row], titles: &Titles) -> String {
    let shown: Vec<&Row> = rows.iter().filter(|row| row.figures.is_some()).collect();
    let ends = shown.iter().flat_map(|row| [median(row), published(row)]);
    let longest = ends.flatten().fold(0.0, f64::max);
    if longest <= 0.0 {
        return String::new();
    }
    let mut text = format!(
        "<figure class=\"bars\"><figcaption>{}: median in seconds</figcaption>\n",
        escape(&place(shown[0], titles))
    );
    for row in &shown {
        // Writing into a String cannot fail, here and below.
        let _ = writeln!(
            text,
            "<div class=\"f-{}\"><span>{}</span><span class=\"bar\">{}</span><span>{}</span></div>",
            family(&row.contender),
            escape(&row.contender),
            bar(row, longest),
            row.figures
                .map_or("–".into(), |figures| escape(&figures.median.seconds())),
        );
    }
    let _ = writeln!(
        text,
        "<div class=\"scale\"><span></span><span><b>0 s</b><b>{longest:.1} s</b></span><span></span></div>"
    );
    let mut key = vec!["│ physical limit"];
    if shown.iter().any(|row| published(row).is_some()) {
        key.push("◇ published");
    }
    if shown.iter().any(|row| given_up(row)) {
        key.push("striped: given up, longer than that");
    }
    let _ = writeln!(text, "<p class=\"note\">{}</p></figure>", key.join("; "));
    text
}

/// The median in seconds, or what it exceeds.
fn median(row: &Row) -> Option<f64> {
    row.figures.map(|figures| figures.median.least())
}

fn given_up(row: &Row) -> bool {
    row.figures
        .is_some_and(|figures| figures.median.value().is_none())
}

/// The first published time of the row that may be compared, in seconds.
fn published(row: &Row) -> Option<f64> {
    row.published.iter().find_map(|figure| match figure.value {
        PublishedValue::Seconds(seconds) if figure.comparable == Comparable::All => Some(seconds),
        _ => None,
    })
}

fn bar(row: &Row, longest: f64) -> String {
    let percent = |seconds: f64| (100.0 * seconds / longest).min(100.0);
    let median = median(row).unwrap_or_default();
    let class = if given_up(row) { " class=\"more\"" } else { "" };
    let mut text = format!("<i{class} style=\"width:{:.1}%\"></i>", percent(median));
    if let Some(ratio) = row.ratio {
        let limit = percent(median / ratio.least());
        let _ = write!(text, "<b style=\"left:{limit:.1}%\"></b>");
    }
    if let Some(seconds) = published(row) {
        let _ = write!(text, "<u style=\"left:{:.1}%\"></u>", percent(seconds));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Published, Statistic};
    use crate::results::{Figures, Known};

    #[test]
    fn bars_are_as_long_as_times_and_marked_where_the_limit_and_the_published_figure_are() {
        let row = |contender: &str, seconds: f64, published: Option<f64>| Row {
            scenario: "geo".into(),
            task: "get".into(),
            contender: contender.into(),
            figures: Figures::of(seconds),
            ratio: Some(Known::exactly(2.0)),
            published: published
                .map(|seconds| Published {
                    contender: contender.into(),
                    scenario: "geo".into(),
                    task: "get".into(),
                    value: PublishedValue::Seconds(seconds),
                    statistic: Statistic::Mean,
                    comparable: Comparable::All,
                    source: "S".into(),
                })
                .into_iter()
                .collect(),
            ..Row::default()
        };
        let rows = [row("plain/cubic", 8.0, Some(10.0)), row("qpep", 4.0, None)];
        let text = figure(&rows, &Titles::default());
        for part in [
            "geo, get: median in seconds",
            "f-plain\"><span>plain/cubic</span><span class=\"bar\"><i style=\"width:80.0%\"></i><b style=\"left:40.0%\">",
            "<u style=\"left:100.0%\">",
            "f-qpep\">",
            "◇ published",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("striped"), "{text}");
        assert_eq!(figure(&[Row::default()], &Titles::default()), "");
    }
}
