//! Tasks that send text, beside those that send as much noise: whoever does not compress takes as long for both.

use crate::results::{Manifest, Row, Summary};

use super::figures;

/// Deviation up to which both count as equal, as a share.
const EQUAL: f64 = 0.02;

/// A sentence about the contenders that did a task with text and with noise; empty if none did.
pub(super) fn sentence(manifest: &Manifest, summary: &Summary) -> String {
    let tasks = figures::tasks(&manifest.text);
    let twin = |row: &Row| {
        let with_noise = tasks.get(&row.task)?.with_noise()?;
        let (name, _) = tasks.iter().find(|(_, task)| **task == with_noise)?;
        summary.row(&row.contender, &row.scenario, name)
    };
    let median = |row: &Row| row.figures?.median.value();
    let apart = summary.rows.iter().filter_map(|row| {
        let apart = median(row)? / median(twin(row)?)? - 1.0;
        Some((row, apart))
    });
    let farthest = apart.max_by(|(_, one), (_, other)| one.abs().total_cmp(&other.abs()));
    let Some((row, apart)) = farthest else {
        return String::new();
    };
    let percent = 100.0 * apart.abs();
    let text = if apart.abs() <= EQUAL {
        format!("No contender compresses: text takes as long as noise, within {percent:.1} %.")
    } else {
        let way = if apart < 0.0 { "less" } else { "more" };
        format!(
            "Text takes {percent:.0} % {way} time than noise with {} over {}, {}: chance, unless it compresses.",
            row.contender, row.scenario, row.task
        )
    };
    format!("<p>{}</p>\n", bentpipe_plot::escape(&text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Figures;

    #[test]
    fn who_does_not_compress_takes_as_long_for_text() {
        let manifest = Manifest::example(
            "[task.noise]\nkind = \"transfer\"\nsize = \"1 MB\"\n\
             [task.text]\nkind = \"transfer\"\nsize = \"1 MB\"\ncontent = \"text\"\n\
             [task.up]\nkind = \"transfer\"\nsize = \"1 MB\"\ndirection = \"up\"\n",
        );
        let row = |task: &str, seconds| Row {
            contender: "x".into(),
            scenario: "geo".into(),
            task: task.into(),
            figures: Figures::of(seconds),
            ..Row::default()
        };
        let said = |text| {
            let rows = vec![row("noise", 10.0), row("text", text), row("up", 1.0)];
            let question = String::new();
            sentence(&manifest, &Summary { question, rows })
        };
        assert!(
            said(10.1)
                .contains("No contender compresses: text takes as long as noise, within 1.0 %")
        );
        assert!(said(4.0).contains("Text takes 60 % less time than noise with x over geo, text"));
        let question = String::new();
        let rows = vec![row("up", 1.0)];
        assert_eq!(sentence(&manifest, &Summary { question, rows }), "");
    }
}
