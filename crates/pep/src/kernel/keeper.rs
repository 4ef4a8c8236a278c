//! When to put a part of the kernel's state back, and what to tell of it: a machine without clock.
//!
//! What is taken away once is put back at once. Somebody who takes the same part away again and again is met more and more
//! slowly: two programs that undo each other's work would otherwise fill two processors with it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::KernelFault;
use crate::status::KernelRepair;

/// Repairs of one part that are made at once; one more is granted every [`GRANTED_EVERY`].
const AT_ONCE: u32 = 10;

/// Time after which one more repair at once is granted.
const GRANTED_EVERY: Duration = Duration::from_secs(5);

/// The wait before the first repair beyond [`AT_ONCE`]; it doubles with each.
const FIRST_WAIT: Duration = Duration::from_millis(500);

/// The longest wait before a repair.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Parts that are remembered: rules, routes and interfaces of one daemon are some tens.
const MAX_PARTS: usize = 512;

/// Level of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoticeLevel {
    Error,
    Warn,
    Debug,
}

/// A line for the log.
pub(super) type Line = (NoticeLevel, String);

/// Keeper of what was put back, and what waits.
#[derive(Debug, Default)]
pub(crate) struct Keeper {
    parts: BTreeMap<String, PartRepairs>,
    /// Reason why the parts cannot be looked at.
    unseen: Option<String>,
}

#[derive(Debug)]
struct PartRepairs {
    /// Times that it was put back.
    repairs: u32,
    last: Option<Instant>,
    by: Option<String>,
    /// Attempts lately to put it back, less what has been granted since.
    recent: u32,
    /// Attempts of these that succeeded: each followed a theft.
    thefts: u32,
    granted: Instant,
    /// Not before then, while it is missing.
    retry_at: Option<Instant>,
    /// Instant since which it is missing.
    since: Option<Instant>,
    /// Difference of the part now, until it is put back.
    missing: Option<String>,
    /// Reason why it could not be put back, as the log was told, and attempts that have failed.
    failing: Option<(String, u32)>,
    /// True if others are the cause.
    of_others: bool,
}

impl PartRepairs {
    fn new(now: Instant) -> Self {
        Self {
            repairs: 0,
            last: None,
            by: None,
            recent: 0,
            thefts: 0,
            granted: now,
            retry_at: None,
            since: None,
            missing: None,
            failing: None,
            of_others: false,
        }
    }

    /// Forgets attempts that are long past.
    fn grant(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.granted);
        let number = passed.as_millis() / GRANTED_EVERY.as_millis();
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        self.recent = self.recent.saturating_sub(number);
        self.thefts = self.thefts.saturating_sub(number);
        self.granted += GRANTED_EVERY.saturating_mul(number);
        if self.recent == 0 {
            self.granted = now;
        }
    }

    /// The wait before the next repair.
    fn wait(&self) -> Duration {
        match self.recent.checked_sub(AT_ONCE) {
            None => Duration::ZERO,
            Some(beyond) => FIRST_WAIT
                .saturating_mul(2_u32.saturating_pow(beyond.min(16)))
                .min(LONGEST_WAIT),
        }
    }
}

impl Keeper {
    /// Chooses which of `faults` to repair now. Parts that are not among them are as they should be.
    pub(super) fn judge(&mut self, now: Instant, faults: &[KernelFault]) -> Vec<usize> {
        for (name, part) in &mut self.parts {
            if !faults.iter().any(|fault| fault.part == *name) {
                part.since = None;
                part.missing = None;
                part.failing = None;
                part.retry_at = None;
            }
        }
        let mut due = Vec::new();
        for (index, fault) in faults.iter().enumerate() {
            if !self.parts.contains_key(&fault.part) && self.parts.len() >= MAX_PARTS {
                // Those that are whole are history.
                self.parts.retain(|_, part| part.missing.is_some());
            }
            let part = self
                .parts
                .entry(fault.part.clone())
                .or_insert_with(|| PartRepairs::new(now));
            part.missing = Some(fault.state.to_owned());
            part.of_others = fault.of_others;
            part.grant(now);
            let settled = *part.since.get_or_insert(now) + fault.settles;
            let paced = part.last.map_or(now, |last| last + part.wait());
            let earliest = settled.max(paced);
            let at = part.retry_at.unwrap_or(earliest);
            let waits = at > now;
            part.retry_at = waits.then_some(at);
            if !waits {
                due.push(index);
            }
        }
        due
    }

