//! A token bucket: how often something may happen.
//!
//! Pure: `now` is an argument.

use std::time::{Duration, Instant};

/// Time whose events are saved up while nothing happens.
const SAVED: Duration = Duration::from_secs(2);

/// Allows so many events a second, and two seconds' worth at once.
#[derive(Debug)]
pub(crate) struct Bucket {
    per_second: f64,
    most: f64,
    left: f64,
    /// `None` before the first event.
    since: Option<Instant>,
}

impl Bucket {
    /// A full bucket.
    pub(crate) fn new(per_second: u32) -> Self {
        let rate = f64::from(per_second);
        Self::with_burst(rate, rate * SAVED.as_secs_f64())
    }

    /// A full bucket that holds `most` events.
    pub(crate) fn with_burst(per_second: f64, most: f64) -> Self {
        Self {
            per_second,
            most: most.max(1.0),
            left: most.max(1.0),
            since: None,
        }
    }

    /// True if one more event may happen now; it then counts.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        let may = self.has(now);
        if may {
            self.spend(1.0);
        }
        may
    }

    /// Counts `events` that have happened. They may be more than were saved up; then as many are earned first.
    pub(crate) fn spend(&mut self, events: f64) {
        self.left -= events;
    }

    /// True if an event may happen now.
    pub(crate) fn has(&mut self, now: Instant) -> bool {
        self.holds(1.0, now)
    }

    /// True if so many `events` may happen now.
    pub(crate) fn holds(&mut self, events: f64, now: Instant) -> bool {
        let since = self.since.replace(now).unwrap_or(now);
        let earned = now.saturating_duration_since(since).as_secs_f64() * self.per_second;
        // Against a clock of another thread that is a little behind nothing is earned twice.
        self.since = Some(since.max(now));
        self.left = (self.left + earned).min(self.most);
        self.left >= events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "any instant will do")]
    fn two_seconds_are_saved_and_then_the_rate_holds() {
        let start = Instant::now();
        let mut bucket = Bucket::new(10);
        let taken = |bucket: &mut Bucket, at: Duration| {
            (0..1000).filter(|_| bucket.take(start + at)).count()
        };
        assert_eq!(taken(&mut bucket, Duration::ZERO), 20);
        assert_eq!(taken(&mut bucket, Duration::from_secs(1)), 10);
        assert_eq!(taken(&mut bucket, Duration::from_secs(1)), 0);
        // A clock that goes back earns nothing.
        assert_eq!(taken(&mut bucket, Duration::ZERO), 0);
        assert_eq!(taken(&mut bucket, Duration::from_secs(2)), 10);
        assert_eq!(taken(&mut bucket, Duration::from_secs(3600)), 20);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "any instant will do")]
    fn what_was_spent_too_much_is_earned_first() {
        let start = Instant::now();
        let mut bucket = Bucket::with_burst(100.0, 500.0);
        assert!(bucket.has(start));
        bucket.spend(1500.0);
        for (after, has) in [(0, false), (9, false), (11, true), (3600, true)] {
            assert_eq!(
                bucket.has(start + Duration::from_secs(after)),
                has,
                "{after}"
            );
        }
        bucket.spend(500.0);
        assert!(!bucket.has(start + Duration::from_secs(3600)));
    }
}
