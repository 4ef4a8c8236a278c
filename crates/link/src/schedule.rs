//! What changes while a pipe runs: rate, one-way delay and loss, at planned instants.
//!
//! The pipe applies each change in virtual time, at its own instant and in order with the packets that leave around
//! it. Traces of fading, of handovers and of tests are all this. Outages are planned apart ([`crate::Outage`]).

use std::time::{Duration, Instant};

use bentpipe_units::{BitRate, ByteCount};

use crate::loss::LossModel;
use crate::pipe::PipeConfig;

/// One change of a pipe.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Change {
    /// The rate of packets that begin to leave from then on.
    Rate(BitRate),
    /// The one-way delay of packets that have not left yet.
    OneWayDelay(Duration),
    /// Loss of packets that have not left yet.
    Loss(LossModel),
}

/// Changes in the order of their instants, counted from the pipe's `start`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Schedule(Vec<(Duration, Change)>);

impl Schedule {
    /// Nothing changes.
    pub const fn none() -> Self {
        Self(Vec::new())
    }

    /// The given changes, in any order; those of one instant are applied in the order given.
    pub fn new(changes: impl IntoIterator<Item = (Duration, Change)>) -> Self {
        let mut changes: Vec<_> = changes.into_iter().collect();
        changes.sort_by_key(|(at, _)| *at);
        Self(changes)
    }

    /// The changes.
    pub fn changes(&self) -> &[(Duration, Change)] {
        &self.0
    }
}

/// A schedule being applied.
#[derive(Debug)]
pub(crate) struct Upcoming {
    changes: Vec<(Duration, Change)>,
    next: usize,
    start: Instant,
}

impl Upcoming {
    pub(crate) fn new(schedule: &Schedule, start: Instant) -> Self {
        Self {
            changes: schedule.0.clone(),
            next: 0,
            start,
        }
    }

    /// Instant at which the next change is due.
    pub(crate) fn at(&self) -> Option<Instant> {
        let (at, _) = self.changes.get(self.next)?;
        Some(self.start + *at)
    }

    /// Takes the next change.
    pub(crate) fn pop(&mut self) -> Option<Change> {
        let (_, change) = self.changes.get(self.next)?;
        self.next += 1;
        Some(*change)
    }
}

impl PipeConfig {
    /// Time at which the last of `size` bytes has left a sender that uses all of this pipe from `from` on (counted from the
    /// pipe's `start`): the integral of the rate over time, outages excluded. `None` if the rest would take for ever.
    ///
    /// Nothing is lost here; a caller who counts losses asks for more bytes.
    pub fn sent_by(&self, from: Duration, size: ByteCount) -> Option<Duration> {
        let mut left = size.as_u64() as f64 * 8.0;
        let mut now = from;
        while left > 0.0 {
            let rate = if self.is_out(now) {
                0.0
            } else {
                self.rate_at(now).as_u64() as f64
            };
            let Some(until) = self.next_edge(now) else {
                return (rate > 0.0).then(|| now + Duration::from_secs_f64(left / rate));
            };
            let fits = rate * (until - now).as_secs_f64();
            if fits >= left {
                return Some(now + Duration::from_secs_f64(left / rate));
            }
            left -= fits;
            now = until;
        }
        Some(now)
    }

    /// The rate at `at`, counted from the pipe's `start`.
    pub fn rate_at(&self, at: Duration) -> BitRate {
        self.last_change(at, self.rate, |change| match change {
            Change::Rate(rate) => Some(rate),
            Change::OneWayDelay(_) | Change::Loss(_) => None,
        })
    }

    /// The one-way delay at `at`, counted from the pipe's `start`.
    pub fn one_way_delay_at(&self, at: Duration) -> Duration {
        self.last_change(at, self.one_way_delay, |change| match change {
            Change::OneWayDelay(delay) => Some(delay),
            Change::Rate(_) | Change::Loss(_) => None,
        })
    }

    fn last_change<T>(&self, at: Duration, first: T, pick: impl Fn(Change) -> Option<T>) -> T {
        let until = self
            .schedule
            .0
            .partition_point(|(instant, _)| *instant <= at);
        let mut before = self.schedule.0[..until].iter().rev();
        before
            .find_map(|(_, change)| pick(*change))
            .unwrap_or(first)
    }

    fn is_out(&self, at: Duration) -> bool {
        self.outages.iter().any(|outage| outage.covers(at))
    }

    /// The next instant at which the rate may change or an outage begins or ends.
    fn next_edge(&self, after: Duration) -> Option<Duration> {
        let changes = self.schedule.0.iter().map(|(at, _)| *at);
        let outages = self.outages.iter();
        let outages = outages.flat_map(|outage| [outage.start, outage.start + outage.length]);
        changes.chain(outages).filter(|at| *at > after).min()
    }
}
