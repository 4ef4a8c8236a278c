//! What a LAN host sends that must never cross the link in clear: TCP, UDP and ICMP, over IPv4 and IPv6.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{net::Ipv6Addr, sync::Arc};

use anyhow::{Context as _, Result};
use bentpipe_lab::topology::{WEB, WEB6};
use bentpipe_lab::workload::MARKER;
use bentpipe_sys::netns::NetNs;
use socket2::{Domain, Protocol, Socket, Type};

/// From one round of probes to the next.
const PAUSE: Duration = Duration::from_millis(50);

/// Ports that a rule might forget: names, QUIC, the tunnel's own, and any other.
const PORTS: [u16; 4] = [53, 443, 4433, 9999];

/// A host that tries everything, again and again, until it is dropped.
#[derive(Debug)]
pub(crate) struct Prober {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Prober {
    pub(crate) fn start(user: &NetNs) -> Result<Self> {
        let sockets = user.enter(Sockets::open)??;
        let (stop, user) = (Arc::new(AtomicBool::new(false)), user.clone());
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                sockets.probe();
                // A socket of its own for each attempt to connect, so that each begins with a SYN.
                let _ = user.enter(|| [WEB.into(), WEB6.into()].map(knock));
                thread::sleep(PAUSE);
            }
        });
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Sockets {
    udp: [UdpSocket; 2],
    icmp: Socket,
    icmp6: Socket,
}

impl Sockets {
    fn open() -> Result<Self> {
        fs::write("/proc/sys/net/ipv4/ping_group_range", "0 2147483647")
            .context("cannot allow pings")?;
        Ok(Self {
            udp: [
                UdpSocket::bind(("0.0.0.0", 0))?,
                UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0))?,
            ],
            icmp: Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::ICMPV4))?,
            icmp6: Socket::new(Domain::IPV6, Type::DGRAM, Some(Protocol::ICMPV6))?,
        })
    }

    /// Errors are answers (the terminal says "prohibited"), or the next round's.
    fn probe(&self) {
        let web = [IpAddr::from(WEB), IpAddr::from(WEB6)];
        for (socket, address) in self.udp.iter().zip(web) {
            for port in PORTS {
                let _ = socket.send_to(MARKER, (address, port));
            }
        }
        let echo = |kind: u8| [[kind, 0, 0, 0, 0, 0, 0, 1].as_slice(), MARKER].concat();
        let target = |address| SocketAddr::new(address, 0).into();
        let _ = self.icmp.send_to(&echo(8), &target(web[0]));
        let _ = self.icmp6.send_to(&echo(128), &target(web[1]));
    }
}

/// Begins to connect, and gives up at once.
fn knock(address: IpAddr) -> io::Result<()> {
    for port in PORTS {
        let address = SocketAddr::new(address, port);
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        let _ = socket.connect(&address.into());
    }
    Ok(())
}
