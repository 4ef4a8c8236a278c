//! `[[published]]`, `[[published_ratio]]` and `[[published_order]]`: what others have found, for what is measured; `[[explanation]]`:
//! why it differs.

use std::collections::BTreeSet;

use bentpipe_config::{ConfigError, Source};
use serde::Deserialize;
use toml::Spanned;

use super::{
    Claims, Comparable, Explanation, FailureCount, Published, PublishedOrder, PublishedRatio,
    PublishedValue, Statistic,
};

/// Findings of others, as they stand in the file.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) figures: Vec<Figure>,
    pub(super) ratios: Vec<Ratio>,
    pub(super) orders: Vec<Ranking>,
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
    statistic: Statistic,
    source: String,
}

/// `[[published_order]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ranking {
    scenario: Spanned<String>,
    task: Spanned<String>,
    order: Vec<Spanned<String>>,
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
        let figures = self.figures.into_iter();
        let ratios = self.ratios.into_iter();
        let orders = self.orders.into_iter();
        let not_built = self.not_built.into_iter();
        let explanations = self.explanations.into_iter();
        Ok(Claims {
            published: figures
                .map(|figure| figure.checked(source, &known))
                .collect::<Result<_, _>>()?,
            published_ratios: ratios
                .map(|ratio| ratio.checked(source, &known))
                .collect::<Result<_, _>>()?,
            published_orders: orders
                .map(|ranking| ranking.checked(source, &known))
                .collect::<Result<_, _>>()?,
            explanations: explanations
                .map(|reason| reason.checked(source, &known))
                .collect::<Result<_, _>>()?,
            not_built: not_built.map(Spanned::into_inner).collect(),
        })
    }
}

impl Reason {
    fn checked(self, source: &Source, known: &Known) -> Result<Explanation, ConfigError> {
        let named = [&self.contenders, &self.scenarios, &self.tasks];
        for (names, known) in named.into_iter().zip(known) {
            for name in names {
                expect_known(source, name, known)?;
            }
        }
        let plain = |names: Vec<Spanned<String>>| {
            let names = names.into_iter().map(Spanned::into_inner);
            names.collect()
        };
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
        Ok(PublishedRatio {
            contender: self.contender.into_inner(),
            to: self.to.into_inner(),
            scenario: self.scenario.into_inner(),
            task: self.task.into_inner(),
            ratio: self.ratio,
            statistic: self.statistic,
            source: self.source,
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
                expect_name(source, place, name, contenders)?;
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
        Ok(PublishedOrder {
            scenario: self.scenario.into_inner(),
            task: self.task.into_inner(),
            order,
            statistic: self.statistic,
            source: self.source,
        })
    }
}
