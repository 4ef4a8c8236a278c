//! Figures of an experiment, of each kind that its results have.
//!
//! Bars and heat maps are HTML. Lines and distributions are data, which the page's script draws by uPlot.

mod bars;
mod goodput;
mod heat;
mod lines;
mod series;
mod sweep;

use serde_json::{Value, json};

use super::Results;
use super::table::places;
use crate::experiment::FigureKind;
use crate::results::{Row, shares};
use bentpipe_plot::escape;

pub(super) use bars::{key, longest};
pub(super) use lines::tasks;

/// Fewer figures than this make no distribution.
const FEWEST: usize = 5;

/// Chart of one kind: bars, lines, distributions or a heat map.
pub(super) struct Chart {
    kind: FigureKind,
    form: Form,
}

enum Form {
    /// Data of bars.
    Bars(Value),
    /// Data of a heat map.
    Heat(Value),
    /// Heading, and what the script draws.
    Data(String, Value),
}

/// All figures of an experiment; those of the kind that fits it best come first.
pub(super) fn all(part: &Results) -> Vec<Chart> {
    let Results {
        manifest,
        records,
        summary,
        ..
    } = part;
    let outline = &manifest.outline;
    let mut figures = Vec::new();
    let mut add = |kind, form| figures.push(Chart { kind, form });
    for (heading, data) in sweep::figures(manifest, summary, records) {
        add(FigureKind::Axis, Form::Data(heading, data));
    }
    for (heading, data) in goodput::figures(manifest, summary, records) {
        add(FigureKind::BySize, Form::Data(heading, data));
    }
    for rows in places(&summary.rows) {
        if let Some(bars) = bars::data(rows, &outline.titles) {
            add(FigureKind::Bars, Form::Bars(bars));
        }
    }
    for (heading, data) in series::figures(manifest, summary, records) {
        add(FigureKind::Series, Form::Data(heading, data));
    }
    for rows in places(&summary.rows) {
        let curves: Vec<Value> = rows.iter().filter_map(|row| curve(row, part)).collect();
        if !curves.is_empty() {
            let title = "Share of figures that are no larger";
            let data = json!({ "kind": "shares", "title": title, "curves": curves });
            let heading = outline.titles.place(&rows[0].scenario, &rows[0].task);
            add(FigureKind::Ecdf, Form::Data(heading, data));
        }
    }
    for map in heat::figures(outline, summary) {
        add(FigureKind::Heat, Form::Heat(map));
    }
    figures
}

/// All figures of an experiment as data, the one that its page shows first before the others.
pub(super) fn data(part: &Results) -> Vec<Value> {
    let mut figures = all(part);
    if let Some(place) = first(part.manifest.outline.figure, &figures) {
        let shown = figures.remove(place);
        figures.insert(0, shown);
    }
    let data = figures.into_iter().map(|figure| match figure.form {
        Form::Bars(data) | Form::Heat(data) => data,
        Form::Data(heading, mut data) => {
            let title = data["title"].as_str().unwrap_or_default();
            data["title"] = format!("{heading}: {title}").into();
            data
        }
    });
    data.collect()
}

/// Place of the figure that is shown first: the first of the wanted kind, else the first of all.
pub(super) fn first(wanted: Option<FigureKind>, figures: &[Chart]) -> Option<usize> {
    let of_kind = |kind| figures.iter().position(|figure| figure.kind == kind);
    let found = wanted.and_then(of_kind);
    found.or_else(|| (!figures.is_empty()).then_some(0))
}

/// The figures of a row in order, if they are enough, and how many they are with those of runs that were given up.
fn curve(row: &Row, part: &Results) -> Option<Value> {
    let names = [&*row.contender, &*row.scenario, &*row.task];
    let own = part
        .records
        .values()
        .filter(|record| record.key.names() == names);
    let (seconds, of) = shares(&own.collect::<Vec<_>>());
    (seconds.len() >= FEWEST)
        .then(|| json!({ "name": row.contender, "seconds": seconds, "of": of }))
}

/// Names of the curves in the data of figures, in the order of the page.
pub(super) fn names(data: &[Value]) -> impl Iterator<Item = &str> {
    let curves = data.iter().filter_map(|figure| figure["curves"].as_array());
    curves.flatten().filter_map(|curve| curve["name"].as_str())
}

/// Data of the figures that the page's script draws, in the order of the page.
#[derive(Default)]
pub(super) struct Drawn(Vec<Value>);

impl Drawn {
    /// HTML of a figure: of one that the script draws the room for it, with its heading.
    pub(super) fn show(&mut self, figure: Chart) -> String {
        match figure.form {
            Form::Heat(data) => heat::html(&data),
            Form::Bars(data) => bars::html(&data),
            Form::Data(heading, mut data) => {
                let id = format!("figure-{}", self.0.len());
                let heading = escape(&heading);
                let title = escape(data["title"].as_str().unwrap_or_default());
                data["id"] = id.as_str().into();
                self.0.push(data);
                format!(
                    "<h3>{heading}</h3>\n<div class=\"plot\" id=\"{id}\" role=\"img\" aria-label=\"{title}; {heading}. The figures \
                     are in the table.\"></div>\n"
                )
            }
        }
    }

    /// All of them.
    pub(super) fn into_data(self) -> Vec<Value> {
        self.0
    }
}
