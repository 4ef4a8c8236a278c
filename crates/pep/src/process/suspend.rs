//! Time that this machine has slept: what a daemon goes by stands still meanwhile, what others go by does not.

#[cfg(test)]
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Shortest time asleep that counts. The other end notices no less, and a timer that is late by less means nothing.
const LEAST: Duration = Duration::from_secs(2);

/// Time that the machine has been asleep, as far as its owner has taken notice.
#[derive(Debug, Default)]
pub(crate) struct Sleep {
    known: Duration,
}

impl Sleep {
    /// Notices what comes from now on.
    pub(crate) fn new() -> Self {
        let mut sleep = Self::default();
        let _ = sleep.look();
        sleep
    }

    /// Time that the machine has been asleep since the last such answer, if that is long enough to count.
    pub(crate) fn look(&mut self) -> Option<Duration> {
        let (boottime, monotonic) = clocks()?;
        self.look_at(boottime, monotonic)
    }

    /// Takes a look at two clocks: `boottime` goes on while the machine is asleep, and was read before `monotonic`, which does not. What
    /// comes between the two readings thus hides a sleep until the next look, and makes none.
    fn look_at(&mut self, boottime: Duration, monotonic: Duration) -> Option<Duration> {
        let asleep = boottime.saturating_sub(monotonic);
        let slept = asleep.checked_sub(self.known)?;
        (slept >= LEAST).then(|| {
            self.known = asleep;
            slept
        })
    }
}

/// Time since the machine was started, with what it was asleep and without.
#[cfg(target_os = "linux")]
fn clocks() -> Option<(Duration, Duration)> {
    use rustix::time::{ClockId, clock_gettime};

    let [boottime, monotonic] =
        [ClockId::Boottime, ClockId::Monotonic].map(|clock| super::since(clock_gettime(clock)));
    #[cfg(test)]
    let boottime = boottime + Duration::from_secs(FEIGNED.load(Ordering::Relaxed));
    Some((boottime, monotonic))
}

/// Seconds for which a test has this process believe that the machine was asleep.
#[cfg(test)]
static FEIGNED: AtomicU64 = AtomicU64::new(0);

/// Has this process believe that the machine was asleep for so many more seconds.
#[cfg(test)]
pub(crate) fn feign_sleep(seconds: u64) {
    FEIGNED.fetch_add(seconds, Ordering::Relaxed);
}

/// Nothing, for want of such clocks: a sleep is noticed by what it has ended.
#[cfg(not(target_os = "linux"))]
fn clocks() -> Option<(Duration, Duration)> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    #[test]
    fn a_sleep_is_noticed_once_and_short_ones_count_together() {
        let mut sleep = Sleep::default();
        for (boottime, monotonic, slept) in [
            (100.0, 100.0, None),
            (101.5, 100.0, None),
            (202.5, 200.0, Some(2.5)),
            (203.5, 201.0, None),
            // Stopped between the two readings, and then no more.
            (204.0, 300.0, None),
            (302.5, 300.0, None),
            (305.0, 301.0, None),
            (307.0, 302.0, Some(2.5)),
            (30_000.0, 303.0, Some(29_692.0)),
        ] {
            let seen = sleep.look_at(secs(boottime), secs(monotonic));
            assert_eq!(seen, slept.map(secs), "{boottime} and {monotonic}");
        }
    }

    #[test]
    fn what_was_slept_before_is_no_news() {
        assert_eq!(Sleep::new().look(), None);
    }
}
