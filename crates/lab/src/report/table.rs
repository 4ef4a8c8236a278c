//! Who took how long over one link for one task.

use std::fmt::Write as _;

use super::deviation::mark;
use crate::experiment::Statistic;
use crate::results::{Known, Outline, Row, Spread, Status};
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
pub(super) fn table(rows: &[Row], outline: &Outline) -> String {
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
    let compared = rows.iter().any(|row| row.published.is_some());
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
            true => beside(row, outline, &mut sources),
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

/// What others have published, with the number of its source, and what was measured as a multiple of it.
fn beside<'a>(row: &Row, outline: &'a Outline, sources: &mut Vec<&'a str>) -> String {
    let figure = outline.published(&row.contender, &row.scenario, &row.task);
    let Some(figure) = figure else {
        return "<td>–</td><td>–</td>".into();
    };
    let known = sources.iter().position(|source| *source == figure.source);
    let place = known.unwrap_or(sources.len());
    if known.is_none() {
        sources.push(&figure.source);
    }
    let published = Known::exactly(figure.seconds);
    let statistic = figure.statistic;
    let ratio = row.figures.map_or("–".into(), |figures| {
        let own = figures.statistic(statistic);
        let ratio = own.over(published);
        // The median has a column of its own.
        let own = match statistic {
            Statistic::Median => String::new(),
            Statistic::Mean => format!(" ({} {})", statistic.name(), escape(&own.seconds())),
        };
        escape(&ratio.ratio(2)) + &own + &mark(ratio)
    });
    let (seconds, name, number) = (figure.seconds, statistic.name(), place + 1);
    format!("<td>{seconds:.2} s, {name}<sup>{number}</sup></td><td>{ratio}</td>")
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
    use crate::experiment::Published;
    use crate::results::Figures;

    #[test]
    fn a_column_is_there_where_a_row_has_it() {
        let row = |lost: Option<f64>| Row {
            lost,
            repairs: lost.map_or([None; 3], |_| [Some(2.5e6), Some(4e5), Some(0.031)]),
            ..Row::default()
        };
        let text = table(&[row(Some(0.0125)), row(None)], &Outline::default());
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

    #[test]
    fn what_was_published_has_its_source_and_what_is_far_from_it_a_mark() {
        let row = |contender: &str, seconds: f64| Row {
            contender: contender.into(),
            figures: Figures::of(seconds),
            published: Some(10.0),
            ..Row::default()
        };
        let figure = |contender: &str| Published {
            contender: contender.into(),
            scenario: String::new(),
            task: String::new(),
            seconds: 10.0,
            statistic: Statistic::Median,
            source: "S & co".into(),
        };
        let outline = Outline {
            published: vec![figure("near"), figure("far")],
            ..Outline::default()
        };
        let rows = [row("near", 11.4), row("far", 11.6), row("alone", 1.0)];
        let text = table(&rows, &outline);
        for part in [
            "<td>10.00 s, median<sup>1</sup></td><td>1.14</td>",
            "<td>10.00 s, median<sup>1</sup></td><td>1.16 <b>16 % more</b></td>",
            "<td>–</td><td>–</td>",
        ] {
            assert_eq!(text.matches(part).count(), 1, "{part}: {text}");
        }
        assert_eq!(text.matches("<sup>1</sup> S &amp; co</p>").count(), 1);
        assert!(!table(&[Row::default()], &outline).contains("published"));
    }

    #[test]
    fn a_published_mean_is_compared_with_the_mean() {
        let mut row = Row {
            contender: "x".into(),
            figures: Figures::of(20.0),
            published: Some(10.0),
            ..Row::default()
        };
        row.figures.as_mut().unwrap().mean = Known::exactly(8.0);
        let outline = Outline {
            published: vec![Published {
                contender: "x".into(),
                scenario: String::new(),
                task: String::new(),
                seconds: 10.0,
                statistic: Statistic::Mean,
                source: "S".into(),
            }],
            ..Outline::default()
        };
        let text = table(&[row], &outline);
        let cells =
            "<td>10.00 s, mean<sup>1</sup></td><td>0.80 (mean 8.00 s) <b>20 % less</b></td>";
        assert!(text.contains(cells), "{text}");
    }
}
