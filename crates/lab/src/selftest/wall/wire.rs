//! Two namespaces with an emulated link between them, and sockets in both.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use bentpipe_sys::netns::{NetNs, NetNsGuard};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;

use crate::emulator::{Emulator, EmulatorConfig, EmulatorStats, Router, Running};
use crate::selftest::bench::scenario;

pub(super) const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 91, 0, 1);
pub(super) const TERMINAL: Ipv4Addr = Ipv4Addr::new(10, 91, 0, 2);
/// Headers of IPv4 and UDP.
pub(super) const HEADERS: usize = 28;

const DEVICE: &str = "sat0";
const PORT: u16 = 7000;
/// Seconds of a fast link: what a receiver misses must not look like the emulator's.
const BUFFER: usize = 64 << 20;

/// A running link. Its namespaces vanish when it is dropped.
#[derive(Debug)]
pub(super) struct Wire {
    running: Running,
    pub(super) terminal: NetNsGuard,
    pub(super) gateway: NetNsGuard,
}

impl Wire {
    /// The link of the scenario `text`.
    pub(super) fn start(text: &str) -> Result<Self> {
        let (terminal, gateway) = namespaces()?;
        let config = EmulatorConfig::from(scenario(text)?);
        let emulator = Emulator::join(&config, &[&terminal], &gateway, DEVICE, Router::single())?;
        address(&terminal, &gateway)?;
        Ok(Self {
            running: emulator.spawn()?,
            terminal,
            gateway,
        })
    }

    /// Connected sockets at the gateway and at the terminal.
    pub(super) fn sockets(&self) -> Result<(UdpSocket, UdpSocket)> {
        sockets(&self.terminal, &self.gateway)
    }

    /// Ends it: the emulator's own account.
    pub(super) fn finish(self) -> Result<EmulatorStats> {
        self.running.stop()
    }
}

/// A fresh pair: terminal and gateway.
pub(super) fn namespaces() -> Result<(NetNsGuard, NetNsGuard)> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let make = |side: &str| {
        let name = format!("bp-self-{}-{number}-{side}", std::process::id());
        NetNs::temporary(&name).with_context(|| format!("cannot make network namespace {name}"))
    };
    Ok((make("t")?, make("g")?))
}

/// Gives `sat0` at both ends its address.
pub(super) fn address(terminal: &NetNs, gateway: &NetNs) -> Result<()> {
    for (namespace, own, peer) in [(terminal, TERMINAL, GATEWAY), (gateway, GATEWAY, TERMINAL)] {
        let (own, peer) = (own.to_string(), peer.to_string());
        namespace.run("ip", &["addr", "add", &own, "peer", &peer, "dev", DEVICE])?;
    }
    Ok(())
}

pub(super) fn sockets(terminal: &NetNs, gateway: &NetNs) -> Result<(UdpSocket, UdpSocket)> {
    let bound = |namespace: &NetNs, own: Ipv4Addr, peer: Ipv4Addr| -> Result<UdpSocket> {
        let socket = namespace.enter(|| UdpSocket::bind((own, PORT)))??;
        socket.connect((peer, PORT))?;
        set_socket_recv_buffer_size_force(&socket, BUFFER).context("a large socket buffer")?;
        socket.set_read_timeout(Some(Duration::from_secs(3)))?;
        Ok(socket)
    };
    Ok((
        bound(gateway, GATEWAY, TERMINAL)?,
        bound(terminal, TERMINAL, GATEWAY)?,
    ))
}

/// Sends packets of `bytes` IP bytes at `rate` bit/s for `time`, each with its number and the time since `start`. Keeps
/// to the clock: what a late wake-up missed is sent at once.
pub(super) fn send_paced(
    socket: &UdpSocket,
    start: Instant,
    rate: f64,
    bytes: usize,
    time: Duration,
) -> io::Result<u64> {
    let gap = bytes as f64 * 8.0 / rate;
    let total = (time.as_secs_f64() / gap) as u64;
    let begin = Instant::now();
    let mut payload = vec![0; bytes - HEADERS];
    let mut number = 0u64;
    while number < total {
        let due = (begin.elapsed().as_secs_f64() / gap) as u64 + 1;
        while number < due.min(total) {
            stamp(&mut payload, number, start.elapsed());
            send(socket, &payload)?;
            number += 1;
        }
        let next = Duration::from_secs_f64(number as f64 * gap);
        // A fast sender sleeps at least this long: it shares the machine with what it measures.
        let nap = next
            .saturating_sub(begin.elapsed())
            .max(Duration::from_micros(200));
        std::thread::sleep(nap);
    }
    Ok(number)
}

/// A full queue of the device is waited for: the kernel must lose nothing.
fn send(socket: &UdpSocket, payload: &[u8]) -> io::Result<()> {
    loop {
        match socket.send(payload) {
            Ok(_) => return Ok(()),
            Err(error)
                if error.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error()) =>
            {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(error) => return Err(error),
        }
    }
}

/// Number and time stand in a packet's first 16 bytes.
fn stamp(payload: &mut [u8], number: u64, at: Duration) {
    payload[..8].copy_from_slice(&number.to_le_bytes());
    payload[8..16].copy_from_slice(&(at.as_nanos() as u64).to_le_bytes());
}

/// A packet that was received.
#[derive(Debug, Clone, Copy)]
pub(super) struct Received {
    pub(super) number: u64,
    pub(super) sent: Duration,
    pub(super) at: Duration,
    /// IP bytes.
    pub(super) bytes: usize,
}

/// Receives until `count` packets are there, or none comes for three seconds.
pub(super) fn receive(socket: &UdpSocket, start: Instant, count: u64) -> io::Result<Vec<Received>> {
    // Its stamps are the measurement: it must not wait for those who send.
    let _ = bentpipe_sys::schedule::go_first();
    let mut all = Vec::new();
    let mut buffer = [0; 2048];
    while (all.len() as u64) < count {
        match socket.recv(&mut buffer) {
            Ok(length) if length >= 16 => {
                let at = start.elapsed();
                let word = |from: usize| {
                    u64::from_le_bytes(buffer[from..from + 8].try_into().unwrap_or_default())
                };
                all.push(Received {
                    number: word(0),
                    sent: Duration::from_nanos(word(8)),
                    at,
                    bytes: length + HEADERS,
                });
            }
            Ok(_) => {}
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                ) =>
            {
                break;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}
