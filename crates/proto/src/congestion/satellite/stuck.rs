//! A round-trip time that stays where it is although less and less is sent: the path became longer, by too little to alarm.
//!
//! A queue of ours would shrink, and one that somebody else fills would grow or shrink with what we leave. `standing.rs`
//! asks the same of long queues, within fewer rounds. It only watches.

use std::time::Duration;

use super::path::Round;

/// Round-trip times that differ by no more, and by twice the path's noise, are the same.
const SAME: Duration = Duration::from_millis(2);
/// The least queue that must have been taken away before anything is concluded.
const LEAST: Duration = Duration::from_millis(15);
/// A rate of sending that is lower by this part is no lower: measurements differ.
const PART: u64 = 10;

/// A round-trip time being watched.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stuck {
    since: Option<Since>,
}

#[derive(Clone, Copy, Debug)]
struct Since {
    rtt: Duration,
    /// What the path delivered then, in bytes per second: it can.
    rate: u64,
    /// By how much a queue would be shorter by now.
    due: Duration,
}

impl Stuck {
    /// The queue is short.
    pub(super) fn reset(&mut self) {
        self.since = None;
    }

    /// What looks like a queue is there.
    pub(super) fn is_watching(&self) -> bool {
        self.since.is_some()
    }

    /// A round ended with `rtt`, seemingly behind `queue`. True if that cannot be one.
    pub(super) fn end_round(
        &mut self,
        rtt: Duration,
        queue: Duration,
        round: Round,
        noise: Duration,
    ) -> bool {
        let same = |since: &Since| rtt.abs_diff(since.rtt) <= SAME + noise * 2;
        let Some(since) = self.since.as_mut().filter(|since| same(since)) else {
            self.since = Some(Since {
                rtt,
                rate: round.rate,
                due: Duration::ZERO,
            });
            return false;
        };
        let less = (since.rate - since.rate / PART).saturating_sub(round.sent);
        let nanos = rtt.as_nanos() * u128::from(less) / u128::from(since.rate.max(1));
        since.due += Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        since.due >= queue.max(LEAST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Rounds until the verdict on a path of 50 ms, with the round-trip time and the rate of sending of each.
    fn rounds(each: impl Fn(u64) -> (u64, u64)) -> Option<u64> {
        let mut stuck = Stuck::default();
        (0..10).find(|round| {
            let (rtt, sent) = each(*round);
            let round = Round {
                rtt: Some(ms(rtt)),
                rate: 1000,
                sent,
                ..Round::default()
            };
            stuck.end_round(ms(rtt), ms(rtt - 50), round, ms(1))
        })
    }

    #[test]
    fn what_does_not_move_is_the_path() {
        assert_eq!(rounds(|round| (80, 1000 - 80 * round)), Some(4));
        assert_eq!(rounds(|round| (78 + 4 * (round % 2), 700)), Some(2));
        assert_eq!(rounds(|_| (80, 950)), None, "nothing was taken away");
    }

    #[test]
    fn what_shrinks_or_grows_is_a_queue() {
        assert_eq!(rounds(|round| (100 - 5 * round, 900 - 20 * round)), None);
        assert_eq!(rounds(|round| (80 + 5 * round, 700)), None);
    }
}
