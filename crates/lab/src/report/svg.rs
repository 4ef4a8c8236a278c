//! Figures as SVG, for papers and for pages elsewhere: bars, lines, distributions and heat maps, in the colours of the page on
//! light ground.

mod heat;

use std::collections::BTreeMap;
use std::error::Error;

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;
use serde_json::Value;

use super::colours::{DIAMOND, Look, Marker};
use super::dashes::dashes;
use super::figures::{key, longest};

/// Width of a figure in pixels.
const WIDTH: u32 = 900;

/// Height of a figure of lines in pixels.
const HEIGHT: u32 = 380;

/// Height of a bar's row in pixels.
const ROW: i32 = 26;

/// Room for the legend, right of the lines, in pixels.
const LEGEND: u32 = 260;

/// Radius of a marker in pixels.
const MARKER: f64 = 5.0;

/// Family of fonts.
const FONT: &str = "sans-serif";

/// Room that a figure is drawn in.
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Result of drawing.
type Drawn = std::result::Result<(), Box<dyn Error>>;

/// The figure that is made of `data`, as the text of an SVG file.
///
/// # Errors
/// The data are of no kind that can be drawn.
pub(super) fn text(data: &Value, looks: &BTreeMap<String, Look>) -> Result<String> {
    let curves = data["curves"].as_array().map_or(&[][..], Vec::as_slice);
    let height = match data["kind"].as_str() {
        Some("bars") => 76 + ROW as u32 * curves.len() as u32,
        Some("heat") => heat::height(data),
        _ => HEIGHT,
    };
    let mut text = String::new();
    let area = SVGBackend::with_string(&mut text, (WIDTH, height)).into_drawing_area();
    let drawn = area.fill(&WHITE).map_err(Into::into);
    let drawn = drawn.and_then(|()| match data["kind"].as_str() {
        Some("bars") => bars(&area, data, curves, looks),
        Some("heat") => heat::draw(&area, data),
        _ => lines(&area, data, curves, looks),
    });
    // The text is borrowed until the area is gone.
    let drawn = drawn.and_then(|()| area.present().map_err(Into::into));
    drawn.map_err(|error| anyhow!("cannot draw {}: {error}", data["title"]))?;
    drop(area);
    Ok(text)
}

/// Look of the curve or bar called `name`.
fn look(looks: &BTreeMap<String, Look>, name: &str) -> Look {
    looks.get(name).copied().unwrap_or_default()
}

fn colour(look: Look) -> RGBColor {
    let [red, green, blue] = look.rgb();
    RGBColor(red, green, blue)
}

fn name(curve: &Value) -> &str {
    curve["name"].as_str().unwrap_or_default()
}

fn bars(area: &Area<'_>, data: &Value, bars: &[Value], looks: &BTreeMap<String, Look>) -> Drawn {
    let (font, small) = ((FONT, 14), (FONT, 12));
    let title = data["title"].as_str().unwrap_or_default();
    area.draw(&Text::new(title.to_owned(), (10, 8), (FONT, 16)))?;
    let longest = longest(bars);
    let (left, room) = (250, f64::from(WIDTH) - 250.0 - 90.0);
    let at = |seconds: f64| left + (room * (seconds / longest).min(1.0)).round() as i32;
    for (bar, row) in bars.iter().zip(0..) {
        let (top, bottom) = (36 + ROW * row, 36 + ROW * row + ROW - 8);
        area.draw(&Text::new(name(bar).to_owned(), (10, top + 2), font))?;
        let end = at(bar["seconds"].as_f64().unwrap_or_default());
        let fill = colour(look(looks, name(bar)));
        let fill = match bar["given_up"] == true {
            true => fill.mix(0.5).filled(),
            false => fill.filled(),
        };
        area.draw(&Rectangle::new([(left, top), (end, bottom)], fill))?;
        if let Some(limit) = bar["limit"].as_f64().map(at) {
            let line = vec![(limit, top - 3), (limit, bottom + 3)];
            area.draw(&PathElement::new(line, BLACK.stroke_width(2)))?;
        }
        if let Some(published) = bar["published"].as_f64().map(at) {
            let marker = polygon((published, top.midpoint(bottom)), DIAMOND, 7.0);
            area.draw(&Polygon::new(marker.clone(), WHITE.filled()))?;
            area.draw(&closed(marker, BLACK.stroke_width(2)))?;
        }
        let shown = bar["shown"].as_str().unwrap_or_default().to_owned();
        area.draw(&Text::new(shown, (WIDTH as i32 - 82, top + 2), font))?;
    }
    let below = 36 + ROW * bars.len() as i32;
    let scale = [
        (0.0, "0 s".to_owned()),
        (longest, format!("{longest:.1} s")),
    ];
    for (seconds, label) in scale {
        area.draw(&Text::new(label, (at(seconds) - 10, below), small))?;
    }
    area.draw(&Text::new(key(bars), (10, below + 18), small))?;
    Ok(())
}

