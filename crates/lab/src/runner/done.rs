//! What came of doing a task.

use std::time::Duration;

use crate::workload::{Call, Exchange, Load};

/// Result of a task that was done.
pub(super) enum Done {
    /// Seconds of each figure.
    Measured(Vec<f64>),
    /// Pages that a real browser loaded.
    Loaded(Vec<Load>),
    /// Datagrams of a call, or echoes, that were heard.
    Spoken(Call),
    /// Transactions of a session, in order.
    Conversed(Vec<Exchange>),
    /// Patience ended first.
    Unfinished,
}

impl Done {
    /// With the time `spent` before the first figure added to it.
    pub(super) fn after(mut self, spent: Duration) -> Self {
        match &mut self {
            Self::Measured(seconds) => {
                if let Some(first) = seconds.first_mut() {
                    *first += spent.as_secs_f64();
                }
            }
            Self::Loaded(loads) => {
                if let Some(first) = loads.first_mut() {
                    first.load_ms += spent.as_secs_f64() * 1e3;
                    first.paint_ms = first.paint_ms.map(|ms| ms + spent.as_secs_f64() * 1e3);
                }
            }
            Self::Spoken(_) | Self::Conversed(_) | Self::Unfinished => {}
        }
        self
    }
}
