//! Keeps the processors from falling asleep: a virtual machine's take a while to wake up, which is no emulator's doing.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use bentpipe_sys::schedule::go_last;

/// Threads that run where nobody else does, until this is dropped.
#[derive(Debug)]
pub(super) struct Awake {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Awake {
    pub(super) fn start() -> io::Result<Self> {
        let mut awake = Self {
            over: Arc::default(),
            threads: Vec::new(),
        };
        for _ in 0..thread::available_parallelism()?.get() {
            let over = Arc::clone(&awake.over);
            let watch = thread::Builder::new().name("awake".into());
            awake.threads.push(watch.spawn(move || {
                if go_last().is_err() {
                    return;
                }
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })?);
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
