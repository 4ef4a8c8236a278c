//! Rates as mahimahi records them: a file of instants at which 1500 bytes may leave.
//!
//! One line is one opportunity, in whole milliseconds since the beginning; after the last it begins again. Several packets
//! share an opportunity, a packet that does not fit goes on with the next, and an opportunity that nobody uses is wasted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bentpipe_units::{BitRate, ByteCount};

use crate::series::SeriesError;

/// Bytes that leave at an opportunity.
const OPPORTUNITY: u64 = 1500;
/// A gigabit per second for two minutes.
const MOST: usize = 10_000_000;

/// A recorded rate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Opportunities {
    /// Milliseconds, ascending; at least one, and the last is above zero.
    times: Arc<[u32]>,
}

impl Opportunities {
    /// Reads a trace.
    ///
    /// # Errors
    /// A line that is no number, a time before the last one, no time above zero.
    pub(crate) fn parse(text: &str) -> Result<Self, SeriesError> {
        let mut times: Vec<u32> = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() {
                continue;
            }
            let time = line.parse().map_err(|_| {
                SeriesError::new(
                    number,
                    format!("`{line}` is no time in milliseconds, as in `17`"),
                )
            })?;
            if times.last().is_some_and(|last| *last > time) {
                return Err(SeriesError::new(number, "times must not decrease"));
            }
            if times.len() == MOST {
                return Err(SeriesError::new(number, format!("more than {MOST} lines")));
            }
            times.push(time);
        }
        if times.last().is_none_or(|last| *last == 0) {
            return Err(SeriesError::new(
                1,
                "no time above 0 ms; the last line is the trace's length",
            ));
        }
        Ok(Self {
            times: times.into(),
        })
    }

    fn period(&self) -> u64 {
        self.times.last().copied().unwrap_or(1).into()
    }

    fn count(&self) -> u64 {
        u64::try_from(self.times.len()).unwrap_or(u64::MAX)
    }

    /// The rate over the whole trace.
    pub(crate) fn mean_rate(&self) -> BitRate {
        let bits = u128::from(self.count()) * u128::from(OPPORTUNITY) * 8 * 1000;
        let rate = bits / u128::from(self.period());
        BitRate::bits_per_second(u64::try_from(rate).unwrap_or(u64::MAX))
    }

    /// Time at which opportunity `index` comes, counted over all repetitions.
    fn at(&self, index: u64) -> Duration {
        let place = usize::try_from(index % self.count()).unwrap_or(0);
        let millis = index / self.count() * self.period() + u64::from(self.times[place]);
        Duration::from_millis(millis)
    }

    /// The first opportunity at `after` or later.
    fn first(&self, after: Duration) -> u64 {
        let millis = u64::try_from(after.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        let (round, into) = (millis / self.period(), millis % self.period());
        // The end of a round is the beginning of the next; its opportunity has come already.
        let place = self.times.partition_point(|time| u64::from(*time) < into);
        let index = round * self.count() + u64::try_from(place).unwrap_or(u64::MAX);
        let before = self.times.len()
            - self
                .times
                .partition_point(|time| u64::from(*time) < self.period());
        if into == 0 && round > 0 {
            return index - u64::try_from(before).unwrap_or(0);
        }
        index
    }
}

/// The clock of a sender that such a trace drives.
#[derive(Debug)]
pub(crate) struct OpportunityClock {
    opportunities: Opportunities,
    start: Instant,
    /// The opportunity in use, and what it has left.
    index: u64,
    left: u64,
    busy_until: Instant,
}

impl OpportunityClock {
    pub(crate) fn new(opportunities: &Opportunities, start: Instant) -> Self {
        Self {
            opportunities: opportunities.clone(),
            start,
            index: 0,
            left: OPPORTUNITY,
            busy_until: start,
        }
    }

    /// Instant at which everything sent so far has left.
    pub(crate) const fn idle_at(&self) -> Instant {
        self.busy_until
    }

    /// Sends `size` after what was sent before, and not before `now`.
    pub(crate) fn send(&mut self, now: Instant, size: ByteCount) {
        let since_start = now.saturating_duration_since(self.start);
        if self.opportunities.at(self.index) < since_start {
            self.index = self.opportunities.first(since_start);
            self.left = OPPORTUNITY;
        }
        let mut rest = size.as_u64();
        while rest > self.left {
            rest -= self.left;
            self.index += 1;
            self.left = OPPORTUNITY;
        }
        self.left -= rest;
        self.busy_until = now.max(self.start + self.opportunities.at(self.index));
    }

    pub(crate) fn rate(&self) -> BitRate {
        self.opportunities.mean_rate()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::disallowed_methods, reason = "an arbitrary origin")]
    fn origin() -> Instant {
        Instant::now()
    }

    fn clock(text: &str) -> (OpportunityClock, Instant) {
        let start = origin();
        let trace = Opportunities::parse(text).unwrap();
        (OpportunityClock::new(&trace, start), start)
    }

    /// Milliseconds at which packets have left that are offered at these.
    fn sent(text: &str, packets: &[(u64, u64)]) -> Vec<u128> {
        let (mut clock, start) = clock(text);
        let packets = packets.iter().map(|(at, size)| {
            let now = (start + Duration::from_millis(*at)).max(clock.idle_at());
            clock.send(now, ByteCount::new(*size));
            (clock.idle_at() - start).as_millis()
        });
        packets.collect()
    }

    #[test]
    fn packets_leave_at_opportunities() {
        let full = (0, 1500);
        // Two at 3 ms; the round is 10 ms long.
        assert_eq!(sent("3\n3\n7\n10\n", &[full; 6]), [3, 3, 7, 10, 13, 13]);
        // A missed opportunity is wasted.
        assert_eq!(
            sent(
                "3\n3\n7\n10\n",
                &[(4, 1500), (11, 1500), (20, 1500), (20, 1500)]
            ),
            [7, 13, 20, 23]
        );
        // Three share one, the fourth needs two.
        assert_eq!(
            sent("5\n6\n", &[(0, 500), (0, 500), (0, 500), (0, 1501)]),
            [5, 5, 5, 11]
        );
        assert_eq!(sent("5\n6\n", &[(0, 1600)]), [6]);
    }

    #[test]
    fn the_rate_is_that_of_the_trace() {
        let (mut clock, start) = clock("1\n2\n2\n4\n");
        assert_eq!(clock.rate(), BitRate::megabits_per_second(12));
        for _ in 0..10_000 {
            clock.send(clock.idle_at(), ByteCount::new(1500));
        }
        assert_eq!((clock.idle_at() - start).as_millis(), 10_000);
    }

    #[test]
    fn faults_name_their_line() {
        for (text, message) in [
            (
                "1\nx\n",
                "line 2: `x` is no time in milliseconds, as in `17`",
            ),
            ("2\n1\n", "line 2: times must not decrease"),
            (
                "-1\n",
                "line 1: `-1` is no time in milliseconds, as in `17`",
            ),
            (
                "0\n0\n",
                "line 1: no time above 0 ms; the last line is the trace's length",
            ),
            (
                "",
                "line 1: no time above 0 ms; the last line is the trace's length",
            ),
        ] {
            assert_eq!(Opportunities::parse(text).unwrap_err().to_string(), message);
        }
    }
}
