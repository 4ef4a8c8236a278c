//! All traffic but TCP: into the device, to the DNS listener, refused, direct or nowhere; never out of another interface.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::time::Duration;

use bentpipe_pep::client::intercept::{DnsInterception, Interception, Other};
use bentpipe_sys::netns::{NetNs, NetNsGuard};
use bentpipe_sys::socket::{set_mark, transparent_listener};
use bentpipe_testbed::namespace::namespace;
use bentpipe_testbed::privileged;
use socket2::{Domain, SockRef, Socket, Type};

use super::inside::Inside;
use super::net::{Net, OTHERS, connect, send_other};

const PORT: u16 = 15_080;
const DNS_PORT: u16 = 15_053;
/// The device's own addresses: what the other end has assigned.
const ASSIGNED: [&str; 2] = ["10.9.0.2", "fd00:9::2"];

fn interception(other: Other) -> Interception {
    Interception {
        interfaces: vec!["lan0".into()],
        other,
        ..Interception::new(PORT)
    }
}

/// The internet as it is behind the device: the destinations, once more.
pub(crate) struct Far(pub(crate) NetNsGuard);

impl Far {
    /// Makes the device, up and with its addresses.
    pub(crate) fn behind(router: &NetNs) -> Self {
        let far = namespace("far");
        let ip = |ns: &NetNs, line: &str| {
            ns.run("ip", &line.split(' ').collect::<Vec<_>>()).unwrap();
        };
        // As with a TUN device nobody asks for neighbours: every packet is for the other end.
        let mac = "address 02:00:00:00:00:01";
        let other = far.name();
        ip(
            router,
            &format!("link add bentpipe0 {mac} type veth peer name tun0 {mac} netns {other}"),
        );
        for (ns, device, addresses) in [
            (router, "bentpipe0", ASSIGNED.as_slice()),
            (
                &far,
                "tun0",
                &["10.9.0.1", "fd00:9::1", "192.0.2.1", "2001:db8::1"],
            ),
        ] {
            for address in addresses {
                let (length, nodad) = match address.contains(':') {
                    true => (64, " nodad"),
                    false => (24, ""),
                };
                ip(
                    ns,
                    &format!("addr add {address}/{length} dev {device}{nodad}"),
                );
            }
            ip(ns, &format!("link set {device} arp off up"));
        }
        let count = "table inet watch { counter errors { }\nchain in { type filter hook prerouting priority raw; \
            ip saddr { 10.9.0.2, 10.1.0.0/24 } icmp type { destination-unreachable, time-exceeded } counter name errors\n\
            ip6 saddr { fd00:9::2, fd00:1::/64 } icmpv6 type { destination-unreachable, time-exceeded } counter name errors\n}\n}\n";
        far.enter(|| bentpipe_sys::nft::apply(count).unwrap())
            .unwrap();
        let far = Self(far);
        // Links and IPv6 routes come up up to a second after `ip` has returned.
        for (to, own) in [("10.9.0.1", "0.0.0.0"), ("fd00:9::1", "::")] {
            let there = far.socket(to);
            let here = socket(router, own);
            set_mark(&here, Interception::new(0).routing.own_mark()).unwrap();
            let heard = (0..50).any(|_| {
                let _ = here.send_to(b"?", there.local_addr().unwrap());
                there.recv_from(&mut [0; 8]).is_ok()
            });
            assert!(heard, "{to} does not come up");
        }
        far
    }

    pub(crate) fn socket(&self, at: &str) -> UdpSocket {
        socket(&self.0, at)
    }

    /// ICMP errors that have arrived, from addresses that the far side takes.
    pub(crate) fn errors(&self) -> u64 {
        let list = ["list", "counter", "inet", "watch", "errors"];
        let listing = self.0.run("nft", &list).unwrap();
        let mut words = listing
            .split_whitespace()
            .skip_while(|word| *word != "packets");
        words.nth(1).unwrap().parse().unwrap()
    }
}

pub(crate) fn socket(ns: &NetNs, at: &str) -> UdpSocket {
    let at: IpAddr = at.parse().unwrap();
    let socket = ns.enter(|| UdpSocket::bind((at, 0)).unwrap()).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    socket
}

