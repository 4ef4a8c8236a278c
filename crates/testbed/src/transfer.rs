//! One direction of a TCP connection under watch: how much has arrived, when, and how it ended.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};

use super::peer::{accept, digest, payload, set_patience};
use super::route::Route;

/// From the web to the user, or the other way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From the web to the user.
    Download,
    /// From the user to the web.
    Upload,
}

/// A transfer that is under way.
#[derive(Debug)]
pub struct Transfer {
    length: usize,
    arrived: Arc<AtomicUsize>,
    writer: JoinHandle<io::Result<()>>,
    reader: JoinHandle<Arrivals>,
}

/// Bytes and times that a receiver saw.
#[derive(Debug)]
pub struct Arrivals {
    bytes: Vec<u8>,
    /// Instants at which something arrived.
    instants: Vec<Instant>,
    /// End of the connection.
    pub end: io::Result<()>,
    /// Time of the end.
    pub ended: Instant,
}

impl Transfer {
    /// Connects over `route` and sends `length` bytes of payload and an end.
    pub fn start(route: &Route, way: Way, length: usize) -> Result<Self> {
        let (listener, address) = route.listen()?;
        let user = route.connect(address)?;
        let web = accept(&listener, route.patience)?;
        set_patience(&web, route.patience)?;
        let (mut from, mut to) = match way {
            Way::Download => (web, user),
            Way::Upload => (user, web),
        };
        let arrived = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&arrived);
        Ok(Self {
            length,
            arrived,
            writer: thread::spawn(move || {
                from.write_all(&payload(length))?;
                from.shutdown(Shutdown::Write)?;
                // The sender stays: only the end that it sent may end the transfer.
                from.read(&mut [0]).map(drop)
            }),
            reader: thread::spawn(move || watch(&mut to, &count)),
        })
    }

    /// Waits until `bytes` have arrived.
    pub fn until(&self, bytes: usize, patience: Duration) -> Result<()> {
        let deadline = Instant::now() + patience;
        while self.arrived.load(Ordering::Relaxed) < bytes {
            ensure!(!self.reader.is_finished(), "ended before {bytes} bytes");
            let arrived = self.arrived.load(Ordering::Relaxed);
            ensure!(Instant::now() < deadline, "only {arrived} bytes arrived");
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Waits for the end, whichever it is.
    pub fn finish(self) -> Result<Arrivals> {
        let arrivals = self.reader.join().map_err(|_| anyhow!("reader panicked"))?;
        let written = self.writer.join().map_err(|_| anyhow!("writer panicked"))?;
        let sent = payload(self.length);
        let whole = arrivals.bytes.len() == self.length && digest(&arrivals.bytes) == digest(&sent);
        ensure!(
            sent.starts_with(&arrivals.bytes),
            "bytes arrived that were not sent"
        );
        if arrivals.end.is_ok() {
            ensure!(
                whole,
                "a clean end after {} of {} bytes",
                arrivals.bytes.len(),
                self.length
            );
            written?;
        }
        Ok(arrivals)
    }

    /// Waits for all of it, which must arrive.
    pub fn finish_whole(self) -> Result<Arrivals> {
        let arrivals = self.finish()?;
        match &arrivals.end {
            Ok(()) => Ok(arrivals),
            Err(error) => Err(anyhow!(
                "ended after {} bytes: {error}",
                arrivals.bytes.len()
            )),
        }
    }

    /// Waits for the reset that must end it.
    pub fn finish_reset(self) -> Result<Arrivals> {
        let arrivals = self.finish()?;
        let reset = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionReset;
        ensure!(
            arrivals.end.as_ref().is_err_and(reset),
            "not reset: {:?}",
            arrivals.end
        );
        Ok(arrivals)
    }
}

impl Arrivals {
    /// The first instant at or after `then` at which something arrived.
    pub fn first_since(&self, then: Instant) -> Option<Instant> {
        self.instants.iter().copied().find(|&at| at >= then)
    }

    /// The longest time without an arrival, from `then` to the end.
    pub fn longest_silence(&self, then: Instant) -> Duration {
        let mut last = then;
        let mut longest = Duration::ZERO;
        for &at in self.instants.iter().chain([&self.ended]) {
            if at > last {
                longest = longest.max(at - last);
                last = at;
            }
        }
        longest
    }
}

fn watch(stream: &mut TcpStream, arrived: &AtomicUsize) -> Arrivals {
    let (mut bytes, mut instants) = (Vec::new(), Vec::new());
    let mut buffer = [0; 65_536];
    let end = loop {
        match stream.read(&mut buffer) {
            Ok(0) => break Ok(()),
            Ok(length) => {
                bytes.extend_from_slice(&buffer[..length]);
                instants.push(Instant::now());
                arrived.store(bytes.len(), Ordering::Relaxed);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => break Err(error),
        }
    };
    Arrivals {
        bytes,
        instants,
        end,
        ended: Instant::now(),
    }
}
