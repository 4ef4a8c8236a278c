//! A UDP server that says who has asked, and somebody who asks it.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Result;
use bentpipe_sys::netns::NetNs;

use super::site::Site;

/// Sends back what comes, with the source of it in front.
pub struct PacketEcho {
    stop: Arc<AtomicBool>,
    heard: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl PacketEcho {
    /// Answers on `address` in `place` until it is dropped.
    pub fn start(place: &NetNs, address: SocketAddr) -> Result<Self> {
        let socket = place.enter(|| UdpSocket::bind(address))??;
        socket.set_read_timeout(Some(Duration::from_millis(100)))?;
        let [stop, heard] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let (stopped, hears) = (stop.clone(), heard.clone());
        let thread = thread::spawn(move || {
            let mut buffer = [0; 2048];
            while !stopped.load(Ordering::Relaxed) {
                if let Ok((length, from)) = socket.recv_from(&mut buffer) {
                    hears.store(true, Ordering::Relaxed);
                    let text = format!("{from} {}", String::from_utf8_lossy(&buffer[..length]));
                    let _ = socket.send_to(text.as_bytes(), from);
                }
            }
        });
        Ok(Self {
            stop,
            heard,
            thread: Some(thread),
        })
    }

    /// Tells whether anything has come.
    pub fn has_heard(&self) -> bool {
        self.heard.load(Ordering::Relaxed)
    }
}

impl Drop for PacketEcho {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Answer of the port to a packet from the web, if anything, and from where it was sent.
pub fn ask(site: &Site, source: IpAddr, to: SocketAddr) -> Result<(Option<String>, SocketAddr)> {
    let socket = site
        .topology
        .web()
        .enter(|| UdpSocket::bind((source, 0)))??;
    socket.connect(to)?;
    let own = socket.local_addr()?;
    socket.set_read_timeout(Some(Duration::from_millis(500)))?;
    let mut buffer = [0; 2048];
    for _ in 0..6 {
        // Refused: the kernel has heard that nobody listens.
        let _ = socket.send(b"hello");
        match socket.recv(&mut buffer) {
            Ok(length) => {
                let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
                return Ok((Some(text), own));
            }
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => return Ok((None, own)),
            Err(_) => {}
        }
    }
    Ok((None, own))
}
