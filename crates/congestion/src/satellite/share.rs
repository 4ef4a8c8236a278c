//! Whether this tunnel has the bottleneck to itself, or others of its kind beside it, or somebody who fills the queue.
//!
//! What the path carries is known from trains of packets, whoever else uses it (`capacity.rs`): with much less than that behind a
//! queue, there are others. Alone, the queue is to be short. In company it is what all have in common (`common.rs`). One that
//! is long and never empty is that of somebody who fills it. It decides nothing but that.

use std::time::Duration;

use crate::ablation::Part;

use super::super::{float, scaled, whole};
use super::common::{Common, EMPTY, GONE};

/// After so many rounds without a queue the others are taken to have left, where what the path carries is not known: else all
/// may have yielded too much.
const LEFT: u32 = 5;
/// Rounds behind a long queue that are no start of a tunnel; and no swing of a queue of several, where it is known that they
/// are there.
const CROWDED: u32 = 8;
const CROWDED_FAMILIAR: u32 = 18;
/// Rounds behind a long queue that are no start of a tunnel, where a round trip is short.
const CROWDED_NEAR: u32 = 28;
/// A queue longer than this part of a round trip is none of our own kind's: a round behind it counts for so many.
const HUGE: f64 = 1.25;
const HUGE_COUNTS: u32 = 3;
/// Rounds for which somebody who filled the queue is expected back.
const WARY: u32 = 64;
/// After so many rounds a queue that this tunnel makes room for would have gone, if it was its own.
const FOREIGN: u32 = 8;
/// A mean that is shorter is anybody's.
const FOREIGN_LEAST: Duration = Duration::from_millis(30);
/// 1 Mbit/s in bytes per second.
const FEW: u64 = 125_000;
/// What a round leaves of the memory of the highest rate, and of the longest queue.
const FADE: f64 = 0.985;
const LONGEST_FADE: f64 = 0.97;
/// A queue that changes by no more in a round is the same.
const STILL: Duration = Duration::from_millis(3);
/// Room for this part of a round trip is too little to tell anything; and rounds until it is tried again.
const LITTLE: u32 = 10;
const HOPELESS: u32 = 200;
/// Room of every queue, and in company as a part of a round trip: what is lost there may be lost in a swing.
const LEAST_ROOM: Duration = Duration::from_millis(4);
const SWING: u32 = 2;
/// Seconds in which room that packets were lost for want of is believed to have grown by a factor of e.
const ROOM_BACK: f64 = 60.0;
/// With less of what the path carries, in permille, there is company, with more there is none.
pub(super) const COMPANY: u64 = 800;
const ALONE: u64 = 950;

/// What a round showed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// Rate of this tunnel, in bytes per second.
    pub(super) rate: u64,
    /// The queue, what it was to be, and above what it is long.
    pub(super) queue: Duration,
    pub(super) target: Duration,
    pub(super) long: Duration,
    /// The round-trip time without it.
    pub(super) base: Duration,
    /// What the path carries is known.
    pub(super) known: bool,
}

/// What is known of others.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Share {
    shared: bool,
    common: Common,
    /// The queue behind which packets were lost, where any were, and the longest one lately.
    room: Option<Duration>,
    longest: Duration,
    /// Rounds behind a long queue since there was none.
    crowded: u32,
    /// Rounds in a row without a queue.
    empty: u32,
    /// Rounds for which a crowd is expected back.
    wary: u32,
    /// The highest rate lately.
    had: f64,
    /// The last round's queue, and rounds in a row in which it was the same.
    last: Duration,
    still: u32,
    /// Rounds in a row in which the mean was long although this tunnel made room.
    foreign: u32,
    /// Rounds for which there is too little room for a common queue.
    hopeless: u32,
}

impl Share {
    /// True if other senders share the path.
    pub(super) fn is_shared(&self) -> bool {
        self.shared
    }

    /// What the queue is to be in company at `rate` bytes per second.
    pub(super) fn queue(&self, rate: u64, base: Duration) -> Duration {
        Common::target(rate, base, self.room)
    }

    /// Pacing in company, in permille of `rate`, after a round behind `queue`, when it is to be `target`.
    pub(super) fn gain(&self, queue: Duration, target: Duration, base: Duration, rate: u64) -> u64 {
        let slowest = Common::slowest(rate, base, self.room);
        self.common.gain(queue, target, base, slowest)
    }

    /// Behind a queue `rate` was delivered, of the `capacity` that the path has.
    pub(super) fn judge(&mut self, rate: u64, capacity: u64) {
        if rate < scaled(capacity, COMPANY) {
            self.enter();
        } else if rate > scaled(capacity, ALONE) {
            self.shared = false;
        }
    }

    /// Notes that other senders share the path, as far as is known.
    pub(super) fn enter(&mut self) {
        if !self.shared && self.hopeless == 0 {
            self.shared = true;
            self.common.begin();
        }
    }

    /// A round ended.
    pub(super) fn watch(&mut self, seen: &Seen) {
        let queue = seen.queue;
        let passed = seen.base.as_secs_f64() / ROOM_BACK;
        self.room = self.room.map(|room| room + room.mul_f64(passed));
        let still = queue.abs_diff(self.last) <= STILL;
        self.still = if still { self.still + 1 } else { 0 };
        self.last = queue;
        self.longest = queue.max(self.longest.mul_f64(LONGEST_FADE));
        self.wary = self.wary.saturating_sub(1);
        self.hopeless = self.hopeless.saturating_sub(1);
        self.had = (self.had * FADE).max(float(seen.rate));
        self.count(seen);
        if Part::RestartMean.or(self.shared && self.empty == GONE, false) {
            self.common.restart();
        }
        self.common.end_round(queue, seen.target, self.empty);
        self.look_for_foreigners(seen);
        if self.shared && self.empty >= LEFT && !seen.known {
            self.forget();
        }
    }

