//! Who took how long over one link for one task.

use std::fmt::Write as _;

use super::deviation::{mark, mark_failures};
use crate::experiment::{Comparable, Published, PublishedValue, Statistic};
use crate::results::{Known, Row, Spread, Status};
use bentpipe_plot::escape;

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

/// Rows of one link and task: figures, bars, and what others have published.
pub(super) fn table(rows: &[Row]) -> String {
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
    let compared = rows.iter().any(|row| !row.published.is_empty());
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
            true => beside(row, &mut sources),
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

/// What others have published, with the numbers of the sources, and what was measured as a multiple of it.
fn beside<'a>(row: &'a Row, sources: &mut Vec<&'a str>) -> String {
    let mut number = |figure: &'a Published| {
        let known = sources.iter().position(|source| *source == figure.source);
        known.unwrap_or_else(|| {
            sources.push(&figure.source);
            sources.len() - 1
        }) + 1
    };
    let said = row.published.iter().map(|figure| {
        let (text, number) = (escape(&figure.text()), number(figure));
        let class = match figure.comparable {
            Comparable::All => "",
            Comparable::Ratio => " class=\"other\"",
        };
        format!("<span{class}>{text}<sup>{number}</sup></span>")
    });
    let said: Vec<String> = said.collect();
    let judged: Vec<String> = row
        .published
        .iter()
        .map(|figure| judged(row, figure))
        .collect();
    if said.is_empty() {
        return "<td>–</td><td>–</td>".into();
    }
    let [said, judged] = [said, judged].map(|texts| texts.join("<br>"));
    format!("<td>{said}</td><td>{judged}</td>")
}

/// What was measured beside a published figure, in words where it is far from it.
fn judged(row: &Row, figure: &Published) -> String {
    if let PublishedValue::Failed(published) = figure.value {
        return row.failures().map_or("–".into(), |own| {
            format!("{own} failed{}", mark_failures(own, published))
        });
    }
    if figure.comparable == Comparable::Ratio {
        return "<span class=\"other\">other content</span>".into();
    }
    let Some(ratio) = row.over(figure) else {
        return "–".into();
    };
    // The median has a column of its own.
    let own = match (figure.value, figure.statistic) {
        (PublishedValue::Seconds(_), Statistic::Mean) => row
            .figures
            .map(|figures| format!(" (mean {})", escape(&figures.mean.seconds()))),
        _ => None,
    };
    escape(&ratio.ratio(2)) + &own.unwrap_or_default() + &mark(ratio)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Figures;

    #[test]
    fn a_column_is_there_where_a_row_has_it() {
        let row = |lost: Option<f64>| Row {
            lost,
            repairs: lost.map_or([None; 3], |_| [Some(2.5e6), Some(4e5), Some(0.031)]),
            ..Row::default()
        };
        let text = table(&[row(Some(0.0125)), row(None)]);
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

    fn figure(value: PublishedValue, statistic: Statistic) -> Published {
        Published {
            contender: String::new(),
            scenario: String::new(),
            task: String::new(),
            value,
            statistic,
            comparable: Comparable::All,
            source: "S & co".into(),
        }
    }

    fn row(seconds: f64, published: Vec<Published>) -> Row {
        Row {
            figures: Figures::of(seconds),
            published,
            ..Row::default()
        }
    }

    #[test]
    fn what_was_published_has_its_source_and_what_is_far_from_it_a_mark() {
        let ten = figure(PublishedValue::Seconds(10.0), Statistic::Median);
        let mut other = ten.clone();
        other.comparable = Comparable::Ratio;
        let rows = [
            row(11.4, vec![ten.clone()]),
            row(11.6, vec![ten]),
            row(1.0, Vec::new()),
            row(90.0, vec![other]),
        ];
        let text = table(&rows);
        for part in [
            "<td><span>10.00 s, median<sup>1</sup></span></td><td>1.14</td>",
            "<td><span>10.00 s, median<sup>1</sup></span></td><td>1.16 <b>16 % more</b></td>",
            "<td>–</td><td>–</td><td>0 of 0</td>",
            "<td><span class=\"other\">10.00 s, median<sup>1</sup></span></td><td><span class=\"other\">other content</span></td>",
        ] {
            assert_eq!(text.matches(part).count(), 1, "{part}: {text}");
        }
        assert_eq!(text.matches("<sup>1</sup> S &amp; co</p>").count(), 1);
        assert!(!table(&[Row::default()]).contains("published"));
    }

    #[test]
    fn figures_of_any_kind_are_compared_with_their_own() {
        let mean = figure(PublishedValue::Seconds(10.0), Statistic::Mean);
        let mut slow = row(20.0, vec![mean.clone()]);
        slow.figures.as_mut().unwrap().mean = Known::exactly(8.0);
        let rate = figure(PublishedValue::BitsPerS(4e6), Statistic::Median);
        let mut fast = row(2.0, vec![mean, rate]);
        fast.content = Some(1e6);
        let failed = figure(
            PublishedValue::Failed("2 of 5".parse().unwrap()),
            Statistic::Median,
        );
        let mut faded = row(1.0, vec![failed]);
        faded.runs = [5, 3, 0, 0, 2];
        let text = table(&[slow, fast, faded]);
        for part in [
            "<td><span>10.00 s, mean<sup>1</sup></span></td><td>0.80 (mean 8.00 s) <b>20 % less</b></td>",
            "<span>4.00 Mbit/s, median<sup>1</sup></span></td>",
            "0.20 (mean 2.00 s) <b>80 % less</b><br>1.00</td>",
            "<td><span>2 of 5 failed<sup>1</sup></span></td><td>0 of 5 failed <b>fewer</b></td>",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