/// Corners of a marker of this radius around `centre`, all in pixels.
fn polygon(centre: (i32, i32), marker: Marker, radius: f64) -> Vec<(i32, i32)> {
    let corner = |[x, y]: [f64; 2]| {
        let x = f64::from(centre.0) + radius * x;
        let y = f64::from(centre.1) + radius * y;
        (x.round() as i32, y.round() as i32)
    };
    marker.polygon().map(corner).collect()
}

/// Line around a polygon.
fn closed(mut corners: Vec<(i32, i32)>, style: ShapeStyle) -> PathElement<(i32, i32)> {
    corners.extend(corners.first().copied());
    PathElement::new(corners, style)
}

/// Line of a figure in its coordinates.
struct Curve<'a> {
    name: &'a str,
    points: Vec<(f64, f64)>,
    /// Published figures at some of its places.
    published: Vec<(f64, f64)>,
}

impl<'a> Curve<'a> {
    /// Reads a line over `x`, or a distribution, which has steps.
    fn read(curve: &'a Value, x: &[f64]) -> Self {
        let column = |name: &str| -> Vec<(f64, f64)> {
            let values = curve[name].as_array().into_iter().flatten();
            let placed = x.iter().zip(values);
            placed
                .filter_map(|(x, y)| Some((*x, y.as_f64()?)))
                .collect()
        };
        let of = curve["of"].as_f64().unwrap_or(1.0);
        let seconds = curve["seconds"].as_array().into_iter().flatten();
        let seconds = seconds.filter_map(Value::as_f64).enumerate();
        let steps = seconds.flat_map(|(place, second)| {
            let [before, after] = [place, place + 1].map(|count| 100.0 * count as f64 / of);
            [(second, before), (second, after)]
        });
        let steps: Vec<(f64, f64)> = steps.collect();
        let points = match steps.is_empty() {
            true => column("y"),
            false => steps,
        };
        Self {
            name: name(curve),
            points,
            published: column("published"),
        }
    }
}

