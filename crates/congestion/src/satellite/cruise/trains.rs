//! What cruise asks of trains: whether there are others, and whether a path that became slower is faster again.
//!
//! - With less than the path carries behind a queue, there is company. What it carries is to be known from not long ago.
//! - A rate that falls at a stroke is the path's doing or somebody's coming. Until a train tells, a deep fall is taken for
//!   the path's, which has to be answered before its queue overflows, another one for company's.
//! - While a path is expected to become faster again, trains find out, without a queue for whom that is not yet true.
//!
//! Low orbits do without: see `crowd.rs`.

use std::time::{Duration, Instant};

use super::super::super::{bytes_in, scaled};
use super::super::share::COMPANY;
use super::crowd::NEAR;
use super::{Cruise, SLOWEST, sent};

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

impl Cruise {
    /// A round ended behind `queue`, which was to be `target`: whether there are others, as far as trains tell.
    pub(super) fn judge_by_trains(&mut self, now: Instant, queue: Duration, target: Duration) {
        let shared = self.share.is_shared();
        if shared && self.capacity.is_older(now, LOST) {
            self.capacity.forget();
        }
        if !self.capacity.is_asked() {
            self.stroke = None;
        }
        let capacity = self.capacity.get();
        if queue > target / 2 {
            let stale = self.capacity.is_older(now, FRESH);
            let less = capacity.is_none_or(|capacity| self.rate < scaled(capacity, COMPANY));
            match capacity.filter(|_| shared || !stale) {
                Some(capacity) => self.share.judge(self.rate, capacity),
                None if less => self.capacity.wish(),
                None => {}
            }
        }
        let age = match self.share.is_shared() {
            true => Some(REGULAR),
            false => Some(RECOVERING).filter(|_| self.eager > 0),
        };
        if age.is_some_and(|age| self.capacity.is_older(now, age)) {
            self.capacity.wish();
        }
    }

    /// Delivery became slower at a stroke, and is `fresh` now: the path did, or somebody came.
    pub(super) fn on_slower(&mut self, fresh: u64) {
        if self.base < NEAR {
            return self.share.forget();
        }
        if self.is_in_doubt() {
            return;
        }
        self.capacity.wish();
        let known = self.capacity.get();
        if known.is_some() && self.share.is_shared() {
            return;
        }
        self.stroke = known;
        if known.is_some() && fresh >= scaled(self.rate, DEEP_FALL) {
            self.share.enter();
        } else {
            self.share.forget();
        }
    }

    /// Delivery became slower at a stroke, and no train has told yet whose doing that is.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.stroke.is_some() && self.capacity.is_asked()
    }

    /// A train has just said that the path carries no more.
    pub(super) fn is_told(&self, now: Instant) -> bool {
        let full = |capacity| self.rate >= scaled(capacity, FULL);
        self.base >= NEAR
            && !self.capacity.is_older(now, JUST)
            && self.capacity.get().is_some_and(full)
    }

    /// A train is to leave now.
    pub(in super::super) fn wants_train(&self, now: Instant, mtu: u64) -> bool {
        let rate = self.capacity.get().unwrap_or(self.rate);
        self.base >= NEAR
            && bytes_in(rate, self.base) >= WIDE * mtu
            && self.capacity.is_due(now, self.base)
    }

    pub(in super::super) fn on_train(&mut self, now: Instant) {
        self.capacity.on_train(now);
    }

    /// What start-up knows of what the path carries.
    pub(in super::super) fn set_capacity(&mut self, now: Instant, rate: Option<u64>) {
        self.capacity.set(now, rate);
    }

    /// A train arrived at `rate`, of a path that loses `lost` by itself. That is the peer's word, so one answer does no more than
    /// double or halve the rate.
    pub(in super::super) fn on_capacity(&mut self, now: Instant, rate: u64, lost: f64) {
        let rate = sent(rate, lost);
        if !self.capacity.on_answer(now, rate) {
            return;
        }
        if let Some(before) = self.stroke.take()
            && rate < scaled(before, CHANGED)
        {
            self.share.stay_alone();
            self.rate = self.rate.min(rate.max(scaled(self.rate, SLOWEST)));
        }
        if self.eager > 0 && !self.share.is_shared() {
            let faster = scaled(rate, NEARLY).min(scaled(self.rate, FASTER));
            self.rate = self.rate.max(faster);
        }
    }
}
