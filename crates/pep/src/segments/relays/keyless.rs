//! Flows of LES whose payload cannot be written to their end, for the key of its association is not here.
//!
//! That key may be behind, for it comes another way than the payload. Or the ends have erased theirs, two minutes after they
//! renewed them, and nobody can deliver the payload any more. An end that takes nothing would hear of that only when it is
//! sent something again, so flows are looked at by the clock.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

use crate::throttle::Throttle;

/// Time for which payload waits for a key that may be behind: longer than a connection needs for a lost packet.
const BEHIND: Duration = Duration::from_secs(10);

/// Flows whose payload waits for a key.
pub(super) struct KeylessFlows<Flow> {
    /// Instant at which each flow was first seen without its key.
    since: HashMap<Flow, Instant>,
    told: Throttle,
}

impl<Flow: Copy + Eq + Hash> KeylessFlows<Flow> {
    /// No flow waits.
    pub(super) fn new() -> Self {
        Self {
            since: HashMap::new(),
            told: Throttle::new(),
        }
    }

    /// Takes all flows whose next payload lacks its key now. Yields those whose key will not come any more: they are to be reset.
    pub(super) fn on_look(
        &mut self,
        now: Instant,
        lacking: impl Iterator<Item = Flow>,
    ) -> Vec<Flow> {
        let before = std::mem::take(&mut self.since);
        let since = |flow| (flow, before.get(&flow).copied().unwrap_or(now));
        self.since = lacking.map(since).collect();
        let hopeless = |(_, since): &(&Flow, &Instant)| now >= **since + BEHIND;
        let hopeless = self.since.iter().filter(hopeless);
        hopeless.map(|(flow, _)| *flow).collect()
    }

    /// Tells the log that flows are reset.
    pub(super) fn tell(&self, now: Instant) {
        if self.told.is_due(now) {
            tracing::warn!(
                "relayed flows are reset: their ends were too slow to take what was sealed before the keys were renewed"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_waits_for_a_key_that_is_behind_and_not_for_ever() {
        let (mut flows, start) = (KeylessFlows::new(), crate::process::now());
        let ([one, other], none) = ([1, 2], [0; 0]);
        let mut look = |now, lacking: &[u8]| flows.on_look(now, lacking.iter().copied());
        let late = start + BEHIND;
        assert_eq!(look(start, &[one]), none);
        assert_eq!(look(late - Duration::from_millis(1), &[one]), none);
        assert_eq!(look(late, &[one, other]), [one], "each flow has its time");
        // Another key has come.
        assert_eq!(look(late, &[other]), none);
        assert_eq!(look(late, &[one, other]), none);
        assert_eq!(look(late + BEHIND, &[other]), [other]);
    }
}