fn lines(area: &Area<'_>, data: &Value, curves: &[Value], looks: &BTreeMap<String, Look>) -> Drawn {
    let ratios = data["ratios"] == true;
    let scaled = |x: f64| if ratios { x.log10() } else { x };
    let places = data["x"].as_array().into_iter().flatten();
    let places: Vec<f64> = places.filter_map(Value::as_f64).map(scaled).collect();
    let curves: Vec<Curve<'_>> = curves.iter().map(|one| Curve::read(one, &places)).collect();
    let limit = data["limit"].as_array().into_iter().flatten();
    let limit = places.iter().zip(limit);
    let limit: Vec<_> = limit.filter_map(|(x, y)| Some((*x, y.as_f64()?))).collect();
    let points = || {
        let own = curves
            .iter()
            .flat_map(|curve| curve.points.iter().chain(&curve.published));
        own.chain(&limit).copied()
    };
    let first = match places.first() {
        Some(first) => *first,
        None => 0.0,
    };
    let last = points().map(|(x, _)| x).fold(first, f64::max);
    let highest = points().map(|(_, y)| y).fold(0.0, f64::max);
    let (left, right) = area.split_horizontally(WIDTH - LEGEND);
    let unit = data["unit"].as_str().unwrap_or("s");
    let title = data["title"].as_str().unwrap_or_default();
    area.draw(&Text::new(title.to_owned(), (10, 8), (FONT, 16)))?;
    let mut chart = ChartBuilder::on(&left)
        .margin(14)
        .margin_top(40)
        .x_label_area_size(30)
        .y_label_area_size(50)
        .build_cartesian_2d(
            first..last.max(first + f64::EPSILON),
            0.0..(highest * 1.05).max(f64::EPSILON),
        )?;
    let mut mesh = chart.configure_mesh();
    mesh.light_line_style(TRANSPARENT).disable_x_mesh();
    mesh.label_style((FONT, 12)).x_labels(0).draw()?;
    for place in ticks(&places, last) {
        let (x, y) = chart.backend_coord(&(place, 0.0));
        let shown = if ratios { 10_f64.powf(place) } else { place };
        let shown = format!("{} {unit}", decimal(shown));
        area.draw(&Text::new(shown, (x - 8, y + 8), (FONT, 12)))?;
    }
    let grey: ShapeStyle = BLACK.mix(0.5).into();
    for piece in dashes(limit.iter().map(|point| chart.backend_coord(point)), 3, 3) {
        area.draw(&PathElement::new(piece, grey))?;
    }
    for curve in &curves {
        let look = look(looks, curve.name);
        let style = colour(look).stroke_width(2);
        let points = curve.points.iter().copied();
        let pixels = points.clone().map(|point| chart.backend_coord(&point));
        match look.dash() {
            0 => area.draw(&PathElement::new(pixels.collect::<Vec<_>>(), style))?,
            dash => {
                for piece in dashes(pixels, 12 / dash as u32 + 2, 4) {
                    area.draw(&PathElement::new(piece, style))?;
                }
            }
        }
        let marker = polygon((0, 0), look.marker(), MARKER);
        let large = polygon((0, 0), look.marker(), 2.0 * MARKER);
        // A distribution has a step at each figure, and no place of its own for a marker.
        if data["kind"] == "lines" {
            let filled = style.filled();
            chart.draw_series(
                points.map(|point| EmptyElement::at(point) + Polygon::new(marker.clone(), filled)),
            )?;
        }
        chart.draw_series(
            curve
                .published
                .iter()
                .map(|point| EmptyElement::at(*point) + closed(large.clone(), style)),
        )?;
    }
    legend(&right, &curves, looks, !limit.is_empty())
}

/// Most places that have a label each.
const TICKS: usize = 12;

/// Places of the labels below a figure: those that were measured, unless they are too many.
fn ticks(places: &[f64], last: f64) -> Vec<f64> {
    if (1..=TICKS).contains(&places.len()) {
        return places.to_vec();
    }
    let first = places.first().copied().unwrap_or_default();
    let parts = 5;
    let tick = |part| first + (last - first) * f64::from(part) / f64::from(parts);
    (0..=parts).map(tick).collect()
}

/// A number with three places at most.
fn decimal(number: f64) -> String {
    let text = format!("{number:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Every curve's name in full, beside its marker.
fn legend(
    area: &Area<'_>,
    curves: &[Curve<'_>],
    looks: &BTreeMap<String, Look>,
    limit: bool,
) -> Drawn {
    let mut top = 44;
    for curve in curves {
        let look = look(looks, curve.name);
        let marker = polygon((12, top + 6), look.marker(), MARKER);
        area.draw(&Polygon::new(marker, colour(look).filled()))?;
        area.draw(&Text::new(curve.name.to_owned(), (26, top), (FONT, 13)))?;
        top += 20;
    }
    let published = curves.iter().any(|curve| !curve.published.is_empty());
    let signs = [
        (published, "hollow: published"),
        (limit, "dotted: physical limit"),
    ];
    for (_, sign) in signs.into_iter().filter(|(there, _)| *there) {
        area.draw(&Text::new(sign.to_owned(), (10, top + 4), (FONT, 12)))?;
        top += 18;
    }
    Ok(())
}
