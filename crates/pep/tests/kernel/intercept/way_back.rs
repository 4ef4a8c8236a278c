//! Checks of where a packet comes from, by the kernel and by firewalls, that look for the way back with the packet's mark: none drops what
//! is taken in.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use bentpipe_pep::client::intercept::{Interception, Other};
use bentpipe_sys::netns::NetNs;
use bentpipe_testbed::privileged;
use socket2::{Domain, Socket, Type};

use super::inside::Inside;
use super::net::{Echo, Net, V4, V6, exchange};
use super::packets::{Far, expect_conversation};

const PORT: u16 = 15_080;

/// Hosts behind another router of the LAN, which the LAN's namespace is as well.
const FAR_HOSTS: [(&str, &str); 2] = [("10.77.0.2", V4), ("fd00:77::2", V6)];

/// Rules of a firewall that asks for the way back with the mark, as firewalld's `IPv6_rpfilter` does for IPv6.
const FIREWALL: &str = "table inet theirs { chain looked { type filter hook prerouting priority filter + 10; \
    iifname != \"lan0\" accept\nicmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept\n\
    fib saddr . mark . iif oif missing counter drop\n}\n}\n";

/// Network whose router checks sources strictly, and by their packets' marks, as `wg-quick` has it do.
fn checking() -> Net {
    let net = Net::new();
    let settings = "net.ipv4.conf.all.rp_filter=1 net.ipv4.conf.lan0.rp_filter=1 \
        net.ipv4.conf.all.src_valid_mark=1 net.ipv4.conf.lan0.src_valid_mark=1";
    let set = format!("sysctl -qw {settings}");
    let lines = [
        (&net.router, set.as_str()),
        (&net.lan, "ip addr add 10.77.0.2/32 dev lo"),
        (&net.lan, "ip addr add fd00:77::2/128 dev lo"),
        (&net.router, "ip route add 10.77.0.0/24 via 10.1.0.2"),
        (&net.router, "ip -6 route add fd00:77::/64 via fd00:1::2"),
    ];
    for (namespace, line) in lines {
        let words: Vec<_> = line.split_whitespace().collect();
        namespace.run(words[0], &words[1..]).unwrap();
    }
    let firewall = || bentpipe_sys::nft::apply(FIREWALL).unwrap();
    net.router.enter(firewall).unwrap();
    net
}

/// One exchange with an [`Echo`] from the address `own`.
fn exchange_from(from: &NetNs, own: &str, to: &str) -> String {
    let to: SocketAddr = to.parse().unwrap();
    let own: IpAddr = own.parse().unwrap();
    let connect = || {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
        socket.bind(&SocketAddr::new(own, 0).into())?;
        socket.connect_timeout(&to.into(), Duration::from_secs(1))?;
        socket.set_read_timeout(Some(Duration::from_secs(2)))?;
        std::io::Result::Ok(TcpStream::from(socket))
    };
    let connected = from.enter(connect).unwrap();
    let mut stream = connected.unwrap_or_else(|error| panic!("{own} to {to}: {error}"));
    stream.write_all(b"ping").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Connections of hosts near and far, and of the router if its own are taken in.
fn expect_connections(net: &Net, local: bool) {
    for (own, to) in FAR_HOSTS {
        assert_eq!(exchange(&net.lan, to), format!("{to} ping"));
        assert_eq!(exchange_from(&net.lan, own, to), format!("{to} ping"));
        if local {
            assert_eq!(exchange(&net.router, to), format!("{to} ping"));
        }
    }
}

#[test]
fn checks_of_sources_by_mark_drop_nothing_that_is_taken_in() {
    if !privileged("checks_of_sources_by_mark_drop_nothing_that_is_taken_in") {
        return;
    }
    for local in [false, true] {
        let net = checking();
        let it = Interception {
            interfaces: vec!["lan0".into()],
            local,
            other: Other::Tunnel,
            ..Interception::new(PORT)
        };
        let _echo = Echo::start(&net.router, PORT, it.routing.own_mark());
        let mut installed = Inside::install(&net.router, &it);
        let far = Far::behind(&net.router);
        installed.at(|installed| installed.attach()).unwrap();
        expect_connections(&net, local);
        expect_conversation(&net.lan, &far);
        if local {
            expect_conversation(&net.router, &far);
        }
        assert_eq!(net.leaked(), 0);
    }
}

#[test]
fn an_interface_that_gets_its_name_back_is_taken_in_again() {
    if !privileged("an_interface_that_gets_its_name_back_is_taken_in_again") {
        return;
    }
    let net = checking();
    let it = Interception {
        interfaces: vec!["lan0".into()],
        ..Interception::new(PORT)
    };
    let _echo = Echo::start(&net.router, PORT, it.routing.own_mark());
    let mut installed = Inside::install(&net.router, &it);
    for (old, new) in [("lan0", "other0"), ("other0", "lan0")] {
        // Before Linux 6.2 an interface that is up keeps its name.
        for line in [
            format!("link set {old} down"),
            format!("link set {old} name {new}"),
            format!("link set {new} up"),
        ] {
            let words: Vec<_> = line.split(' ').collect();
            net.router.run("ip", &words).unwrap();
        }
        super::upkeep::mend(&mut installed);
    }
    assert_eq!(exchange(&net.lan, V4), format!("{V4} ping"));
    assert_eq!(net.leaked(), 0);
}
