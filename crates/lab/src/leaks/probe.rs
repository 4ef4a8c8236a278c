//! A host that sends whatever must never cross the link in clear: connections, datagrams, echoes, names, fragments,
//! multicast, and protocols that no tunnel expects, over IPv4 and IPv6.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result};
use bentpipe_sys::netns::NetNs;
use socket2::{Domain, Protocol, Socket, Type};

use crate::workload::MARKER;
use bentpipe_emulator::topology::{WEB, WEB6};

/// From one round of probes to the next.
const PAUSE: Duration = Duration::from_millis(50);

/// Ports that a rule might forget: names, QUIC, the tunnel's own, and any other.
const PORTS: [u16; 4] = [53, 443, 4433, OPEN];

/// The one on which somebody may listen.
const OPEN: u16 = 9999;

/// GRE, ESP, AH, OSPF, SCTP, UDP-Lite, and a number for experiments (RFC 3692).
const PROTOCOLS: [i32; 7] = [47, 50, 51, 89, 132, 136, 253];

/// More than one packet's worth.
const LARGE: usize = 4000;

/// Groups that reach further than the link: of a site, and of the machine's choice.
const GROUPS: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(239, 1, 2, 3)),
    IpAddr::V6(Ipv6Addr::new(0xff05, 0, 0, 0, 0, 0, 0, 0xfb)),
];

/// Groups of mDNS and SSDP, which machines speak unasked.
const ANNOUNCED: [(IpAddr, u16); 3] = [
    (IpAddr::V4(Ipv4Addr::new(224, 0, 0, 251)), 5353),
    (
        IpAddr::V6(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0xfb)),
        5353,
    ),
    (IpAddr::V4(Ipv4Addr::new(239, 255, 255, 250)), 1900),
];

/// A host that tries everything, again and again, until it is dropped.
#[derive(Debug)]
pub struct Prober {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Prober {
    /// Begins, in `host`.
    ///
    /// # Errors
    /// It may not open raw sockets.
    pub fn start(host: &NetNs) -> Result<Self> {
        Self::start_unless(host, Arc::default())
    }

    /// Begins, in `host`, and sends nothing while `quiet`.
    pub(super) fn start_unless(host: &NetNs, quiet: Arc<AtomicBool>) -> Result<Self> {
        let sockets = host.enter(Sockets::open)??;
        let (stop, host) = (Arc::new(AtomicBool::new(false)), host.clone());
        let stopped = Arc::clone(&stop);
        let probe = move || {
            while !stopped.load(Ordering::Relaxed) {
                if quiet.load(Ordering::Relaxed) {
                    thread::sleep(PAUSE);
                    continue;
                }
                sockets.probe();
                // A socket of its own for each attempt to connect, so that each begins with a SYN.
                let _ = host.enter(|| [WEB.into(), WEB6.into()].map(knock));
                thread::sleep(PAUSE);
            }
        };
        let thread = thread::Builder::new().name("prober".into()).spawn(probe);
        Ok(Self {
            stop,
            thread: Some(thread.context("cannot start the prober's thread")?),
        })
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic has been printed by its own thread.
            let _ = thread.join();
        }
    }
}

/// Host of the web that takes connections and ends them: not everything is refused. Ends when it is dropped.
#[derive(Debug)]
pub(super) struct Sink {
    listener: Arc<TcpListener>,
    thread: Option<JoinHandle<()>>,
}

impl Sink {
    pub(super) fn start(web: &NetNs, address: IpAddr) -> Result<Self> {
        let listener = web.enter(|| TcpListener::bind((address, OPEN)))??;
        let listener = Arc::new(listener);
        let taken = Arc::clone(&listener);
        let take = move || while taken.accept().is_ok() {};
        let thread = thread::Builder::new().name("sink".into()).spawn(take)?;
        Ok(Self {
            listener,
            thread: Some(thread),
        })
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        // Wakes the thread: accept then fails.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            // A panic has been printed by its own thread.
            let _ = thread.join();
        }
    }
}

/// Of one IP version.
struct Family {
    web: IpAddr,
    udp: UdpSocket,
    icmp: Socket,
    odd: Vec<Socket>,
}

struct Sockets([Family; 2]);

impl Sockets {
    fn open() -> Result<Self> {
        fs::write("/proc/sys/net/ipv4/ping_group_range", "0 2147483647")
            .context("cannot allow pings")?;
        Ok(Self([
            Family::open(WEB.into())?,
            Family::open(WEB6.into())?,
        ]))
    }

    /// Errors are answers (the terminal says "prohibited"), or the next round's.
    fn probe(&self) {
        for family in &self.0 {
            for port in PORTS {
                let _ = family.udp.send_to(MARKER, (family.web, port));
            }
            let _ = family.udp.send_to(&large(), (family.web, OPEN));
            let echo = if family.web.is_ipv4() { 8 } else { 128 };
            let echo = [[echo, 0, 0, 0, 0, 0, 0, 1].as_slice(), MARKER].concat();
            let target = SocketAddr::new(family.web, 0).into();
            let _ = family.icmp.send_to(&echo, &target);
            for socket in &family.odd {
                let _ = socket.send_to(MARKER, &target);
            }
            let groups = GROUPS.map(|group| (group, OPEN));
            for (group, port) in groups.into_iter().chain(ANNOUNCED) {
                if group.is_ipv4() == family.web.is_ipv4() {
                    let _ = family.udp.send_to(MARKER, (group, port));
                }
            }
        }
    }
}

impl Family {
    fn open(web: IpAddr) -> Result<Self> {
        let (any, domain, icmp) = match web {
            IpAddr::V4(_) => (
                IpAddr::from(Ipv4Addr::UNSPECIFIED),
                Domain::IPV4,
                Protocol::ICMPV4,
            ),
            IpAddr::V6(_) => (Ipv6Addr::UNSPECIFIED.into(), Domain::IPV6, Protocol::ICMPV6),
        };
        let udp = UdpSocket::bind((any, 0))?;
        let options = socket2::SockRef::from(&udp);
        // As far as it goes: a router that forwards groups would.
        match web {
            IpAddr::V4(_) => options.set_multicast_ttl_v4(32)?,
            IpAddr::V6(_) => options.set_multicast_hops_v6(32)?,
        }
        let raw = |number| Socket::new(domain, Type::RAW, Some(Protocol::from(number)));
        let odd = PROTOCOLS.map(raw).into_iter().collect::<io::Result<_>>();
        Ok(Self {
            web,
            udp,
            icmp: Socket::new(domain, Type::DGRAM, Some(icmp))?,
            odd: odd.context("cannot open a raw socket (CAP_NET_RAW)")?,
        })
    }
}

fn large() -> Vec<u8> {
    MARKER.iter().copied().cycle().take(LARGE).collect()
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
