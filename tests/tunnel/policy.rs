//! Rules and the guard: what goes direct is exactly what a rule names, what is blocked is refused, and nothing else
//! leaves in clear, with and without a client. Needs root.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use bentpipe_emulator::topology::{GATEWAY_WAN, GATEWAY_WAN6, USER, USER6, WEB, WEB6, host, host6};
use bentpipe_lab::leaks::Prober;
use bentpipe_sys::netns::NetNs;
use bentpipe_testbed::peer::{PATIENCE, Service, read_to_eof, set_patience, who};
use bentpipe_testbed::privileged;
use bentpipe_testbed::proxy::{Answer, HTTP, Proxy, SOCKS5};
use bentpipe_testbed::route::Place;
use bentpipe_testbed::site::{Site, SiteConfig};
use serde_json::Value;

use crate::BENTPIPE;
use crate::dns::resolver::{Resolver, question_end};

/// Ports of the web's that rules name.
const DIRECT: u16 = 7001;
const BLOCKED: u16 = 7002;
/// One that none does.
const OTHER: u16 = 7003;

/// How old the account of rules may be, and room for a busy machine.
const COUNTED: Duration = Duration::from_secs(15);

fn site(client_tables: String) -> Site {
    Site::start(SiteConfig {
        client_tables,
        ..SiteConfig::new(BENTPIPE)
    })
    .expect("a site")
}

/// Whom the web sees when `place` connects.
pub(crate) fn seen(place: &Place, address: SocketAddr) -> Result<IpAddr> {
    let connect = || TcpStream::connect_timeout(&address, PATIENCE);
    let mut stream = place.at(connect)?.with_context(|| address.to_string())?;
    set_patience(&stream, PATIENCE)?;
    let line = read_to_eof(&mut stream)?;
    Ok(String::from_utf8(line)?.trim().parse()?)
}

/// A command of bentpipe's in a namespace.
fn bentpipe(namespace: &NetNs, arguments: &[&str]) -> Output {
    let mut command: Command = namespace.command(BENTPIPE);
    command.args(arguments).output().expect("bentpipe runs")
}

/// What a rule has decided on: action, packets, connections of proxies.
type Decided = (String, u64, u64);

/// Waits until `status` tells what is `expected` of the rules.
fn expect_rules(site: &Site, expected: impl Fn(&[Decided]) -> bool) {
    let deadline = Instant::now() + COUNTED;
    loop {
        let rules = rules(site);
        if expected(&rules) {
            return;
        }
        assert!(Instant::now() < deadline, "{rules:?}");
        thread::sleep(Duration::from_millis(200));
    }
}

fn rules(site: &Site) -> Vec<Decided> {
    let report = site.client_report().expect("a report");
    let rules = report["rules"].as_array().expect("a list of rules").iter();
    let figure = |rule: &Value, name| rule[name].as_u64().expect("a figure");
    rules
        .map(|rule| {
            let action = rule["action"].as_str().expect("an action").to_owned();
            (action, figure(rule, "packets"), figure(rule, "connections"))
        })
        .collect()
}

#[test]
fn connections_go_where_rules_say() {
    if !privileged("policy: connections") {
        return;
    }
    let site = site(format!(
        "[intercept]\ninterfaces = [\"lan0\"]\n\
         [[rule]]\nprotocols = [\"tcp\"]\nports = [{BLOCKED}]\naction = \"block\"\n\
         [[rule]]\nports = [{DIRECT}, {BLOCKED}]\naction = \"direct\"\n\
         [[rule]]\nports = [{DIRECT}]\noptimistic = false\n"
    ));
    let (user, web): (Place, Place) = (site.topology.user().into(), site.topology.web().into());
    for (address, own, gateway) in [
        (
            IpAddr::from(WEB),
            IpAddr::from(USER),
            IpAddr::from(GATEWAY_WAN),
        ),
        (WEB6.into(), USER6.into(), GATEWAY_WAN6.into()),
    ] {
        let at = |port| SocketAddr::new(address, port);
        let services = [DIRECT, BLOCKED, OTHER]
            .map(|port| Service::start(&web, at(port), who).expect("a server"));
        assert_eq!(seen(&user, at(DIRECT)).expect("a connection"), own);
        assert_eq!(seen(&user, at(OTHER)).expect("a connection"), gateway);
        let refused = user.at(|| TcpStream::connect_timeout(&at(BLOCKED), PATIENCE));
        let error = refused.expect("a namespace").expect_err("a blocked port");
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        assert_eq!(services[1].accepted(), 0);
        // Not a second time through the tunnel, as what waits for the server's word does.
        assert_eq!(services[0].accepted(), 1);
    }
    expect_rules(&site, |rules| {
        rules[0] == ("block".to_owned(), 2, 0) && rules[1].0 == "direct" && rules[1].1 >= 8
    });
}

