//! The emulator's off switch: a descriptor that becomes readable once and stays so.
//!
//! An eventfd, so that the sleeping thread wakes at once. Turning signals into a call of `stop` is the caller's work.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};

/// A switch; its clones are the same switch.
#[derive(Debug, Clone)]
pub struct Stop(Arc<OwnedFd>);

impl Stop {
    /// A switch that has not been thrown.
    ///
    /// # Errors
    /// If the process has no descriptor left.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(eventfd(
            0,
            EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK,
        )?)))
    }

    /// Ends every run that watches this switch, now or later.
    pub fn stop(&self) {
        // Fails only when the counter is full, and then the switch has been thrown already.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }
}

impl AsFd for Stop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
