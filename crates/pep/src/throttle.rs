//! Log lines that would be repeated: once a minute is enough for what a busy or hostile peer can cause, and once for each text for what
//! is tried again and again.

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

/// Fault of something that is tried again and again: the log hears each text once, and that it is over.
#[derive(Debug, Default)]
pub(crate) struct LastingFault(Option<String>);

impl LastingFault {
    /// No fault so far.
    pub(crate) const fn none() -> Self {
        Self(None)
    }

    /// Notes a failure; true if the log is to hear of it, because the last one had another text or none was before it.
    pub(crate) fn is_news(&mut self, error: &impl ToString) -> bool {
        let text = error.to_string();
        self.0.replace(text) != self.0
    }

    /// Notes a success; true if a fault is over by it.
    pub(crate) fn is_over(&mut self) -> bool {
        self.0.take().is_some()
    }

    /// Text of the fault while it lasts.
    pub(crate) fn text(&self) -> Option<&str> {
        self.0.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_text_of_a_fault_is_told_once_and_its_end() {
        let mut fault = LastingFault::none();
        assert!(!fault.is_over(), "nothing was wrong");
        let told = ["no room", "no room", "no disk", "no disk"].map(|text| fault.is_news(&text));
        assert_eq!(told, [true, false, true, false]);
        assert_eq!(fault.text(), Some("no disk"));
        assert!(fault.is_over() && !fault.is_over());
        assert!(fault.is_news(&"no disk"), "it has come back");
    }

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
