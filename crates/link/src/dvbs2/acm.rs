//! Adaptive coding and modulation: who gets which MODCOD, and when the sender learns of it.
//!
//! A receiver reports once a period; the report takes one one-way delay; from then on the sender uses what fits. What
//! it sends meanwhile is on its way for another one: a fade of more than the margin is an outage of the wait for the
//! report and two one-way delays. Which C/N there is, and whether a frame survives it, is not decided here.

use std::time::{Duration, Instant};

use bentpipe_units::{Decibel, Seed};
use serde::{Deserialize, Serialize};

use super::{Modcod, ModcodSet};

/// `select`: which of the MODCODs that a C/N allows is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Select {
    /// The most efficient: the rate never falls when the C/N rises.
    #[default]
    Efficiency,
    /// The one with the highest threshold, as OpenSAND does: six of them carry less than a more robust one.
    Threshold,
}

/// `report`: what the receiver tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reported {
    /// The C/N that it measures.
    #[default]
    Cn,
    /// The threshold of the best MODCOD that it could receive, as OpenSAND does; the margin comes off that.
    RequiredEsn0,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct AcmConfig {
    pub(crate) modcods: ModcodSet,
    pub(crate) pilots: bool,
    pub(crate) margin: Decibel,
    pub(crate) hysteresis: Decibel,
    pub(crate) report_period: Duration,
    pub(crate) report: Reported,
    pub(crate) select: Select,
}

impl AcmConfig {
    /// The MODCOD for a known C/N, without margin; the most robust where none fits.
    pub(crate) fn best(&self, cn: Decibel) -> Modcod {
        let fits = self
            .modcods
            .iter()
            .filter(|modcod| modcod.threshold() <= cn);
        let best = match self.select {
            Select::Efficiency => fits.max_by(|a, b| {
                let efficiency = |modcod: &Modcod| modcod.efficiency(self.pilots);
                efficiency(a).total_cmp(&efficiency(b))
            }),
            Select::Threshold => fits.max_by_key(|modcod| modcod.threshold()),
        };
        best.unwrap_or_else(|| self.most_robust())
    }

    /// The MODCOD that carries most.
    pub(crate) fn most_efficient(&self) -> Modcod {
        let all = Self {
            select: Select::Efficiency,
            ..*self
        };
        all.best(Decibel::new(f64::MAX))
    }

    pub(crate) fn most_robust(&self) -> Modcod {
        let modcods = self.modcods.iter();
        let least = modcods.min_by_key(|modcod| modcod.threshold());
        // A set has at least one.
        least.unwrap_or(Modcod::FIRST)
    }

    /// MODCOD that the sender concludes from a report while it uses `current`.
    fn next(&self, current: Option<Modcod>, measured: Decibel) -> Modcod {
        let reported = match self.report {
            Reported::Cn => measured,
            Reported::RequiredEsn0 => self.best(measured).threshold(),
        };
        let known = reported - self.margin;
        let best = self.best(known);
        let Some(current) = current else {
            return best;
        };
        let rank = |modcod: Modcod| match self.select {
            Select::Efficiency => modcod.efficiency(self.pilots),
            Select::Threshold => modcod.threshold().as_f64(),
        };
        if rank(best) <= rank(current) {
            return best;
        }
        // Upwards only where the C/N lies above the threshold by more than its own flicker.
        let surely = self.best(known - self.hysteresis);
        if rank(surely) > rank(current) {
            surely
        } else {
            current
        }
    }
}

/// A report on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Report {
    /// Instant at which the receiver made it.
    pub(crate) made: Instant,
    /// Instant at which it reached the sender.
    pub(crate) arrived: Instant,
}

/// No receiver reports more often.
const SHORTEST_PERIOD: Duration = Duration::from_millis(1);

/// Knowledge of the sender about one receiver.
#[derive(Debug)]
pub(crate) struct Adaptation {
    config: AcmConfig,
    current: Option<Modcod>,
    /// Instant at which the next report is made.
    report_at: Instant,
    /// Instant at which it reaches the sender, once that is known.
    arrival: Option<Instant>,
}

impl Adaptation {
    /// Receivers do not all report at once: each has its place in the period, from the seed.
    pub(crate) fn new(config: AcmConfig, seed: Seed, start: Instant) -> Self {
        let period = u64::try_from(config.report_period.as_nanos()).unwrap_or(u64::MAX);
        let place = Duration::from_nanos(seed.stream("report").as_u64() % period.max(1));
        Self {
            config,
            current: None,
            report_at: start + place,
            arrival: None,
        }
    }

