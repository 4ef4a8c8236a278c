//! Prefixes that the far side routes here: its hosts and the LAN's reach each other by their own addresses, both ways, and
//! nobody reaches anything else, nor anything the uplink.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpListener;
use std::time::Duration;

use bentpipe_pep::client::intercept::{Device, Interception, Other};
use bentpipe_sys::netns::NetNs;
use bentpipe_testbed::privileged;

use super::inside::Inside;
use super::net::{Net, connect};
use super::packets::{Far, socket};

/// The LAN's host, the router's address there, and a host on the far side.
const FAMILIES: [[&str; 3]; 2] = [
    ["10.1.0.2", "10.1.0.1", "192.0.2.1"],
    ["fd00:1::2", "fd00:1::1", "2001:db8::1"],
];

const PREFIXES: [&str; 2] = ["10.1.0.0/24", "fd00:1::/64"];

fn interception(routed: bool) -> Interception {
    let prefixes = PREFIXES.iter().filter(|_| routed);
    Interception {
        interfaces: vec!["lan0".into()],
        other: Other::Tunnel,
        device: Device {
            routed: prefixes.map(|prefix| prefix.parse().unwrap()).collect(),
            ..Device::default()
        },
        ..Interception::new(15_080)
    }
}

fn ip(ns: &NetNs, line: &str) {
    ns.run("ip", &line.split(' ').collect::<Vec<_>>()).unwrap();
}

/// The far side leads the prefixes, and one beside them, to the router.
fn far(net: &Net, installed: &mut Inside<'_>) -> Far {
    let far = Far::behind(&net.router);
    for prefix in PREFIXES.into_iter().chain(["10.3.0.0/24", "fd00:3::/64"]) {
        ip(&far.0, &format!("route add {prefix} dev tun0"));
    }
    installed.at(|installed| installed.attach()).unwrap();
    far
}

/// Whether a packet from `from` at the far side is heard at `to` of `place`, and answered.
fn converse(far: &Far, from: &str, place: &NetNs, to: &str) -> bool {
    let (there, here) = (far.socket(from), socket(place, to));
    let address = there.local_addr().unwrap();
    there.send_to(b"knock", here.local_addr().unwrap()).unwrap();
    let Ok((_, seen)) = here.recv_from(&mut [0; 8]) else {
        return false;
    };
    assert_eq!(seen, address, "whom the host sees");
    here.send_to(b"come in", seen).unwrap();
    let (_, answering) = there.recv_from(&mut [0; 8]).unwrap();
    assert_eq!(answering, here.local_addr().unwrap());
    true
}

fn pings(far: &Far, from: &str, to: &str) -> bool {
    let arguments = ["-n", "-c", "1", "-W", "1", "-I", from, to];
    far.0.run("ping", &arguments).is_ok()
}

#[test]
fn what_is_routed_here_is_reached_and_nothing_else() {
    if !privileged("what_is_routed_here_is_reached_and_nothing_else") {
        return;
    }
    let net = Net::new();
    let mut installed = Inside::install(&net.router, &interception(true));
    let far = far(&net, &mut installed);
    for [host, router, abroad] in FAMILIES {
        assert!(converse(&far, abroad, &net.lan, host), "UDP to {host}");
        assert!(pings(&far, abroad, host), "ping {host}");
        tcp(&far, &net.lan, host);
        // What the host begins bears its own address too.
        let (there, here) = (far.socket(abroad), socket(&net.lan, host));
        here.send_to(b"hello", there.local_addr().unwrap()).unwrap();
        let (_, seen) = there.recv_from(&mut [0; 8]).unwrap();
        assert_eq!(seen, here.local_addr().unwrap());
        // The router itself answers a ping, and has nothing else for anybody.
        assert!(pings(&far, abroad, router), "ping {router}");
        assert!(!converse(&far, abroad, &net.router, router), "{router}");
        let listener = listen(&net.router, router);
        let to = listener.local_addr().unwrap().to_string();
        let error = connect(&far.0, &to).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{to}");
    }
    for (beside, abroad) in [("10.3.0.9", "192.0.2.1"), ("fd00:3::9", "2001:db8::1")] {
        let to = beside.parse::<std::net::IpAddr>().unwrap();
        let _ = far.socket(abroad).send_to(b"knock", (to, 9));
        // Once more when the LAN is gone: now other routes lead there.
    }
    assert_eq!(net.leaked(), 0);
    ip(&net.router, "link set lan0 down");
    for [host, _, abroad] in FAMILIES {
        let to = host.parse::<std::net::IpAddr>().unwrap();
        let _ = far.socket(abroad).send_to(b"knock", (to, 9));
    }
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(net.leaked(), 0, "without the LAN");
}

fn listen(place: &NetNs, at: &str) -> TcpListener {
    let at: std::net::IpAddr = at.parse().unwrap();
    place.enter(|| TcpListener::bind((at, 0)).unwrap()).unwrap()
}

/// A connection that the far side begins, both ways.
fn tcp(far: &Far, place: &NetNs, host: &str) {
    let listener = listen(place, host);
    let to = listener.local_addr().unwrap().to_string();
    let mut there = connect(&far.0, &to).unwrap_or_else(|error| panic!("{to}: {error}"));
    let (mut here, _) = listener.accept().unwrap();
    let mut heard = [0; 4];
    there.write_all(b"ping").unwrap();
    here.read_exact(&mut heard).unwrap();
    here.write_all(b"pong").unwrap();
    there.read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"pong");
}

#[test]
fn what_is_routed_no_more_is_reached_no_more() {
    if !privileged("what_is_routed_no_more_is_reached_no_more") {
        return;
    }
    let net = Net::new();
    let mut installed = Inside::install(&net.router, &interception(false));
    let far = far(&net, &mut installed);
    let reached = |expected: bool, when: &str| {
        for [host, _, abroad] in FAMILIES {
            assert_eq!(converse(&far, abroad, &net.lan, host), expected, "{when}");
        }
    };
    reached(false, "at first");
    for routed in [true, false] {
        let it = interception(routed);
        installed.at(|installed| installed.update(&it)).unwrap();
        reached(routed, "after a change");
    }
    assert_eq!(net.leaked(), 0);
}

/// Nobody has the address: the router says so to whoever asked.
#[test]
fn the_router_speaks_for_hosts_that_are_not_there() {
    if !privileged("the_router_speaks_for_hosts_that_are_not_there") {
        return;
    }
    let net = Net::new();
    let mut installed = Inside::install(&net.router, &interception(true));
    let far = far(&net, &mut installed);
    for (number, [host, _, abroad]) in FAMILIES.into_iter().enumerate() {
        let there: socket2::Socket = far.socket(abroad).into();
        match host.contains(':') {
            true => there.set_unicast_hops_v6(1).unwrap(),
            false => there.set_ttl_v4(1).unwrap(),
        }
        let to = std::net::SocketAddr::new(host.parse().unwrap(), 9);
        there.send_to(b"too far", &to.into()).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(far.errors(), number as u64 + 1, "{host}");
    }
    assert_eq!(net.leaked(), 0);
}
