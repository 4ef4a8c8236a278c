//! The queue that tunnels in company hold in common, and the pacing that keeps it.
//!
//! Everyone sees the same queue, and wants a longer one the slower it is. By what its mean differs from that, a tunnel becomes
//! faster or slower, until all want the same, and so all rates are equal; what the queue differs from its own mean is
//! everyone's doing, and mended by everyone at once. It takes the queue of each round, and decides nothing else.

use std::time::Duration;

use crate::ablation::Part;

use super::super::{float, whole};
use super::path::FAR;

/// Longest queue that counts as none while the path is shared.
pub(super) const EMPTY: Duration = Duration::from_millis(3);
/// Queue at [`REFERENCE`], in seconds; it falls with the rate.
const COMMON: f64 = 0.1;
/// 10 Mbit/s in bytes per second.
const REFERENCE: f64 = 1_250_000.0;
/// The longest queue where round trips are short; it is longer only as a share of a long one.
const MOST: Duration = Duration::from_millis(110);
/// Rounds over which the mean is taken, and those that what is known before counts for.
const MEMORY: u32 = 20;
const FIRST: u32 = 4;
/// Rounds without a queue after which that is no swing of it.
pub(super) const GONE: u32 = 4;
/// The mean when the queue is gone: the same for all, whatever they have, for it is what tells who is to have more.
const MIDDLE: Duration = Duration::from_millis(50);
/// Share of a queue's distance from its mean that one round mends.
const QUICK: f64 = 0.35;
/// By how much more than once a round the mean's distance from the target is mended, for each power of e by which they
/// differ, and at most.
const FAR_GAIN: f64 = 7.0;
const MOST_GAIN: f64 = 9.0;
/// Rounds over which that is taken: what goes up and down is everyone's swing.
const PERSISTENT: f64 = 8.0;
/// Fastest pacing, and how much slower than the rate the slowest is: for one that has all, and less for those who have less.
const FASTEST: f64 = 1.5;
const SLOWER: f64 = 0.4;

/// What is known of the common queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Common {
    /// Mean of the queue, and over how many rounds that is taken.
    mean: Duration,
    age: u32,
    /// The logarithm of target over mean, lately.
    apart: f64,
}

impl Default for Common {
    fn default() -> Self {
        Self {
            mean: Duration::ZERO,
            age: FIRST,
            apart: 0.0,
        }
    }
}

impl Common {
    /// What it is to be for a tunnel of `rate` bytes per second, where there is room for no more than `room`.
    pub(super) fn target(rate: u64, base: Duration, room: Option<Duration>) -> Duration {
        let (queue, most) = (wanted(rate), most(base, room));
        Duration::from_secs_f64(queue * most / (queue + most))
    }

    /// The slowest pacing of such a tunnel, as a part of its rate. Behind a queue that is too long for all, those who have little
    /// yield less: who was there first would else have nothing left when the last one has come.
    pub(super) fn slowest(rate: u64, base: Duration, room: Option<Duration>) -> f64 {
        let (queue, most) = (wanted(rate), most(base, room));
        Part::YieldByShare.or(1.0 - SLOWER * most / (queue + most), 1.0 - SLOWER)
    }

    pub(super) fn mean(&self) -> Duration {
        self.mean
    }

    /// Begins the common queue of a path that was not shared until now.
    pub(super) fn begin(&mut self) {
        self.age = FIRST;
    }

    /// The queue is gone.
    pub(super) fn restart(&mut self) {
        (self.mean, self.age) = (MIDDLE, FIRST);
    }

    /// Bounds the common queue to `queue`, for which alone there is room.
    pub(super) fn bound(&mut self, queue: Duration) {
        self.mean = self.mean.min(queue);
    }