    /// MODCOD in use.
    pub(crate) fn current(&self) -> Modcod {
        self.current.unwrap_or_else(|| self.config.most_robust())
    }

    /// Logs on: from here the sender knows this C/N.
    pub(crate) fn log_on(&mut self, cn: Decibel) {
        self.current = Some(self.config.next(None, cn));
    }

    /// Instant at which the next report that has reached the sender by `now` was made, if there is one; `delay` is that of what the
    /// receiver sends at an instant.
    pub(crate) fn next_report(
        &mut self,
        now: Instant,
        delay: impl Fn(Instant) -> Duration,
    ) -> Option<Report> {
        if self.report_at > now {
            return None;
        }
        let made = self.report_at;
        let arrived = *self.arrival.get_or_insert_with(|| made + delay(made));
        (arrived <= now).then_some(Report { made, arrived })
    }

    /// A report of `cn` has reached the sender; the change, if it is one.
    pub(crate) fn handle_report(&mut self, cn: Decibel) -> Option<(Modcod, Modcod)> {
        self.report_at += self.config.report_period.max(SHORTEST_PERIOD);
        self.arrival = None;
        let before = self.current();
        let next = self.config.next(self.current, cn);
        self.current = Some(next);
        (next != before).then_some((before, next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> AcmConfig {
        AcmConfig {
            modcods: ModcodSet::ALL,
            pilots: false,
            margin: Decibel::ZERO,
            hysteresis: Decibel::ZERO,
            report_period: Duration::from_secs(1),
            report: Reported::Cn,
            select: Select::Efficiency,
        }
    }

    /// -3 to 18 dB in steps of a tenth, each as the nearest double of its decimal.
    fn sweep() -> impl Iterator<Item = Decibel> {
        (-30..=180).map(|tenths| Decibel::new(f64::from(tenths) / 10.0))
    }

    #[test]
    fn every_threshold_is_exact() {
        for modcod in Modcod::all() {
            let only = AcmConfig {
                modcods: format!("1, {}", modcod.id()).parse().unwrap(),
                ..config()
            };
            let first = sweep().find(|cn| only.best(*cn) == modcod && *cn >= modcod.threshold());
            let first = first.expect("18 dB are enough for all").as_f64();
            let threshold = modcod.threshold().as_f64();
            assert!(
                (0.0..0.1).contains(&(first - threshold)),
                "{modcod:?} {first}"
            );
            assert_eq!(only.best(modcod.threshold()), modcod);
            let below = Decibel::new(threshold - 1e-9);
            assert_eq!(only.best(below).id(), 1);
        }
    }

    #[test]
    fn the_rate_never_falls_when_the_cn_rises() {
        let efficiencies = |select| {
            let config = AcmConfig { select, ..config() };
            sweep().map(move |cn| config.best(cn).efficiency(false))
        };
        assert!(efficiencies(Select::Efficiency).is_sorted());
        assert!(!efficiencies(Select::Threshold).is_sorted());
        // Six MODCODs are worth no C/N of their own.
        let used: Vec<_> = Modcod::all()
            .filter(|modcod| config().best(modcod.threshold()) != *modcod)
            .map(Modcod::id)
            .collect();
        assert_eq!(used, [10, 15, 16, 17, 22, 23]);
    }

    #[test]
    fn reports_margin_and_hysteresis() {
        let cn = Decibel::new(16.99);
        let margin = Decibel::new(1.0);
        let at = |config: AcmConfig| config.next(None, cn).id();
        assert_eq!(at(config()), 28);
        // A measured C/N leaves 15.99 dB, a required Es/N0 of 16.05 dB only 15.05 dB.
        assert_eq!(at(AcmConfig { margin, ..config() }), 27);
        let report = Reported::RequiredEsn0;
        assert_eq!(
            at(AcmConfig {
                margin,
                report,
                ..config()
            }),
            26
        );
        let careful = AcmConfig {
            hysteresis: Decibel::new(0.3),
            ..config()
        };
        let lower = Modcod::new(26);
        let next = |cn| careful.next(lower, Decibel::new(cn)).id();
        assert_eq!([next(15.98), next(15.99)], [26, 27]);
        // Straight to what is sure, and downwards at once.
        assert_eq!([next(16.2), next(16.36), next(14.27)], [27, 28, 25]);
        assert_eq!(next(-10.0), 1);
    }
}