/// Everything is tried, and one address and port may go direct: nothing else crosses.
#[test]
fn a_direct_rule_sends_exactly_what_it_names() {
    if !privileged("policy: exactly") {
        return;
    }
    let site = site(format!(
        "[intercept]\ninterfaces = [\"lan0\"]\nlocal = true\n\
         [[rule]]\nprotocols = [\"udp\"]\nports = [9999]\ndestinations = [\"{WEB}\", \"{WEB6}\"]\naction = \"direct\"\n"
    ));
    // Somebody listens, so that nobody answers.
    let sinks = [IpAddr::from(WEB), WEB6.into()].map(|address| {
        let bind = || UdpSocket::bind((address, 9999));
        site.topology
            .web()
            .enter(bind)
            .expect("a namespace")
            .expect("a socket")
    });
    let capture = site.watch().expect("a capture");
    let prober = Prober::start(site.topology.user()).expect("a prober");
    thread::sleep(Duration::from_secs(2));
    drop(prober);
    let crossed = capture.stop().expect("a whole capture");
    // Every second datagram is three fragments; the kernel counts it whole.
    let kinds = ["UDP", "fragment", "IPv6 UDP", "IPv6 fragment"];
    let number = |kind: &str| crossed.clear_kinds.get(kind).copied().unwrap_or_default();
    let [udp, fragments, udp6, fragments6] = kinds.map(number);
    let datagrams = udp + udp6 + (fragments + fragments6) / 3;
    assert!(udp > 10 && udp6 > 10 && fragments > 30, "{crossed}");
    assert_eq!(crossed.clear_packets, udp + udp6 + fragments + fragments6);
    expect_rules(&site, |rules| {
        rules == [("direct".to_owned(), datagrams, 0)]
    });
    for packet in &crossed.clear {
        let named = [
            format!("UDP {USER}:"),
            format!("UDP [{USER6}]:"),
            format!("fragment of IP protocol 17 {USER} > {WEB},"),
            format!("fragment of IP protocol 17 {USER6} > {WEB6},"),
        ];
        let named = named.iter().any(|start| packet.what.starts_with(start));
        let other = packet.what.starts_with("UDP") && !packet.what.contains(":9999,");
        assert!(named && !other, "{crossed}");
    }
    drop(sinks);
}

