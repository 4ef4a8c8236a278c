//! `at`: where links, or tasks, lie on the experiment's `axis`.

use std::collections::BTreeMap;

use bentpipe_config::{ConfigError, Source};
use serde::Deserialize;
use toml::{Spanned, Table, Value};

use super::{Along, Axis, Task};

/// `[task.NAME]`
#[derive(Debug, Deserialize)]
pub(crate) struct PlacedTask {
    at: Option<f64>,
    title: Option<String>,
    #[serde(flatten)]
    task: Task,
}

impl PlacedTask {
    /// Title that pages show the task by.
    pub(super) fn title(&self) -> Option<&str> {
        self.title.as_deref()
    }

    /// The task, wherever it lies.
    pub(crate) fn into_task(self) -> Task {
        self.task
    }
}

/// Takes out of the links where each lies on the axis that is called `of`; or tasks lie there.
pub(super) fn axis(
    source: &Source,
    of: Option<Spanned<String>>,
    links: &mut BTreeMap<String, Table>,
    tasks: &BTreeMap<Spanned<String>, PlacedTask>,
) -> Result<Option<Axis>, ConfigError> {
    let (of_links, of_tasks) = (links_at(source, links)?, tasks_at(source, tasks)?);
    let first = |table: &str, at: &BTreeMap<String, f64>| {
        at.keys().next().map(|name| format!("{table}.{name}"))
    };
    let placed = first("link", &of_links).or_else(|| first("task", &of_tasks));
    match (of, placed) {
        (None, None) => Ok(None),
        (None, Some(key)) => {
            let text =
                "`at` has no `axis` to lie on; say under `[experiment]` what it is, and its unit";
            Err(source.error_at_key(&key, text))
        }
        (Some(of), None) => {
            let text = "nothing lies on the `axis`; give links or tasks an `at`, or remove it";
            Err(source.error(&of.span(), text))
        }
        (Some(of), Some(_)) if !of_links.is_empty() && !of_tasks.is_empty() => {
            let text =
                "links and tasks have an `at`, but there is one `axis`; leave it to one of them";
            Err(source.error(&of.span(), text))
        }
        (Some(of), Some(_)) => {
            let (along, at) = match of_tasks.is_empty() {
                true => (Along::Links, of_links),
                false => (Along::Tasks, of_tasks),
            };
            let of = of.into_inner();
            Ok(Some(Axis { of, along, at }))
        }
    }
}

fn links_at(
    source: &Source,
    links: &mut BTreeMap<String, Table>,
) -> Result<BTreeMap<String, f64>, ConfigError> {
    let mut at = BTreeMap::new();
    for (name, table) in links {
        let place = match table.remove("at") {
            None => continue,
            Some(Value::Float(place)) => place,
            Some(Value::Integer(place)) => place as f64,
            Some(_) => f64::NAN,
        };
        at.insert(
            name.clone(),
            checked(source, &format!("link.{name}"), place)?,
        );
    }
    Ok(at)
}

fn tasks_at(
    source: &Source,
    tasks: &BTreeMap<Spanned<String>, PlacedTask>,
) -> Result<BTreeMap<String, f64>, ConfigError> {
    let placed = tasks.iter().filter_map(|(name, task)| {
        let name = name.get_ref();
        let place = checked(source, &format!("task.{name}"), task.at?);
        Some(place.map(|place| (name.clone(), place)))
    });
    placed.collect()
}

fn checked(source: &Source, key: &str, place: f64) -> Result<f64, ConfigError> {
    if place.is_finite() {
        return Ok(place);
    }
    let text = "`at` is a number: where it lies on the experiment's `axis`";
    Err(source.error_at_key(key, text.to_owned()))
}
