//! A server without any capability: UDP and ping cross from its sockets, and whoever sends anything else is told.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bentpipe_emulator::topology::{GATEWAY_WAN, WEB};
use bentpipe_sys::netns::NetNs;
use bentpipe_testbed::echo::{Echo, any, bind, cross};
use bentpipe_testbed::edit::edit;
use bentpipe_testbed::site::{Site, SiteConfig, geo, near};
use bentpipe_testbed::{expect_tunnel_alone, privileged};
use rustix::process::Signal;
use serde_json::Value;
use socket2::{Domain, Protocol, Socket, Type};

use super::{WEBS, assigned, hop, ping, refused};
use crate::BENTPIPE;

/// Most mappings that a client has (`bentpipe_proto::nat::MAPPINGS`).
const MAPPINGS: usize = 1024;

/// A site over a short path that loses nothing, whose server may ping or not.
fn site(may_ping: bool) -> Site {
    let mut scenario = near();
    scenario.errors = geo().errors;
    let mut site = Site::plain(SiteConfig {
        scenario,
        server_unprivileged: true,
        ..SiteConfig::new(BENTPIPE)
    })
    .expect("a site");
    let groups = if may_ping { "0 2147483647" } else { "1 0" };
    let setting = format!("net.ipv4.ping_group_range={groups}");
    let set = site.topology.gateway().run("sysctl", &["-w", &setting]);
    set.expect("a setting of the namespace's own");
    site.start_server().expect("a server");
    site.start_client().expect("a client");
    assigned(&site);
    site
}

/// What `status` of either side says of packets.
fn packets(site: &Site) -> [Value; 2] {
    let server = site.newer_server_report().expect("a report");
    let client = site.client_report().expect("a report");
    [
        client["packets"].clone(),
        server["clients"][0]["packets"].clone(),
    ]
}

/// Text of the server's `status` about what it does not carry.
fn limited(site: &Site) -> String {
    let report = site.server_report().expect("a report");
    report["packets_limited"].to_string()
}

fn shown(site: &Site, result: Result<()>) {
    result.unwrap_or_else(|error| panic!("{error:#}\n{}", site.logs()));
}

#[test]
fn udp_and_ping_cross_without_a_device() {
    if !privileged("packets: sockets") {
        return;
    }
    let site = site(true);
    let gateway = site.topology.gateway();
    let devices = gateway.run("ip", &["link"]).expect("ip");
    assert!(!devices.contains("bentpipe0"), "{devices}");
    let capture = site.watch().expect("a capture");
    shown(&site, everything(&site));
    expect_tunnel_alone(capture).expect("the tunnel alone");
    for packets in packets(&site) {
        assert_eq!(packets["carried"], "udp_and_echo", "{packets}");
    }
    let limited = limited(&site);
    for words in [
        "UDP and ping alone",
        "CAP_NET_ADMIN is missing",
        "AmbientCapabilities",
    ] {
        assert!(limited.contains(words), "{limited}");
        assert!(site.logs().contains(words), "{words}");
    }
}

/// Hosts whose packets nobody carries hear nothing; the operators of both ends do.
#[test]
fn a_server_that_carries_no_packets_any_more_says_so_and_its_client_too() {
    if !privileged("packets: none") {
        return;
    }
    let mut site = Site::plain(SiteConfig::new(BENTPIPE)).expect("a site");
    site.start_server().expect("a server");
    site.start_client().expect("a client");
    assigned(&site);
    site.kill_server().expect("a server that runs");
    let off = "[packets]\nenabled = false\n[[client]]";
    edit(&site.server_file(), "[[client]]", off).expect("its file");
    site.start_server().expect("another server");
    let told = "the server carries TCP only: UDP, ICMP and all else are dropped; set `enabled = true` in [packets]";
    let patience = Duration::from_secs(60);
    site.client().wait_for_line(told, patience).expect(told);
    let packets = || site.client_report().expect("a report")["packets"].take();
    let before = packets()["dropped"].take();
    // The first may be sent while the client's device still loses its addresses.
    let script = format!("ping -n -c 3 -W 1 {WEB} || true");
    let said = site.topology.user().run("sh", &["-c", &script]);
    assert!(said.expect("ping").contains(" 0 received"));
    let client = packets();
    assert_eq!(client["carried"], "none", "{client}");
    // There is a tunnel all the same.
    assert_eq!(
        client["dropped"]["no_tunnel"], before["no_tunnel"],
        "{client}"
    );
    let lost = client["dropped"]["unsupported"].as_u64();
    assert!(lost.is_some_and(|lost| lost >= 2), "{client}");
    let limited = limited(&site);
    for words in ["TCP alone is carried", "enabled = false"] {
        assert!(
            limited.contains(words) && site.logs().contains(words),
            "{limited}"
        );
    }
}

