//! How much longer one took than another, beside what others have published of that.

use std::fmt::Write as _;

use super::deviation::mark;
use crate::experiment::PublishedRatio;
use crate::results::{Known, Outline, Summary};
use bentpipe_plot::escape;

/// A table of the ratios whose tasks were done; empty if none was.
pub(super) fn table(outline: &Outline, summary: &Summary) -> String {
    let done = |ratio: &&PublishedRatio| {
        outline.scenarios.contains(&ratio.scenario) && outline.tasks.contains(&ratio.task)
    };
    let ratios: Vec<&PublishedRatio> = outline
        .claims
        .published_ratios
        .iter()
        .filter(done)
        .collect();
    if ratios.is_empty() {
        return String::new();
    }
    let mut text = String::from(
        "<h3>Published ratios</h3>\n<div class=\"table\"><table><tr><th>contender</th><th>compared with</th><th>link, task</th>\
         <th>published</th><th>here</th><th>source</th></tr>\n",
    );
    for one in ratios {
        let figure = |contender: &str| {
            let names = [contender, &one.scenario, &one.task];
            let mut rows = summary.rows.iter();
            let row = rows.find(|row| [&row.contender, &row.scenario, &row.task] == names)?;
            row.figures.map(|figures| figures.statistic(one.statistic))
        };
        let here = figure(&one.contender).zip(figure(&one.to));
        let nobody = match outline.claims.not_built.contains(&one.contender) {
            true => "not built yet",
            false => "–",
        };
        let here = here.map_or(nobody.into(), |(own, other)| {
            let ratio = own.over(other);
            let mark = mark(ratio.over(Known::exactly(one.ratio)));
            format!("{} ×{mark}", escape(&ratio.ratio(2)))
        });
        let [contender, to, scenario, task, source] = [
            &one.contender,
            &one.to,
            &one.scenario,
            &one.task,
            &one.source,
        ]
        .map(|name| escape(name));
        // Writing into a String cannot fail.
        let _ = writeln!(
            text,
            "<tr><td>{contender}</td><td>{to}</td><td>{scenario}, {task}</td><td>{:.2} × ({})</td><td>{here}</td><td>{source}</td></tr>",
            one.ratio,
            one.statistic.name()
        );
    }
    text + "</table></div>\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Claims, Statistic};
    use crate::results::{Figures, Row};

    #[test]
    fn a_ratio_of_medians_stands_beside_the_published_one() {
        let row = |contender: &str, seconds: f64| Row {
            contender: contender.into(),
            scenario: "s1".into(),
            task: "get".into(),
            figures: Figures::of(seconds),
            ..Row::default()
        };
        let summary = Summary {
            question: String::new(),
            rows: vec![row("plain", 10.0), row("ipsec", 12.0)],
        };
        let ratio = |task: &str| PublishedRatio {
            contender: "ipsec".into(),
            to: "plain".into(),
            scenario: "s1".into(),
            task: task.into(),
            ratio: 1.25,
            statistic: Statistic::Median,
            source: "S & co".into(),
        };
        let mut outline = Outline {
            scenarios: vec!["s1".into()],
            tasks: vec!["get".into()],
            claims: Claims {
                published_ratios: vec![ratio("get"), ratio("put")],
                ..Claims::default()
            },
            ..Outline::default()
        };
        let text = table(&outline, &summary);
        let cells = "<td>s1, get</td><td>1.25 × (median)</td><td>1.20 ×</td><td>S &amp; co</td>";
        assert!(text.contains(cells) && !text.contains("put"), "{text}");
        outline.claims.published_ratios[0].ratio = 2.0;
        let text = table(&outline, &summary);
        assert!(text.contains("<td>1.20 × <b>40 % less</b></td>"), "{text}");
        outline.claims.published_ratios[0].contender = "sle@hosts".into();
        outline.claims.not_built = vec!["sle@hosts".into()];
        let text = table(&outline, &summary);
        assert!(text.contains("<td>not built yet</td>"), "{text}");
        outline.claims.published_ratios.clear();
        assert_eq!(table(&outline, &summary), "");
    }
}
