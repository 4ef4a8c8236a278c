//! How a daemon is told to stop: the first signal lets open flows end, a second one does not.

use std::io;
use std::time::Duration;

use bentpipe_units::TimeSpan;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::timeout;

use crate::events;

/// Signals by which an operator stops a daemon: SIGINT and SIGTERM.
pub(crate) struct StopSignal {
    interrupt: Signal,
    terminate: Signal,
    /// Of no use to us. Its default action is death, which somebody who tried it out does not mean.
    _user: Signal,
}

impl StopSignal {
    /// Takes the signals over, which would end the process otherwise.
    pub(crate) fn take() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            _user: signal(SignalKind::user_defined2())?,
        })
    }

    /// Waits for one of them.
    pub(crate) async fn wait(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }

    /// Waits until open flows have `ended`, for `patience` at most, or until the operator signals again.
    pub(crate) async fn drain(&mut self, patience: Duration, ended: impl Future<Output = ()>) {
        tokio::select! {
            _ = timeout(patience, ended) => {}
            () = self.wait() => tell_of_second(),
        }
    }
}

/// Logs that the daemon stops, and that open flows have `patience` to end.
pub(crate) fn tell_of_first(patience: Duration) {
    let patience = TimeSpan::new(patience);
    tracing::info!(target: events::STATE, "stopping: open flows have {patience} to end");
}

/// Logs that a second signal ends the daemon before its flows have ended.
pub(crate) fn tell_of_second() {
    tracing::info!(target: events::STATE, "stopping at once, signalled again: open flows are reset");
}
