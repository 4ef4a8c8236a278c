//! LAN host, router and uplink as three namespaces, a transparent echo in the router, and a counter of
//! whatever reaches the uplink.
//!
//! Both destinations exist in the uplink, so that a leak would succeed there, and be counted.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use bentpipe_sys::netns::{NetNs, NetNsGuard};
use bentpipe_sys::socket::transparent_listener;
use socket2::{Domain, Protocol, SockRef, Socket, Type};

pub(crate) const V4: &str = "192.0.2.1:80";
pub(crate) const V6: &str = "[2001:db8::1]:80";

pub(crate) struct Net {
    pub(crate) lan: NetNsGuard,
    pub(crate) router: NetNsGuard,
    pub(crate) uplink: NetNsGuard,
}

impl Net {
    pub(crate) fn new() -> Self {
        let [lan, router, uplink] =
            ["lan", "router", "uplink"].map(bentpipe_testbed::namespace::namespace);
        let ip = |ns: &NetNs, line: &str| {
            ns.run("ip", &line.split(' ').collect::<Vec<_>>()).unwrap();
        };
        let sysctl = |ns: &NetNs, key: &str, value: &str| {
            ns.enter(|| std::fs::write(format!("/proc/sys/net/{key}"), value).unwrap())
                .unwrap();
        };
        for ns in [&lan, &router, &uplink] {
            // Duplicate address detection keeps addresses out of use for seconds.
            sysctl(ns, "ipv6/conf/all/accept_dad", "0");
            sysctl(ns, "ipv6/conf/default/accept_dad", "0");
        }
        sysctl(&router, "ipv4/ip_forward", "1");
        sysctl(&router, "ipv6/conf/all/forwarding", "1");
        ip(
            &lan,
            &format!(
                "link add eth0 type veth peer name lan0 netns {}",
                router.name()
            ),
        );
        ip(
            &router,
            &format!(
                "link add wan0 type veth peer name up0 netns {}",
                uplink.name()
            ),
        );
        let addresses = [
            (&lan, "eth0", "10.1.0.2/24", "fd00:1::2/64"),
            (&router, "lan0", "10.1.0.1/24", "fd00:1::1/64"),
            (&router, "wan0", "10.2.0.1/24", "fd00:2::1/64"),
            (&uplink, "up0", "10.2.0.2/24", "fd00:2::2/64"),
            (&uplink, "lo", "192.0.2.1/32", "2001:db8::1/128"),
            (&uplink, "lo", "198.51.100.1/32", "2001:db8:9::1/128"),
        ];
        for (ns, device, v4, v6) in addresses {
            ip(ns, &format!("addr add {v4} dev {device}"));
            ip(ns, &format!("addr add {v6} dev {device} nodad"));
            ip(ns, &format!("link set {device} up"));
        }
        for (ns, v4, v6) in [
            (&lan, "10.1.0.1", "fd00:1::1"),
            (&router, "10.2.0.2", "fd00:2::2"),
            (&uplink, "10.2.0.1", "fd00:2::1"),
        ] {
            ip(ns, &format!("route add default via {v4}"));
            ip(ns, &format!("-6 route add default via {v6}"));
        }
        // Everything but what neighbours say to each other.
        let watch = "table inet watch { counter seen { }\nchain in { type filter hook prerouting priority raw; \
            icmpv6 type { nd-router-solicit, nd-neighbor-solicit, nd-neighbor-advert, mld2-listener-report } return\n\
            iifname up0 counter name seen\n}\n}\n";
        uplink
            .enter(|| bentpipe_sys::nft::apply(watch).unwrap())
            .unwrap();
        let net = Self {
            lan,
            router,
            uplink,
        };
        net.settle();
        net
    }

    /// Waits until clear traffic of both families reaches the uplink: links and IPv6 routes come up up to
    /// a second after `ip` has returned. Then counts from zero.
    fn settle(&self) {
        for from in [&self.lan, &self.router] {
            for to in [V4, V6] {
                let reaches = || {
                    let outcome = connect(from, to);
                    matches!(outcome, Err(error) if error.kind() == ErrorKind::ConnectionRefused)
                };
                assert!(
                    (0..10).any(|_| reaches()),
                    "{to} is not reachable without interception"
                );
            }
        }
        assert!(self.leaked() >= 4, "the uplink counts");
        self.uplink.run("nft", &["reset", "counters"]).unwrap();
    }

    /// Packets that have come in at the uplink so far.
    pub(crate) fn leaked(&self) -> u64 {
        let listing = self
            .uplink
            .run("nft", &["list", "counter", "inet", "watch", "seen"])
            .unwrap();
        let mut words = listing
            .split_whitespace()
            .skip_while(|word| *word != "packets");
        words.nth(1).unwrap().parse().unwrap()
    }

