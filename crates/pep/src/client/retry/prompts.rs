//! Attempts that may be made at once, out of turn.

use std::time::{Duration, Instant};

/// Attempts that may be brought forward at once, and the time after which another one may.
pub(super) const PROMPTS: u32 = 3;
const PROMPT_EVERY: Duration = Duration::from_secs(75);

/// Attempts that may be brought forward.
#[derive(Debug, Clone, Copy)]
pub(super) struct Prompts {
    left: u32,
    pub(super) since: Instant,
}

impl Prompts {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            left: PROMPTS,
            since: now,
        }
    }

    pub(super) fn take(&mut self, now: Instant, cost: u32) -> bool {
        while self.left < PROMPTS && now >= self.since + PROMPT_EVERY {
            self.left += 1;
            self.since += PROMPT_EVERY;
        }
        if self.left == PROMPTS {
            self.since = now;
        }
        let left = self.left.checked_sub(cost);
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }
}
