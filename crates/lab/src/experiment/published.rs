//! `[[published]]`, `[[published_ratio]]`, `[[published_order]]`, `[[published_pairs]]` and `[[published_rise]]`: what others have found,
//! for what is measured; `[[explanation]]`: why it differs.

use std::collections::BTreeSet;

use bentpipe_config::{ConfigError, Source};
use serde::Deserialize;
use toml::Spanned;

use super::comparisons::IN;
use super::{
    Claims, Comparable, Explanation, FailureCount, Published, PublishedOrder, PublishedPairs,
    PublishedRatio, PublishedRise, PublishedValue, Quantity, Statistic,
};

/// Findings of others, as they stand in the file.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) figures: Vec<Figure>,
    pub(super) ratios: Vec<Ratio>,
    pub(super) orders: Vec<Ranking>,
    pub(super) pairs: Vec<Pairs>,
    pub(super) rises: Vec<Rise>,
    pub(super) not_built: Vec<Spanned<String>>,
    pub(super) explanations: Vec<Reason>,
}

/// `[[explanation]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Reason {
    #[serde(default)]
    contenders: Vec<Spanned<String>>,
    #[serde(default)]
    scenarios: Vec<Spanned<String>>,
    #[serde(default)]
    tasks: Vec<Spanned<String>>,
    because: String,
}

/// `[[published]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Figure {
    contender: Spanned<String>,
    scenario: Spanned<String>,
    task: Spanned<String>,
    seconds: Option<f64>,
    bits_per_s: Option<f64>,
    bytes_per_s: Option<f64>,
    failed: Option<FailureCount>,
    statistic: Option<Statistic>,
    #[serde(default)]
    comparable: Comparable,
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
    #[serde(default)]
    quantity: Quantity,
    statistic: Statistic,
    source: String,
    headline: Option<String>,
}

/// `[[published_order]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ranking {
    scenario: Spanned<String>,
    task: Spanned<String>,
    after: Option<usize>,
    order: Vec<Spanned<String>>,
    statistic: Statistic,
    source: String,
    headline: Option<String>,
}

/// `[[published_pairs]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Pairs {
    contender: Spanned<String>,
    to: Spanned<String>,
    scenario: Spanned<String>,
    tasks: Vec<Spanned<String>>,
    source: String,
}

/// `[[published_rise]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rise {
    contender: Spanned<String>,
    to: Spanned<String>,
    task: Spanned<String>,
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
    expect_name(source, name, name.get_ref(), known)
}

/// Checks `name`, which stands in `text`.
fn expect_name(
    source: &Source,
    text: &Spanned<String>,
    name: &str,
    known: &BTreeSet<String>,
) -> Result<(), ConfigError> {
    if known.contains(name) {
        return Ok(());
    }
    let all: Vec<_> = known.iter().map(String::as_str).collect();
    let fault = format!(
        "the experiment has no `{name}`; it has `{}`",
        all.join("`, `")
    );
    Err(source.error(&text.span(), fault))
}

impl Findings {
    /// Everything, checked against what the experiment has.
    pub(super) fn claims(self, source: &Source, known: &Known) -> Result<Claims, ConfigError> {
        let [contenders, scenarios, tasks] = known;
        let mut named = contenders.clone();
        for name in &self.not_built {
            if !named.insert(name.get_ref().clone()) {
                let text = format!("`{}` is a contender; take it out here", name.get_ref());
                return Err(source.error(&name.span(), text));
            }
        }
        let known = [named, scenarios.clone(), tasks.clone()];
        let not_built = self.not_built.into_iter();
        Ok(Claims {
            published: all(self.figures, |figure| figure.checked(source, &known))?,
            published_ratios: all(self.ratios, |ratio| ratio.checked(source, &known))?,
            published_orders: all(self.orders, |ranking| ranking.checked(source, &known))?,
            published_pairs: all(self.pairs, |pairs| pairs.checked(source, &known))?,
            published_rises: all(self.rises, |rise| rise.checked(source, &known))?,
            explanations: all(self.explanations, |reason| reason.checked(source, &known))?,
            not_built: not_built.map(Spanned::into_inner).collect(),
        })
    }
}

/// Each of `findings` as `checked` takes it, or the first fault.
fn all<T, U>(
    findings: Vec<T>,
    checked: impl FnMut(T) -> Result<U, ConfigError>,
) -> Result<Vec<U>, ConfigError> {
    findings.into_iter().map(checked).collect()
}

/// Names without their places in the file.
fn plain(names: Vec<Spanned<String>>) -> Vec<String> {
    names.into_iter().map(Spanned::into_inner).collect()
}

impl Reason {
    fn checked(self, source: &Source, known: &Known) -> Result<Explanation, ConfigError> {
        let named = [&self.contenders, &self.scenarios, &self.tasks];
        for (names, known) in named.into_iter().zip(known) {
            for name in names {
                expect_known(source, name, known)?;
            }
        }
        Ok(Explanation {
            contenders: plain(self.contenders),
            scenarios: plain(self.scenarios),
            tasks: plain(self.tasks),
            because: self.because,
        })
    }
}

