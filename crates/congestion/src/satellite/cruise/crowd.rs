//! Cruise in company: what a tunnel that shares its bottleneck does otherwise.
//!
//! - The queue is no longer to be short but common: see `common.rs`. The rate follows what is delivered at once, and the gain
//!   leads to equal queues.
//! - Dips are repeated until the queue was empty. All see that at once, so that later dips come together, and every
//!   tunnel, the newest as well, knows the round-trip time without a queue.
//! - A queue that stays long, and that nobody empties, is that of somebody who fills it.
//!
//! Low orbits do without: there the path's length changes more than a common queue could tell.

use std::time::{Duration, Instant};

use crate::ablation::Part;

use super::super::super::{bytes_in, scaled};
use super::super::belief::{Bottleneck, Evidence};
use super::super::common::EMPTY;
use super::super::losses::Losses;
use super::super::path::{FAR, NEAR, Path};
use super::super::pulse::SLOWEST;
use super::super::share::Seen;
use super::Cruise;

/// With fewer packets to a round trip single ones are a queue.
const FEWEST: u64 = 40;
/// Share of losses beyond the path's own that is no chance.
const OVERFLOWING: f64 = 0.04;
/// What an overflow in company leaves of the rate, in permille.
const OVERFLOW: u64 = 850;
/// Rounds until what was sent since this tunnel joined others is all that is answered.
const JOINED: u32 = 4;
/// Most by which the rate grows in a round in company, in permille of it.
const FASTEST: u64 = 2000;

impl Cruise {
    /// A queue above this is none.
    pub(in super::super) fn empty(&self, mtu: u64) -> Duration {
        if self.is_shared() {
            EMPTY
        } else {
            self.target(mtu)
        }
    }

    /// True if others of this kind are there, as far as is known.
    pub(in super::super) fn is_shared(&self) -> bool {
        self.bottleneck() == Bottleneck::Shared
    }

    /// In company the queue of the others is none of our mistakes unless it is longer than this.
    pub(in super::super) fn limit(&self, mtu: u64) -> Duration {
        let high = self.high(mtu);
        let far = self.base >= FAR;
        let crowd = if far {
            self.base / 3
        } else {
            self.base / 10 * 7
        };
        if self.is_shared() || far {
            high.max(crowd)
        } else {
            high
        }
    }

    /// Evidence of a round that has ended with `in_flight` bytes under way: its smallest round-trip time was `rtt`, and its queue
    /// `long` for what the rate was until then.
    pub(in super::super) fn evidence(
        &self,
        rtt: Duration,
        long: bool,
        path: &Path,
        in_flight: u64,
        most_in_flight: u64,
    ) -> Evidence {
        // Where round trips are short, whose queue stands is told by company alone.
        let far = self.base >= FAR;
        let patient = far || self.is_shared();
        let crowded = self.share.is_crowded(!far, self.trains.know()) && patient;
        let had = self.rate.max(self.share.had());
        Evidence {
            usual: self.bottleneck(),
            never_empty: Part::Crowded.or(crowded, false).then(|| bytes_in(had, rtt)),
            still: Part::Still.or(far && self.share.is_still(), false),
            overflows: Part::Ceiling.or(self.ceiling.is_hit(), false),
            pushed_out: Part::PushedOut.or(self.company.pushes_out(self.rate), false) && long,
            far: path.is_far(),
            patient,
            in_flight,
            most_in_flight,
        }
    }

    /// Records that another sender filled the queue until now.
    pub(in super::super) fn beware(&mut self) {
        self.share.beware(self.rate);
    }

    /// Records that what looked like a crowd's queue was the path's length.
    pub(in super::super) fn clear_crowd(&mut self) {
        self.share.clear();
    }

    /// True if another sender may be filling the queue.
    pub(in super::super) fn is_suspicious(&self) -> bool {
        self.share.is_suspicious()
    }

    /// A round ended behind `queue`.
    pub(super) fn look_for_company(
        &mut self,
        now: Instant,
        queue: Duration,
        moves: bool,
        mtu: u64,
    ) {
        let target = self.target(mtu);
        let long = if self.base >= FAR {
            (self.base / 4).max(target / 2)
        } else {
            self.base / 5 * 2
        };
        self.trains.end_round(now, self.base);
        self.share.watch(&Seen {
            rate: self.rate,
            queue,
            target,
            long,
            base: self.base,
            known: self.trains.know(),
        });
        if self.base < NEAR || moves {
            self.share.stay_alone();
        } else {
            let (rate, eager) = (self.rate, self.pulses.is_eager());
            let queues = (queue, target);
            self.trains.judge(now, queues, rate, &mut self.share, eager);
        }
    }

    /// Joins senders that were there before. What comes back at first was sent in start-up.
    pub(in super::super) fn join(&mut self) {
        self.share.enter();
        self.trend.skip(JOINED);
    }

    /// The rate after a round in which `seen` was delivered behind `queue`.
    pub(super) fn follow_in_company(&mut self, queue: Duration, seen: u64, losses: &Losses) {
        if Part::Overflow.or(overflows(losses), false) {
            self.share.on_overflow(queue, self.base, self.trains.know());
            self.rate = scaled(seen.min(self.rate), OVERFLOW);
        } else {
            self.rate = seen.clamp(scaled(self.rate, SLOWEST), scaled(self.rate, FASTEST));
        }
    }

    /// Pacing in company after a round behind `queue`.
    pub(super) fn law_in_company(&self, queue: Duration, target: Duration, losses: &Losses) -> u64 {
        let gain = self.share.gain(queue, target, self.base, self.rate);
        if overflows(losses) || self.trains.is_in_doubt() {
            gain.min(1000)
        } else {
            gain
        }
    }
}

/// On a thin path single packets are a queue of their own.
pub(in super::super) fn is_thin(rate: u64, base: Duration, mtu: u64) -> bool {
    bytes_in(rate, base) < FEWEST * mtu
}

/// Far more is lost than the path's own, whatever is chance.
pub(super) fn overflows(losses: &Losses) -> bool {
    let lost = losses.share_of_last().unwrap_or(0.0);
    losses.was_excessive() || lost > losses.baseline() + OVERFLOWING
}
