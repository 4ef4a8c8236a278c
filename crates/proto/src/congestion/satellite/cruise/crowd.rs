//! Cruise in company: what a tunnel that shares its bottleneck does otherwise.
//!
//! - Now and then a pulse behind the queue measures what part of the path is this tunnel's. With much less than all of
//!   it, the queue is no longer to be short but common: see `share.rs`.
//! - The rate follows what is delivered at once, and the gain leads to equal queues.
//! - Dips are repeated until the queue was empty. All see that at once, so that later dips come together, and every
//!   tunnel, the newest as well, knows the round-trip time without a queue.
//! - A queue that stays long, and that nobody empties, is that of somebody who fills it.
//!
//! Low orbits do without: there the path's length changes more than a common queue could tell.

use std::time::{Duration, Instant};

use super::super::super::{bytes_in, scaled, time_of};
use super::super::losses::Losses;
use super::super::path::Path;
use super::super::pulse::{Pulse, proportion};
use super::super::share::EMPTY;
use super::pulses::FIRST_STEP;
use super::{Cruise, LOSS_MARGIN, SLOWEST, SPREAD, Stage};

/// In a low orbit the path's length changes more, and sooner, than a common queue would tell.
const NEAR: Duration = Duration::from_millis(100);
/// From here on a round trip is long.
pub(super) const FAR: Duration = Duration::from_millis(200);
/// Alone, a pulse that measures makes the queue no longer than by this.
const FAINT: Duration = Duration::from_millis(20);
/// By so many times what round-trip times differ by without a queue.
const CLEAR: u32 = 4;
/// Packets that it adds at least.
const PACKETS: u64 = 4;
/// With fewer packets to a round trip a part of it cannot be measured.
const FEWEST: u64 = 40;
/// Share of losses beyond the path's own that is no chance.
const OVERFLOWING: f64 = 0.04;
/// What an overflow in company leaves of the rate, in permille.
const OVERFLOW: u64 = 850;
/// Most by which the rate grows in a round in company, in permille of it.
const FASTEST: u64 = 2000;

impl Cruise {
    /// A queue above this is none.
    pub(in super::super) fn empty(&self, mtu: u64) -> Duration {
        if self.share.is_shared() {
            EMPTY
        } else {
            self.target(mtu)
        }
    }

    pub(in super::super) fn is_shared(&self) -> bool {
        self.share.is_shared()
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
        if self.share.is_shared() || far {
            high.max(crowd)
        } else {
            high
        }
    }

    /// Somebody fills the queue; what this tunnel had of the path before.
    pub(in super::super) fn is_crowded(&self) -> Option<u64> {
        let near = self.base < FAR;
        let crowded = self.share.is_crowded(near) && (!near || self.share.is_shared());
        crowded.then(|| self.rate.max(self.share.had()))
    }

    /// Somebody filled the queue until now.
    pub(in super::super) fn beware(&mut self) {
        self.share.beware(self.rate);
    }

    /// The crowd is none: the path is longer.
    pub(in super::super) fn is_longer(&mut self) -> bool {
        let longer = self.base >= FAR && self.share.is_still();
        if longer {
            self.share.clear();
        }
        longer
    }

    /// It may be so.
    pub(in super::super) fn is_suspicious(&self) -> bool {
        self.share.is_suspicious()
    }

    /// Whose queue stands is told by that alone.
    pub(in super::super) fn is_patient(&self) -> bool {
        self.base >= FAR || self.share.is_shared()
    }

    /// A round ended behind `queue`.
    pub(super) fn look_for_company(&mut self, queue: Duration, moves: bool, mtu: u64) {
        let long = if self.base >= FAR {
            self.base / 4
        } else {
            self.base / 5 * 2
        };
        self.share.watch(self.rate, queue, self.target(mtu), long);
        if self.base < NEAR || moves {
            self.share.stay_alone();
        }
    }

    /// Measuring this tunnel's part makes sense now.
    pub(super) fn may_measure(&self, queue: Duration, mtu: u64) -> bool {
        let due = self.base >= NEAR
            && !is_thin(self.rate, self.base, mtu)
            && self.share.is_due(self.rate);
        due && queue > self.target(mtu) / 2 && queue <= self.limit(mtu)
    }

    /// A pulse behind a queue, to see how much of the path is ours.
    pub(super) fn measure(
        &mut self,
        now: Instant,
        before: Duration,
        path: &Path,
        losses: &mut Losses,
        mtu: u64,
    ) {
        let pulse = Pulse::new(now, FIRST_STEP, before, path.base(), path.audible());
        let most = if self.share.is_shared() {
            Duration::MAX
        } else {
            FAINT.max(path.audible() * CLEAR)
        };
        let pulse = pulse.limited(most, time_of(PACKETS * mtu, self.rate));
        let pulse = pulse.measuring();
        losses.watch(now, pulse.end());
        self.stage = Stage::Pulse(pulse);
    }

    pub(super) fn conclude_measure(&mut self, pulse: Pulse, losses: &Losses) {
        let lossy = losses.excess_of_pulse() > pulse.missing_if_full() / 4.0;
        if lossy || !pulse.was_full(EMPTY) {
            return self.share.on_failure(lossy);
        }
        let (raised, full) = (pulse.raised(), pulse.queue_if_full());
        self.share.on_pulse(self.rate, raised, full, self.noise);
        if !self.share.is_shared() {
            // Take back in the next round trip what it added.
            let added = proportion(raised.min(full), self.base, 1000);
            self.gain = self.gain.saturating_sub(added).max(SLOWEST);
        }
        self.noise = self.noise / SPREAD + self.noise % 7919;
    }

    /// The rate after a round in which `seen` was delivered behind `queue`; false if the queue tells nothing.
    pub(super) fn follow_in_company(
        &mut self,
        queue: Duration,
        seen: u64,
        losses: &Losses,
    ) -> bool {
        if overflows(losses) {
            self.share.on_overflow(queue, self.base);
            self.rate = scaled(seen.min(self.rate), OVERFLOW);
        } else if queue >= EMPTY {
            self.rate = seen.clamp(scaled(self.rate, SLOWEST), scaled(self.rate, FASTEST));
        } else {
            return false;
        }
        true
    }

    /// Pacing in company after a round behind `queue`.
    pub(super) fn law_in_company(&self, queue: Duration, target: Duration, losses: &Losses) -> u64 {
        let gain = self.share.gain(queue, target, self.base);
        if overflows(losses) {
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
    losses.was_excessive(LOSS_MARGIN) || lost > losses.baseline() + OVERFLOWING
}
