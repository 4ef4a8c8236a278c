//! How much of a shard's time goes to work that can wait for others: a machine without clock.

use std::time::Instant;

/// After a piece of such work a shard rests from it for as long as the piece took, if it serves several connections. So a client
/// that sends what is expensive to receive leaves at least half of the time to the others.
#[derive(Debug, Default)]
pub(super) struct Rests {
    until: Option<Instant>,
}

impl Rests {
    /// True if the next piece may begin.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| now >= until)
    }

    /// A piece took from `began` to `ended`; `shared` if others wait for their turn.
    pub(super) fn worked(&mut self, began: Instant, ended: Instant, shared: bool) {
        let took = ended.saturating_duration_since(began);
        self.until = shared.then(|| ended + took);
    }

    /// Notes that no work of this kind is left.
    pub(super) fn clear(&mut self) {
        self.until = None;
    }

    /// Instant at which the rest is over that lasts at `now`.
    pub(super) fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        self.until.filter(|until| now < *until)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "any instant will do")]
    fn work_that_can_wait_takes_half_of_the_time_at_most_and_all_where_nobody_waits() {
        let start = Instant::now();
        let piece = Duration::from_millis(30);
        for (shared, most) in [(true, 5), (false, 10)] {
            let (mut rests, mut now, mut pieces) = (Rests::default(), start, 0);
            while now < start + piece * 10 {
                if rests.is_over(now) {
                    rests.worked(now, now + piece, shared);
                    now += piece;
                    pieces += 1;
                } else {
                    now = rests.poll_timeout(now).expect("the end of a rest");
                }
            }
            assert_eq!(pieces, most, "shared: {shared}");
        }
        let mut rests = Rests::default();
        rests.worked(start, start + piece, true);
        assert!(!rests.is_over(start + piece));
        rests.clear();
        assert!(rests.is_over(start + piece));
    }
}
