//! A counter that proves that a shard runs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// Counter of the turns that a shard's driver takes, owned by the driver. It takes one each second at least, for
/// [`Shard::share_memory`](super::Shard::share_memory) wakes it.
#[derive(Debug, Default)]
pub(crate) struct Pulse(Arc<AtomicU64>);

/// View of a [`Pulse`], for any thread.
#[derive(Clone, Debug)]
pub(crate) struct PulseView(Weak<AtomicU64>);

impl Pulse {
    /// A view, which outlives the driver.
    pub(crate) fn view(&self) -> PulseView {
        PulseView(Arc::downgrade(&self.0))
    }

    /// Counts a turn.
    pub(super) fn beat(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl PulseView {
    /// Turns so far; `None` once the driver has ended.
    pub(crate) fn turns(&self) -> Option<u64> {
        let turns = self.0.upgrade()?;
        Some(turns.load(Ordering::Relaxed))
    }
}