    /// Everything interception might leave behind in the router.
    pub(crate) fn state(&self) -> String {
        let commands: [&[&str]; 5] = [
            &["nft", "list", "ruleset"],
            &["ip", "-4", "rule"],
            &["ip", "-6", "rule"],
            &["ip", "-4", "route", "show", "table", "all"],
            &["ip", "-6", "route", "show", "table", "all"],
        ];
        commands
            .map(|line| self.router.run(line[0], &line[1..]).unwrap())
            .join("--\n")
    }
}

/// Sends one packet each of UDP, ICMP echo and protocols that are none, to both destinations: [`OTHERS`] packets. A
/// local drop shows as an error of the send, which is as good as the uplink's silence.
pub(crate) fn send_other(from: &NetNs) {
    // Type, code, checksum (IPv6: the kernel's work), identifier, sequence number.
    let echo = [
        (Domain::IPV4, 1, [8, 0, 0xf7, 0xff, 0, 0, 0, 0]),
        (Domain::IPV6, 58, [128, 0, 0, 0, 0, 0, 0, 0]),
    ];
    // GRE, SCTP, and a number for experiments.
    let odd = [47, 132, 253].map(|number| (Domain::IPV4, number, [0; 8]));
    let odd6 = odd.map(|(_, number, bytes)| (Domain::IPV6, number, bytes));
    for (domain, number, bytes) in echo.into_iter().chain(odd).chain(odd6) {
        let make = || Socket::new(domain, Type::RAW, Some(Protocol::from(number))).unwrap();
        let raw = from.enter(make).unwrap();
        let _ = raw.send_to(&bytes, &SocketAddr::new(destination(domain).ip(), 0).into());
    }
    for domain in [Domain::IPV4, Domain::IPV6] {
        let make = || Socket::new(domain, Type::DGRAM, None).unwrap();
        let udp = from.enter(make).unwrap();
        let _ = udp.send_to(b"x", &destination(domain).into());
    }
    // A veth delivers within the sender's system call, except for what waits for neighbour discovery.
    std::thread::sleep(Duration::from_millis(50));
}

/// What [`send_other`] sends.
pub(crate) const OTHERS: u64 = 10;

fn destination(domain: Domain) -> SocketAddr {
    let text = if domain == Domain::IPV4 { V4 } else { V6 };
    text.parse().unwrap()
}

/// Connects from a namespace, within a second.
pub(crate) fn connect(from: &NetNs, to: &str) -> std::io::Result<TcpStream> {
    connect_within(from, to, Duration::from_secs(1))
}

/// Connects from a namespace, within `time`.
pub(crate) fn connect_within(from: &NetNs, to: &str, time: Duration) -> std::io::Result<TcpStream> {
    let to: SocketAddr = to.parse().unwrap();
    from.enter(|| TcpStream::connect_timeout(&to, time))
        .unwrap()
}

/// Answers every connection with the local address it sees, then echoes four bytes.
pub(crate) struct Echo {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Echo {
    pub(crate) fn start(inside: &NetNs, port: u16, mark: u32) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let listeners = ["0.0.0.0", "::"].map(|ip| {
            let addr = SocketAddr::new(ip.parse().unwrap(), port);
            inside
                .enter(|| transparent_listener(addr, mark).unwrap())
                .unwrap()
        });
        let threads = listeners.map(|listener| {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || serve(&listener, &stop))
        });
        Self {
            stop,
            threads: threads.into(),
        }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn serve(listener: &TcpListener, stop: &AtomicBool) {
    serve_until(listener, stop);
    // A program that another test is about to run holds the descriptor, too.
    let _ = SockRef::from(listener).shutdown(Shutdown::Both);
}

fn serve_until(listener: &TcpListener, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let Ok((mut stream, _)) = listener.accept() else {
            std::thread::sleep(Duration::from_millis(5));
            continue;
        };
        stream.set_nonblocking(false).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(2)))
            .unwrap();
        let local = stream.local_addr().unwrap().to_string();
        let mut bytes = [0; 4];
        if stream.read_exact(&mut bytes).is_ok() {
            let _ = stream.write_all(format!("{local} ").as_bytes());
            let _ = stream.write_all(&bytes);
        }
    }
}

/// One exchange with an [`Echo`]; returns what it said.
pub(crate) fn exchange(from: &NetNs, to: &str) -> String {
    let mut stream = connect(from, to).unwrap_or_else(|error| panic!("{to}: {error}"));
    stream
        .set_read_timeout(Some(Duration::from_secs(2)))
        .unwrap();
    stream.write_all(b"ping").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
