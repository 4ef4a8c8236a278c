//! Servers of the web namespace: their sockets are inside it, the thread that serves them need not be.

use std::net::SocketAddr;
use std::thread::{self, JoinHandle};

use anyhow::{Context as _, Result};
use bentpipe_sys::netns::NetNs;
use tokio::net::{TcpListener, UdpSocket};

use bentpipe_emulator::Stop;

/// Tasks on a thread of their own; dropping it ends them.
#[derive(Debug)]
pub(super) struct Serving {
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    /// Runs what `serve` spawns, on a thread called `name`.
    pub(super) fn start(name: &str, serve: impl FnOnce() -> Result<()>) -> Result<Self> {
        let stop = Stop::new().context("cannot make a switch")?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start a runtime")?;
        {
            let _inside = runtime.enter();
            serve()?;
        }
        let watched = stop.clone();
        let thread = thread::Builder::new()
            .name(name.into())
            .spawn(move || {
                // An unwatchable switch ends the server at once, and with it the measurement.
                let _ = runtime.block_on(watched.stopped());
            })
            .with_context(|| format!("cannot start the thread `{name}`"))?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            // A panic has been printed by its own thread.
            let _ = thread.join();
        }
    }
}

/// Takes TCP connections at `address` in `namespace`.
pub(super) fn listen(namespace: &NetNs, address: SocketAddr) -> Result<TcpListener> {
    let bind = || {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        std::io::Result::Ok(listener)
    };
    let listener = namespace.enter(bind)?;
    let listener = listener.and_then(TcpListener::from_std);
    listener.with_context(|| format!("cannot serve on {address} in {}", namespace.name()))
}

/// Takes datagrams at `address` in `namespace`.
pub(super) fn receive(namespace: &NetNs, address: SocketAddr) -> Result<UdpSocket> {
    Ok(UdpSocket::from_std(udp(namespace, address)?)?)
}

/// Non-blocking UDP socket at `address` in `namespace`.
pub(super) fn udp(namespace: &NetNs, address: SocketAddr) -> Result<std::net::UdpSocket> {
    let bind = || {
        let socket = std::net::UdpSocket::bind(address)?;
        socket.set_nonblocking(true)?;
        std::io::Result::Ok(socket)
    };
    let socket = namespace.enter(bind)?;
    socket.with_context(|| format!("cannot serve on {address} in {}", namespace.name()))
}
