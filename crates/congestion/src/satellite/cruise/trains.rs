//! What cruise asks of trains: whether there are others, and whether a path that became slower is faster again.
//!
//! - With less than the path carries behind a queue, there is company. What it carries is to be known from not long ago.
//! - A rate that falls at a stroke is the path's doing or somebody's coming. Until a train tells, a deep fall is taken for
//!   the path's, which has to be answered before its queue overflows, another one for company's.
//! - While a path is expected to become faster again, trains find out, without a queue for whom that is not yet true.
//!
//! Low orbits do without: see `crowd.rs`.

use std::time::{Duration, Instant};

use crate::ablation::Part;

use super::super::super::{bytes_in, scaled};
use super::super::capacity::Capacity;
use super::super::path::NEAR;
use super::super::pulse::SLOWEST;
use super::super::share::{COMPANY, Share};

/// With fewer packets to a round trip a train would be a long queue of its own.
const WIDE: u64 = 96;
/// A fall to less than this, in permille, is deep.
const DEEP_FALL: u64 = 350;
/// A path that carries less than this, in permille of what it did, became slower.
const CHANGED: u64 = 850;
/// What is made of the rate of a train, in permille, and by how much the rate grows at most by one.
const NEARLY: u64 = 980;
const FASTER: u64 = 2000;
/// A rate that is as much of a train's, in permille, needs no pulse while that is so old.
const FULL: u64 = 950;
const JUST: Duration = Duration::from_secs(4);
/// What is older is asked again where it makes a difference; in company; and while the path is expected to become faster.
const FRESH: Duration = Duration::from_secs(10);
const REGULAR: Duration = Duration::from_secs(40);
const RECOVERING: Duration = Duration::from_secs(2);
/// In company it is known no longer than for this: nobody answers.
const LOST: Duration = Duration::from_secs(120);

/// Record of what trains have told of the path. Rates are bytes per second.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Trains {
    capacity: Capacity,
    /// Rate that the path carried when it last fell at a stroke, until a train tells whether it still does.
    stroke: Option<u64>,
}

impl Trains {
    /// Record for another rate over the same path: what was in doubt was the old one.
    pub(super) fn without_stroke(self) -> Self {
        Self {
            stroke: None,
            ..self
        }
    }

    /// True if it is known what the path carries.
    pub(super) fn know(&self) -> bool {
        self.capacity.get().is_some()
    }

    /// Ends a round on a path with round trips of `base`.
    pub(super) fn end_round(&mut self, now: Instant, base: Duration) {
        self.capacity.end_round(now, base);
    }

    /// Judges whether there are others, as far as trains tell, after a round at `rate` behind `queue`, which was to be `target`.
    /// `eager` while the path is expected to become faster again.
    pub(super) fn judge(
        &mut self,
        now: Instant,
        (queue, target): (Duration, Duration),
        rate: u64,
        share: &mut Share,
        eager: bool,
    ) {
        let shared = share.is_shared();
        if shared && self.capacity.is_older(now, LOST) {
            self.capacity.forget();
        }
        if !self.capacity.is_asked() {
            self.stroke = None;
        }
        let capacity = self.capacity.get();
        if queue > target / 2 {
            let stale = self.capacity.is_older(now, FRESH);
            let less = capacity.is_none_or(|capacity| rate < scaled(capacity, COMPANY));
            match capacity.filter(|_| shared || !stale) {
                Some(capacity) => share.judge(rate, capacity),
                None if less => self.capacity.wish(),
                None => {}
            }
        }
        let age = match share.is_shared() {
            true => Some(REGULAR),
            false => Some(RECOVERING).filter(|_| eager),
        };
        if age.is_some_and(|age| self.capacity.is_older(now, age)) {
            self.capacity.wish();
        }
    }

    /// Notes that delivery became slower at a stroke, and is `fresh` now instead of `rate`: the path did, or somebody came.
    pub(super) fn on_slower(&mut self, fresh: u64, rate: u64, base: Duration, share: &mut Share) {
        if base < NEAR {
            return share.forget();
        }
        if self.is_in_doubt() {
            return;
        }
        self.capacity.wish();
        let known = self.capacity.get();
        if known.is_some() && share.is_shared() {
            return;
        }
        self.stroke = known;
        if known.is_some() && fresh >= scaled(rate, DEEP_FALL) {
            share.enter();
        } else {
            share.forget();
        }
    }

    /// True if delivery became slower at a stroke, and no train has told yet whose doing that is.
    pub(super) fn is_in_doubt(&self) -> bool {
        Part::TrainDoubt.or(self.stroke.is_some() && self.capacity.is_asked(), false)
    }

    /// True if a train has just said that the path carries no more than `rate`.
    pub(super) fn is_full(&self, now: Instant, rate: u64, base: Duration) -> bool {
        let full = |capacity| rate >= scaled(capacity, FULL);
        let just = base >= NEAR && !self.capacity.is_older(now, JUST);
        Part::TrainFull.or(just && self.capacity.get().is_some_and(full), false)
    }

    /// True if a train is to leave now, on a path of `rate` unless one has told more.
    pub(super) fn is_due(&self, now: Instant, rate: u64, base: Duration, mtu: u64) -> bool {
        let rate = self.capacity.get().unwrap_or(rate);
        let due =
            base >= NEAR && bytes_in(rate, base) >= WIDE * mtu && self.capacity.is_due(now, base);
        Part::LaterTrains.or(due, false)
    }

    pub(super) fn on_train(&mut self, now: Instant) {
        self.capacity.on_train(now);
    }

    /// Takes what start-up knows of what the path carries.
    pub(super) fn set_capacity(&mut self, now: Instant, rate: Option<u64>) {
        self.capacity.set(now, rate);
    }

    /// Takes the answer that the path carries `told`, while `rate` is sent; returns the new rate. An answer is the peer's word, so it
    /// does no more than double or halve the rate.
    pub(super) fn on_answer(
        &mut self,
        now: Instant,
        told: u64,
        rate: u64,
        share: &mut Share,
        eager: bool,
    ) -> u64 {
        let mut next = rate;
        if !self.capacity.on_answer(now, told) {
            return next;
        }
        if let Some(before) = self.stroke.take()
            && told < scaled(before, CHANGED)
        {
            share.stay_alone();
            next = next.min(told.max(scaled(next, SLOWEST)));
        }
        if Part::TrainRecovery.or(eager && !share.is_shared(), false) {
            next = next.max(scaled(told, NEARLY).min(scaled(next, FASTER)));
        }
        next
    }
}
