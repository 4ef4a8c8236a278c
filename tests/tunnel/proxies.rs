//! SOCKS5 and HTTP CONNECT for applications beside a client without privileges.
//!
//! Names are known to the server alone, so whatever is reached by name was resolved there. Needs root, to build the
//! site; the client itself runs as nobody.

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use bentpipe_emulator::topology::{GATEWAY_WAN, GATEWAY_WAN6, WEB, WEB6};
use bentpipe_testbed::peer::{
    Service, digest, payload, read_exactly, read_to_eof, read_to_reset, who,
};
use bentpipe_testbed::proxy::{Answer, HTTP, Proxy, SOCKS5};
use bentpipe_testbed::route::Place;
use bentpipe_testbed::site::{Site, SiteConfig};
use bentpipe_testbed::{expect_tunnel_alone, installed, privileged};

use crate::BENTPIPE;

/// Names of the web's, known to the server alone; the last is a trap.
const HOSTS: &str = "10.30.0.2 both.example\nfd00:30::2 both.example\n10.30.0.2 four.example\nfd00:30::2 six.example\n\
                     127.0.0.1 inside.example\n";

/// Ports on which nothing is promised before the server has connected.
const EXACT: [u16; 2] = [7001, 7002];

/// A port on which nobody listens, and where connections are promised.
const PROMISED: u16 = 7003;

pub(crate) fn site() -> Site {
    Site::start(SiteConfig {
        client_tables: format!(
            "[socks5]\nlisten = \"{SOCKS5}\"\n[http]\nlisten = \"{HTTP}\"\n\
             [[rule]]\nports = {EXACT:?}\noptimistic = false\n"
        ),
        unprivileged: true,
        server_hosts: Some(HOSTS.into()),
        ..SiteConfig::new(BENTPIPE)
    })
    .expect("a site")
}

#[test]
fn addresses_and_names_are_reached_without_privileges_or_dns() {
    if !privileged("proxies: addresses and names") {
        return;
    }
    let site = site();
    let capture = site.watch().expect("a capture");
    expect_no_privileges(site.client().id());
    let web: Place = site.topology.web().into();
    let (v4, v6): (IpAddr, IpAddr) = (GATEWAY_WAN.into(), GATEWAY_WAN6.into());
    let servers = [WEB.into(), WEB6.into()].map(|address| {
        Service::start(&web, SocketAddr::new(address, 7000), who).expect("a server")
    });
    for proxy in Proxy::ALL {
        for (target, seen) in [
            (WEB.to_string(), v4),
            (WEB6.to_string(), v6),
            ("four.example".into(), v4),
            ("six.example".into(), v6),
            ("SIX.example".into(), v6),
        ] {
            let (mut stream, answer) = proxy.connect(&site, &target, 7000).expect("an answer");
            assert_eq!(answer, proxy.success(), "{target}");
            let line = read_to_eof(&mut stream).expect("a line");
            let line = String::from_utf8(line).expect("an address");
            assert_eq!(line.trim(), seen.to_string(), "{proxy:?} {target}");
        }
    }
    drop(servers);
    expect_tunnel_alone(capture).expect("no DNS and no TCP");
}

fn expect_no_privileges(process: u32) {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("a living process");
    for line in ["Uid:\t65534\t65534\t65534", "CapEff:\t0000000000000000"] {
        assert!(status.contains(line), "no `{line}` in\n{status}");
    }
}

/// One of a name's addresses has no server: the other is tried.
#[test]
fn the_next_address_of_a_name_is_tried() {
    if !privileged("proxies: addresses of a name") {
        return;
    }
    let site = site();
    let web: Place = site.topology.web().into();
    for address in [IpAddr::from(WEB), WEB6.into()] {
        let server = Service::start(&web, SocketAddr::new(address, 7000), who).expect("a server");
        let (mut stream, _) = Proxy::Socks5
            .connect(&site, "both.example", 7000)
            .expect("an answer");
        read_to_eof(&mut stream).expect("a line");
        assert_eq!(server.accepted(), 1, "{address}");
    }
}

