//! Heat maps as SVG: a coloured cell with its figure for each contender over each link.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use serde_json::Value;

use super::{Area, Drawn, FONT, WIDTH, name};

/// Height of a row, pixels.
const ROW: u32 = 26;
/// Room above the first row, pixels.
const ABOVE: u32 = 64;
/// Room for the names of contenders, pixels.
const NAMES: u32 = 260;
/// Widest column, pixels.
const WIDEST: u32 = 130;

/// Height of the map that is made of `data`, in pixels.
pub(super) fn height(data: &Value) -> u32 {
    let rows = data["rows"].as_array().map_or(0, Vec::len);
    ABOVE + ROW * u32::try_from(rows).unwrap_or(u32::MAX / ROW - ABOVE) + 10
}

pub(super) fn draw(area: &Area<'_>, data: &Value) -> Drawn {
    let list = |value: &'_ Value| value.as_array().cloned().unwrap_or_default();
    let (columns, rows) = (list(&data["columns"]), list(&data["rows"]));
    let title = data["title"].as_str().unwrap_or_default();
    area.draw(&Text::new(title.to_owned(), (10, 8), (FONT, 16)))?;
    let count = u32::try_from(columns.len().max(1))?;
    let width = ((WIDTH - NAMES) / count).min(WIDEST);
    let left = |column: u32| (NAMES + column * width) as i32;
    let centred = |size: u32| {
        let style = TextStyle::from((FONT, size).into_font());
        style.pos(Pos::new(HPos::Center, VPos::Center))
    };
    for (column, place) in columns.iter().zip(0..) {
        let text = column.as_str().unwrap_or_default();
        // Letters are about half as wide as they are high.
        let letters = u32::try_from(text.chars().count().max(1))?;
        let style = centred((2 * width / letters).clamp(5, 12));
        let at = (left(place) + width as i32 / 2, ABOVE as i32 - 14);
        area.draw(&Text::new(text.to_owned(), at, style))?;
    }
    for (row, number) in rows.iter().zip(0..) {
        let top = (ABOVE + ROW * number) as i32;
        let bottom = top + ROW as i32;
        let at = (10, top + 6);
        area.draw(&Text::new(name(row).to_owned(), at, (FONT, 13)))?;
        for (cell, place) in list(&row["cells"]).iter().zip(0..) {
            let (from, to) = (left(place), left(place + 1));
            if let Some(colour) = cell["colour"].as_str().and_then(colour) {
                area.draw(&Rectangle::new(
                    [(from + 1, top + 1), (to - 1, bottom - 1)],
                    colour.filled(),
                ))?;
            }
            let ink = cell["ink"].as_str().and_then(colour).unwrap_or(BLACK);
            let text = cell["text"].as_str().unwrap_or_default().to_owned();
            let at = (from.midpoint(to), top.midpoint(bottom));
            area.draw(&Text::new(text, at, centred(12).color(&ink)))?;
        }
    }
    Ok(())
}

/// The colour `#rrggbb` or `#rgb`.
fn colour(text: &str) -> Option<RGBColor> {
    let digits = text.strip_prefix('#')?;
    let digits: String = match digits.len() {
        3 => digits.chars().flat_map(|digit| [digit, digit]).collect(),
        _ => digits.to_owned(),
    };
    let part = |from: usize| u8::from_str_radix(digits.get(from..from + 2)?, 16).ok();
    Some(RGBColor(part(0)?, part(2)?, part(4)?))
}
