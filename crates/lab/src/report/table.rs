//! Tables of an experiment: who took how long over each link for each task, and how sure that is.

use std::fmt::Write as _;

use super::deviation::{deviation, failures, mark};
use crate::experiment::{Comparable, Published, PublishedValue, Statistic, Titles};
use crate::results::{Known, Row, Spread, Status};
use bentpipe_plot::escape;

/// Fewer figures than these have no 95th percentile that is worth showing.
const FEWEST_OF_P95: usize = 20;

/// Column that is there if some row has it: the heading, and the cell of a row as HTML.
type Column = (&'static str, fn(&Row) -> Option<String>);

/// Columns of the table of what else was measured.
const MORE: [Column; 8] = [
    ("mean", |row| Some(escape(&row.figures?.mean.seconds()))),
    ("95 % interval of the median", |row| {
        Some(between(row.figures?.spread?))
    }),
    ("p95", |row| {
        let figures = row.figures?;
        (figures.count >= FEWEST_OF_P95).then(|| escape(&figures.p95.seconds()))
    }),
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

/// Rows of one link and task.
pub(super) fn places(rows: &[Row]) -> impl Iterator<Item = &[Row]> {
    rows.chunk_by(|one, other| (&one.scenario, &one.task) == (&other.scenario, &other.task))
}

/// A row of cells: each with its column's heading, which stands beside it where the screen is narrow.
fn line(headings: &[&str], cells: &[String], text: &mut String) {
    text.push_str("<tr>");
    for (heading, cell) in headings.iter().zip(cells) {
        // Writing into a String cannot fail, here and below.
        let _ = write!(text, "<td data-label=\"{}\">{cell}</td>", escape(heading));
    }
    text.push_str("</tr>\n");
}

/// Begins a table with these headings.
fn begin(class: &str, headings: &[&str]) -> String {
    let cells = headings
        .iter()
        .map(|heading| format!("<th>{}</th>", escape(heading)));
    format!(
        "<div class=\"table\"><table class=\"{class}\"><thead><tr>{}</tr></thead>\n",
        cells.collect::<String>()
    )
}

/// Heading of the rows of one link and task.
fn heading(rows: &[Row], titles: &Titles, columns: usize) -> String {
    let place = escape(&titles.place(&rows[0].scenario, &rows[0].task));
    format!(
        "<tbody><tr class=\"place\"><th colspan=\"{columns}\" scope=\"rowgroup\">{place}</th></tr>\n"
    )
}

/// Table of all rows: medians, ratios, and what others have published.
pub(super) fn table(rows: &[Row], titles: &Titles) -> String {
    let mut sources: Vec<&str> = Vec::new();
    let compared = rows.iter().any(|row| !row.published.is_empty());
    let headings: &[&str] = match compared {
        true => &[
            "contender",
            "median",
            "× first",
            "× limit",
            "published",
            "deviation",
            "valid runs",
        ],
        false => &["contender", "median", "× first", "× limit", "valid runs"],
    };
    let mut text = begin("cards", headings);
    for rows in places(rows) {
        text.push_str(&heading(rows, titles, headings.len()));
        let first = rows[0].figures.map(|figures| figures.median);
        for row in rows {
            line(
                headings,
                &cells(row, first, compared, &mut sources),
                &mut text,
            );
        }
        text.push_str("</tbody>\n");
    }
    text.push_str("</table></div>\n");
    for (place, source) in sources.iter().enumerate() {
        let number = place + 1;
        let source = escape(source);
        let _ = writeln!(text, "<p class=\"note\"><sup>{number}</sup> {source}</p>");
    }
    text
}

fn cells<'a>(
    row: &'a Row,
    first: Option<Known>,
    compared: bool,
    sources: &mut Vec<&'a str>,
) -> Vec<String> {
    let ratio = |known: Option<Known>| known.map_or("–".into(), |known| escape(&known.ratio(2)));
    let median = row.figures.map(|figures| figures.median);
    let all: usize = row.runs.iter().sum();
    let mut cells = vec![
        escape(&row.contender),
        median.map_or("–".into(), |known| escape(&known.seconds())),
        ratio(median.zip(first).map(|(own, first)| own.over(first))),
        ratio(row.ratio),
    ];
    if compared {
        cells.extend(beside(row, sources));
    }
    cells.push(format!("{} of {all}", row.runs[Status::Valid as usize]));
    cells
}

/// Table of what else was measured; empty if nothing was.
pub(super) fn more(rows: &[Row], titles: &Titles) -> String {
    let there = MORE
        .iter()
        .filter(|(_, shown)| rows.iter().any(|row| shown(row).is_some()));
    let columns: Vec<&Column> = there.collect();
    if columns.is_empty() {
        return String::new();
    }
    let names = columns.iter().map(|(name, _)| *name);
    let headings: Vec<&str> = std::iter::once("contender").chain(names).collect();
    let mut text = begin("cards", &headings);
    for rows in places(rows) {
        text.push_str(&heading(rows, titles, headings.len()));
        for row in rows {
            let shown = columns
                .iter()
                .map(|(_, shown)| shown(row).unwrap_or("–".into()));
            let cells: Vec<String> = std::iter::once(escape(&row.contender))
                .chain(shown)
                .collect();
            line(&headings, &cells, &mut text);
        }
        text.push_str("</tbody>\n");
    }
    text + "</table></div>\n"
}

/// Cells of a row's published figures, with the numbers of their sources, and of what was measured as a multiple of them.
fn beside<'a>(row: &'a Row, sources: &mut Vec<&'a str>) -> [String; 2] {
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
        return ["–".into(), "–".into()];
    }
    [said, judged].map(|texts| texts.join("<br>"))
}

