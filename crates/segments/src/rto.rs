//! Time after which a segment is sent again (RFC 6298).

use std::time::Duration;

/// Shortest timeout. RFC 6298 wishes for a second, for paths through the internet; the receiver's
/// delayed acknowledgement is what has to fit on a LAN, as in Linux.
const SHORTEST: Duration = Duration::from_millis(200);

/// Longest timeout (RFC 6298 §2.5).
const LONGEST: Duration = Duration::from_secs(60);

/// Timeout before there is a sample (RFC 6298 §2.1).
const FIRST: Duration = Duration::from_secs(1);

/// Granularity of the clock behind `now`, at most.
const GRANULARITY: Duration = Duration::from_millis(10);

/// Round-trip times of one hop, and the timeout that follows from them.
#[derive(Debug, Default)]
pub(crate) struct RoundTrip {
    /// Smoothed time, and its variation.
    smoothed: Option<(Duration, Duration)>,
    /// Timeouts in a row, each of which doubles the next.
    backoff: u32,
}

impl RoundTrip {
    /// Takes a sample, of a segment that was sent once (Karn's rule).
    pub(crate) fn sample(&mut self, time: Duration) {
        self.smoothed = Some(match self.smoothed {
            None => (time, time / 2),
            Some((smoothed, variation)) => (
                smoothed * 7 / 8 + time / 8,
                variation * 3 / 4 + smoothed.abs_diff(time) / 4,
            ),
        });
    }

    /// New data was acknowledged.
    pub(crate) fn on_progress(&mut self) {
        self.backoff = 0;
    }

    /// A segment or probe went unanswered.
    pub(crate) fn on_timeout(&mut self) {
        self.backoff += 1;
    }

    /// Time to wait for the next acknowledgement.
    pub(crate) fn timeout(&self) -> Duration {
        let one = self.smoothed.map_or(FIRST, |(smoothed, variation)| {
            smoothed + GRANULARITY.max(variation * 4)
        });
        (one.max(SHORTEST) * (1 << self.backoff.min(10))).min(LONGEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(number: u64) -> Duration {
        Duration::from_millis(number)
    }

    #[test]
    fn timeouts_follow_rfc_6298() {
        let mut time = RoundTrip::default();
        assert_eq!(time.timeout(), ms(1000));
        time.sample(ms(100));
        assert_eq!(
            time.timeout(),
            ms(300),
            "SRTT + 4 RTTVAR, RTTVAR half of it"
        );
        time.sample(ms(180));
        // SRTT 110 ms; RTTVAR 3/4 of 50 and 1/4 of 80, against the old SRTT.
        assert_eq!(time.timeout(), ms(110) + 4 * Duration::from_micros(57_500));
        for wait in [680, 1360, 2720] {
            time.on_timeout();
            assert_eq!(time.timeout(), ms(wait));
        }
        (0..20).for_each(|_| time.on_timeout());
        assert_eq!(time.timeout(), LONGEST);
        time.on_progress();
        assert_eq!(time.timeout(), ms(340));
    }

    #[test]
    fn a_near_end_has_time_for_its_delayed_acknowledgement() {
        let mut time = RoundTrip::default();
        (0..9).for_each(|_| time.sample(ms(1)));
        assert_eq!(time.timeout(), SHORTEST);
    }
}
