//! Log lines that would be repeated: once a minute is enough for what a busy or hostile peer can cause.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time before a line is written again.
const AGAIN: Duration = Duration::from_secs(60);

/// Lets one log line of its kind through per minute.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    last: Mutex<Option<Instant>>,
}

impl Throttle {
    /// A throttle that lets the first line through.
    pub(crate) const fn new() -> Self {
        Self {
            last: Mutex::new(None),
        }
    }

    /// True if the line is to be written at `now`; the next one is a minute later.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let due = last.is_none_or(|last| now.saturating_duration_since(last) >= AGAIN);
        if due {
            *last = Some(now);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_written_once_a_minute() {
        let throttle = Throttle::new();
        let start = crate::process::now();
        let due: Vec<_> = [0, 1, 59, 60, 61, 119, 120]
            .map(|second| throttle.is_due(start + Duration::from_secs(second)))
            .into();
        assert_eq!(due, [true, false, false, true, false, false, true]);
    }
}