/// What was measured beside a published figure, in words where it is far from it.
fn judged(row: &Row, figure: &Published) -> String {
    if let PublishedValue::Failed(published) = figure.value {
        return row.failures().map_or("–".into(), |own| {
            format!("{own} failed{}", mark(failures(own, published)))
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
    escape(&ratio.ratio(2)) + &own.unwrap_or_default() + &mark(deviation(ratio).as_deref())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Figures;

    fn shown(rows: &[Row]) -> String {
        table(rows, &Titles::default())
    }

    #[test]
    fn a_column_is_there_where_a_row_has_it() {
        let row = |lost: Option<f64>| Row {
            lost,
            repairs: lost.map_or([None; 3], |_| [Some(2.5e6), Some(4e5), Some(0.031)]),
            ..Row::default()
        };
        let text = more(&[row(Some(0.0125)), row(None)], &Titles::default());
        for part in [
            "<th>lost</th><th>recovered</th><th>wasted</th><th>overhead</th>",
            "<td data-label=\"lost\">1.25 %</td>",
            "<td data-label=\"lost\">–</td>",
            "<td data-label=\"recovered\">2.50 MB</td><td data-label=\"wasted\">0.40 MB</td><td data-label=\"overhead\">3.10 %</td>",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(
            !text.contains("first paint") && !text.contains("p95"),
            "{text}"
        );
        assert_eq!(more(&[Row::default()], &Titles::default()), "");
    }

    #[test]
    fn places_have_headings_in_the_words_of_the_file() {
        let own = |contender: &str, scenario: &str, seconds: f64| Row {
            contender: contender.into(),
            scenario: scenario.into(),
            task: "get".into(),
            ..row(seconds, Vec::new())
        };
        let rows = [
            own("plain", "s1", 4.0),
            own("bentpipe", "s1", 2.0),
            own("plain", "s2", 3.0),
        ];
        let titles = r#"{"links":{"s1":"half a megabit"},"tasks":{"get":"5 MB down"}}"#;
        let text = table(&rows, &serde_json::from_str(titles).unwrap());
        for part in [
            "scope=\"rowgroup\">half a megabit, 5 MB down<",
            "scope=\"rowgroup\">s2, 5 MB down<",
            "<td data-label=\"median\">2.00 s</td><td data-label=\"× first\">0.50</td>",
        ] {
            assert_eq!(text.matches(part).count(), 1, "{part}: {text}");
        }
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
        let text = shown(&rows);
        for part in [
            "<span>10.00 s, median<sup>1</sup></span></td><td data-label=\"deviation\">1.14</td>",
            "<span>10.00 s, median<sup>1</sup></span></td><td data-label=\"deviation\">1.16 <b>16 % more</b></td>",
            "<td data-label=\"deviation\">–</td><td data-label=\"valid runs\">0 of 0</td>",
            "<span class=\"other\">10.00 s, median<sup>1</sup></span></td><td data-label=\"deviation\"><span class=\"other\">other content</span></td>",
        ] {
            assert_eq!(text.matches(part).count(), 1, "{part}: {text}");
        }
        assert_eq!(text.matches("<sup>1</sup> S &amp; co</p>").count(), 1);
        assert!(!shown(&[Row::default()]).contains("published"));
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
        let text = shown(&[slow, fast, faded]);
        for part in [
            "<span>10.00 s, mean<sup>1</sup></span></td><td data-label=\"deviation\">0.80 (mean 8.00 s) <b>20 % less</b></td>",
            "<span>4.00 Mbit/s, median<sup>1</sup></span></td>",
            "0.20 (mean 2.00 s) <b>80 % less</b><br>1.00</td>",
            "<span>2 of 5 failed<sup>1</sup></span></td><td data-label=\"deviation\">0 of 5 failed <b>fewer</b></td>",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
