//! Whether this tunnel has the bottleneck to itself, and what queue it is to hold if not.
//!
//! Behind a queue a pulse does not find a faster path: it only lengthens the queue, by as much as this tunnel's part of
//! the path's rate is. Alone, the queue is to be short. In company it is what all have in common, and it has to carry
//! who is to have more and who less: then everyone holds a longer one the slower it is, until all queues, and so all
//! rates, are equal. It decides nothing but that.

use std::time::Duration;

/// Queue in company at [`REFERENCE`], in seconds, and how it falls with the rate.
const COMMON: f64 = 0.08;
/// 10 Mbit/s in bytes per second.
const REFERENCE: f64 = 1_250_000.0;
const EXPONENT: f64 = 0.75;
/// After so many rounds without a queue the others are taken to have left.
const LEFT: u32 = 5;
/// So many rounds behind a long queue are no start of a tunnel.
const CROWDED: u32 = 8;
/// Rounds for which somebody who filled the queue is expected back.
const WARY: u32 = 64;
/// After so many rounds a queue that this tunnel makes room for would have gone, if it was its own.
const FOREIGN: u32 = 8;
/// The longest queue in company where round trips are short; it is longer only as a share of a long one.
const MOST: Duration = Duration::from_millis(110);
/// 1 Mbit/s in bytes per second.
const FEW: u64 = 125_000;
/// What is called no queue in company.
pub(super) const EMPTY: Duration = Duration::from_millis(3);
/// A mean that is shorter is anybody's.
const FOREIGN_LEAST: Duration = Duration::from_millis(30);
/// What a round leaves of the memory of the highest rate.
const FADE: f64 = 0.985;
/// A queue that changes by no more in a round is the same.
const STILL: Duration = Duration::from_millis(3);
/// The same where a round trip is short.
const CROWDED_NEAR: u32 = 28;
/// Share of a queue's distance from its mean that one round mends, and of the mean's from the target.
const QUICK: f64 = 0.4;
const SLOW: f64 = 1.0;
/// By how much more the latter, for each power of e by which mean and target differ beyond the first third.
const FAR_GAIN: f64 = 3.0;
/// Room for this part of a round trip is too little, and rounds until it is tried again.
const LITTLE: u32 = 12;
const HOPELESS: u32 = 64;
/// A queue whose mean is shorter is none, in seconds.
const NO_QUEUE: f64 = 0.008;
/// Room of every queue.
const LEAST_ROOM: Duration = Duration::from_millis(4);
/// With less of the path there is company, with more there is none.
const COMPANY: f64 = 0.6;
const ALONE: f64 = 0.72;
/// How far the rate changes, as a share, until the part is measured again.
const CHANGED: f64 = 0.1;
/// Rounds between two measurements in company, and after one that failed.
const BETWEEN: u32 = 8;
const FAILED: u32 = 12;
/// Rounds before the first.
const FIRST: u32 = 2;
/// How much of a new measurement is believed.
const GAIN: f64 = 0.5;

/// What is known of this tunnel's part.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    /// This tunnel's part of the path's rate, and its rate when that was measured.
    part: f64,
    measured: f64,
    shared: bool,
    /// Measurements so far, and rounds until the next.
    count: u32,
    rounds: u32,
    /// The queue's mean lately.
    mean: Duration,
    /// The queue behind which packets were lost, where any were.
    room: Option<Duration>,
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
}

impl Share {
    pub(super) fn new() -> Self {
        Self {
            part: 1.0,
            measured: 0.0,
            shared: false,
            count: 0,
            rounds: FIRST,
            mean: Duration::ZERO,
            room: None,
            crowded: 0,
            empty: 0,
            wary: 0,
            had: 0.0,
            last: Duration::ZERO,
            still: 0,
            foreign: 0,
        }
    }

    /// There are others.
    pub(super) fn is_shared(&self) -> bool {
        self.shared
    }

    /// What the queue is to be in company at `rate` bytes per second.
    pub(super) fn queue(&self, rate: u64, base: Duration) -> Duration {
        let queue = COMMON * (REFERENCE / float(rate.max(1))).powf(EXPONENT);
        let near = base.mul_f64((base.as_secs_f64() / 0.2).clamp(0.45, 1.0));
        let most = near.min((base / 10 * 3).max(MOST));
        let most = self.room.map_or(most, |room| room.min(most)).as_secs_f64();
        Duration::from_secs_f64(queue * most / (queue + most))
    }

    /// A measurement is to be made now, when `rate` is delivered.
    pub(super) fn is_due(&self, rate: u64) -> bool {
        let changed = (float(rate) / self.measured.max(1.0) - 1.0).abs() > CHANGED;
        self.rounds == 0 && (changed || self.count < 2 || self.shared)
    }

    /// A pulse of this tunnel at `rate` raised the queue by `raised`, and would have by `full` if alone.
    pub(super) fn on_pulse(&mut self, rate: u64, raised: Duration, full: Duration, noise: u64) {
        let part = (raised.as_secs_f64() / full.as_secs_f64()).clamp(0.02, 1.0);
        // A single one that is far off is not believed in full.
        let part = if self.shared {
            part
        } else {
            part.max(COMPANY / 3.0)
        };
        self.part *= (part / self.part).powf(GAIN);
        self.measured = float(rate);
        self.count += 1;
        let bound = if self.shared { ALONE } else { COMPANY };
        self.shared = self.count > 1 && self.part < bound;
        let between = if self.count < 3 { 1 } else { BETWEEN };
        self.rounds = between + u32::try_from(noise % 4).unwrap_or(0);
    }

