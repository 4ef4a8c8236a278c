//! Is this machine fit to measure on? Two threads with the priority of those that measure, which pass a datagram to and
//! fro, seldom enough that the processors fall asleep as they do between two pings.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use bentpipe_sys::schedule::go_first;

use crate::Stop;
use crate::emulator::Histogram;

const NAP: Duration = Duration::from_millis(5);
/// Half of the passes, each a timer's wake-up and two by a datagram, may take this long. A round trip has five wake-ups:
/// on a quiet machine it is wrong by half as much again as a pass takes (0.21 ms and 0.14 ms), and it may be wrong by 0.3 ms.
const TOLERABLE_MEDIAN: Duration = Duration::from_micros(180);
/// Lateness that is tolerated of one timer in a hundred; figures may be wrong by 1 ms.
const TOLERABLE_P99: Duration = Duration::from_micros(500);

#[derive(Debug)]
pub(super) struct Canary {
    stop: Stop,
    thread: JoinHandle<io::Result<Histogram>>,
}

impl Canary {
    pub(super) fn start() -> Result<Self> {
        let stop = Stop::new().context("cannot make a switch")?;
        let (near, far) = UnixDatagram::pair().context("cannot make a pair of sockets")?;
        spawn("canary's echo", move || echo(&far))?;
        let watched = stop.clone();
        let thread = spawn("canary", move || watch(&watched, &near))?;
        Ok(Self { stop, thread })
    }

    /// Reason, if this machine was not fit since the start.
    pub(super) fn finish(self) -> Result<Option<String>> {
        self.stop.stop();
        let passes = self
            .thread
            .join()
            .map_err(|_| anyhow!("the canary panicked"))??
            .summary();
        let (median, p99) = (passes.p50.get(), passes.p99.get());
        let fit = median <= TOLERABLE_MEDIAN && p99 <= TOLERABLE_P99;
        Ok((!fit).then(|| {
            format!("this machine takes {median:.0?} (p99 {p99:.0?}) to wake three threads")
        }))
    }
}

fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    thread::Builder::new().name(name.into()).spawn(move || {
        // What measures may do so too, if anybody may.
        let _ = go_first();
        work()
    })
}

/// Naps, passes, and how long all that took beyond the nap.
fn watch(stop: &Stop, echo: &UnixDatagram) -> io::Result<Histogram> {
    let mut passes = Histogram::default();
    loop {
        let begin = Instant::now();
        if stop.wait(NAP) {
            // An empty datagram ends the echo.
            echo.send(&[])?;
            return Ok(passes);
        }
        echo.send(&[1])?;
        echo.recv(&mut [0])?;
        passes.record(begin.elapsed().saturating_sub(NAP));
    }
}

fn echo(peer: &UnixDatagram) {
    while peer.recv(&mut [0]).is_ok_and(|bytes| bytes > 0) && peer.send(&[1]).is_ok() {}
}