    /// Rounds without a queue, and behind a long one.
    fn count(&mut self, seen: &Seen) {
        let none = if self.shared { EMPTY } else { seen.target / 2 };
        if seen.queue <= none {
            self.crowded = 0;
            self.empty += 1;
            return;
        }
        self.empty = 0;
        if seen.queue > seen.base.mul_f64(HUGE) {
            self.crowded += Part::HugeQueue.or(HUGE_COUNTS, 1);
        } else if seen.queue > seen.long {
            self.crowded += 1;
        }
    }

    /// Where nobody told what the path carries, a queue that stays although this tunnel makes room is that of others.
    fn look_for_foreigners(&mut self, seen: &Seen) {
        // On a slow path a few packets are a long queue.
        let times = if seen.rate < FEW { 4 } else { 2 };
        let long = self.common.mean() > (seen.target * times).max(FOREIGN_LEAST);
        let foreign = long && !seen.known && !self.shared;
        self.foreign = if foreign { self.foreign + 1 } else { 0 };
        if Part::Foreign.or(self.foreign >= FOREIGN, false) {
            self.enter();
        }
    }

    /// A queue that neither grows nor shrinks is none: the path became longer.
    pub(super) fn is_still(&self) -> bool {
        self.still >= CROWDED / 2
    }

    /// Records that no other sender filled the queue.
    pub(super) fn clear(&mut self) {
        self.crowded = 0;
        self.common.bound(Duration::ZERO);
    }

    /// True if the queue may be that of a sender who fills it.
    pub(super) fn is_suspicious(&self) -> bool {
        self.wary > 0 || self.crowded >= CROWDED / 2
    }

    /// What others there are is not to be asked.
    pub(super) fn stay_alone(&mut self) {
        self.shared = false;
    }

    /// A long queue that nobody empties is that of somebody who fills it. `known`: what the path carries is.
    pub(super) fn is_crowded(&self, near: bool, known: bool) -> bool {
        let usual = if near {
            Part::CrowdedNear.or(CROWDED_NEAR, CROWDED_FAMILIAR)
        } else if known && self.shared {
            Part::CrowdedFamiliar.or(CROWDED_FAMILIAR, CROWDED)
        } else {
            CROWDED
        };
        self.crowded >= if self.wary > 0 { usual / 4 } else { usual }
    }

    /// Packets were lost behind `queue`: there is no room for more. `known`: what the path carries is.
    pub(super) fn on_overflow(&mut self, queue: Duration, base: Duration, known: bool) {
        if self.longest < base / LITTLE {
            // Too little for a signal.
            self.forget();
            self.hopeless = Part::Hopeless.or(HOPELESS, 0);
            return;
        }
        let queue = if known {
            queue.max(base / SWING)
        } else {
            queue
        };
        self.room = Part::CommonRoom.or(Some(queue.max(LEAST_ROOM) / 4 * 3), None);
        self.common.bound(queue);
    }

    /// The path itself may have changed: what this tunnel has may be all there is.
    pub(super) fn forget(&mut self) {
        (self.shared, self.room) = (false, None);
        (self.last, self.still, self.foreign) = (Duration::ZERO, 0, 0);
    }

    /// Records that another sender filled the queue until now, and may soon again; `rate` is what this tunnel had beside it.
    pub(super) fn beware(&mut self, rate: u64) {
        self.wary = Part::ExpectedBack.or(WARY, 0);
        self.had = 2.0 * float(rate);
    }

    /// What this tunnel had before somebody filled the queue: half of what it had alone.
    pub(super) fn had(&self) -> u64 {
        whole(self.had / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: u64 = 1_250_000;

    /// Rounds at `rate` behind queues of so many milliseconds.
    fn watch(share: &mut Share, rate: u64, queues: impl IntoIterator<Item = u64>, known: bool) {
        for queue in queues {
            share.watch(&Seen {
                rate,
                queue: Duration::from_millis(queue),
                target: Duration::from_millis(20),
                long: Duration::from_millis(150),
                base: Duration::from_millis(600),
                known,
            });
        }
    }

    #[test]
    fn less_than_the_path_carries_is_company() {
        let mut share = Share::default();
        for (rate, shared) in [(90, false), (79, true), (94, true), (96, false)] {
            share.judge(RATE * rate, RATE * 100);
            assert_eq!(share.is_shared(), shared, "{rate}");
        }
    }

    #[test]
    fn a_queue_that_stays_is_foreign_where_nothing_else_is_known() {
        let (mut told, mut untold) = (Share::default(), Share::default());
        watch(&mut told, RATE, [120; 30], true);
        watch(&mut untold, RATE, [120; 30], false);
        assert!(!told.is_shared() && untold.is_shared());
        watch(&mut untold, RATE, [0; 5], false);
        assert!(!untold.is_shared(), "they have left");
    }

    /// Of one's own kind nobody keeps the queue long, but it swings for a while.
    #[test]
    fn a_queue_that_is_never_empty_is_somebodys_who_fills_it() {
        let after = |queues: &[u64]| {
            let mut share = Share::default();
            share.enter();
            watch(&mut share, RATE, queues.iter().copied(), true);
            share.is_crowded(false, true)
        };
        let rounds = CROWDED_FAMILIAR as usize;
        let long = vec![300; rounds];
        assert!(after(&long) && !after(&long[1..]));
        assert!(
            after(&[800; (CROWDED_FAMILIAR / HUGE_COUNTS) as usize]),
            "far longer than the path"
        );
        let swings: Vec<_> = (0..60)
            .map(|round| if round % 12 == 0 { 0 } else { 300 })
            .collect();
        assert!(!after(&swings));
    }
}
