//! How long nothing was heard of the path.

use std::time::{Duration, Instant};

use crate::ablation::Part;

use super::super::{AckSample, LossSample};
use super::path;

/// Time since the last answer, and what is not known yet of the silence that ended with one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Silence {
    /// Instant at which the last ACK came, or the flight began that nothing has answered yet.
    heard: Instant,
    /// End of a silence that was a queue's or an outage's, in start-up: the losses of its flight tell.
    doubtful: Option<Instant>,
}

/// Cause of a silence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// The path's round trip.
    RoundTrip,
    /// A queue in which the answered packet waited, or an outage that took its ACK.
    Queue,
    /// An outage: the answered packet was under way for a part of the silence alone.
    Outage,
}

impl Silence {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            heard: now,
            doubtful: None,
        }
    }

    /// Notes that a flight begins, and nothing else is in flight.
    pub(super) fn begin_flight(&mut self, now: Instant) {
        self.heard = now;
    }

    /// Ends the silence, and tells what it was on a path with round trips of `base`.
    pub(super) fn end(&mut self, ack: &AckSample, base: Duration) -> Cause {
        let silence = ack.now.saturating_duration_since(self.heard);
        self.heard = ack.now;
        let waited = ack
            .rtt
            .map_or(Duration::ZERO, |rtt| rtt.saturating_sub(base));
        match Part::Outage.or(path::is_outage(silence, base), false) {
            false => Cause::RoundTrip,
            true if path::is_outage(silence.saturating_sub(waited), base) => Cause::Outage,
            true => Cause::Queue,
        }
    }

    /// Leaves it to the losses what the silence was that ended at `now`.
    pub(super) fn doubt(&mut self, now: Instant) {
        self.doubtful = Some(now);
    }

    /// True if `loss` shows that the doubtful silence was an outage: what was sent a round trip of `base` or more before its end
    /// is lost. Others' queues that overflow lose packets too, but not those whose answers they delay.
    pub(super) fn was_outage(&mut self, loss: &LossSample, base: Duration) -> bool {
        let sent_in_it = |end: &mut Instant| loss.newest_sent + base <= *end;
        Part::LateOutage.or(self.doubtful.take_if(sent_in_it).is_some(), false)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::simulation::origin;
    use super::*;

    const BASE: Duration = Duration::from_millis(500);

    fn answer(now: Instant, rtt: Duration) -> AckSample {
        AckSample {
            now,
            newly_acked: 1200,
            rtt: Some(rtt),
            newest_sent: now.checked_sub(rtt).expect("later than the origin"),
            in_flight: 0,
            app_limited: false,
            rate: None,
        }
    }

    fn lost(now: Instant, newest_sent: Instant) -> LossSample {
        LossSample {
            now,
            lost: 1200,
            newest_sent,
            in_flight: 0,
            persistent: false,
            ecn: false,
            at_send: None,
        }
    }

    #[test]
    fn an_answer_that_waited_all_the_time_is_no_outage_unless_its_flight_is_lost() {
        let start = origin() + BASE;
        let cause = |after: u64, rtt: u64| {
            let after = Duration::from_millis(after);
            let answer = answer(start + after, Duration::from_millis(rtt));
            Silence::new(start).end(&answer, BASE)
        };
        assert_eq!(cause(500, 500), Cause::RoundTrip);
        assert_eq!(cause(1100, 500), Cause::RoundTrip);
        // Behind a queue of four bandwidth-delay products, which others have filled.
        assert_eq!(cause(2500, 2500), Cause::Queue);
        // A probe that left 500 ms before.
        assert_eq!(cause(2500, 500), Cause::Outage);

        let mut silence = Silence::new(start);
        let now = start + Duration::from_millis(2500);
        assert!(
            !silence.was_outage(&lost(now, start), BASE),
            "none has ended"
        );
        silence.doubt(now);
        let late = now - BASE / 2;
        assert!(!silence.was_outage(&lost(now, late), BASE), "sent too late");
        assert!(silence.was_outage(&lost(now, start), BASE));
        assert!(!silence.was_outage(&lost(now, start), BASE), "once");
    }
}
