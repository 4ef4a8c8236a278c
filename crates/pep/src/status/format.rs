//! Figures and lines as people read them: quantities with units, labelled lines of 80 columns.

use std::fmt::{self, Formatter};

const WIDTH: usize = 80;
const LABEL: usize = 14;

/// Counts by cause as text, without the causes that never happened; empty if none has.
pub(super) fn counted(causes: &[(u64, &str)]) -> String {
    let happened = causes.iter().filter(|(count, _)| *count > 0);
    let happened: Vec<_> = happened
        .map(|(count, cause)| format!("{count} {cause}"))
        .collect();
    happened.join(", ")
}

/// Units that stay in one line with their figures.
const UNITS: [&str; 16] = [
    "B", "kB", "MB", "GB", "TB", "bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s", "ms", "s", "min",
    "h", "d", "%",
];

/// Words of `text`, figures together with their units.
fn pieces(text: &str) -> Vec<String> {
    let mut pieces: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let unit = UNITS.contains(&word.trim_end_matches([',', ';', ')']));
        match pieces.last_mut() {
            Some(figure) if unit && figure.trim_start_matches('(').parse::<f64>().is_ok() => {
                *figure += " ";
                *figure += word;
            }
            _ => pieces.push(word.to_owned()),
        }
    }
    pieces
}

/// One labelled line, wrapped between words, and inside a word that is wider than a line.
pub(super) fn line(f: &mut Formatter<'_>, label: &str, text: &str) -> fmt::Result {
    let mut rows = vec![String::new()];
    let mut width = 0;
    for word in pieces(text) {
        let length = word.chars().count();
        if width > 0 && LABEL + width + 1 + length > WIDTH {
            rows.push(String::new());
            width = 0;
        }
        if width > 0 {
            rows.last_mut().expect("never empty").push(' ');
            width += 1;
        }
        for c in word.chars() {
            if LABEL + width == WIDTH {
                rows.push(String::new());
                width = 0;
            }
            rows.last_mut().expect("never empty").push(c);
            width += 1;
        }
    }
    for (index, row) in rows.iter().enumerate() {
        let label = if index == 0 { label } else { "" };
        writeln!(f, "{}", format!("{label:LABEL$}{row}").trim_end())?;
    }
    Ok(())
}

/// The two leading units of a span.
pub(crate) fn span(seconds: u64) -> String {
    match (
        seconds / 86_400,
        seconds / 3600 % 24,
        seconds / 60 % 60,
        seconds % 60,
    ) {
        (0, 0, 0, s) => format!("{s} s"),
        (0, 0, min, s) => format!("{min} min {s} s"),
        (0, h, min, _) => format!("{h} h {min} min"),
        (d, h, ..) => format!("{d} d {h} h"),
    }
}

pub(crate) fn rate(bits: u64) -> String {
    scaled(bits, ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"])
}

pub(crate) fn size(bytes: u64) -> String {
    scaled(bytes, ["B", "kB", "MB", "GB", "TB"])
}

/// A number of things with their name, which is `one` for a single thing: "1 client", "2 clients".
pub(crate) fn quantity(number: u64, one: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {one}{plural}")
}

/// `value` in the largest unit that leaves at least 1, to three digits.
fn scaled(value: u64, units: [&str; 5]) -> String {
    let mut scale = 0;
    // 53 bits are plenty for three digits.
    let mut scaled = value as f64;
    while scaled >= 999.5 && scale + 1 < units.len() {
        scaled /= 1000.0;
        scale += 1;
    }
    let digits = if scale == 0 || scaled >= 99.95 { 0 } else { 1 };
    format!("{scaled:.digits$} {}", units[scale])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_stay_with_their_units() {
        let text = "TCP 851 B, repair 14.3 kB (19.6 %), 5 min 3 s";
        let expected = [
            "TCP",
            "851 B,",
            "repair",
            "14.3 kB",
            "(19.6 %),",
            "5 min",
            "3 s",
        ];
        assert_eq!(pieces(text), expected);
        // No figure, so no unit.
        assert_eq!(
            pieces("until B, 3 seconds"),
            ["until", "B,", "3", "seconds"]
        );
    }
}