fn everything(site: &Site) -> Result<()> {
    let user = site.topology.user();
    for web in WEBS {
        let address = web.to_string();
        ping(user, &address, 56).with_context(|| format!("ping {web}"))?;
        let overhead = if web.is_ipv4() { 28 } else { 48 };
        ping(user, &address, 1500 - overhead).with_context(|| format!("large ping {web}"))?;
        let echo = Echo::start(site.topology.web(), web)?;
        cross(user, &echo, 2000, 1000)?;
        short_flows(user, &echo)?;
        long_answer(site, web)?;
        // The server is a router to whoever counts hops.
        let hops = [hop(user, web, 2)?, hop(user, web, 3)?];
        ensure!(hops[1] == address, "{hops:?}");
        ensure!(
            hops[0].starts_with("100.96.") || hops[0].starts_with("fd62:"),
            "{hops:?}"
        );
    }
    same_port_for_all(site)?;
    refused(site)
}

/// Questions as resolvers ask them: one packet from a port of its own, one answer.
fn short_flows(user: &NetNs, echo: &Echo) -> Result<()> {
    let sockets: Vec<UdpSocket> = (0..200)
        .map(|_| {
            let socket = bind(user, any(echo.address.ip()))?;
            socket.connect(echo.address)?;
            Ok(socket)
        })
        .collect::<Result<_>>()?;
    for (number, socket) in sockets.iter().enumerate() {
        socket.send(&number.to_be_bytes())?;
    }
    for (number, socket) in sockets.iter().enumerate() {
        let mut answer = [0; 8];
        socket
            .recv(&mut answer)
            .with_context(|| format!("flow {number}"))?;
        ensure!(
            answer == number.to_be_bytes(),
            "another's answer: {answer:?}"
        );
    }
    Ok(())
}

/// An answer that no packet of the tunnel has room for comes in parts, which the user's kernel joins.
fn long_answer(site: &Site, web: IpAddr) -> Result<()> {
    let far = bind(site.topology.web(), web)?;
    let near = bind(site.topology.user(), any(web))?;
    near.connect(far.local_addr()?)?;
    near.send(b"tell me all")?;
    let (_, asker) = far.recv_from(&mut [0; 100])?;
    let all: Vec<u8> = (0..4000_u32).map(|number| number as u8).collect();
    far.send_to(&all, asker)?;
    let mut answer = [0; 5000];
    let length = near.recv(&mut answer).context("a long answer")?;
    ensure!(answer[..length] == all, "{length} bytes of {}", all.len());
    Ok(())
}

/// Whoever is spoken to from one port sees one port (endpoint-independent mapping, RFC 4787).
fn same_port_for_all(site: &Site) -> Result<()> {
    for web in WEBS {
        let near = bind(site.topology.user(), any(web))?;
        let mut seen = Vec::new();
        for _ in 0..2 {
            let far = bind(site.topology.web(), web)?;
            near.send_to(b"who am I?", far.local_addr()?)?;
            seen.push(far.recv_from(&mut [0; 100])?.1);
        }
        ensure!(seen[0] == seen[1], "{seen:?}");
    }
    Ok(())
}

#[test]
fn what_sockets_cannot_carry_or_may_not_is_refused() {
    if !privileged("packets: sockets refuse") {
        return;
    }
    let site = site(true);
    let user = site.topology.user();
    let socket = bind(user, Ipv4Addr::UNSPECIFIED.into()).expect("a socket");
    socket.connect((GATEWAY_WAN, 9)).expect("a route");
    socket.send(b"let me in").expect("a packet");
    let heard = socket.recv(&mut [0; 10]);
    // "Administratively prohibited" is EHOSTUNREACH to a socket.
    let heard = heard.map_err(|error| error.raw_os_error());
    assert_eq!(heard, Err(Some(113)), "{}", site.logs());
    // A protocol that no socket speaks (RFC 3692).
    let experiment = user.enter(|| Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(253))));
    let experiment = experiment.expect("the namespace").expect("a socket");
    experiment
        .set_read_timeout(Some(Duration::from_secs(3)))
        .expect("a timeout");
    experiment
        .connect(&std::net::SocketAddr::from((WEB, 0)).into())
        .expect("a route");
    experiment.send(b"is this a protocol?").expect("a packet");
    let heard = UdpSocket::from(experiment).recv(&mut [0; 10]);
    let heard = heard.map_err(|error| error.raw_os_error());
    assert_eq!(heard, Err(Some(113)), "{}", site.logs());
    let [_, server] = packets(&site);
    assert_eq!(server["dropped"]["policy"], 1, "{server}");
    assert_eq!(server["dropped"]["unsupported"], 1, "{server}");
}

