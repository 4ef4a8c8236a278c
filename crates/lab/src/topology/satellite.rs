//! The thread that carries packets between the two `sat0` devices, for as long as the topology lives.
//!
//! It asks the link model what arrives when, and moves packets between the TUN devices accordingly.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use bentpipe_link::{Duplex, Pipe, Scenario};
use bentpipe_sys::netns::NetNs;
use bentpipe_sys::tun::Tun;
use bentpipe_units::ByteCount;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How soon the thread notices that it shall stop.
const STOP_INTERVAL: Duration = Duration::from_millis(50);

/// A running link; stopped and joined on drop.
#[derive(Debug)]
pub(super) struct Satellite {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Satellite {
    /// Makes `sat0` in both namespaces and starts the link between them.
    pub(super) fn start(scenario: &Scenario, terminal: &NetNs, gateway: &NetNs) -> Result<Self> {
        let config = scenario.link_config().context("no such link")?;
        let terminal_tun = terminal.enter(|| Tun::create("sat0"))??;
        let gateway_tun = gateway.enter(|| Tun::create("sat0"))??;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let duplex = Duplex::new(&config, scenario.general.seed, Instant::now());
        let thread = thread::Builder::new()
            .name("satellite".into())
            .spawn(move || carry(duplex, &terminal_tun, &gateway_tun, &stopped))?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Satellite {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed; there is nothing left to stop.
            let _ = thread.join();
        }
    }
}

fn carry(mut duplex: Duplex<Vec<u8>>, terminal: &Tun, gateway: &Tun, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let wait = duplex.poll_timeout().map_or(STOP_INTERVAL, |at| {
            at.saturating_duration_since(Instant::now())
                .min(STOP_INTERVAL)
        });
        let mut fds = [
            PollFd::new(terminal, PollFlags::IN),
            PollFd::new(gateway, PollFlags::IN),
        ];
        // Interrupted or not, the devices are looked at next.
        let _ = poll(&mut fds, Timespec::try_from(wait).ok().as_ref());
        let now = Instant::now();
        take(now, terminal, &mut duplex.return_link);
        take(now, gateway, &mut duplex.forward_link);
        while let Some((_, packet)) = duplex.return_link.poll_output(now) {
            let _ = gateway.write(&packet);
        }
        while let Some((_, packet)) = duplex.forward_link.poll_output(now) {
            let _ = terminal.write(&packet);
        }
    }
}

fn take(now: Instant, tun: &Tun, pipe: &mut Pipe<Vec<u8>>) {
    let mut buffer = [0; 65_536];
    loop {
        match tun.read(&mut buffer) {
            Ok(length) => {
                let packet = buffer[..length].to_vec();
                pipe.handle_packet(now, ByteCount::from_usize(length), packet);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}
