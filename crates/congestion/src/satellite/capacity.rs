//! What the path carries, whoever else uses it, from trains of packets; and when the next one may leave.
//!
//! A train that is sent in the midst of bulk arrives at the bottleneck's rate, behind any queue and beside anybody: the
//! others' packets wait before it or behind it. The first one is start-up's; later ones are asked for when it matters whether a
//! slower delivery is the path's or the share's (`cruise/trains.rs`). It decides nothing about the rate.

use std::time::{Duration, Instant};

/// No two trains come sooner one after the other than this, or than so many round trips.
const BETWEEN: Duration = Duration::from_secs(2);
const ROUNDS: u32 = 3;
/// Twice as long for each one that was not answered, and no longer than so many times.
const MOST_DOUBLINGS: u32 = 4;
/// An answer that comes later than so many round trips is none.
const PATIENCE: u32 = 4;

/// What is known of it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Capacity {
    /// Bytes per second, and when that was seen.
    seen: Option<(u64, Instant)>,
    /// Instant at which the last train left.
    sent_at: Option<Instant>,
    /// True if a train is to be sent.
    wish: bool,
    /// True while the last question is unanswered; and the number of those before that never were answered.
    waits: bool,
    unanswered: u32,
}

impl Capacity {
    /// Bytes per second.
    pub(super) fn get(&self) -> Option<u64> {
        self.seen.map(|(rate, _)| rate)
    }

    /// True if the capacity was not seen for `age`.
    pub(super) fn is_older(&self, now: Instant, age: Duration) -> bool {
        self.seen
            .is_none_or(|(_, at)| now.saturating_duration_since(at) > age)
    }

    /// Nothing is known any more.
    pub(super) fn forget(&mut self) {
        self.seen = None;
    }

    /// Start-up has measured it, or knows that it has not.
    pub(super) fn set(&mut self, now: Instant, rate: Option<u64>) {
        self.seen = rate.map(|rate| (rate, now));
    }

    /// A train is to be sent as soon as one may.
    pub(super) fn wish(&mut self) {
        self.wish = true;
    }

    /// True if a train is on its way, or will be.
    pub(super) fn is_asked(&self) -> bool {
        self.wish || self.waits
    }

    /// One may leave now, over a path of `base`.
    pub(super) fn is_due(&self, now: Instant, base: Duration) -> bool {
        let apart = BETWEEN.max(base * ROUNDS) * (1 << self.unanswered);
        self.wish
            && self
                .sent_at
                .is_none_or(|at| now.saturating_duration_since(at) >= apart)
    }

    /// Notes that a train leaves.
    pub(super) fn on_train(&mut self, now: Instant) {
        (self.sent_at, self.wish, self.waits) = (Some(now), false, true);
    }

    /// A round of `rtt` ended.
    pub(super) fn end_round(&mut self, now: Instant, rtt: Duration) {
        let late = |at| now.saturating_duration_since(at) > rtt * PATIENCE;
        if self.waits && self.sent_at.is_some_and(late) {
            self.waits = false;
            self.unanswered = (self.unanswered + 1).min(MOST_DOUBLINGS);
        }
    }

    /// The peer says at what rate a train came; false if none was sent.
    pub(super) fn on_answer(&mut self, now: Instant, rate: u64) -> bool {
        let waited = std::mem::take(&mut self.waits);
        if waited {
            self.seen = Some((rate, now));
            self.unanswered = 0;
        }
        waited
    }
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "one base instant; all else is virtual"
)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(600);

    #[test]
    fn trains_leave_when_wanted_and_not_too_often() {
        let (mut capacity, now) = (Capacity::default(), Instant::now());
        assert!(!capacity.is_due(now, RTT));
        capacity.wish();
        assert!(capacity.is_due(now, RTT));
        capacity.on_train(now);
        assert!(capacity.is_asked() && !capacity.is_due(now, RTT));
        capacity.wish();
        assert!(!capacity.is_due(now + 3 * RTT, RTT));
        assert!(capacity.is_due(now + BETWEEN, RTT));
    }

    /// What nobody asked for, or comes too late, is no answer.
    #[test]
    fn only_what_was_asked_is_answered() {
        let (mut capacity, now) = (Capacity::default(), Instant::now());
        assert!(!capacity.on_answer(now, 7) && capacity.get().is_none());
        capacity.on_train(now);
        capacity.end_round(now + 4 * RTT, RTT);
        assert!(capacity.on_answer(now + 4 * RTT, 5));
        assert!(!capacity.on_answer(now + 4 * RTT, 7), "once");
        capacity.on_train(now + 5 * RTT);
        capacity.end_round(now + 10 * RTT, RTT);
        assert!(!capacity.on_answer(now + 10 * RTT, 7));
        capacity.wish();
        assert!(
            !capacity.is_due(now + 5 * RTT + BETWEEN, RTT),
            "nobody answers"
        );
        assert!(capacity.is_due(now + 5 * RTT + 2 * BETWEEN, RTT));
        assert_eq!(capacity.get(), Some(5));
        assert!(capacity.is_older(now + 10 * RTT, 5 * RTT));
    }
}
