//! What leaves the gateway towards the web with another address than the gateway's own: a client's inner one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use bentpipe_sys::capture::PacketSocket;
use bentpipe_sys::netns::NetNs;

use bentpipe_emulator::topology::{GATEWAY_WAN, GATEWAY_WAN6};

/// The gateway's interface towards the web.
const DEVICE: &str = "wan0";

/// From one look to the next while nothing comes.
const PAUSE: Duration = Duration::from_millis(5);

/// The largest IP packet.
const MAX_PACKET: usize = 65_535;

/// A watch over the gateway's interface.
#[derive(Debug)]
pub(super) struct InnerWatch {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<u64>>>,
}

impl InnerWatch {
    /// Begins to watch.
    pub(super) fn start(gateway: &NetNs) -> Result<Self> {
        let socket = gateway.enter(|| PacketSocket::open(DEVICE))??;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let watch = move || {
            let mut buffer = vec![0; MAX_PACKET];
            let mut inner = 0;
            loop {
                // Asked first: what came before the stop is still counted.
                let last = stopped.load(Ordering::Relaxed);
                while let Ok(packet) = socket.receive(&mut buffer) {
                    let content = buffer.get(..packet.length).unwrap_or_default();
                    inner += u64::from(packet.outgoing && is_foreign(content));
                }
                if last {
                    ensure!(
                        socket.missed()? == 0,
                        "the capture missed packets of the gateway"
                    );
                    return Ok(inner);
                }
                thread::sleep(PAUSE);
            }
        };
        let thread = thread::Builder::new().name("inner".into()).spawn(watch);
        Ok(Self {
            stop,
            thread: Some(thread.context("cannot start the watch's thread")?),
        })
    }

    /// Ends the watch: packets that left with a foreign address.
    pub(super) fn stop(mut self) -> Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().context("it was stopped before")?;
        thread.join().map_err(|_| anyhow!("the watch failed"))?
    }
}

impl Drop for InnerWatch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// True if an IP packet comes from an address that is not the gateway's.
fn is_foreign(packet: &[u8]) -> bool {
    let source = match packet.first().map(|first| first >> 4) {
        Some(4) => packet
            .get(12..)
            .and_then(<[u8]>::first_chunk::<4>)
            .map(|four| IpAddr::from(*four)),
        Some(6) => packet
            .get(8..)
            .and_then(<[u8]>::first_chunk::<16>)
            .map(|all| IpAddr::from(*all)),
        _ => None,
    };
    match source {
        // Not IP: neighbours' business.
        None => false,
        Some(IpAddr::V4(v4)) => ![GATEWAY_WAN, Ipv4Addr::UNSPECIFIED].contains(&v4),
        Some(IpAddr::V6(v6)) => {
            let own = [GATEWAY_WAN6, Ipv6Addr::UNSPECIFIED].contains(&v6);
            !own && !v6.is_unicast_link_local()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_are_not_the_gateways_are_foreign() {
        let packet = |source: IpAddr| match source {
            IpAddr::V4(v4) => [&[0x45; 12][..], &v4.octets(), &[0; 4]].concat(),
            IpAddr::V6(v6) => [&[0x60; 8][..], &v6.octets(), &[0; 16]].concat(),
        };
        for own in [
            GATEWAY_WAN.into(),
            GATEWAY_WAN6.into(),
            "fe80::1".parse().unwrap(),
        ] {
            assert!(!is_foreign(&packet(own)), "{own}");
        }
        for inner in ["100.96.0.5", "10.10.0.2", "fd62::5"] {
            assert!(is_foreign(&packet(inner.parse().unwrap())), "{inner}");
        }
        assert!(!is_foreign(&[]) && !is_foreign(&[0x45; 10]));
    }
}