/// A question and its answer between `from` and both destinations behind the device.
pub(crate) fn expect_conversation(from: &NetNs, far: &Far) {
    for (to, own, assigned) in [
        ("192.0.2.1", "0.0.0.0", ASSIGNED[0]),
        ("2001:db8::1", "::", ASSIGNED[1]),
    ] {
        let (there, here) = (far.socket(to), socket(from, own));
        let address = there.local_addr().unwrap();
        here.send_to(b"question", address).unwrap();
        let (_, seen) = there.recv_from(&mut [0; 8]).unwrap();
        assert_eq!(seen.ip().to_string(), assigned, "whom {to} sees");
        there.send_to(b"answer", seen).unwrap();
        let (_, answering) = here.recv_from(&mut [0; 8]).unwrap();
        assert_eq!(answering, address);
    }
}

#[test]
fn other_traffic_goes_into_the_device_or_nowhere() {
    if !privileged("other_traffic_goes_into_the_device_or_nowhere") {
        return;
    }
    let net = Net::new();
    send_other(&net.lan);
    assert_eq!(net.leaked(), OTHERS, "the counter works");
    let it = Interception {
        local: true,
        ..interception(Other::Tunnel)
    };
    let mut installed = Inside::install(&net.router, &it);
    let hold = |what: &str| {
        for from in [&net.lan, &net.router] {
            send_other(from);
        }
        assert_eq!(net.leaked(), OTHERS, "{what}");
    };
    hold("before the device exists");
    for round in 0..2 {
        let far = Far::behind(&net.router);
        hold("before it is attached");
        installed.at(|installed| installed.attach()).unwrap();
        for from in [&net.lan, &net.router] {
            expect_conversation(from, &far);
        }
        if round == 0 {
            net.router
                .run("ip", &["link", "set", "bentpipe0", "down"])
                .unwrap();
            hold("while it is down");
        }
        net.router.run("ip", &["link", "del", "bentpipe0"]).unwrap();
        hold("without it");
    }
    let _far = Far::behind(&net.router);
    installed.at(|installed| installed.attach()).unwrap();
    for family in ["-4", "-6"] {
        for mark in ["0x30000000/0xf0000000", "0xc0000000/0xf0000000"] {
            let rule = [family, "rule", "del", "fwmark", mark];
            net.router.run("ip", &rule).unwrap();
        }
    }
    hold("without the rule that leads to it");
}

