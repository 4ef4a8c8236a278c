//! Processor time that is spent on looking for links in pages, and how much of it there is for a peer, or for all.
//!
//! Pure: `now` is an argument.

use std::time::{Duration, Instant};

use crate::bucket::Bucket;
use crate::process;

/// Processor time of a thread that may go into pages.
#[derive(Debug)]
pub(crate) struct ReadingTime(Bucket);

/// Share of one peer: a tenth of a processor, and half a second that is saved up while it loads nothing.
impl Default for ReadingTime {
    fn default() -> Self {
        Self(Bucket::with_burst(100.0, 500.0))
    }
}

impl ReadingTime {
    /// Share of all peers together: four tenths of a processor, and a second that is saved up.
    pub(crate) fn of_all() -> Self {
        Self(Bucket::with_burst(400.0, 1000.0))
    }

    /// True if some of it is left.
    pub(crate) fn is_left(&mut self, now: Instant) -> bool {
        self.is_left_beyond(Duration::ZERO, now)
    }

    /// True if some of it is left besides `kept`.
    pub(crate) fn is_left_beyond(&mut self, kept: Duration, now: Instant) -> bool {
        let events = kept.as_secs_f64() * 1000.0 + 1.0;
        self.0.holds(events, now)
    }

    /// Takes away the time that reading took.
    pub(crate) fn spend(&mut self, took: Duration) {
        self.0.spend(took.as_secs_f64() * 1000.0);
    }
}

/// Outcome of `work`, and the processor time of this thread that it took.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let before = process::thread_time();
    let outcome = work();
    (outcome, process::thread_time().saturating_sub(before))
}