/// Packets that come for a user while the server does not run.
#[test]
fn what_waits_for_a_busy_server_crosses_or_is_counted() {
    if !privileged("packets: a burst") {
        return;
    }
    let site = site(true);
    let places = [site.topology.gateway(), site.topology.user()];
    let lost = || places.map(|place| counter(place, "Udp: ", "RcvbufErrors").expect("a counter"));
    let dropped = || packets(&site).map(|packets| total(&packets["dropped"]));
    // As many as the kernel's own size of a socket's buffer does not hold, then more than any that we may have.
    for (count, held) in [(300, true), (8000, false)] {
        let before = (lost(), dropped());
        let came = burst(&site, count).expect("sockets");
        let after = (lost(), dropped());
        let [gateway, user] = [0, 1].map(|place| after.0[place] - before.0[place]);
        let counted: u64 = [0, 1]
            .map(|side| after.1[side] - before.1[side])
            .iter()
            .sum();
        println!(
            "{came} of {count} came; lost at the server {gateway}, at the user {user}; counted {counted}"
        );
        assert_eq!(gateway == 0, held, "{}", site.logs());
        assert_eq!(came + counted + user, count, "{}", site.logs());
    }
}

/// Sends so many packets to a mapping while the server is stopped; how many come when it goes on.
fn burst(site: &Site, count: u64) -> Result<u64> {
    let far = bind(site.topology.web(), WEB.into())?;
    let near = bind(site.topology.user(), any(WEB.into()))?;
    near.connect(far.local_addr()?)?;
    near.send(b"tell me all")?;
    let (_, asker) = far.recv_from(&mut [0; 100])?;
    site.server().signal(Signal::STOP)?;
    let arrived = || counter(site.topology.gateway(), "Ip: ", "InReceives");
    let before = arrived()?;
    let deadline = Instant::now() + Duration::from_secs(60);
    for number in 1..=count {
        far.send_to(&[0; 200], asker)?;
        // The kernel's queue between the two is short, and drops in silence.
        while number % 100 == 0 && arrived()? < before + number {
            ensure!(Instant::now() < deadline, "lost before the server");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    site.server().signal(Signal::CONT)?;
    let mut came = 0;
    while near.recv(&mut [0; 300]).is_ok() {
        came += 1;
    }
    Ok(came)
}

/// Counter of the kernel in `place` for a protocol (RFC 4293, RFC 4113).
fn counter(place: &NetNs, protocol: &str, counted: &str) -> Result<u64> {
    let counters = place.run("cat", &["/proc/net/snmp"])?;
    let mut lines = counters.lines().filter(|line| line.starts_with(protocol));
    let (names, values) = (lines.next(), lines.next());
    let names = names.into_iter().flat_map(str::split_whitespace);
    let mut both = names.zip(values.into_iter().flat_map(str::split_whitespace));
    let (_, value) = both
        .find(|(name, _)| *name == counted)
        .context(counters.clone())?;
    Ok(value.parse()?)
}

fn total(dropped: &Value) -> u64 {
    let causes = dropped
        .as_object()
        .into_iter()
        .flat_map(|causes| causes.values());
    causes.filter_map(Value::as_u64).sum()
}

#[test]
fn the_table_of_sockets_is_bounded() {
    if !privileged("packets: many sockets") {
        return;
    }
    let site = site(false);
    let user = site.topology.user();
    let sink = bind(site.topology.web(), WEB.into()).expect("a sink");
    let to = sink.local_addr().expect("an address");
    let send = |_| -> Result<UdpSocket> {
        let socket = bind(user, Ipv4Addr::UNSPECIFIED.into())?;
        socket.send_to(b"one more", to)?;
        std::thread::sleep(Duration::from_millis(1));
        Ok(socket)
    };
    let held: Result<Vec<_>> = (0..MAPPINGS + 100).map(send).collect();
    assert_eq!(held.expect("sockets").len(), MAPPINGS + 100);
    let [_, server] = packets(&site);
    assert_eq!(server["mappings"], MAPPINGS, "{server}\n{}", site.logs());
    // Who has not been answered gives way to who comes.
    let echo = Echo::start(site.topology.web(), WEB.into()).expect("an echo");
    shown(&site, cross(user, &echo, 50, 100).map(drop));
    assert_eq!(packets(&site)[1]["mappings"], MAPPINGS);
    // This server's group may not ping, and says so.
    let script = format!("ping -n -c 1 -W 3 {WEB} || true");
    let said = user.run("sh", &["-c", &script]).expect("ping");
    assert!(said.contains("Packet filtered"), "{said}");
    for packets in packets(&site) {
        assert_eq!(packets["carried"], "udp", "{packets}");
    }
}