    /// A repair was tried, after `by` had taken the part away. The line to log, if any: the first of its kind is loud.
    pub(super) fn mended(
        &mut self,
        now: Instant,
        fault: &KernelFault,
        by: Option<String>,
        outcome: &Result<(), String>,
    ) -> Option<Line> {
        let part = self.parts.get_mut(&fault.part)?;
        part.last = Some(now);
        part.recent = part.recent.saturating_add(1);
        let wait = part.wait();
        let KernelFault {
            part: name,
            state,
            gravity,
            ..
        } = fault;
        if let Err(error) = outcome {
            // At the pace of a fight: it may take a while until it can be had again.
            part.retry_at = Some(now + wait.max(FIRST_WAIT));
            let (told, failures) = part.failing.take().unzip();
            part.failing = Some((error.clone(), failures.unwrap_or(0) + 1));
            let line = format!("{name} {state} and cannot be put back: {error}; trying on");
            return Some(match told.as_ref() == Some(error) {
                true => (NoticeLevel::Debug, line),
                false => (*gravity, line),
            });
        }
        part.retry_at = None;
        part.since = None;
        part.missing = None;
        part.repairs = part.repairs.saturating_add(1);
        part.thefts = part.thefts.saturating_add(1);
        let who = by.clone().unwrap_or_else(|| "another program".to_owned());
        part.by = by;
        let (was, them, they_are) = agreeing(state);
        let line = format!("{name} {state} and {was} put back; {who} changed {them}");
        let failures = part.failing.take().map(|(_, failures)| failures);
        Some(match (part.thefts, failures) {
            (AT_ONCE, _) => (
                NoticeLevel::Error,
                format!(
                    "{name} {state} for the {AT_ONCE}th time in a short while, last by {who}: {they_are} put back with waits of up to \
                     {} s from now on; have one of the two programs leave {them} alone",
                    LONGEST_WAIT.as_secs()
                ),
            ),
            (_, Some(failures)) => (
                NoticeLevel::Warn,
                format!(
                    "{name} {state} and {was} put back at last, after {} attempts",
                    failures + 1
                ),
            ),
            (1, None) => (NoticeLevel::Warn, line),
            _ => (NoticeLevel::Debug, line),
        })
    }

    /// Instant at which a part that waits is to be put back.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let waiting = self.parts.values().filter(|part| part.missing.is_some());
        waiting.filter_map(|part| part.retry_at).min()
    }

    /// The parts cannot be looked at for this reason, or can again.
    pub(super) fn sees(&mut self, unseen: Option<String>) {
        self.unseen = unseen;
    }

    /// Parts that were put back so far, or wait to be, and that nothing can be seen, for `status`.
    pub(crate) fn report(&self, now: Instant) -> Vec<KernelRepair> {
        let told = |part: &&(&String, &PartRepairs)| part.1.repairs > 0 || part.1.failing.is_some();
        let parts: Vec<_> = self.parts.iter().collect();
        let report = parts.iter().filter(told).map(|(name, part)| KernelRepair {
            part: (*name).clone(),
            repairs_total: part.repairs.into(),
            last_s: part
                .last
                .map(|last| now.saturating_duration_since(last).as_secs()),
            last_by: part.by.clone(),
            fault: reason(part).or_else(|| part.missing.clone()),
            of_others: part.of_others,
        });
        let unseen = self.unseen.iter().map(|reason| KernelRepair {
            part: "rules, routes and table".into(),
            repairs_total: 0,
            last_s: None,
            last_by: None,
            fault: Some(format!("cannot be seen: {reason}")),
            of_others: false,
        });
        report.chain(unseen).collect()
    }
}

/// Reason why `part` cannot be put back.
fn reason(part: &PartRepairs) -> Option<String> {
    part.failing.as_ref().map(|(reason, _)| reason.clone())
}

/// Words for the parts of which `state` tells, as many as its verb is about: past, object, and present.
fn agreeing(state: &str) -> (&'static str, &'static str, &'static str) {
    match state.split(' ').next() {
        Some("are" | "were" | "have") => ("were", "them", "they are"),
        _ => ("was", "it", "it is"),
    }
}

#[cfg(test)]
mod tests;