#[test]
fn proxies_go_by_names_as_well() {
    if !privileged("policy: proxies") {
        return;
    }
    let direct = [host(1).to_string(), host6(1).to_string()];
    let site = site(format!(
        "[socks5]\nlisten = \"{SOCKS5}\"\n[http]\nlisten = \"{HTTP}\"\n\
         [[rule]]\ndomains = [\"blocked.example\"]\naction = \"block\"\n\
         [[rule]]\ndestinations = {direct:?}\naction = \"direct\"\n"
    ));
    let web: Place = site.topology.web().into();
    for proxy in Proxy::ALL {
        for name in ["blocked.example", "www.Blocked.Example"] {
            let (_, answer) = proxy.connect(&site, name, 80).expect("an answer");
            let denied = match proxy {
                Proxy::Socks5 => Answer::Code(2),
                Proxy::Http => Answer::Status(403),
            };
            assert_eq!(answer, denied, "{name}");
        }
        for (address, by) in [
            (
                IpAddr::from(host(1)),
                bentpipe_emulator::topology::TERMINAL_SAT.into(),
            ),
            (
                host6(1).into(),
                IpAddr::from(bentpipe_emulator::topology::TERMINAL_SAT6),
            ),
            (WEB.into(), GATEWAY_WAN.into()),
        ] {
            let service = Service::start(&web, SocketAddr::new(address, 0), who).expect("a server");
            let port = service.address.port();
            let connected = proxy.connect(&site, &address.to_string(), port);
            let (mut stream, answer) = connected.expect("an answer");
            assert_eq!(answer, proxy.success());
            let line = read_to_eof(&mut stream).expect("a line");
            let seen: IpAddr = String::from_utf8_lossy(&line)
                .trim()
                .parse()
                .expect("an address");
            assert_eq!(seen, by, "whom {address} sees");
        }
    }
    let expected = [("block".to_owned(), 0, 4), ("direct".to_owned(), 0, 4)];
    expect_rules(&site, |rules| rules == expected);
}

/// A name that a proxy is given is asked of the resolvers that the server's file names, as one that a host asks.
#[test]
fn names_of_proxies_are_asked_of_the_servers_resolver() {
    if !privileged("policy: names of proxies") {
        return;
    }
    let mut site = Site::plain(SiteConfig {
        server_tables: format!("[dns]\nservers = \"{WEB}\"\n"),
        client_tables: format!("[socks5]\nlisten = \"{SOCKS5}\"\n[[rule]]\noptimistic = false\n"),
        ..SiteConfig::new(BENTPIPE)
    })
    .expect("a site");
    let web: Place = site.topology.web().into();
    let _resolver = Resolver::start(&web, (WEB, 53).into()).expect("a resolver");
    site.start_server().expect("a server");
    site.start_client().expect("a client");
    let at = |address: IpAddr| SocketAddr::new(address, OTHER);
    let services = [IpAddr::from(host(2)), host6(2).into()]
        .map(|address| Service::start(&web, at(address), who).expect("a server"));
    let connected = Proxy::Socks5.connect(&site, "host2.example", OTHER);
    let (_, answer) = connected.expect("an answer");
    assert_eq!(answer, Proxy::Socks5.success(), "{}", site.logs());
    let accepted: usize = services.iter().map(Service::accepted).sum();
    assert_eq!(accepted, 1);
}

