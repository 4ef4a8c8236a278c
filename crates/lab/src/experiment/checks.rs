//! What a file may ask for: names, sizes and counts, each refused at its line.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bentpipe_config::{ConfigError, Source};
use bentpipe_units::{ByteCount, TimeSpan};
use toml::Spanned;

use super::file::Names;
use super::{
    Along, Axis, Browser, Claims, Collection, Connections, Direction, Experiment, HandshakeEnd,
    Protocol, Published, PublishedRatio, Quantity, Task, Tls,
};
use crate::contender::Binary;
use crate::workload::{CONNECTIONS_PER_HOST, MOST_SERVERS};

/// Larger files than the web server makes.
const MOST_BYTES: ByteCount = ByteCount::new(1 << 33);
const MOST_SAMPLES: u32 = 10_000;
/// Objects of a page whose document names them all.
const MOST_OBJECTS: u16 = 500;
const MOST_REPEATS: u32 = 1000;
const MOST_PATIENCE: Duration = Duration::from_secs(24 * 3600);
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);
const MOST_RUNS: usize = 100_000;

/// A binary that nobody starts is a mistake.
pub(super) fn check_takes_part(
    source: &Source,
    names: &Names,
    binary: &Binary,
) -> Result<(), ConfigError> {
    let carrier = |name: &str| {
        name.split_once('/')
            .map_or(name, |(carrier, _)| carrier)
            .to_owned()
    };
    if names
        .iter()
        .any(|name| carrier(name.get_ref()) == binary.name())
    {
        return Ok(());
    }
    let name = binary.name();
    let text =
        format!("`contenders` has no `{name}`; name it there, or leave out `--binary {binary}`");
    Err(source.error_at_key("experiment", text))
}

/// Checks a name, which becomes part of a directory's.
pub(super) fn check_name(source: &Source, name: &Spanned<String>) -> Result<(), ConfigError> {
    let text = name.get_ref();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    if (1..=40).contains(&text.len()) && text.chars().all(plain) {
        return Ok(());
    }
    let text = "`name`: one to 40 letters, digits, `-` and `_` are possible";
    Err(source.error(&name.span(), text))
}

pub(super) fn check_tasks(
    source: &Source,
    tasks: &BTreeMap<String, Task>,
) -> Result<(), ConfigError> {
    if tasks.is_empty() {
        return Err(
            source.error_at_key("task", "there is nothing to do; add a table `[task.NAME]`")
        );
    }
    for (name, task) in tasks {
        check_task(task).map_err(|text| {
            source.error_at_key(&format!("task.{name}"), format!("`{name}`: {text}"))
        })?;
    }
    Ok(())
}

/// Refuses a task that cannot be done.
fn check_task(task: &Task) -> Result<(), String> {
    let bare = matches!(
        task,
        Task::Handshake { .. } | Task::Page { .. } | Task::Voice { .. } | Task::Echo { .. }
    );
    if !bare && task.size() == ByteCount::ZERO || task.largest() > MOST_BYTES {
        return Err(format!("sizes from 1 B to {MOST_BYTES} are possible"));
    }
    if task.is_cold() && task.warm_up().is_some() {
        return Err("after a `warm_up` nothing is `cold`; leave one of them out".into());
    }
    if let Task::Session { request, every, .. } = task
        && (*request == ByteCount::ZERO || every.is_some_and(|every| every.get() > LONGEST_PAUSE))
    {
        let text = "a `request` from 1 B on and an `every` of one hour at most are possible";
        return Err(text.into());
    }
    if let Task::Handshake { tls: Tls::None, .. } = *task {
        return Err("a handshake is of TLS \"1.2\" or \"1.3\"".into());
    }
    if let Task::Handshake {
        count,
        to: HandshakeEnd::Contender,
        ..
    } = *task
        && count != 1
    {
        let text =
            "a contender is started once in each run; say `count = 1`, and `repeats` for more";
        return Err(text.into());
    }
    check_page(task)?;
    if !(1..=MOST_SAMPLES).contains(&task.count()) {
        let what = match task {
            Task::Voice { .. } => "a `length` of 20 ms to 200 s",
            _ => "a `count` from 1 to 10000",
        };
        return Err(format!("{what} is possible"));
    }
    Ok(())
}

/// Refuses published rates of tasks whose figures are not of so much content each.
pub(super) fn check_rates(
    source: &Source,
    claims: &Claims,
    tasks: &BTreeMap<String, Task>,
) -> Result<(), ConfigError> {
    let size = |name: &String| tasks.get(name).map_or(ByteCount::ZERO, Task::size);
    let mut rates = claims.published.iter();
    let wrong = rates.find(|figure| {
        figure.value.bits_per_s().is_some() && size(&figure.task) == ByteCount::ZERO
    });
    match wrong {
        None => Ok(()),
        Some(Published { task, .. }) => {
            let text =
                format!("`{task}` has no rate, so none can be published of it; say `seconds`");
            Err(source.error_at_key(&format!("task.{task}"), text))
        }
    }
}

/// Refuses ratios of loads of what has none.
pub(super) fn check_loads(
    source: &Source,
    claims: &Claims,
    tasks: &BTreeMap<String, Task>,
) -> Result<(), ConfigError> {
    let is_session = |name: &String| matches!(tasks.get(name), Some(Task::Session { .. }));
    let mut ratios = claims.published_ratios.iter();
    let wrong = ratios.find(|one| one.quantity == Quantity::Load && !is_session(&one.task));
    match wrong {
        None => Ok(()),
        Some(PublishedRatio { task, .. }) => {
            let text = format!(
                "`{task}` is no `session`, so it has no load; take `quantity = \"load\"` out of its `[[published_ratio]]`"
            );
            Err(source.error_at_key(&format!("task.{task}"), text))
        }
    }
}