/// Takes in nothing at `address`, and says nothing of it: a family that leads nowhere.
fn silence(site: &Site, address: IpAddr) {
    let family = if address.is_ipv6() { "ip6" } else { "ip" };
    let rules = [
        "add table inet dead; flush table inet dead".to_owned(),
        "add chain inet dead input { type filter hook input priority 0; }".into(),
        format!("add rule inet dead input {family} daddr {address} meta l4proto tcp drop"),
    ];
    let web = site.topology.web();
    web.run("nft", &[&rules.join("; ")]).expect("nft");
}

/// One family of a name's addresses leads nowhere: the other one is connected to all the same, as soon as the head start is over.
#[test]
fn a_family_that_is_silent_delays_nobody_for_long() {
    if !privileged("proxies: a silent family") {
        return;
    }
    let site = site();
    let web: Place = site.topology.web().into();
    let addresses = [IpAddr::from(WEB), WEB6.into()];
    let servers = addresses.map(|address| {
        Service::start(&web, SocketAddr::new(address, 7000), who).expect("a server")
    });
    let took = || {
        let begun = Instant::now();
        let (mut stream, _) = Proxy::Socks5
            .connect(&site, "both.example", 7000)
            .expect("an answer");
        assert!(!read_to_eof(&mut stream).expect("a line").is_empty());
        begun.elapsed()
    };
    let both = took();
    for (silent, heard) in [(0, 1), (1, 0)] {
        silence(&site, addresses[silent]);
        let before = servers[heard].accepted();
        let one = took();
        println!("both families {both:?}, {} alone {one:?}", addresses[heard]);
        assert!(servers[heard].accepted() > before, "{}", addresses[heard]);
        assert!(one < both + Duration::from_secs(1), "{one:?}, {both:?}");
    }
}

#[test]
fn exact_answers_are_the_destinations_own() {
    if !privileged("proxies: exact answers") {
        return;
    }
    let site = site();
    let web: Place = site.topology.web().into();
    let [open, closed] = EXACT;
    let server = Service::start(&web, SocketAddr::new(WEB.into(), open), who).expect("a server");
    let rows = [
        ("10.30.0.2", open, 0, 200),
        ("four.example", open, 0, 200),
        ("10.30.0.2", closed, 5, 502),
        ("fd00:30::2", closed, 5, 502),
        ("four.example", closed, 5, 502),
        // Never promised, whatever the rules say.
        ("10.30.0.2", 25, 5, 502),
        ("10.30.0.2", 179, 5, 502),
        // Nobody has them.
        ("10.30.0.251", open, 4, 502),
        ("fd00:30::dead", open, 4, 502),
        ("nowhere.example", open, 4, 502),
        // The server's policy, by address and by name.
        ("127.0.0.1", open, 2, 403),
        ("10.20.0.1", open, 2, 403),
        ("::1", open, 2, 403),
        ("inside.example", open, 2, 403),
    ];
    let site = &site;
    thread::scope(|scope| {
        for (target, port, code, status) in rows {
            scope.spawn(move || {
                let answers = Proxy::ALL.map(|proxy| {
                    let (mut stream, answer) =
                        proxy.connect(site, target, port).expect("an answer");
                    // After the answer comes a clean end, or what the server says.
                    read_to_eof(&mut stream).expect("an end");
                    answer
                });
                let expected = [Answer::Code(code), Answer::Status(status)];
                assert_eq!(answers, expected, "{target}:{port}");
            });
        }
    });
    assert_eq!(server.accepted(), 4);
}

