//! An emulator on a thread of its own, for callers that have other work meanwhile.

use std::os::fd::AsFd as _;
use std::thread::{self, JoinHandle};

use anyhow::{Context as _, Result, anyhow};

use super::{Emulator, EmulatorStats};
use crate::Stop;

/// A link that carries packets until this is stopped or dropped.
#[derive(Debug)]
pub struct Running {
    stop: Stop,
    thread: Option<JoinHandle<Result<EmulatorStats>>>,
}

impl Running {
    pub(super) fn start(mut emulator: Emulator) -> Result<Self> {
        let stop = Stop::new().context("cannot make the emulator's switch")?;
        let watched = stop.clone();
        let thread = thread::Builder::new()
            .name("emulator".into())
            .spawn(move || emulator.run(watched.as_fd()))
            .context("cannot start the emulator's thread")?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }

    /// Ends the link, removes its devices and says what it carried.
    ///
    /// # Errors
    /// The emulation had already ended with an error; this is it.
    pub fn stop(mut self) -> Result<EmulatorStats> {
        self.end()
            .unwrap_or_else(|| Err(anyhow!("the emulator panicked")))
            .context("emulator")
    }

    fn end(&mut self) -> Option<Result<EmulatorStats>> {
        self.stop.stop();
        // A panic has been printed by its own thread.
        self.thread.take()?.join().ok()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}