/// Refuses ratios that rise along an axis of links that there is not.
pub(super) fn check_rises(
    source: &Source,
    claims: &Claims,
    axis: Option<&Axis>,
) -> Result<(), ConfigError> {
    if claims.published_rises.is_empty() || axis.is_some_and(|axis| axis.along == Along::Links) {
        return Ok(());
    }
    let text = "a `[[published_rise]]` has no axis of links to rise along; give the experiment an `axis` and links an `at`";
    Err(source.error_at_key("published_rise", text))
}

/// Refuses combinations with which pages cannot be loaded.
fn check_page(task: &Task) -> Result<(), String> {
    let Task::Page {
        browser,
        pages,
        objects,
        servers,
        in_session,
        count,
        dns,
        dns_ttl,
        direction,
        at_once,
        ..
    } = *task
    else {
        return Ok(());
    };
    if at_once && (browser == Browser::Chromium || direction == Direction::Up) {
        let text = "`at_once` is for `browser = \"scripted\"` and for objects that come down";
        return Err(text.into());
    }
    if dns_ttl.is_some() && !dns {
        return Err("`dns_ttl` is for names that are asked for: add `dns = true`".into());
    }
    if let Some(objects) = objects
        && (!(1..=MOST_OBJECTS).contains(&objects) || pages != Collection::default())
    {
        return Err(format!(
            "`objects` is from 1 to {MOST_OBJECTS}, and stands in place of `pages`"
        ));
    }
    if (servers, in_session) != (1, 1)
        && (objects.is_none() || browser == Browser::Chromium || direction == Direction::Up)
    {
        let text = "`servers` and `in_session` are for pages with `objects`, for `browser = \"scripted\"` and for objects that come down";
        return Err(text.into());
    }
    if !(1..=MOST_SERVERS).contains(&servers) {
        return Err(format!("`servers` is from 1 to {MOST_SERVERS}"));
    }
    if in_session == 0 || !count.is_multiple_of(in_session) {
        return Err("`count` is the number of all pages: a multiple of `in_session`".into());
    }
    check_ways(task)
}

/// Refuses connections that a page's objects cannot come by.
fn check_ways(task: &Task) -> Result<(), String> {
    let Task::Page {
        browser,
        dns,
        protocol,
        connections,
        tls,
        parallel,
        direction,
        ..
    } = *task
    else {
        return Ok(());
    };
    let usual = CONNECTIONS_PER_HOST as u8;
    if !(1..=usual).contains(&parallel) {
        return Err(format!("`parallel` is from 1 to {usual}"));
    }
    let as_usual = (connections, tls, parallel, direction)
        == (
            Connections::default(),
            Tls::default(),
            usual,
            Direction::Down,
        );
    if protocol != Protocol::H1 && !as_usual {
        let text = "HTTP/2 and HTTP/3 have one connection to each host, over TLS 1.3, and objects come down: leave out \
                    `connections`, `tls`, `parallel` and `direction`";
        return Err(text.into());
    }
    if browser == Browser::Chromium && (protocol, as_usual) != (Protocol::H1, true) {
        let text = "`protocol`, `connections`, `tls`, `parallel` and `direction` are for \
                    `browser = \"scripted\"`; Chromium chooses itself";
        return Err(text.into());
    }
    if direction == Direction::Up
        && (connections, tls, dns) != (Connections::Each, Tls::None, false)
    {
        let text = "objects go up in clear, each on a connection of its own, to known hosts: add \
                    `connections = \"each\"` and `tls = \"none\"`, and no `dns`";
        return Err(text.into());
    }
    Ok(())
}

pub(super) fn check_size(source: &Source, experiment: &Experiment) -> Result<(), ConfigError> {
    let lists = [
        ("contenders", experiment.contenders.len()),
        ("scenarios", experiment.scenarios.len()),
        ("tasks", experiment.tasks.len()),
    ];
    if let Some((name, _)) = lists.iter().find(|(_, count)| *count == 0) {
        return Err(source.error_at_key(
            "experiment",
            format!("`{name}` is empty: nothing would be run"),
        ));
    }
    let each: usize = lists.iter().map(|(_, count)| count).product();
    let runs = each.saturating_mul(experiment.repeats as usize);
    if runs > MOST_RUNS {
        let text = format!("this makes {runs} runs; at most {MOST_RUNS} are possible");
        return Err(source.error_at_key("experiment", text));
    }
    Ok(())
}

pub(super) fn checked_repeats(source: &Source, repeats: Spanned<u32>) -> Result<u32, ConfigError> {
    let count = *repeats.get_ref();
    if (1..=MOST_REPEATS).contains(&count) {
        return Ok(count);
    }
    let text = format!("`repeats`: 1 to {MOST_REPEATS} are possible");
    Err(source.error(&repeats.span(), text))
}

pub(super) fn checked_patience(
    source: &Source,
    patience: &Spanned<TimeSpan>,
) -> Result<Duration, ConfigError> {
    let time = patience.get_ref().get();
    if time > Duration::ZERO && time <= MOST_PATIENCE {
        return Ok(time);
    }
    Err(source.error(
        &patience.span(),
        "`patience`: more than 0 s and at most 24 h are possible",
    ))
}

pub(super) fn check_unique(source: &Source, names: &Names) -> Result<(), ConfigError> {
    let mut seen = BTreeSet::new();
    match names.iter().find(|name| !seen.insert(name.get_ref())) {
        Some(twice) => {
            let text = format!("`{}` stands here twice; remove one", twice.get_ref());
            Err(source.error(&twice.span(), text))
        }
        None => Ok(()),
    }
}