#[test]
fn what_the_device_delivers_is_answers_and_errors_go_back_into_it() {
    if !privileged("what_the_device_delivers_is_answers_and_errors_go_back_into_it") {
        return;
    }
    let net = Net::new();
    let mut installed = Inside::install(&net.router, &interception(Other::Tunnel));
    let far = Far::behind(&net.router);
    installed.at(|installed| installed.attach()).unwrap();
    // Nobody there begins anything.
    for (assigned, behind) in [("10.9.0.2", "10.9.0.1"), ("fd00:9::2", "fd00:9::1")] {
        let open = socket(&net.router, assigned);
        far.socket(behind)
            .send_to(b"knock", open.local_addr().unwrap())
            .unwrap();
        let error = open.recv_from(&mut [0; 8]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        let listener = net
            .router
            .enter(|| TcpListener::bind((assigned, 0)).unwrap())
            .unwrap();
        let to = listener.local_addr().unwrap().to_string();
        assert_eq!(
            connect(&far.0, &to).unwrap_err().kind(),
            ErrorKind::TimedOut
        );
    }
    // An answer that has come too far: the router says so to whom it came from.
    for (number, to, own) in [(1, "192.0.2.1", "0.0.0.0"), (2, "2001:db8::1", "::")] {
        let (there, here) = (far.socket(to), socket(&net.lan, own));
        here.send_to(b"question", there.local_addr().unwrap())
            .unwrap();
        let (_, seen) = there.recv_from(&mut [0; 8]).unwrap();
        let there: Socket = there.into();
        match to.contains(':') {
            true => there.set_unicast_hops_v6(1).unwrap(),
            false => there.set_ttl_v4(1).unwrap(),
        }
        there.send_to(b"answer", &seen.into()).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(far.errors(), number, "{to}");
    }
    assert_eq!(net.leaked(), 0);
}

#[test]
fn answers_come_in_although_no_route_leads_back_to_them() {
    if !privileged("answers_come_in_although_no_route_leads_back_to_them") {
        return;
    }
    let net = Net::new();
    // An uplink of IPv6 alone, or a way to the server alone.
    for family in ["-4", "-6"] {
        let default = [family, "route", "del", "default"];
        net.router.run("ip", &default).unwrap();
    }
    for strictness in ["0", "1", "2"] {
        let check = format!("net.ipv4.conf.all.rp_filter={strictness}");
        net.router.run("sysctl", &["-qw", &check]).unwrap();
        let far = Far::behind(&net.router);
        let mut installed = Inside::install(&net.router, &interception(Other::Tunnel));
        installed.at(|installed| installed.attach()).unwrap();
        expect_conversation(&net.lan, &far);
        drop(installed);
        net.router.run("ip", &["link", "del", "bentpipe0"]).unwrap();
    }
    let rules = net.router.run("ip", &["rule"]).unwrap();
    assert!(!rules.contains("25205"), "{rules}");
}

#[test]
fn http3_is_refused_at_once_and_nothing_else() {
    if !privileged("http3_is_refused_at_once_and_nothing_else") {
        return;
    }
    let net = Net::new();
    for other in [Other::Tunnel, Other::Drop, Other::Direct] {
        let it = Interception {
            local: true,
            reject_http3: true,
            ..interception(other)
        };
        let _installed = Inside::install(&net.router, &it);
        for from in [&net.lan, &net.router] {
            for (to, own) in [("192.0.2.1", "0.0.0.0"), ("2001:db8::1", "::")] {
                let ask = |port: u16| {
                    let here = socket(from, own);
                    here.connect((to, port))?;
                    here.send(b"?")?;
                    here.recv(&mut [0; 8])
                };
                // What this machine sends is refused in the sending call itself.
                let refused = [ErrorKind::ConnectionRefused, ErrorKind::PermissionDenied];
                let error = ask(443).unwrap_err();
                assert!(refused.contains(&error.kind()), "{other:?} {to}: {error}");
                let answered = ask(444).unwrap_err().kind() == ErrorKind::ConnectionRefused;
                assert_eq!(answered, other == Other::Direct, "{other:?} {to}");
            }
        }
    }
}

/// Listeners as the daemon has them.
struct Names(Vec<UdpSocket>, Vec<TcpListener>);

impl Drop for Names {
    fn drop(&mut self) {
        // A child of another test that has not begun its program yet has these sockets as well.
        for listener in &self.1 {
            let _ = SockRef::from(listener).shutdown(std::net::Shutdown::Both);
        }
    }
}

impl Names {
    fn listen(ns: &NetNs, mark: u32) -> Self {
        let any = ["0.0.0.0", "::"].map(|ip| SocketAddr::new(ip.parse().unwrap(), DNS_PORT));
        let udp = any.map(|address| ns.enter(|| transparent_udp(address)).unwrap());
        let tcp = any.map(|address| {
            ns.enter(|| transparent_listener(address, mark).unwrap())
                .unwrap()
        });
        Self(udp.into(), tcp.into())
    }

    /// Whether a question of `from` to `to` comes in, by UDP and by TCP.
    fn hear(&self, from: &NetNs, to: &str) -> [bool; 2] {
        let to: SocketAddr = to.parse().unwrap();
        let family = usize::from(to.is_ipv6());
        let here = socket(from, ["0.0.0.0", "::"][family]);
        let _ = here.send_to(b"?", to);
        let heard = self.0[family].recv_from(&mut [0; 8]);
        let stream = connect(from, &to.to_string());
        let accepted = stream.is_ok() && self.1[family].accept().is_ok();
        [heard.is_ok(), accepted]
    }
}

/// The router's link-local address, which its advertisements name; with the LAN host's scope.
fn link_local(net: &Net) -> String {
    let list = ["-6", "-o", "addr", "show", "dev", "lan0", "scope", "link"];
    let listing = net.router.run("ip", &list).unwrap();
    let mut words = listing.split(&[' ', '/']);
    let address = words.find(|word| word.starts_with("fe80")).unwrap();
    let listing = net.lan.run("ip", &["-o", "link", "show", "dev", "eth0"]);
    let listing = listing.unwrap();
    let (index, _) = listing.split_once(':').unwrap();
    format!("{address}%{index}")
}

fn transparent_udp(address: SocketAddr) -> UdpSocket {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, None).unwrap();
    match address.is_ipv6() {
        true => {
            socket.set_only_v6(true).unwrap();
            socket.set_ip_transparent_v6(true).unwrap();
        }
        false => socket.set_ip_transparent_v4(true).unwrap(),
    }
    socket.bind(&address.into()).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    socket.into()
}

