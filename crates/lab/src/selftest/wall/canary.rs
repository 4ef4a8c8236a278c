//! Is this machine fit to measure on? A thread with the priority of those that measure, which does nothing but sleep and
//! look at the clock.

use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use bentpipe_sys::schedule::go_first;

use crate::Stop;
use crate::emulator::Histogram;

const NAP: Duration = Duration::from_millis(1);
/// Half of the naps may last this much too long. A round trip has three wake-ups, two of the emulator and one of who
/// measures, and its median may be wrong by 0.3 ms, in which there must be room for work.
const TOLERABLE_MEDIAN: Duration = Duration::from_micros(60);
/// The same of one in a hundred, which may be wrong by 1 ms.
const TOLERABLE_P99: Duration = Duration::from_micros(300);

#[derive(Debug)]
pub(super) struct Canary {
    stop: Stop,
    thread: JoinHandle<Histogram>,
}

impl Canary {
    pub(super) fn start() -> Result<Self> {
        let stop = Stop::new().context("cannot make a switch")?;
        let watched = stop.clone();
        let watch = move || {
            // What measures may do so too, if anybody may.
            let _ = go_first();
            let mut naps = Histogram::default();
            loop {
                let begin = Instant::now();
                if watched.wait(NAP) {
                    return naps;
                }
                naps.record(begin.elapsed().saturating_sub(NAP));
            }
        };
        let thread = thread::Builder::new().name("canary".into()).spawn(watch)?;
        Ok(Self { stop, thread })
    }

    /// Why not, if this machine was not fit since the start.
    pub(super) fn finish(self) -> Result<Option<String>> {
        self.stop.stop();
        let naps = self
            .thread
            .join()
            .map_err(|_| anyhow!("the canary panicked"))?
            .summary();
        let (median, p99) = (naps.p50.get(), naps.p99.get());
        let fit = median <= TOLERABLE_MEDIAN && p99 <= TOLERABLE_P99;
        Ok((!fit).then(|| format!("this machine wakes threads {median:.0?} (p99 {p99:.0?}) late")))
    }
}
