//! Panels of a page: curves of one unit, made of the lines of probes.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value};

pub(super) const DIRECTIONS: [&str; 2] = ["forward", "return"];

/// One line of probes of a terminal, at `t` seconds.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) t: f64,
    pub(super) ways: [Map<String, Value>; 2],
}

/// Curves of one unit, one below the other's axis.
#[derive(Debug, Serialize)]
pub(super) struct Panel {
    pub(super) title: &'static str,
    pub(super) unit: &'static str,
    /// True if its axis begins at 0.
    pub(super) from_zero: bool,
    pub(super) curves: Vec<Curve>,
    /// Words below the figure: what its numbers stand for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) note: Option<String>,
}

/// One line of a panel.
#[derive(Debug, Serialize)]
pub(super) struct Curve {
    pub(super) name: String,
    pub(super) y: Vec<Option<f64>>,
    /// Names of the values, where these are numbers of something; empty elsewhere.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) names: BTreeMap<u64, String>,
}

impl Curve {
    /// Makes a column. Digits finer than a millionth of the unit are cut: they only make the page longer.
    fn new(name: String, mut y: Vec<Option<f64>>) -> Self {
        for value in y.iter_mut().flatten() {
            *value = (*value * 1e6).round() / 1e6;
        }
        Self {
            name,
            y,
            names: BTreeMap::new(),
        }
    }
}

impl Panel {
    /// Panel whose axis begins at 0.
    pub(super) fn with_zero(self) -> Self {
        Self {
            from_zero: true,
            ..self
        }
    }
}

type Figure = fn(&[&Line], usize) -> Vec<Option<f64>>;

/// The curves of both directions that have any points.
pub(super) fn panel<const N: usize>(
    title: &'static str,
    unit: &'static str,
    lines: &[&Line],
    figures: [(&str, Figure); N],
) -> Panel {
    let mut curves = Vec::new();
    for (way, direction) in DIRECTIONS.into_iter().enumerate() {
        for (suffix, figure) in figures {
            let y = figure(lines, way);
            if y.iter().any(Option::is_some) {
                curves.push(Curve::new(format!("{direction}{suffix}"), y));
            }
        }
    }
    Panel {
        title,
        unit,
        from_zero: false,
        curves,
        note: None,
    }
}

pub(super) fn gauge(lines: &[&Line], way: usize, key: &str, scale: f64) -> Vec<Option<f64>> {
    let value = |line: &&Line| Some(line.ways[way].get(key)?.as_f64()? * scale);
    lines.iter().map(value).collect()
}

pub(super) fn capacity(lines: &[&Line], way: usize) -> Vec<Option<f64>> {
    gauge(lines, way, "capacity_bps", 1e-6)
}

pub(super) fn rate(lines: &[&Line], way: usize) -> Vec<Option<f64>> {
    let bytes = |line: &Line| {
        line.ways[way]
            .get("delivered_bytes")
            .and_then(Value::as_f64)
    };
    let grown = growth(lines, bytes);
    let times = std::iter::once(lines.first().map_or(0.0, |line| line.t))
        .chain(lines.windows(2).map(|pair| pair[1].t - pair[0].t));
    let rates = grown
        .into_iter()
        .zip(times)
        .map(|(bytes, time)| Some(bytes? * 8e-6 / time.max(1e-9)));
    rates.collect()
}

/// Growth of a counter since the line before; since zero at the first.
fn growth(lines: &[&Line], counter: impl Fn(&Line) -> Option<f64>) -> Vec<Option<f64>> {
    let mut before = 0.0;
    let mut step = |line: &&Line| {
        let now = counter(line)?;
        Some(now - std::mem::replace(&mut before, now))
    };
    lines.iter().map(&mut step).collect()
}

/// Packets lost per point, by cause; causes that never happened are left out.
pub(super) fn drops(lines: &[&Line]) -> Panel {
    let mut curves = Vec::new();
    for (way, direction) in DIRECTIONS.into_iter().enumerate() {
        let causes = lines
            .last()
            .and_then(|line| line.ways[way].get("dropped")?.as_object());
        for cause in causes.into_iter().flat_map(Map::keys) {
            let counter = |line: &Line| line.ways[way].get("dropped")?.get(cause)?.as_f64();
            let y = growth(lines, counter);
            if y.iter().flatten().any(|drops| *drops > 0.0) {
                curves.push(Curve::new(
                    format!("{direction} {}", cause.replace('_', " ")),
                    y,
                ));
            }
        }
    }
    Panel {
        title: "Drops",
        unit: "packets",
        from_zero: true,
        curves,
        note: None,
    }
}
