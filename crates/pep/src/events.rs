//! The last events of this process, which the log hands over and `status` shows.

use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;

use crate::process;
pub use crate::process::FATAL;
use crate::status::{Event, EventLevel, Events};

/// Target of log lines that tell of a change of state; they are events whatever their level.
pub const STATE: &str = "state";

/// Once for each process, as its log.
static LAST: Mutex<Events> = Mutex::new(Events::new());

/// Keeps a line of the log as an event of this moment.
pub fn note(level: EventLevel, text: &str) {
    let seconds = i64::try_from(process::since_1970().as_secs()).unwrap_or_default();
    let at = Timestamp::from_second(seconds).unwrap_or_default();
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    last.add(at.to_string(), level, text);
}

/// The last events, oldest first.
pub(crate) fn last() -> Vec<Event> {
    LAST.lock().unwrap_or_else(PoisonError::into_inner).list()
}
