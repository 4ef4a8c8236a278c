//! What a discrete-event loop needs: the next instant at which anything happens.
//!
//! A simulation is a loop: hand every part what is due, ask each for its `poll_timeout`, jump to the earliest. The
//! parts and what they exchange belong to the test or bench that owns the loop.

use std::time::Instant;

/// The earliest of the given timeouts, or `None` when nothing will ever happen again.
///
/// ```
/// # use bentpipe_link::sim::next_wakeup;
/// # let (client, link): (Option<std::time::Instant>, Option<std::time::Instant>) = (None, None);
/// assert_eq!(next_wakeup([client, link]), None);
/// ```
pub fn next_wakeup(timeouts: impl IntoIterator<Item = Option<Instant>>) -> Option<Instant> {
    timeouts.into_iter().flatten().min()
}