impl Figure {
    fn checked(self, source: &Source, known: &Known) -> Result<Published, ConfigError> {
        let named = [&self.contender, &self.scenario, &self.task];
        for (name, known) in named.into_iter().zip(known) {
            expect_known(source, name, known)?;
        }
        let fault = |text: &str| source.error(&self.contender.span(), text.to_owned());
        let value = self.value().ok_or_else(|| {
            fault("a figure has one of `seconds`, `bits_per_s`, `bytes_per_s` and `failed`")
        })?;
        let statistic = match (self.statistic, value) {
            (Some(statistic), PublishedValue::Seconds(_)) => statistic,
            (Some(statistic), _) if value.bits_per_s().is_some() => statistic,
            (None, PublishedValue::Failed(_)) => Statistic::default(),
            (Some(_), _) => return Err(fault("a count of failures has no `statistic`; remove it")),
            (None, _) => {
                return Err(fault(
                    "`statistic` is missing: say whether it is a \"mean\", a \"median\" or the \"p95\"",
                ));
            }
        };
        Ok(Published {
            contender: self.contender.into_inner(),
            scenario: self.scenario.into_inner(),
            task: self.task.into_inner(),
            value,
            statistic,
            comparable: self.comparable,
            source: self.source,
        })
    }

    /// The one value that it has; none if it has none or several.
    fn value(&self) -> Option<PublishedValue> {
        let values = [
            self.seconds.map(PublishedValue::Seconds),
            self.bits_per_s.map(PublishedValue::BitsPerS),
            self.bytes_per_s.map(PublishedValue::BytesPerS),
            self.failed.map(PublishedValue::Failed),
        ];
        let mut said = values.into_iter().flatten();
        said.next().filter(|_| said.next().is_none())
    }
}

impl Ratio {
    fn checked(
        self,
        source: &Source,
        [contenders, scenarios, tasks]: &Known,
    ) -> Result<PublishedRatio, ConfigError> {
        for (name, known) in [
            (&self.contender, contenders),
            (&self.to, contenders),
            (&self.scenario, scenarios),
            (&self.task, tasks),
        ] {
            expect_known(source, name, known)?;
        }
        if self.quantity == Quantity::Load && self.statistic != Statistic::Mean {
            let text = "a load is a mean over the session; say `statistic = \"mean\"`";
            return Err(source.error(&self.contender.span(), text));
        }
        Ok(PublishedRatio {
            contender: self.contender.into_inner(),
            to: self.to.into_inner(),
            scenario: self.scenario.into_inner(),
            task: self.task.into_inner(),
            ratio: self.ratio,
            quantity: self.quantity,
            statistic: self.statistic,
            source: self.source,
            headline: self.headline,
        })
    }
}

impl Ranking {
    fn checked(
        self,
        source: &Source,
        [contenders, scenarios, tasks]: &Known,
    ) -> Result<PublishedOrder, ConfigError> {
        expect_known(source, &self.scenario, scenarios)?;
        expect_known(source, &self.task, tasks)?;
        let (mut order, mut seen) = (Vec::new(), BTreeSet::new());
        for place in &self.order {
            let names: Vec<String> = place
                .get_ref()
                .split('~')
                .map(|name| name.trim().to_owned())
                .collect();
            for name in &names {
                let (contender, task) = match name.split_once(IN) {
                    Some((contender, task)) => (contender, task),
                    None => (name.as_str(), self.task.get_ref().as_str()),
                };
                expect_name(source, place, contender, contenders)?;
                expect_name(source, place, task, tasks)?;
                if !seen.insert(name.clone()) {
                    let text = format!("`{name}` stands twice in the order; remove one");
                    return Err(source.error(&place.span(), text));
                }
            }
            order.push(names);
        }
        if seen.len() < 2 {
            let text = "an `order` has two contenders at least, the fastest first";
            return Err(source.error(&self.scenario.span(), text));
        }
        if self.after.is_some() && self.statistic != Statistic::Mean {
            let text = "an order `after` so many transactions is of their means; say `statistic = \"mean\"`";
            return Err(source.error(&self.scenario.span(), text));
        }
        if self.after == Some(0) {
            let text = "`after = 0`: nobody has done anything then; say 1 or more";
            return Err(source.error(&self.scenario.span(), text));
        }
        Ok(PublishedOrder {
            scenario: self.scenario.into_inner(),
            task: self.task.into_inner(),
            after: self.after,
            order,
            statistic: self.statistic,
            source: self.source,
            headline: self.headline,
        })
    }
}

impl Pairs {
    fn checked(
        self,
        source: &Source,
        [contenders, scenarios, tasks]: &Known,
    ) -> Result<PublishedPairs, ConfigError> {
        expect_known(source, &self.contender, contenders)?;
        expect_known(source, &self.to, contenders)?;
        expect_known(source, &self.scenario, scenarios)?;
        for task in &self.tasks {
            expect_known(source, task, tasks)?;
        }
        if self.tasks.is_empty() {
            let text = "`tasks` is empty: no run makes a pair; name one";
            return Err(source.error(&self.contender.span(), text));
        }
        Ok(PublishedPairs {
            contender: self.contender.into_inner(),
            to: self.to.into_inner(),
            scenario: self.scenario.into_inner(),
            tasks: plain(self.tasks),
            source: self.source,
        })
    }
}

impl Rise {
    fn checked(
        self,
        source: &Source,
        [contenders, _, tasks]: &Known,
    ) -> Result<PublishedRise, ConfigError> {
        expect_known(source, &self.contender, contenders)?;
        expect_known(source, &self.to, contenders)?;
        expect_known(source, &self.task, tasks)?;
        Ok(PublishedRise {
            contender: self.contender.into_inner(),
            to: self.to.into_inner(),
            task: self.task.into_inner(),
            statistic: self.statistic,
            source: self.source,
        })
    }
}
