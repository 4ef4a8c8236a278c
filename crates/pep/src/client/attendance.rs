//! Applications that are answered by this process itself, as pages and requests to a proxy are: a client that stops lets each have
//! what it has asked for, whether a flow is open for that or no more.

use std::cell::Cell;
use std::rc::Rc;

use tokio::sync::watch;

/// Applications that are being answered, and whether the client is about to stop.
#[derive(Debug)]
pub(crate) struct Attendance {
    open: Cell<u64>,
    /// True once the client is about to stop.
    ending: watch::Sender<bool>,
}

/// One application that is being answered, counted until this is dropped.
#[derive(Debug)]
pub(crate) struct Attended(Rc<Attendance>);

impl Drop for Attended {
    fn drop(&mut self) {
        self.0.open.set(self.0.open.get() - 1);
    }
}

impl Attendance {
    /// Attendance of a client that runs and answers nobody yet.
    pub(super) fn new() -> Rc<Self> {
        Rc::new(Self {
            open: Cell::default(),
            ending: watch::Sender::new(false),
        })
    }

    /// Counts one more application until what is returned is dropped.
    pub(super) fn enter(self: &Rc<Self>) -> Attended {
        self.open.set(self.open.get() + 1);
        Attended(self.clone())
    }

    /// Number of applications that are being answered.
    pub(super) fn open(&self) -> u64 {
        self.open.get()
    }

    /// The client is about to stop: who has what was asked for is to go.
    pub(super) fn end(&self) {
        self.ending.send_replace(true);
    }

    /// True once the client is about to stop.
    pub(super) fn is_ending(&self) -> bool {
        *self.ending.borrow()
    }

    /// Waits until the client is about to stop.
    pub(super) async fn ending(&self) {
        // The sender is ours.
        let _ = self.ending.subscribe().wait_for(|ends| *ends).await;
    }
}