/// Without such a rule success is promised at once, and a refusal is a reset.
#[test]
fn promised_connections_are_reset_when_refused() {
    if !privileged("proxies: promised connections") {
        return;
    }
    let site = site();
    for proxy in Proxy::ALL {
        for target in ["10.30.0.2", "fd00:30::2", "four.example"] {
            let start = Instant::now();
            let (mut stream, answer) = proxy.connect(&site, target, PROMISED).expect("an answer");
            let took = start.elapsed();
            assert_eq!(answer, proxy.success(), "{proxy:?} {target}");
            assert!(took < Duration::from_millis(400), "promised after {took:?}");
            read_to_reset(&mut stream)
                .unwrap_or_else(|error| panic!("{proxy:?} {target}: {error:#}"));
        }
    }
}

/// One response of 100 kB to any request.
fn web_server(mut stream: TcpStream) -> Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.extend(read_exactly(&mut stream, 1)?);
    }
    let body = payload(100_000);
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    )?;
    stream.write_all(&body)?;
    // Its end before ours: the response then has arrived.
    match stream.read(&mut [0; 1]) {
        Err(error) if error.kind() != ErrorKind::ConnectionReset => Err(error.into()),
        _ => Ok(()),
    }
}

/// One host asks for thousands of connections and says nothing; another one is served all the same.
#[test]
fn a_host_that_says_nothing_takes_nothing_from_the_others() {
    if !privileged("proxies: half requests") {
        return;
    }
    let site = Site::start(SiteConfig {
        client_tables: "[http]\nlisten = \"0.0.0.0:3128\"\n".into(),
        ..SiteConfig::new(BENTPIPE)
    })
    .expect("a site");
    let web: Place = site.topology.web().into();
    let address = SocketAddr::new(WEB.into(), 7000);
    let _server = Service::start(&web, address, who).expect("a server");
    let greedy = site.topology.user().enter(|| {
        let proxy = (bentpipe_emulator::topology::TERMINAL_LAN, 3128);
        let open = |_| {
            let mut stream = TcpStream::connect(proxy)?;
            stream.write_all(b"GET http://10.30")?;
            Ok::<_, std::io::Error>(stream)
        };
        // Beyond its share it is reset.
        (0..3000)
            .filter_map(|index| open(index).ok())
            .collect::<Vec<_>>()
    });
    let greedy = greedy.expect("a namespace");
    assert!(greedy.len() > 100, "{} taken in", greedy.len());
    thread::sleep(Duration::from_secs(1));
    let files = fs::read_dir(format!("/proc/{}/fd", site.client().id())).expect("a process");
    let files = files.count();
    assert!(files < 1200, "{files} descriptors");
    let (mut stream, answer) = Proxy::Http
        .connect(&site, "10.30.0.2", 7000)
        .expect("an answer");
    assert_eq!(answer, Proxy::Http.success());
    read_to_eof(&mut stream).expect("a line");
    let logs = site.logs();
    let named = logs
        .matches("has most of the 1024 connections to a proxy that have not said where they go");
    assert_eq!(named.count(), 1, "{logs}");
    drop(greedy);
}

#[test]
fn curl_downloads_through_both() {
    if !privileged("proxies: curl") || !installed("proxies: curl", "curl") {
        return;
    }
    let site = site();
    let web: Place = site.topology.web().into();
    let _servers = [WEB.into(), WEB6.into()].map(|address| {
        Service::start(&web, SocketAddr::new(address, 8080), web_server).expect("a server")
    });
    let file = site.topology.directory().join("body");
    for proxy in [
        ["--socks5-hostname", SOCKS5].as_slice(),
        &["--proxytunnel", "--proxy", HTTP],
        &["--proxy", HTTP],
    ] {
        for host in ["four.example", "six.example", "10.30.0.2", "[fd00:30::2]"] {
            let url = format!("http://{host}:8080/");
            let output = file.display().to_string();
            let mut arguments = vec!["-sS", "--fail", "--max-time", "30", "-o", &output];
            arguments.extend(proxy);
            arguments.push(&url);
            let run = site.topology.terminal().run("curl", &arguments);
            run.unwrap_or_else(|error| panic!("{error}\n{}", site.logs()));
            let body = fs::read(&file).expect("a body");
            assert_eq!(digest(&body), digest(&payload(100_000)), "{proxy:?} {url}");
        }
    }
}