    /// A round ended behind `queue`, which was to be `target`, is long above `long` and none below `empty`.
    pub(super) fn watch(&mut self, rate: u64, queue: Duration, target: Duration, long: Duration) {
        let empty = if self.shared { EMPTY } else { target } / 2;
        self.rounds = self.rounds.saturating_sub(1);
        // Some 200 rounds later it may be twice as much.
        self.room = self.room.map(|room| room + room / 300);
        let still = queue.abs_diff(self.last) <= STILL;
        self.still = if still { self.still + 1 } else { 0 };
        self.last = queue;
        self.mean = (self.mean * 5 + queue) / 6;
        // On a slow path a few packets are a long queue.
        let times = if rate < FEW { 4 } else { 2 };
        let foreign = !self.shared && self.mean > (target * times).max(FOREIGN_LEAST);
        self.foreign = if foreign { self.foreign + 1 } else { 0 };
        if self.foreign >= FOREIGN {
            self.shared = true;
            self.part = COMPANY / 2.0;
            self.count = self.count.max(2);
        }
        self.wary = self.wary.saturating_sub(1);
        self.had = (self.had * FADE).max(float(rate));
        if queue <= empty {
            self.crowded = 0;
            self.empty += 1;
        } else {
            self.crowded += u32::from(queue > long);
            self.empty = 0;
        }
        if self.shared && self.empty >= LEFT {
            self.forget();
        }
    }

    /// A queue that neither grows nor shrinks is none: the path became longer.
    pub(super) fn is_still(&self) -> bool {
        self.still >= CROWDED / 2
    }

    /// It was none.
    pub(super) fn clear(&mut self) {
        self.crowded = 0;
        self.mean = Duration::ZERO;
    }

    /// It may be the queue of somebody who fills it.
    pub(super) fn is_suspicious(&self) -> bool {
        self.wary > 0 || self.crowded >= CROWDED / 2
    }

    /// What others there are is not to be asked.
    pub(super) fn stay_alone(&mut self) {
        self.shared = false;
    }

    /// A long queue that nobody empties is that of somebody who fills it.
    pub(super) fn is_crowded(&self, near: bool) -> bool {
        let usual = if near { CROWDED_NEAR } else { CROWDED };
        self.crowded >= if self.wary > 0 { usual / 4 } else { usual }
    }

    /// Pacing in company, in permille of the rate, after a round behind `queue`, when it is to be `target`.
    ///
    /// What the queue differs from its own mean is everyone's doing, and is mended at once; what the mean differs from
    /// this tunnel's target is the difference between the tunnels.
    pub(super) fn gain(&self, queue: Duration, target: Duration, base: Duration) -> u64 {
        let (queue, target, base) = (
            queue.as_secs_f64(),
            target.as_secs_f64(),
            base.as_secs_f64(),
        );
        let mean = self.mean.as_secs_f64();
        let far = (target / mean.max(0.001)).ln().abs();
        let boost = 1.0 + FAR_GAIN * (far - 0.3).max(0.0);
        let gain = 1.0 + QUICK * (mean - queue) / base + SLOW * boost * (target - mean) / base;
        // Where there is no queue nothing tells who is to have more.
        let most = if mean < NO_QUEUE { 1.03 } else { 2.0 };
        (gain.clamp(0.6, most) * 1000.0) as u64
    }

    /// Packets were lost behind `queue`: there is no room for more.
    pub(super) fn on_overflow(&mut self, queue: Duration, base: Duration) {
        if queue < base / LITTLE {
            // Too little for a signal.
            self.forget();
            self.rounds = HOPELESS;
            return;
        }
        self.room = Some(queue.max(LEAST_ROOM) / 4 * 3);
        self.mean = self.mean.min(queue);
    }

    /// It could not be measured.
    pub(super) fn on_failure(&mut self, lossy: bool) {
        self.rounds = if lossy { FAILED } else { FIRST };
    }

    /// The path itself may have changed: `rate` may be all there is.
    pub(super) fn forget(&mut self) {
        *self = Self {
            mean: self.mean,
            crowded: self.crowded,
            empty: self.empty,
            wary: self.wary,
            had: self.had,
            ..Self::new()
        };
    }

    /// Somebody filled the queue until now, and may soon again; `rate` is what this tunnel had beside it.
    pub(super) fn beware(&mut self, rate: u64) {
        self.wary = WARY;
        self.had = 2.0 * float(rate);
    }

    /// What this tunnel had before somebody filled the queue: half of what it had alone.
    pub(super) fn had(&self) -> u64 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a rate"
        )]
        let half = (self.had / 2.0) as u64;
        half
    }
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn float(rate: u64) -> f64 {
    rate as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Alone a pulse lengthens the queue by all of its excess; one that does not has company.
    #[test]
    fn pulses_tell_company() {
        let full = Duration::from_millis(20);
        let mut share = Share::new();
        for _ in 0..4 {
            share.on_pulse(1_250_000, full, full, 0);
        }
        assert!(!share.is_shared());
        share.on_pulse(1_250_000, full / 10, full, 0);
        assert!(share.is_shared());
    }

    /// In company the slower one holds the longer queue, so the faster one yields.
    #[test]
    fn the_slower_pushes_harder() {
        let (share, base) = (Share::new(), Duration::from_millis(600));
        let [slow, fast] = [500_000, 5_000_000].map(|rate| share.queue(rate, base));
        let middle = (slow + fast) / 2;
        let gain = |target| {
            let mut share = Share::new();
            share.mean = middle;
            share.gain(middle, target, base)
        };
        assert!(gain(slow) > 1000 && gain(fast) < 1000, "{slow:?} {fast:?}");
    }
}