#[test]
fn names_are_asked_of_our_listener_or_of_nobody() {
    if !privileged("names_are_asked_of_our_listener_or_of_nobody") {
        return;
    }
    let net = Net::new();
    let it = Interception {
        local: true,
        dns: Some(DnsInterception::at(DNS_PORT)),
        bypass: vec!["10.2.0.1".parse::<IpAddr>().unwrap().into()],
        ..interception(Other::Direct)
    };
    let _installed = Inside::install(&net.router, &it);
    let abroad = ["192.0.2.1:53", "[2001:db8::1]:53"];
    let of_router = ["10.1.0.1:53", "[fd00:1::1]:53", "[fd00:2::1]:53"];
    let names = Names::listen(&net.router, it.routing.own_mark());
    for to in abroad.iter().chain(&of_router) {
        assert_eq!(names.hear(&net.lan, to), [true, true], "{to}");
    }
    let own = format!("[{}]:53", link_local(&net));
    assert_eq!(names.hear(&net.lan, &own), [true, true], "{own}");
    for to in abroad {
        assert_eq!(names.hear(&net.router, to), [true, true], "{to}");
    }
    // What is in `bypass` is the router's own, and so is what it asks itself.
    assert_eq!(names.hear(&net.lan, "10.2.0.1:53"), [false, false]);
    assert_eq!(names.hear(&net.router, "10.1.0.1:53"), [false, false]);
    // Nobody comes to the listener by its own port.
    let direct = format!("10.1.0.1:{DNS_PORT}");
    assert_eq!(names.hear(&net.lan, &direct), [false, false]);
    assert_eq!(net.leaked(), 0);
    drop(names);
    for from in [&net.lan, &net.router] {
        for to in abroad {
            let to: SocketAddr = to.parse().unwrap();
            let here = socket(from, if to.is_ipv6() { "::" } else { "0.0.0.0" });
            let _ = here.send_to(b"?", to);
            connect(from, &to.to_string()).unwrap_err();
        }
    }
    assert_eq!(net.leaked(), 0, "without a listener");
}

#[test]
fn forwarding_is_on_for_the_lan_and_off_again() {
    if !privileged("forwarding_is_on_for_the_lan_and_off_again") {
        return;
    }
    let net = Net::new();
    let settings = || {
        let keys = [
            "ipv4/conf/all/forwarding",
            "ipv4/conf/lan0/forwarding",
            "ipv4/conf/wan0/forwarding",
            "ipv6/conf/all/forwarding",
            "ipv6/conf/wan0/forwarding",
        ];
        let read = |key| std::fs::read_to_string(format!("/proc/sys/net/{key}")).unwrap();
        net.router
            .enter(|| keys.map(read).concat().replace('\n', ""))
            .unwrap()
    };
    net.router
        .enter(|| {
            std::fs::write("/proc/sys/net/ipv4/ip_forward", "0").unwrap();
            std::fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "0").unwrap();
        })
        .unwrap();
    let before = settings();
    assert_eq!(before, "00000");
    drop(Inside::install(&net.router, &interception(Other::Drop)));
    let it = interception(Other::Tunnel);
    for killed in [0, 1, 2] {
        for _ in 0..killed {
            Inside::install(&net.router, &it).kill();
        }
        let mut installed = Inside::install(&net.router, &it);
        let far = Far::behind(&net.router);
        installed.at(|installed| installed.attach()).unwrap();
        expect_conversation(&net.lan, &far);
        installed.at(|installed| installed.update(&it)).unwrap();
        net.router.run("ip", &["link", "del", "bentpipe0"]).unwrap();
        installed.remove();
        assert_eq!(settings(), before, "after {killed} kills");
    }
}
