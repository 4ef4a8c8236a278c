//! Lines over a parameter, one per contender: medians with their intervals, published figures, the physical limit.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::experiment::{Comparable, PlacedTask, PublishedValue, RunKey, Task};
use crate::results::{Record, Row};

/// From this ratio of the largest to the smallest place on, places are as far apart as their ratios say.
const RATIOS: f64 = 10.0;

/// The part of an experiment's file that figures ask for.
#[derive(Deserialize)]
struct File {
    task: BTreeMap<String, PlacedTask>,
}

/// The tasks in the text of an experiment. Results that were read have been an experiment; what is none has no tasks.
pub(in super::super) fn tasks(text: &str) -> BTreeMap<String, Task> {
    let tasks = toml::from_str::<File>(text).map_or_else(|_| BTreeMap::new(), |file| file.task);
    let task = |(name, placed): (String, PlacedTask)| (name, placed.into_task());
    tasks.into_iter().map(task).collect()
}

/// A row, and where it lies.
pub(super) struct Point<'a> {
    /// The line that it belongs to.
    pub(super) line: &'a str,
    /// Place of the point on the axis.
    pub(super) x: f64,
    /// Row that was measured there.
    pub(super) row: &'a Row,
    /// Shown as goodput of so many bytes; seconds without.
    pub(super) bytes: Option<u64>,
}

impl Point<'_> {
    fn shown(&self, seconds: f64) -> f64 {
        match self.bytes {
            Some(bytes) => bytes as f64 * 8.0 / seconds / 1e6,
            None => seconds,
        }
    }

    /// The median, and the interval from its lower end.
    fn median(&self) -> [Option<f64>; 3] {
        let figures = self.row.figures;
        let spread = figures.and_then(|figures| figures.spread);
        let interval = spread.filter(|spread| spread.confident);
        let ends = interval.and_then(|spread| {
            let [low, high] = spread.ends.map(|end| Some(self.shown(end.value()?)));
            low.zip(high)
        });
        [
            self.known().map(|seconds| self.shown(seconds)),
            ends.map(|(one, other)| one.min(other)),
            ends.map(|(one, other)| one.max(other)),
        ]
    }

    /// The first published figure that may be judged, as it is shown.
    fn published(&self) -> Option<f64> {
        let mut judged = self.row.published.iter();
        let figure = judged.find(|figure| figure.comparable == Comparable::All)?;
        match (figure.value, self.bytes) {
            (PublishedValue::Seconds(seconds), _) => Some(self.shown(seconds)),
            (value, Some(_)) => Some(value.bits_per_s()? / 1e6),
            _ => None,
        }
    }

    /// The median in seconds, if that is a number.
    fn known(&self) -> Option<f64> {
        self.row.figures?.median.value()
    }

    /// The best that physics allowed for the row's runs.
    fn limit(&self, records: &BTreeMap<RunKey, Record>) -> Option<f64> {
        let names = [&*self.row.contender, &*self.row.scenario, &*self.row.task];
        let own = records
            .values()
            .filter(|record| record.key.names() == names);
        let least = own.filter_map(|record| record.limit_s).reduce(f64::min)?;
        Some(self.shown(least))
    }
}

/// The figure of these points over an axis in `unit`; none if they lie at fewer than two places.
pub(super) fn figure(
    title: &str,
    unit: &str,
    points: &[Point<'_>],
    records: &BTreeMap<RunKey, Record>,
) -> Option<Value> {
    let measured = points.iter().filter(|point| point.known().is_some());
    let mut x: Vec<f64> = measured.map(|point| point.x).collect();
    x.sort_by(f64::total_cmp);
    x.dedup();
    let [first, .., last] = x[..] else {
        return None;
    };
    // A value per place, where there is one.
    let column = |points: &[&Point<'_>], value: &dyn Fn(&Point<'_>) -> Option<f64>| {
        let at = |x: &f64| {
            let mut own = points.iter().filter(|point| point.x == *x);
            own.find_map(|point| value(point))
        };
        x.iter().map(at).collect::<Vec<Option<f64>>>()
    };
    let mut names: Vec<&str> = Vec::new();
    for point in points.iter().filter(|point| point.known().is_some()) {
        if !names.contains(&point.line) {
            names.push(point.line);
        }
    }
    let curves: Vec<Value> = names
        .iter()
        .map(|name| {
            let own: Vec<&Point<'_>> = points.iter().filter(|point| point.line == *name).collect();
            json!({
                "name": name,
                "y": column(&own, &|point| point.median()[0]),
                "low": column(&own, &|point| point.median()[1]),
                "high": column(&own, &|point| point.median()[2]),
                "published": column(&own, &|point| point.published()),
            })
        })
        .collect();
    let all: Vec<&Point<'_>> = points.iter().collect();
    let limit = column(&all, &|point| point.limit(records));
    Some(json!({
        "kind": "lines",
        "title": title,
        "unit": unit,
        "ratios": first > 0.0 && last / first >= RATIOS,
        "x": x,
        "curves": curves,
        "limit": limit,
    }))
}
