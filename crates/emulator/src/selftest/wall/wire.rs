//! Two namespaces with an emulated link between them, and sockets in both.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result};
use bentpipe_sys::netns::{NetNs, NetNsGuard};
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_recv_buffer_size_force};

use crate::emulator::{Emulator, EmulatorConfig, EmulatorStats, Running};
use crate::router::Router;
use crate::selftest::bench::scenario;

pub(super) const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 91, 0, 1);
pub(super) const TERMINAL: Ipv4Addr = Ipv4Addr::new(10, 91, 0, 2);

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
        if set_socket_recv_buffer_size_force(&socket, BUFFER).is_err() {
            // As much as anybody may have. What does not fit is counted, and the run says so.
            set_socket_recv_buffer_size(&socket, BUFFER).context("a large socket buffer")?;
        }
        Ok(socket)
    };
    Ok((
        bound(gateway, GATEWAY, TERMINAL)?,
        bound(terminal, TERMINAL, GATEWAY)?,
    ))
}
