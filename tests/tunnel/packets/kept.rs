//! Other programs own the gateway too: what they take away is put back, and meanwhile nothing leaves with a client's inner
//! address.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bentpipe_lab::leaks::Prober;
use bentpipe_sys::capture::PacketSocket;
use bentpipe_sys::netns::NetNs;
use bentpipe_testbed::echo::{Echo, any, bind};
use bentpipe_testbed::privileged;
use bentpipe_testbed::site::{Site, SiteConfig, near};

use super::{WEBS, site};
use crate::BENTPIPE;

/// What is given to a part to come back: a look and an `nft` on a busy machine take tens of milliseconds.
const BACK: Duration = Duration::from_secs(5);

/// Counts what leaves the gateway towards the web with another address than its own.
struct Inner {
    seen: Arc<AtomicU64>,
    passed: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Inner {
    fn watch(web: &NetNs) -> Self {
        let socket = web.enter(|| PacketSocket::open("eth0"));
        let socket = socket.expect("the place").expect("a socket");
        let (seen, passed) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
        let stop = Arc::new(AtomicBool::new(false));
        let (count, all, stopped) = (seen.clone(), passed.clone(), stop.clone());
        let thread = thread::spawn(move || {
            let mut buffer = vec![0; 65_536];
            while !stopped.load(Ordering::Relaxed) {
                match socket.receive(&mut buffer) {
                    Ok(packet) => {
                        let content = &buffer[..packet.length.min(buffer.len())];
                        all.fetch_add(1, Ordering::Relaxed);
                        if is_inner(content) {
                            count.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    Err(_) => thread::sleep(Duration::from_millis(2)),
                }
            }
        });
        Self {
            seen,
            passed,
            stop,
            thread: Some(thread),
        }
    }

    fn seen(&self) -> u64 {
        self.seen.load(Ordering::Relaxed)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        drop(self.thread.take().map(JoinHandle::join));
    }
}

/// Whether an IP packet has an address of the tunnel's pools in its head.
fn is_inner(packet: &[u8]) -> bool {
    match packet.first().map(|first| first >> 4) {
        Some(4) => packet.get(12..14) == Some(&[100, 96]) || packet.get(16..18) == Some(&[100, 96]),
        Some(6) => [8, 24]
            .iter()
            .any(|at| packet.get(*at..*at + 2) == Some(&[0xfd, 0x62])),
        _ => false,
    }
}

/// Whether a datagram of the user's comes back.
fn echoes(site: &Site, echo: &Echo, web: IpAddr) -> bool {
    let socket = bind(site.topology.user(), any(web)).expect("a socket");
    let patience = Some(Duration::from_millis(400));
    socket.set_read_timeout(patience).expect("a timeout");
    let _ = socket.send_to(b"anybody", echo.address);
    socket.recv(&mut [0; 100]).is_ok()
}

/// How long it takes until `what` holds.
fn until(site: &Site, said: &str, mut what: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !what() {
        assert!(
            start.elapsed() < BACK,
            "{said} does not come back\n{}",
            site.logs()
        );
        thread::sleep(Duration::from_millis(5));
    }
    start.elapsed()
}

#[test]
fn what_others_take_away_is_put_back_and_nothing_leaves_with_an_inner_address() {
    if !privileged("packets: kept at the server") {
        return;
    }
    let site = site();
    let gateway = site.topology.gateway();
    let echoing = WEBS.map(|web| (web, Echo::start(site.topology.web(), web).expect("an echo")));
    // A gateway that forwards for others as well: nothing of the machine's own keeps packets back.
    for key in ["net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"] {
        gateway.run("sysctl", &["-qw", key]).expect("a setting");
    }
    let inner = Inner::watch(site.topology.web());
    let _prober = Prober::start(site.topology.user()).expect("a prober");
    let run = |line: &str| {
        let words: Vec<_> = line.split(' ').collect();
        gateway
            .run(words[0], &words[1..])
            .unwrap_or_else(|error| panic!("{line}: {error}"))
    };
    let has_table = || run("nft list tables").contains("bentpipe_server");
    let thefts: [(&str, &str); 7] = [
        ("nft flush ruleset", "table"),
        ("nft delete table inet bentpipe_server", "table"),
        ("ip rule del priority 97", "rule"),
        ("ip -6 rule del priority 97", "rule"),
        ("ip link del bentpipe0", "device"),
        ("ip link set bentpipe0 down", "device"),
        ("ip addr flush dev bentpipe0", "addresses"),
    ];
    for (web, echo) in &echoing {
        until(&site, "the way", || echoes(&site, echo, *web));
    }
    for (theft, part) in thefts {
        let passed = inner.passed.load(Ordering::Relaxed);
        run(theft);
        let took = match part {
            "table" => until(&site, theft, has_table),
            _ => Duration::ZERO,
        };
        for (web, echo) in &echoing {
            let back = until(&site, theft, || echoes(&site, echo, *web));
            println!("{theft}: table after {took:?}, {web} after {back:?}");
        }
        assert!(
            inner.passed.load(Ordering::Relaxed) > passed,
            "the capture sees"
        );
        assert_eq!(
            inner.seen(),
            0,
            "{theft}: packets with inner addresses\n{}",
            site.logs()
        );
    }
    let logs = site.logs();
    assert!(
        logs.contains("bentpipe_server is gone and was put back"),
        "{logs}"
    );
    assert!(logs.contains("nft"), "{logs}");
}

/// Another program exempts packets from connection tracking, as for speed: the kernel translates no address of theirs.
#[test]
fn what_the_kernel_does_not_translate_does_not_leave() {
    if !privileged("packets: what is not translated") {
        return;
    }
    let site = site();
    let gateway = site.topology.gateway();
    let echoing = WEBS.map(|web| (web, Echo::start(site.topology.web(), web).expect("an echo")));
    let inner = Inner::watch(site.topology.web());
    for (web, echo) in &echoing {
        until(&site, "the way", || echoes(&site, echo, *web));
    }
    let exempts = "add table inet fast; add chain inet fast raw { type filter hook prerouting priority raw; }; \
                   add rule inet fast raw iifname bentpipe0 notrack";
    gateway.run("nft", &[exempts]).expect("a rule");
    for (web, echo) in &echoing {
        assert!(!echoes(&site, echo, *web), "nothing is translated");
    }
    assert_eq!(inner.seen(), 0, "packets with inner addresses");
    let table = gateway.run(
        "nft",
        &["list", "chain", "inet", "bentpipe_server", "keep_in"],
    );
    let table = table.expect("its chain");
    let of_clients = table.lines().filter(|rule| rule.contains("saddr"));
    let dropped = of_clients.filter(|rule| !rule.contains("packets 0"));
    assert_eq!(dropped.count(), 2, "{table}");
    gateway
        .run("nft", &["delete table inet fast"])
        .expect("its end");
    for (web, echo) in &echoing {
        until(&site, "the way", || echoes(&site, echo, *web));
    }
}

/// A firewall that drops what is forwarded, as Docker's and ufw's do, before the server's start and after a restart of its own.
#[test]
fn a_firewall_that_drops_lets_clients_packets_pass() {
    if !privileged("packets: a firewall that drops") {
        return;
    }
    let mut site = Site::plain(SiteConfig {
        scenario: near(),
        ..SiteConfig::new(BENTPIPE)
    })
    .expect("a site");
    let firewall = "add table ip filter; add chain ip filter FORWARD { type filter hook forward priority 0; policy drop; }";
    let gateway = site.topology.gateway().clone();
    gateway.run("nft", &[firewall]).expect("a firewall");
    site.start_server().expect("it starts");
    site.start_client().expect("it starts");
    let echo = Echo::start(site.topology.web(), WEBS[0]).expect("an echo");
    until(&site, "the way", || echoes(&site, &echo, WEBS[0]));
    assert!(
        site.logs().contains("drops what is forwarded"),
        "{}",
        site.logs()
    );
    gateway
        .run("nft", &["flush chain ip filter FORWARD"])
        .expect("a restart");
    until(&site, "the way", || echoes(&site, &echo, WEBS[0]));
    site.stop_server().expect("it stops");
    let left = gateway
        .run("nft", &["list", "table", "ip", "filter"])
        .expect("its table");
    assert!(!left.contains("bentpipe"), "{left}");
}

/// A gateway that did not forward does so for clients alone, until somebody else wants more; what they want stays.
#[test]
fn what_others_forward_is_theirs() {
    if !privileged("packets: others forward") {
        return;
    }
    let mut site = Site::plain(SiteConfig {
        scenario: near(),
        ..SiteConfig::new(BENTPIPE)
    })
    .expect("a site");
    let gateway = site.topology.gateway().clone();
    let off = gateway.run("sysctl", &["-qw", "net.ipv4.ip_forward=0"]);
    off.expect("a setting");
    site.start_server().expect("it starts");
    site.start_client().expect("it starts");
    let get = |key: &str| {
        let said = gateway.run("sysctl", &["-n", key]).expect("a setting");
        said.trim().to_owned()
    };
    let ours = || {
        gateway
            .run("nft", &["list", "table", "inet", "bentpipe_server"])
            .expect("a table")
    };
    assert_eq!(
        get("net.ipv4.ip_forward"),
        "0",
        "the machine's own setting is left alone"
    );
    assert!(ours().contains("jump only_ours_ipv4"), "{}", ours());
    gateway
        .run("sysctl", &["-qw", "net.ipv4.ip_forward=1"])
        .expect("a setting");
    until(&site, "room for others", || {
        !ours().contains("jump only_ours_ipv4")
    });
    let echo = Echo::start(site.topology.web(), WEBS[0]).expect("an echo");
    until(&site, "the way", || echoes(&site, &echo, WEBS[0]));
    site.stop_server().expect("it stops");
    assert_eq!(get("net.ipv4.ip_forward"), "1", "others need it");
    assert_eq!(get("net.ipv4.conf.wan0.forwarding"), "1");
    // And without others everything is as it was.
    gateway
        .run("sysctl", &["-qw", "net.ipv4.ip_forward=0"])
        .expect("a setting");
    site.start_server().expect("it starts");
    assert_eq!(get("net.ipv4.conf.wan0.forwarding"), "1");
    site.stop_server().expect("it stops");
    for key in [
        "net.ipv4.ip_forward",
        "net.ipv4.conf.wan0.forwarding",
        "net.ipv4.conf.wan0.src_valid_mark",
    ] {
        assert_eq!(get(key), "0", "{key}");
    }
    let rules = gateway.run("ip", &["rule"]).expect("rules");
    assert!(!rules.contains("bentpipe0"), "{rules}");
}
