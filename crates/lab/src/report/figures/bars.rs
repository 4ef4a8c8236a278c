//! Figure of bars: the median of each contender for one task over one link, with the physical limit and published figures.
//!
//! The bars are made by the style sheet alone: they are there without any script.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::super::colours::family;
use crate::experiment::{Comparable, PublishedValue, Titles};
use crate::results::Row;
use bentpipe_plot::escape;

/// Data of the bars of one link and task; none if no row has a median.
pub(super) fn data(rows: &[Row], titles: &Titles) -> Option<Value> {
    let shown = rows.iter().filter(|row| row.figures.is_some());
    let bars: Vec<Value> = shown.filter_map(bar).collect();
    let first = rows.first()?;
    let title = format!(
        "{}: median in seconds",
        titles.place(&first.scenario, &first.task)
    );
    (!bars.is_empty()).then(|| json!({ "kind": "bars", "title": title, "curves": bars }))
}

/// The median in seconds, or what it exceeds; the limit and what was published, in seconds.
fn bar(row: &Row) -> Option<Value> {
    let median = row.figures?.median;
    let published = row.published.iter().find_map(|figure| match figure.value {
        PublishedValue::Seconds(seconds) if figure.comparable == Comparable::All => Some(seconds),
        _ => None,
    });
    Some(json!({
        "name": row.contender,
        "seconds": median.least(),
        "shown": median.seconds(),
        "given_up": median.value().is_none(),
        "limit": row.ratio.map(|ratio| median.least() / ratio.least()),
        "published": published,
    }))
}

/// The longest time of the bars, in seconds.
pub(in super::super) fn longest(bars: &[Value]) -> f64 {
    let ends = bars
        .iter()
        .flat_map(|bar| [bar["seconds"].as_f64(), bar["published"].as_f64()]);
    ends.flatten().fold(0.0, f64::max)
}

/// Signs of the figure, and what each stands for.
pub(in super::super) fn key(bars: &[Value]) -> String {
    let any = |name: &str| bars.iter().any(|bar| bar[name].as_f64().is_some());
    let signs = [
        (any("limit"), "│ physical limit"),
        (any("published"), "◇ published"),
        (
            bars.iter().any(|bar| bar["given_up"] == true),
            "striped: given up, longer than that",
        ),
    ];
    let there = signs.into_iter().filter(|(there, _)| *there);
    there.map(|(_, text)| text).collect::<Vec<_>>().join("; ")
}

/// The figure as HTML.
pub(super) fn html(data: &Value) -> String {
    let bars = data["curves"].as_array().map_or(&[][..], Vec::as_slice);
    let longest = longest(bars);
    let text = |value: &Value| escape(value.as_str().unwrap_or_default());
    let mut html = format!(
        "<figure class=\"bars\"><figcaption>{}</figcaption>\n",
        text(&data["title"])
    );
    for bar in bars {
        // Writing into a String cannot fail, here and below.
        let _ = writeln!(
            html,
            "<div class=\"f-{}\"><span>{}</span><span class=\"bar\">{}</span><span>{}</span></div>",
            family(bar["name"].as_str().unwrap_or_default()),
            text(&bar["name"]),
            marks(bar, longest),
            text(&bar["shown"]),
        );
    }
    let _ = writeln!(
        html,
        "<div class=\"scale\"><span></span><span><b>0 s</b><b>{longest:.1} s</b></span><span></span></div>\n\
         <p class=\"note\">{}</p></figure>",
        key(bars)
    );
    html
}

/// The bar itself, the limit's line and the published figure's marker.
fn marks(bar: &Value, longest: f64) -> String {
    let at = |name: &str| {
        let seconds = bar[name].as_f64()?;
        Some((100.0 * seconds / longest).min(100.0))
    };
    let class = match bar["given_up"] == true {
        true => " class=\"more\"",
        false => "",
    };
    let width = at("seconds").unwrap_or_default();
    let mut text = format!("<i{class} style=\"width:{width:.1}%\"></i>");
    for (tag, place) in [("b", at("limit")), ("u", at("published"))] {
        if let Some(left) = place {
            let _ = write!(text, "<{tag} style=\"left:{left:.1}%\"></{tag}>");
        }
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
        let text = html(&data(&rows, &Titles::default()).unwrap());
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
        assert_eq!(data(&[Row::default()], &Titles::default()), None);
    }
}
