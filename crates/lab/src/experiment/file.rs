//! The experiment's file: its tables, and what must hold between them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bentpipe_config::{ConfigError, Source};
use bentpipe_units::{Seed, TimeSpan};
use serde::Deserialize;
use toml::Spanned;

use super::axis::{PlacedTask, axis};
use super::checks::{
    check_loads, check_name, check_rates, check_rises, check_size, check_takes_part, check_tasks,
    check_unique, checked_patience, checked_repeats,
};
use super::published::{
    Figure, Findings, Known, Pairs, Ranking, Ratio, Reason, Rise, expect_known,
};
use super::titles::Titles;
use super::variant::scenarios;
use super::{Experiment, Extent, FigureKind, NamedTask, Task};
use crate::contender::{Binary, Contender, Programs, check_programs};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExperimentFile {
    experiment: General,
    task: BTreeMap<Spanned<String>, PlacedTask>,
    #[serde(default)]
    link: BTreeMap<String, toml::Table>,
    #[serde(default)]
    contender: Programs,
    #[serde(default)]
    quick: Quick,
    #[serde(default)]
    published: Vec<Figure>,
    #[serde(default)]
    published_ratio: Vec<Ratio>,
    #[serde(default)]
    published_order: Vec<Ranking>,
    #[serde(default)]
    published_pairs: Vec<Pairs>,
    #[serde(default)]
    published_rise: Vec<Rise>,
    #[serde(default)]
    explanation: Vec<Reason>,
}

/// `[experiment]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct General {
    name: Spanned<String>,
    question: String,
    #[serde(default = "first_seed")]
    seed: Seed,
    contenders: Names,
    scenarios: Names,
    repeats: Spanned<u32>,
    #[serde(default = "usual_patience")]
    patience: Spanned<TimeSpan>,
    axis: Option<Spanned<String>>,
    figure: Option<FigureKind>,
    #[serde(default)]
    not_built: Names,
}

/// `[quick]`: what is different then.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Quick {
    contenders: Option<Names>,
    scenarios: Option<Names>,
    tasks: Option<Names>,
    repeats: Option<Spanned<u32>>,
    patience: Option<Spanned<TimeSpan>>,
}

pub(super) type Names = Vec<Spanned<String>>;

fn first_seed() -> Seed {
    Seed::new(1)
}

fn usual_patience() -> Spanned<TimeSpan> {
    Spanned::new(0..0, Duration::from_secs(600).into())
}

pub(super) fn read(
    source: &Source,
    extent: Extent,
    binaries: &[Binary],
) -> Result<Experiment, ConfigError> {
    let ExperimentFile {
        experiment: general,
        task: placed,
        link: mut links,
        contender: mut programs,
        quick,
        published,
        published_ratio,
        published_order,
        published_pairs,
        published_rise,
        explanation,
    } = source.parse()?;
    check_name(source, &general.name)?;
    let axis = axis(source, general.axis, &mut links, &placed)?;
    let titles = Titles::taken(source, &mut links, &placed)?;
    let order = in_order(&placed);
    let tasks = placed.into_iter();
    let tasks: BTreeMap<String, Task> = tasks
        .map(|(name, placed)| (name.into_inner(), placed.into_task()))
        .collect();
    check_tasks(source, &tasks)?;
    for binary in binaries {
        check_takes_part(source, &general.contenders, binary)?;
        binary.put_into(&mut programs);
    }
    // All of the file is judged, whichever part of it is run.
    let everybody = contenders(source, &general.contenders, &programs)?;
    let everywhere = scenarios(source, &general.scenarios, links)?;
    let known = [
        everybody.iter().map(|one| one.name().to_owned()).collect(),
        everywhere.iter().map(|one| one.name.clone()).collect(),
        tasks.keys().cloned().collect::<BTreeSet<String>>(),
    ];
    let findings = Findings {
        figures: published,
        ratios: published_ratio,
        orders: published_order,
        pairs: published_pairs,
        rises: published_rise,
        not_built: general.not_built,
        explanations: explanation,
    };
    let claims = findings.claims(source, &known)?;
    check_rates(source, &claims, &tasks)?;
    check_loads(source, &claims, &tasks)?;
    check_rises(source, &claims, axis.as_ref())?;
    let [contender, scenario, task] = part(source, &quick, &known, extent)?;
    let (repeats, patience) = match extent {
        Extent::Full => (None, None),
        Extent::Quick => (quick.repeats, quick.patience),
        Extent::Published => (Some(Spanned::new(0..0, 1)), None),
    };
    let found = Experiment {
        name: general.name.into_inner(),
        question: general.question,
        seed: general.seed,
        extent,
        contenders: left(everybody, &contender, |one| one.name().to_owned()),
        scenarios: left(everywhere, &scenario, |one| one.name.clone()),
        tasks: left(named(tasks, &order), &task, |one| one.name.clone()),
        repeats: checked_repeats(source, repeats.unwrap_or(general.repeats))?,
        patience: checked_patience(source, &patience.unwrap_or(general.patience))?,
        claims,
        axis,
        titles,
        figure: general.figure,
        file: source.path().display().to_string(),
        text: source.text().to_owned(),
    };
    check_size(source, &found)?;
    Ok(found)
}

