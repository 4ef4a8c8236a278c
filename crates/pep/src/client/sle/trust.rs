//! Whether outer connections are tried: not for a while where the last one came to nothing, and then by one flow first.
//!
//! ```text
//!   Open ── on_failed ──► Shut until ── permits, once ──► Tried ── on_answered ──► Open
//!                            ▲                              │
//!                            └───────── on_failed ──────────┘   twice as long, 10 min at most
//! ```

use std::time::{Duration, Instant};

/// Time for which all flows go through the tunnel after the first failure.
const FIRST: Duration = Duration::from_secs(60);
/// Longest such time.
const LONGEST: Duration = Duration::from_secs(600);

/// Way of flows that are to be sealed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Trust {
    /// All are sealed.
    #[default]
    Open,
    /// All go through the tunnel until then.
    Shut {
        /// Instant at which one is tried.
        until: Instant,
        /// Time for which this was decided.
        pause: Duration,
    },
    /// A first flow tries the way; the others go through the tunnel.
    Tried {
        /// Instant from which another is tried, for the first may never have left.
        until: Instant,
        /// Time for which the way was shut.
        pause: Duration,
    },
}

impl Trust {
    /// True if a flow that begins now might be sealed; changes nothing.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        match *self {
            Self::Open => true,
            Self::Shut { until, .. } | Self::Tried { until, .. } => now >= until,
        }
    }

    /// True if a flow that begins now is to be sealed.
    pub(super) fn permits(&mut self, now: Instant) -> bool {
        let is_due = self.is_due(now);
        if let Self::Shut { pause, .. } | Self::Tried { pause, .. } = *self
            && is_due
        {
            *self = Self::Tried {
                until: now + FIRST,
                pause,
            };
        }
        is_due
    }

    /// A flow has been answered by the server.
    pub(super) fn on_answered(&mut self) {
        *self = Self::Open;
    }

    /// An outer connection could not be had, or ended before the server's answer. Returns for how long flows go through the
    /// tunnel, if that begins now.
    pub(super) fn on_failed(&mut self, now: Instant) -> Option<Duration> {
        let pause = match *self {
            Self::Open => FIRST,
            Self::Tried { pause, .. } => (pause * 2).min(LONGEST),
            // Begun before that was decided.
            Self::Shut { .. } => return None,
        };
        *self = Self::Shut {
            until: now + pause,
            pause,
        };
        Some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process;

    #[test]
    fn after_a_failure_flows_go_through_the_tunnel_and_one_tries_again() {
        let start = process::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut trust = Trust::default();
        assert!(trust.permits(start) && trust.permits(start));
        assert_eq!(trust.on_failed(start), Some(FIRST));
        assert_eq!(trust.on_failed(at(1)), None, "begun before the failure");
        assert!(!trust.permits(at(59)));
        assert!(trust.permits(at(60)), "one tries");
        assert!(!trust.permits(at(61)), "and no other");
        assert_eq!(trust.on_failed(at(65)), Some(FIRST * 2));
        assert!(!trust.permits(at(184)));
        assert!(trust.permits(at(185)));
        trust.on_answered();
        assert!(trust.permits(at(186)) && trust.permits(at(186)));
        assert_eq!(
            trust.on_failed(at(187)),
            Some(FIRST),
            "a success is not forgotten"
        );
    }

    #[test]
    fn the_time_is_bounded_and_a_try_that_never_ends_is_replaced() {
        let (mut now, mut trust) = (process::now(), Trust::default());
        let mut last = trust.on_failed(now);
        for _ in 0..10 {
            now += LONGEST;
            assert!(trust.permits(now));
            last = trust.on_failed(now);
        }
        assert_eq!(last, Some(LONGEST));
        assert!(trust.permits(now + LONGEST));
        assert!(!trust.permits(now + LONGEST + FIRST / 2));
        assert!(trust.permits(now + LONGEST + FIRST));
    }
}
