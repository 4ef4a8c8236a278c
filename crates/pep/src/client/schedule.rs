//! The schedule of attempts on the real clock, and the task that makes them.

use std::cell::{Ref, RefCell};
use std::time::Instant;

use bentpipe_units::Seed;
use tokio::sync::Notify;

use super::retry::Retry;
use crate::process;

/// Schedule by which servers are tried.
pub(super) struct Schedule {
    retry: RefCell<Retry>,
    /// Wakes the task that makes attempts.
    kick: Notify,
}

impl Schedule {
    /// The first attempt, at one of so many `servers`, is due now.
    pub(super) fn new(servers: usize) -> Self {
        let seed = Seed::new(process::random_u64());
        Self {
            retry: RefCell::new(Retry::new(process::now(), servers, seed)),
            kick: Notify::new(),
        }
    }

    /// Decisions as they stand.
    pub(super) fn state(&self) -> Ref<'_, Retry> {
        self.retry.borrow()
    }

    /// Tells what has happened, and at which instant.
    pub(super) fn tell<T>(&self, event: impl FnOnce(&mut Retry, Instant) -> T) -> T {
        event(&mut self.retry.borrow_mut(), process::now())
    }

    /// Has the task that makes attempts look at the schedule.
    pub(super) fn wake(&self) {
        self.kick.notify_one();
    }

    /// Waits until somebody has woken the task that makes attempts.
    pub(super) async fn woken(&self) {
        self.kick.notified().await;
    }
}