/// Boot, run, stop, run, stop: the guard is there throughout.
#[test]
fn the_guard_holds_from_boot_to_after_the_stop() {
    if !privileged("policy: the guard") {
        return;
    }
    let mut site = Site::plain(SiteConfig {
        client_tables: "[intercept]\ninterfaces = [\"lan0\"]\nlocal = true\n".into(),
        ..SiteConfig::new(BENTPIPE)
    })
    .expect("a site");
    let file = site.client_home().join("client.toml");
    let guard = |site: &Site, action: &str| {
        let arguments = ["guard", action, "--config", file.to_str().expect("a path")];
        let output = bentpipe(site.topology.terminal(), &arguments);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert_eq!(guard(&site, "show"), "the guard is off\n");
    guard(&site, "on");
    let capture = site.watch().expect("a capture");
    let probers = [site.topology.user(), site.topology.terminal()]
        .map(|place| Prober::start(place).expect("a prober"));
    thread::sleep(Duration::from_secs(1));
    for _ in 0..2 {
        site.start_server().expect("a server");
        site.start_client().expect("a client");
        let (user, web): (Place, Place) = (site.topology.user().into(), site.topology.web().into());
        let service = Service::start(&web, SocketAddr::new(WEB.into(), 0), who).expect("a server");
        let through = seen(&user, service.address).expect("a connection");
        assert_eq!(through, IpAddr::from(GATEWAY_WAN));
        // Its own affair, which the client neither undoes nor blames on somebody.
        for _ in 0..5 {
            guard(&site, "off");
            thread::sleep(Duration::from_secs(1));
            assert_eq!(guard(&site, "show"), "the guard is off\n");
            assert!(!site.logs().contains("put back"), "{}", site.logs());
            guard(&site, "on");
        }
        site.stop_client().expect("a clean stop");
        thread::sleep(Duration::from_secs(1));
        site.stop_server().expect("a clean stop");
    }
    drop(probers);
    let shown = guard(&site, "show");
    assert!(shown.contains("table inet bentpipe_guard"), "{shown}");
    capture
        .stop()
        .expect("a whole capture")
        .expect_only_tunnel()
        .expect("the guard");
    // That it was the guard.
    guard(&site, "off");
    let capture = site.watch().expect("a capture");
    let prober = Prober::start(site.topology.user()).expect("a prober");
    thread::sleep(Duration::from_secs(1));
    drop(prober);
    let crossed = capture.stop().expect("a whole capture");
    assert!(crossed.clear_packets > 20, "{crossed}");
}

/// A server that is gone does not take the connection with it, where that is asked for.
#[test]
fn on_failure_direct_goes_on_in_clear_and_back() {
    if !privileged("policy: on failure") {
        return;
    }
    let mut site = site("[intercept]\ninterfaces = [\"lan0\"]\non_failure = \"direct\"\n".into());
    let (user, web): (Place, Place) = (site.topology.user().into(), site.topology.web().into());
    let service = Service::start(&web, SocketAddr::new(WEB.into(), 0), who).expect("a server");
    let expect = |who: IpAddr, what: &str| {
        assert_eq!(seen(&user, service.address).expect(what), who, "{what}");
    };
    expect(GATEWAY_WAN.into(), "with a tunnel");
    site.kill_client().expect("a killed client");
    expect(USER.into(), "without a client");
    site.start_client().expect("a client");
    expect(GATEWAY_WAN.into(), "with a client again");
    site.kill_server().expect("a killed server");
    // The client has nothing to miss until somebody asks for something.
    let asked = user.at(|| TcpStream::connect_timeout(&service.address, PATIENCE));
    let long = Duration::from_secs(20);
    let in_clear = "what is taken in goes in clear until the tunnel answers";
    site.client().wait_for_line(in_clear, long).expect(in_clear);
    drop(asked);
    expect(USER.into(), "without a server");
    let of_ipv6 = Service::start(&web, SocketAddr::new(WEB6.into(), 0), who).expect("a server");
    let who = seen(&user, of_ipv6.address).expect("a connection");
    assert_eq!(who, IpAddr::from(USER6), "without a server");
    site.start_server().expect("a server");
    let back = "the tunnel carries what is taken in again";
    site.client().wait_for_line(back, long).expect(back);
    expect(GATEWAY_WAN.into(), "with a server again");
    // IPv6 that is not known to lead anywhere waits for the server's answer, but what goes in clear does not.
    assert_eq!(of_ipv6.accepted(), 1, "a second time through the tunnel");
}

/// What `host` of the user's site is told of `name`: the address of this family.
fn look_up(user: &Place, name: &str, like: IpAddr) -> IpAddr {
    let socket = user.at(|| UdpSocket::bind("0.0.0.0:0"));
    let socket = socket.expect("a namespace").expect("a socket");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let mut query = vec![7, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        query.push(u8::try_from(label.len()).expect("a label"));
        query.extend(label.bytes());
    }
    query.extend([0, 0, if like.is_ipv4() { 1 } else { 28 }, 0, 1]);
    socket.send_to(&query, (WEB, 53)).expect("a query");
    let mut buffer = [0; 512];
    let length = socket.recv(&mut buffer).expect(name);
    let data = &buffer[question_end(&buffer[..length]) + 12..length];
    match like {
        IpAddr::V4(_) => IpAddr::from(*data.first_chunk::<4>().expect("an address")),
        IpAddr::V6(_) => IpAddr::from(*data.first_chunk::<16>().expect("an address")),
    }
}

/// Whom a datagram to `to` comes from.
fn seen_by_udp(user: &Place, web: &Place, to: IpAddr) -> IpAddr {
    let bind = |place: &Place, address: IpAddr| {
        let socket = place.at(|| UdpSocket::bind((address, 0)));
        let socket = socket.expect("a namespace").expect("a socket");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        socket
    };
    let any: IpAddr = if to.is_ipv4() {
        [0; 4].into()
    } else {
        [0; 16].into()
    };
    let (server, client) = (bind(web, to), bind(user, any));
    let address = server.local_addr().expect("an address");
    client.send_to(b"who am I?", address).expect("a datagram");
    let (_, from) = server.recv_from(&mut [0; 16]).expect("a datagram");
    from.ip()
}

/// The first packet after the answer is judged by it already, whatever its protocol.
#[test]
fn what_is_taken_in_goes_by_names_as_well() {
    if !privileged("policy: names") {
        return;
    }
    let addresses = |number| [host(number).to_string(), host6(number).to_string()];
    let mut site = Site::plain(SiteConfig {
        server_tables: format!("[dns]\nservers = \"{WEB}\"\n"),
        client_tables: format!(
            "[intercept]\ninterfaces = [\"lan0\"]\nother = \"tunnel\"\n\
             [[rule]]\ndomains = [\"direct.example\"]\naction = \"direct\"\n\
             [[rule]]\ndomains = [\"blocked.example\"]\naction = \"block\"\n\
             [[rule]]\ndomains = [\"tunnel.example\"]\naction = \"tunnel\"\n\
             [[rule]]\ndestinations = {:?}\naction = \"direct\"\n\
             [[rule]]\nports = [{BLOCKED}]\noptimistic = false\n",
            addresses(3)
        ),
        ..SiteConfig::new(BENTPIPE)
    })
    .expect("a site");
    site.start_server().expect("a server");
    site.start_client().expect("a client");
    let (user, web): (Place, Place) = (site.topology.user().into(), site.topology.web().into());
    let resolver = Resolver::start(&web, SocketAddr::new(WEB.into(), 53)).expect("a resolver");
    for (like, own, gateway) in [
        (
            IpAddr::from(WEB),
            IpAddr::from(USER),
            IpAddr::from(GATEWAY_WAN),
        ),
        (WEB6.into(), USER6.into(), GATEWAY_WAN6.into()),
    ] {
        let asked = |name: &str| {
            let address = look_up(&user, name, like);
            // The second of these waits for the server's word if it goes through the tunnel, and must not if it is direct.
            let services = [OTHER, BLOCKED].map(|port| {
                Service::start(&web, SocketAddr::new(address, port), who).expect("a server")
            });
            services.map(|service| seen(&user, service.address).ok())
        };
        let at = |number| {
            if like.is_ipv4() {
                host(number).into()
            } else {
                host6(number).into()
            }
        };
        let service = Service::start(&web, SocketAddr::new(at(1), OTHER), who).expect("a server");
        assert_eq!(
            seen(&user, service.address).expect("nobody's name"),
            gateway
        );
        assert_eq!(
            seen_by_udp(&user, &web, at(3)),
            own,
            "direct by its address"
        );
        drop(service);
        assert_eq!(asked("host1.direct.example"), [Some(own); 2]);
        assert_eq!(seen_by_udp(&user, &web, at(1)), own);
        assert_eq!(asked("host2.www.blocked.EXAMPLE"), [None; 2]);
        assert_eq!(asked("host3.tunnel.example"), [Some(gateway); 2]);
        assert_eq!(seen_by_udp(&user, &web, at(3)), gateway);
        assert_eq!(asked("host0.elsewhere.example"), [Some(gateway); 2]);
    }
    // What the cache answers is known already.
    let before = resolver.asked();
    assert_eq!(
        look_up(&user, "host1.direct.example", WEB.into()),
        IpAddr::from(host(1))
    );
    assert_eq!(resolver.asked(), before);
    site.stop_client().expect("a clean stop");
}