/// Names that a run of this `extent` keeps of contenders, scenarios and tasks; `None` where it keeps all. `[quick]` is judged in
/// any case.
fn part(
    source: &Source,
    quick: &Quick,
    known: &Known,
    extent: Extent,
) -> Result<[Option<BTreeSet<String>>; 3], ConfigError> {
    let part = select(source, quick, known)?;
    Ok(match extent {
        Extent::Full | Extent::Published => [None, None, None],
        Extent::Quick => part,
    })
}

/// Entries of `all` whose names are in `part`.
fn left<T>(all: Vec<T>, part: &Option<BTreeSet<String>>, name: impl Fn(&T) -> String) -> Vec<T> {
    let is_left = |one: &T| part.as_ref().is_none_or(|part| part.contains(&name(one)));
    all.into_iter().filter(is_left).collect()
}

/// Tasks with their names, in this `order`.
fn named(tasks: BTreeMap<String, Task>, order: &[String]) -> Vec<NamedTask> {
    let tasks = tasks.into_iter();
    let mut tasks: Vec<_> = tasks.map(|(name, task)| NamedTask { name, task }).collect();
    tasks.sort_by_key(|one| order.iter().position(|name| *name == one.name));
    tasks
}

/// Names of the tasks as they follow each other in the file.
fn in_order(tasks: &BTreeMap<Spanned<String>, PlacedTask>) -> Vec<String> {
    let mut names: Vec<&Spanned<String>> = tasks.keys().collect();
    names.sort_by_key(|name| name.span().start);
    let names = names.into_iter();
    names.map(|name| name.get_ref().clone()).collect()
}

fn contenders(
    source: &Source,
    names: &Names,
    programs: &Programs,
) -> Result<Vec<Contender>, ConfigError> {
    check_unique(source, names)?;
    let programs = check_programs(source, programs)?;
    let parse = |name: &Spanned<String>| {
        let parsed = Contender::parse(name.get_ref(), &programs);
        parsed.map_err(|error| source.error(&name.span(), error))
    };
    names.iter().map(parse).collect()
}

/// Contenders, scenarios and tasks that `[quick]` leaves; `None` where it leaves all.
fn select(
    source: &Source,
    quick: &Quick,
    known: &Known,
) -> Result<[Option<BTreeSet<String>>; 3], ConfigError> {
    let lists = [&quick.contenders, &quick.scenarios, &quick.tasks];
    for (names, known) in lists.iter().zip(known) {
        for name in names.iter().flatten() {
            expect_known(source, name, known)?;
        }
    }
    let set = |names: &Names| names.iter().map(|name| name.get_ref().clone()).collect();
    Ok(lists.map(|names| names.as_ref().map(set)))
}

#[cfg(test)]
mod tests;
