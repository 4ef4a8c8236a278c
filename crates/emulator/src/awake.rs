//! Keeps the processors from falling asleep: a virtual machine's take a while to wake up, which is no emulator's doing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use anyhow::{Context as _, Result};
use bentpipe_sys::schedule::go_last;
use rustix::thread::sched_getaffinity;

/// Threads that keep the processors awake. They run where nobody else does, until this is dropped. Under a quota (a container's) there are none: they would
/// take what others need.
#[derive(Debug)]
pub struct Awake {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Awake {
    /// Starts a thread for each processor.
    ///
    /// # Errors
    /// The processors cannot be counted, or a thread cannot be had.
    pub fn start() -> Result<Self> {
        let mut awake = Self {
            over: Arc::default(),
            threads: Vec::new(),
        };
        let usable = thread::available_parallelism().context("cannot count the processors")?;
        let allowed = sched_getaffinity(None).context("cannot count the processors")?;
        let count = Some(usable.get()).filter(|count| *count >= allowed.count() as usize);
        for _ in 0..count.unwrap_or(0) {
            let over = Arc::clone(&awake.over);
            let watch = thread::Builder::new().name("awake".into());
            let thread = watch.spawn(move || {
                if go_last().is_err() {
                    return;
                }
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            awake
                .threads
                .push(thread.context("cannot keep the processors awake")?);
        }
        Ok(awake)
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
