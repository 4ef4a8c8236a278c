//! The off switch: a descriptor that becomes readable once and stays so.
//!
//! A socket whose other end is shut down, so that whoever sleeps wakes at once: the emulator's and the capture's `poll`, a waiting thread
//! ([`Stop::wait`]) or a future ([`Stop::stopped`]). SIGINT, SIGTERM and SIGHUP can throw it ([`Stop::on_signals`]).

use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::signal::unix::{SignalKind, signal};

/// A switch; its clones are the same switch.
#[derive(Debug, Clone)]
pub struct Stop(Arc<Ends>);

#[derive(Debug)]
struct Ends {
    /// Readable, with nothing to read, once `thrown` is shut down.
    watched: UnixStream,
    thrown: UnixStream,
}

impl Stop {
    /// A switch that has not been thrown.
    ///
    /// # Errors
    /// If the process has no descriptor left.
    pub fn new() -> io::Result<Self> {
        let (watched, thrown) = UnixStream::pair()?;
        watched.set_nonblocking(true)?;
        Ok(Self(Arc::new(Ends { watched, thrown })))
    }

    /// A switch that SIGINT, SIGTERM and SIGHUP throw from now on, instead of ending the process.
    ///
    /// # Errors
    /// The signals cannot be caught, or no thread or descriptor is left.
    pub fn on_signals() -> Result<Self> {
        let stop = Self::new().context("cannot make a switch")?;
        let thrown = stop.clone();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .context("cannot start a runtime for signals")?;
        let catch = |kind| {
            let _inside = runtime.enter();
            signal(kind).context("cannot catch signals")
        };
        let mut interrupt = catch(SignalKind::interrupt())?;
        let mut terminate = catch(SignalKind::terminate())?;
        // The terminal was closed: as good as Ctrl-C for somebody who can no longer press it.
        let mut hangup = catch(SignalKind::hangup())?;
        thread::Builder::new()
            .name("signals".into())
            .spawn(move || {
                runtime.block_on(async {
                    tokio::select! {
                        _ = interrupt.recv() => {}
                        _ = terminate.recv() => {}
                        _ = hangup.recv() => {}
                    }
                });
                thrown.stop();
            })
            .context("cannot start a thread for signals")?;
        Ok(stop)
    }

    /// Throws it after `time`, wherever that is by then.
    ///
    /// # Errors
    /// No thread is left.
    pub fn after(&self, time: Duration) -> Result<()> {
        let thrown = self.clone();
        let wait = move || {
            // Thrown by somebody else meanwhile: all the same.
            if !thrown.wait(time) {
                thrown.stop();
            }
        };
        let thread = thread::Builder::new().name("duration".into());
        thread
            .spawn(wait)
            .map(drop)
            .context("cannot start a thread for the duration")
    }

    /// Ends every run that watches this switch, now or later.
    pub fn stop(&self) {
        // Fails only if it has been done already.
        let _ = self.0.thrown.shutdown(Shutdown::Both);
    }

    /// Sleeps for `time`, or until the switch is thrown; whether it was.
    #[must_use]
    pub fn wait(&self, time: Duration) -> bool {
        let deadline = Instant::now() + time;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let mut switch = [PollFd::new(&self.0.watched, PollFlags::IN)];
            // An interrupted sleep is continued.
            match poll(&mut switch, Timespec::try_from(left).ok().as_ref()) {
                Ok(0) => return false,
                Ok(_) => return true,
                Err(_) => {}
            }
        }
    }

    /// Sleeps until the switch is thrown.
    pub fn forever(&self) {
        while !self.wait(Duration::from_secs(3600)) {}
    }

    /// Sleeps for `time`.
    ///
    /// # Errors
    /// The switch was thrown first.
    pub fn sleep(&self, time: Duration) -> Result<()> {
        if self.wait(time) {
            bail!(INTERRUPTED);
        }
        Ok(())
    }

    /// Completes when the switch is thrown.
    ///
    /// # Errors
    /// The runtime cannot watch the descriptor.
    pub async fn stopped(&self) -> io::Result<()> {
        // A descriptor of its own: one runtime watches a descriptor only once.
        let watched = tokio::net::UnixStream::from_std(self.0.watched.try_clone()?)?;
        watched.readable().await
    }

    /// Runs `work` to its end.
    ///
    /// # Errors
    /// Its own, or that the switch was thrown first.
    pub async fn guard<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::select! {
            done = work => done,
            stopped = self.stopped() => {
                stopped.context("cannot watch the switch")?;
                bail!(INTERRUPTED)
            }
        }
    }
}

/// The text of the error that a thrown switch makes of unfinished work.
const INTERRUPTED: &str = "interrupted";

impl AsFd for Stop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.watched.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thrown_switch_wakes_threads_and_futures_and_stays_thrown() {
        let stop = Stop::new().unwrap();
        assert!(!stop.wait(Duration::from_millis(1)));
        let other = stop.clone();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| other.wait(Duration::from_secs(60)));
            stop.stop();
            assert!(waiting.join().unwrap());
        });
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .unwrap();
        for _ in 0..2 {
            let work = stop.guard(std::future::pending::<Result<()>>());
            let error = runtime.block_on(work).unwrap_err();
            assert_eq!(error.to_string(), INTERRUPTED);
        }
        assert!(stop.sleep(Duration::from_secs(60)).is_err());
    }
}