    /// A round ended behind `queue`, which was to be `target`: the last of `empty` without one, if of any.
    pub(super) fn end_round(&mut self, queue: Duration, target: Duration, empty: u32) {
        if queue > EMPTY || empty >= GONE {
            self.age = (self.age + 1).min(MEMORY);
            self.mean = (self.mean * (self.age - 1) + queue) / self.age;
        }
        let apart = (target.as_secs_f64() / self.mean.as_secs_f64().max(0.001)).ln();
        self.apart += (apart - self.apart) / PERSISTENT;
    }

    /// Pacing, in permille of the rate, after a round behind `queue`, when it is to be `target`; not below `slowest`.
    pub(super) fn gain(
        &self,
        queue: Duration,
        target: Duration,
        base: Duration,
        slowest: f64,
    ) -> u64 {
        let short = queue < target / 2;
        let [queue, target, mean, base] =
            [queue, target, self.mean, base].map(|time| time.as_secs_f64());
        let strength = (1.0 + FAR_GAIN * self.apart.abs()).min(MOST_GAIN);
        let strength = Part::StrongCommon.or(strength, 1.0);
        let mut slow = strength * (target - mean) / base;
        if short {
            // It was long: nobody needs to yield any more.
            slow = slow.max(0.0);
        }
        let gain = 1.0 + QUICK * (mean - queue) / base + slow;
        whole(gain.clamp(slowest, FASTEST) * 1000.0)
    }
}

/// The queue that one of `rate` bytes per second wants where any length will do, in seconds.
fn wanted(rate: u64) -> f64 {
    COMMON * (REFERENCE / float(rate.max(1)))
}

/// No common queue is longer, in seconds.
fn most(base: Duration, room: Option<Duration>) -> f64 {
    let near = base.mul_f64((base.as_secs_f64() / FAR.as_secs_f64()).clamp(0.45, 1.0));
    let most = near.min((base / 2).max(MOST));
    room.map_or(most, |room| room.min(most)).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Duration = Duration::from_millis(600);

    /// The pacing of tunnels with these rates in Mbit/s, after rounds with so many milliseconds of queue.
    fn gains<const N: usize>(rates: [u64; N], queues: &[u64]) -> [u64; N] {
        rates.map(|rate| {
            let target = Common::target(rate * 125_000, BASE, None);
            let mut common = Common::default();
            let mut empty = 0;
            for queue in queues.iter().map(|queue| Duration::from_millis(*queue)) {
                empty = if queue <= EMPTY { empty + 1 } else { 0 };
                if empty == GONE {
                    common.restart();
                }
                common.end_round(queue, target, empty);
            }
            let queue = Duration::from_millis(*queues.last().unwrap_or(&0));
            let slowest = Common::slowest(rate * 125_000, BASE, None);
            common.gain(queue, target, BASE, slowest)
        })
    }

    /// The slower one holds the longer queue, so the faster one yields.
    #[test]
    fn the_slower_pushes_harder() {
        let [slow, fast] = gains([4, 40], &[50; 20]);
        assert!(slow > 1000 && fast < 1000, "{slow} {fast}");
    }

    /// Behind one that is too long for all, those yield most who have most.
    #[test]
    fn those_who_have_little_yield_little() {
        let [little, fair, much] = gains([1, 10, 90], &[600; 20]);
        assert!(little > 850 && fair < little && much < fair && much >= 600);
    }

    /// After a long queue nobody goes on yielding when it is nearly gone.
    #[test]
    fn nobody_yields_behind_a_short_queue() {
        let mut queues = [400; 12];
        assert!(gains([4, 40], &queues).into_iter().all(|gain| gain < 1000));
        queues[11] = 5;
        assert!(gains([4, 40], &queues).into_iter().all(|gain| gain > 1000));
    }

    /// A queue that is gone leaves the slow ones pushing harder, whatever each of them took it for.
    #[test]
    fn an_empty_queue_tells_who_is_to_have_more() {
        let [slow, fast] = gains([4, 40], &[400, 400, 0, 0, 0, 0, 0]);
        assert!(slow > fast && fast >= 1000, "{slow} {fast}");
    }
}
