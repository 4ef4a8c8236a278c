//! Flows of LES whose payload cannot be written to their end, for the key of its association is not here.
//!
//! That key may be behind, for it comes another way than the payload. Or the ends have erased theirs, two minutes after they
//! renewed them, and nobody can deliver the payload any more.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

use crate::throttle::Throttle;

/// Time for which payload waits for a key that may be behind: longer than a connection needs for a lost packet.
const BEHIND: Duration = Duration::from_secs(10);

/// Flows whose payload waits for a key.
pub(super) struct KeylessFlows<Flow> {
    /// Instant at which the first payload could not be written.
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

    /// Payload of the flow could not be written. True: its key will not come any more, and the flow is to be reset.
    pub(super) fn on_keyless(&mut self, now: Instant, flow: Flow) -> bool {
        now >= *self.since.entry(flow).or_insert(now) + BEHIND
    }

    /// Payload of the flow was written, or the flow is no more.
    pub(super) fn forget(&mut self, flow: Flow) {
        self.since.remove(&flow);
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
        let [one, other] = [1, 2];
        assert!(!flows.on_keyless(start, one));
        let late = start + BEHIND;
        assert!(!flows.on_keyless(late - Duration::from_millis(1), one));
        assert!(!flows.on_keyless(late, other), "each flow has its time");
        assert!(flows.on_keyless(late, one));
        flows.forget(one);
        assert!(!flows.on_keyless(late, one), "another key has come");
    }
}
