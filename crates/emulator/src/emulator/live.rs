//! How a run goes, for whoever asks while it goes: the status line, and SIGUSR1.
//!
//! The emulator leaves its latest snapshot here and never waits: if somebody is reading, it skips one.

use std::sync::{Arc, Mutex, PoisonError};

use super::snapshot::Snapshot;

/// The latest snapshot; its clones are the same place.
#[derive(Debug, Clone, Default)]
pub struct Live(Arc<Mutex<Option<Snapshot>>>);

impl Live {
    pub(super) fn show(&self, snapshot: &Snapshot) {
        if let Ok(mut latest) = self.0.try_lock() {
            *latest = Some(snapshot.clone());
        }
    }

    /// The latest snapshot; none before the first period has passed.
    #[must_use]
    pub fn latest(&self) -> Option<Snapshot> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}
