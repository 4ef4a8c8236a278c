//! `[[published]]` and `[[published_ratio]]`: what others have found, for what is measured.

use std::collections::BTreeSet;

use bentpipe_config::{ConfigError, Source};
use serde::Deserialize;
use toml::Spanned;

use super::{Published, PublishedRatio, Statistic};

/// `[[published]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Figure {
    contender: Spanned<String>,
    scenario: Spanned<String>,
    task: Spanned<String>,
    seconds: f64,
    statistic: Statistic,
    source: String,
}

/// `[[published_ratio]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ratio {
    contender: Spanned<String>,
    to: Spanned<String>,
    scenario: Spanned<String>,
    task: Spanned<String>,
    ratio: f64,
    statistic: Statistic,
    source: String,
}

/// Names of contenders, scenarios and tasks.
pub(super) type Known = [BTreeSet<String>; 3];

pub(super) fn expect_known(
    source: &Source,
    name: &Spanned<String>,
    known: &BTreeSet<String>,
) -> Result<(), ConfigError> {
    if known.contains(name.get_ref()) {
        return Ok(());
    }
    let all: Vec<_> = known.iter().map(String::as_str).collect();
    let text = format!(
        "the experiment has no `{}`; it has `{}`",
        name.get_ref(),
        all.join("`, `")
    );
    Err(source.error(&name.span(), text))
}

pub(super) fn figures(
    source: &Source,
    figures: Vec<Figure>,
    known: &Known,
) -> Result<Vec<Published>, ConfigError> {
    let check = |figure: Figure| {
        let named = [&figure.contender, &figure.scenario, &figure.task];
        for (name, known) in named.into_iter().zip(known) {
            expect_known(source, name, known)?;
        }
        Ok(Published {
            contender: figure.contender.into_inner(),
            scenario: figure.scenario.into_inner(),
            task: figure.task.into_inner(),
            seconds: figure.seconds,
            statistic: figure.statistic,
            source: figure.source,
        })
    };
    figures.into_iter().map(check).collect()
}

pub(super) fn ratios_of(
    source: &Source,
    ratios: Vec<Ratio>,
    [contenders, scenarios, tasks]: &Known,
) -> Result<Vec<PublishedRatio>, ConfigError> {
    let check = |ratio: Ratio| {
        for (name, known) in [
            (&ratio.contender, contenders),
            (&ratio.to, contenders),
            (&ratio.scenario, scenarios),
            (&ratio.task, tasks),
        ] {
            expect_known(source, name, known)?;
        }
        Ok(PublishedRatio {
            contender: ratio.contender.into_inner(),
            to: ratio.to.into_inner(),
            scenario: ratio.scenario.into_inner(),
            task: ratio.task.into_inner(),
            ratio: ratio.ratio,
            statistic: ratio.statistic,
            source: ratio.source,
        })
    };
    ratios.into_iter().map(check).collect()
}
