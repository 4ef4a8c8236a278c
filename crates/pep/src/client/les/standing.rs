//! The standing connection to one PEP: when it is tried, how long, and why there is none.

use std::time::{Duration, Instant};

/// Time from the first attempt to the second, if that fails; doubled from then on.
const FIRST: Duration = Duration::from_secs(1);

/// Longest time from one attempt to the next.
const LONGEST: Duration = Duration::from_secs(60);

/// Time for which an attempt may go on: handshakes over a satellite take 2 s, and their packets may be lost.
const PATIENCE: Duration = Duration::from_secs(10);

/// Reason of an attempt that got no answer.
pub(super) const NO_ANSWER: &str = "it does not answer";

/// Phase of a standing connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Waiting { until: Instant },
    Trying { since: Instant },
    Up { since: Instant },
}

/// Standing connection to one PEP.
#[derive(Clone, Debug)]
pub(super) struct Standing {
    phase: Phase,
    /// Attempts that have failed in a row.
    failures: u32,
    reason: Option<String>,
}

impl Standing {
    /// Connection that is to be tried at once.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            phase: Phase::Waiting { until: now },
            failures: 0,
            reason: None,
        }
    }

    /// Says whether an attempt is due.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        matches!(self.phase, Phase::Waiting { until } if until <= now)
    }

    /// Says whether the attempt has taken too long.
    pub(super) fn is_overdue(&self, now: Instant) -> bool {
        matches!(self.phase, Phase::Trying { since } if now >= since + PATIENCE)
    }

    /// An attempt begins.
    pub(super) fn on_attempt(&mut self, now: Instant) {
        self.phase = Phase::Trying { since: now };
    }

    /// The PEP has taken this client in.
    pub(super) fn on_up(&mut self, now: Instant) {
        self.phase = Phase::Up { since: now };
        self.failures = 0;
        self.reason = None;
    }

    /// Notes that the connection is down, for `reason`; true if that is news.
    pub(super) fn on_down(&mut self, now: Instant, reason: &str) -> bool {
        let wait = FIRST * (1 << self.failures.min(6));
        self.failures += 1;
        self.phase = Phase::Waiting {
            until: now + wait.min(LONGEST),
        };
        self.reason.replace(reason.to_owned()).as_deref() != Some(reason)
    }

    /// Instant since which the connection is up, if it is.
    pub(super) fn since(&self) -> Option<Instant> {
        match self.phase {
            Phase::Up { since } => Some(since),
            Phase::Waiting { .. } | Phase::Trying { .. } => None,
        }
    }

    /// Reason why there is no connection.
    pub(super) fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process;

    #[test]
    fn attempts_come_later_and_later_and_success_begins_anew() {
        let mut now = process::now();
        let mut standing = Standing::new(now);
        let mut waits = Vec::new();
        for _ in 0..8 {
            assert!(standing.is_due(now));
            standing.on_attempt(now);
            assert!(!standing.is_due(now) && !standing.is_overdue(now));
            now += PATIENCE;
            assert!(standing.is_overdue(now));
            assert_eq!(standing.on_down(now, NO_ANSWER), waits.is_empty());
            let begun = now;
            while !standing.is_due(now) {
                now += Duration::from_secs(1);
            }
            waits.push((now - begun).as_secs());
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(standing.reason(), Some(NO_ANSWER));
        standing.on_attempt(now);
        standing.on_up(now);
        assert_eq!((standing.since(), standing.reason()), (Some(now), None));
        assert!(standing.on_down(now, "lost"));
        assert!(standing.is_due(now + FIRST) && !standing.is_due(now));
    }
}
