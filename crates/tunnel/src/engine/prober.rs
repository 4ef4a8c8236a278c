//! Finds the end of an outage: quinn's own probe timer doubles for minutes, ours does not.
//!
//! An outage begins when something ack-eliciting is unanswered for two PTOs. From then on small datagrams go out, with up
//! to a quarter of jitter so that the terminals of a beam do not return in step: eight a round trip at first, since the
//! wait for the next one delays everything, and fewer the longer the outage lasts, down to four a second (2 kbit/s, 18 with
//! a client's large ones); one every 5 s when no flow waits. A restarted server answers the first one with a stateless
//! reset, a changed address is learned by the peer from it.
//!
//! Both ends probe, each for itself, and say where their flows wait (`lane/again.rs`): the first byte after an outage
//! takes a round trip, receiver's probe and answer. What the sender does by itself takes half of one more: probe, its ACK,
//! and what that ACK releases.

use std::time::{Duration, Instant};

use bentpipe_units::Seed;
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg32;

use super::gate::Progress;

/// Shortest wait between probes while flows wait, and of an outage that has lasted.
const SHORTEST: Duration = Duration::from_millis(10);
const BUSY_FLOOR: Duration = Duration::from_millis(250);
/// Share of a round trip that the end of an outage may be noticed late, and of the outage.
const OF_ROUND_TRIP: u32 = 8;
const OF_OUTAGE: u32 = 3000;
/// Longest wait between probes while flows wait, whatever the RTT is believed to be: a restarted
/// server is to be found within 3 s and jitter.
const BUSY_CEILING: Duration = Duration::from_secs(3);
const IDLE: Duration = Duration::from_secs(5);

/// Schedule of probes.
pub(crate) struct Prober {
    rng: Pcg32,
    /// The silence being watched, by its beginning, and when to probe next.
    silence: Option<(Instant, Instant)>,
    waiting: bool,
    /// The silence has lasted long enough to be called an outage.
    outage: bool,
}

impl Prober {
    pub(crate) fn new(seed: Seed) -> Self {
        Self {
            rng: Pcg32::seed_from_u64(seed.as_u64()),
            silence: None,
            waiting: false,
            outage: false,
        }
    }

    /// True if no answer comes and probing has begun.
    pub(crate) fn is_outage(&self) -> bool {
        self.outage
    }

    /// Instant since which nothing is answered, in an outage.
    pub(crate) fn outage_since(&self) -> Option<Instant> {
        let (since, _) = self.silence.filter(|_| self.outage)?;
        Some(since)
    }

    /// The peer was heard after a silence: in an outage it is told at once that it was, and where flows wait.
    pub(crate) fn hurry(&mut self, now: Instant) {
        if let Some((_, next)) = self.silence.as_mut().filter(|_| self.outage) {
            *next = now;
        }
    }

    /// Takes the present state: `unanswered`, something ack-eliciting is in flight; `waiting`, flows
    /// wait for the peer.
    pub(crate) fn update(
        &mut self,
        now: Instant,
        progress: Progress,
        unanswered: bool,
        waiting: bool,
    ) {
        let woke = waiting && !self.waiting;
        self.waiting = waiting;
        self.outage &= unanswered
            && self
                .silence
                .is_some_and(|(since, _)| since == progress.since);
        self.silence = match self.silence {
            _ if !unanswered => None,
            Some((since, next)) if since == progress.since => Some((
                since,
                if woke {
                    next.min(now + BUSY_FLOOR)
                } else {
                    next
                },
            )),
            _ => {
                let patience = (progress.pto * 2).min(BUSY_CEILING.max(progress.pto));
                Some((progress.since, progress.since + patience))
            }
        };
    }

    /// True if the next probe of an outage is due at `now`.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.poll_timeout().is_some_and(|next| next <= now)
    }

    /// No probe before `until`.
    pub(crate) fn defer(&mut self, until: Instant) {
        if let Some((_, next)) = &mut self.silence {
            *next = (*next).max(until);
        }
    }

    /// True if a probe is due now; the next one is then scheduled.
    pub(crate) fn poll(&mut self, now: Instant, rtt: Duration) -> bool {
        let Some((since, next)) = self.silence.filter(|_| self.is_due(now)) else {
            return false;
        };
        debug_assert!(next >= since);
        self.outage = true;
        let interval = if self.waiting {
            let lasted = now.saturating_duration_since(since);
            (rtt / OF_ROUND_TRIP)
                .max(lasted / OF_OUTAGE)
                .clamp(SHORTEST, (rtt / 2).clamp(BUSY_FLOOR, BUSY_CEILING))
        } else {
            IDLE
        };
        let jitter = interval.mul_f64(f64::from(self.rng.next_u32()) / f64::from(u32::MAX) / 4.0);
        self.silence = Some((since, now + interval + jitter));
        true
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.silence.map(|(_, next)| next)
    }
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "one base instant; all else is virtual"
)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_probed_and_silence_without_debt_is_not() {
        let start = Instant::now();
        let rtt = Duration::from_millis(600);
        let progress = Progress {
            since: start,
            pto: Duration::from_millis(900),
            newest_sent: None,
        };
        let mut prober = Prober::new(Seed::new(1));
        prober.update(start, progress, false, true);
        assert_eq!(prober.poll_timeout(), None);

        prober.update(start, progress, true, true);
        let mut last = start;
        assert!(!prober.is_outage(), "not yet");
        for probe in 0..10_000 {
            let due = prober.poll_timeout().expect("an outage is being probed");
            let wait = due - last;
            let most = match (probe, last - start) {
                (0, _) => 1800,
                (_, lasted) if lasted < Duration::from_secs(60) => 94,
                _ => 375,
            };
            assert!(wait <= Duration::from_millis(most), "{probe}: {wait:?}");
            if last - start > Duration::from_secs(600) {
                assert!(
                    wait >= Duration::from_millis(200),
                    "not for hours: {wait:?}"
                );
            }
            assert!(prober.poll(due, rtt));
            assert!(!prober.poll(due, rtt), "one probe at a time");
            prober.update(due, progress, true, true);
            assert!(prober.is_outage());
            last = due;
        }
        prober.update(
            last,
            Progress {
                since: last,
                ..progress
            },
            true,
            true,
        );
        assert!(
            prober.poll_timeout().is_some_and(|next| next > last),
            "answered: start over"
        );
        assert!(!prober.is_outage(), "answered");
    }

    #[test]
    fn a_flow_that_begins_to_wait_is_not_kept_for_the_idle_interval() {
        let start = Instant::now();
        let progress = Progress {
            since: start,
            pto: Duration::from_secs(1),
            newest_sent: None,
        };
        let mut prober = Prober::new(Seed::new(1));
        prober.update(start, progress, true, false);
        let due = prober.poll_timeout().expect("probing");
        prober.poll(due, Duration::from_millis(600));
        prober.update(due, progress, true, true);
        assert!(prober.poll_timeout().expect("probing") <= due + BUSY_FLOOR);
    }
}
