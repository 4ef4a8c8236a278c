//! Prefixes of the LAN that the server routes to the client as they are, through real daemons: connections, packets and pings
//! that hosts behind the server begin, by real addresses both ways, over IPv4 and IPv6; only where both ends ask for it.
//! Needs root.

use std::io::Write as _;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bentpipe_emulator::topology::{
    LINK_DEVICE, TERMINAL_LAN, TERMINAL_LAN6, USER, USER6, WEB, WEB6,
};
use bentpipe_lab::capture::{Capture, Tunnel};
use bentpipe_sys::netns::NetNs;
use bentpipe_testbed::datagrams::{PacketEcho, ask};
use bentpipe_testbed::echo::{Echo, cross, echoes};
use bentpipe_testbed::edit::edit;
use bentpipe_testbed::peer::{
    Service, echo, payload, read_exactly, read_to_eof, set_patience, who,
};
use bentpipe_testbed::reload::reload;
use bentpipe_testbed::route::Place;
use bentpipe_testbed::site::{Site, SiteConfig, TLS_PORT, geo, near};
use bentpipe_testbed::{expect_tunnel_alone, privileged};

use crate::BENTPIPE;

const PATIENCE: Duration = Duration::from_secs(10);

/// Who begins, the host in the LAN, and the client's router there.
const SIDES: [[IpAddr; 3]; 2] = [
    [IpAddr::V4(WEB), IpAddr::V4(USER), IpAddr::V4(TERMINAL_LAN)],
    [
        IpAddr::V6(WEB6),
        IpAddr::V6(USER6),
        IpAddr::V6(TERMINAL_LAN6),
    ],
];

const ROUTES: &str = "routes = [\"10.10.0.0/24\", \"fd00:10::/64\"]\n";

const INTERCEPT: &str = "[intercept]\ninterfaces = [\"lan0\"]\n";

const ECHO: u16 = 7001;
const WHO: u16 = 7002;
const PACKETS: u16 = 6000;
const NOBODY: u16 = 6001;

/// Over a short path that loses nothing.
fn config(server: bool, client: bool) -> SiteConfig {
    let mut scenario = near();
    scenario.errors = geo().errors;
    let routes = |named: bool| if named { ROUTES } else { "" };
    SiteConfig {
        scenario,
        grants: routes(server).into(),
        client_tables: format!("{INTERCEPT}{}", routes(client)),
        ..SiteConfig::new(BENTPIPE)
    }
}

/// `routed` or `unrouted` of the client's status.
fn said(site: &Site, key: &str) -> Result<Vec<String>> {
    let listed = site.client_report()?["packets"][key].as_array().cloned();
    let listed = listed.unwrap_or_default().into_iter();
    Ok(listed
        .filter_map(|prefix| Some(prefix.as_str()?.to_owned()))
        .collect())
}

/// Waits until the client says that both prefixes are `key`.
fn expect(site: &Site, key: &str) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let listed = said(site, key);
        if let Ok(listed) = &listed
            && *listed == ["10.10.0.0/24", "fd00:10::/64"]
        {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{key}: {listed:?}");
        thread::sleep(Duration::from_millis(100));
    }
}

/// Until a packet from the web is answered: the client's rules follow what it says by some milliseconds.
fn until_reached(site: &Site, from: IpAddr, host: IpAddr) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (answer, own) = ask(site, from, (host, PACKETS).into())?;
        // The host sees who has sent it.
        if answer == Some(format!("{own} hello")) {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{host}: {answer:?}");
    }
}

fn unreached(site: &Site, hosts: &[PacketEcho]) -> Result<()> {
    for [web, host, _] in SIDES {
        let (answer, _) = ask(site, web, (host, PACKETS).into())?;
        ensure!(answer.is_none(), "{host}: {answer:?}");
    }
    ensure!(!hosts.iter().any(PacketEcho::has_heard));
    Ok(())
}

fn packet_echoes(site: &Site) -> Result<[PacketEcho; 2]> {
    let start = |host: IpAddr| PacketEcho::start(site.topology.user(), (host, PACKETS).into());
    Ok([start(SIDES[0][1])?, start(SIDES[1][1])?])
}

#[test]
fn a_routed_prefix_is_reached_by_its_own_addresses() {
    if !privileged("routes: a routed prefix is reached") {
        return;
    }
    let mut site = Site::start(config(true, true)).expect("a site");
    let capture = site.watch().expect("a capture");
    let result = everything(&site);
    result.unwrap_or_else(|error| panic!("{error:#}\n{}", site.logs()));
    expect_tunnel_alone(capture).expect("the tunnel alone");
    let gateway = site.topology.gateway().clone();
    let routes = || {
        let shown = ["-4", "-6"].map(|family| gateway.run("ip", &[family, "route"]));
        shown.map(|shown| shown.expect("ip")).concat()
    };
    assert!(
        routes().contains("10.10.0.0/24 dev bentpipe0"),
        "{}",
        routes()
    );
    site.stop_server().expect("a stop");
    assert!(!routes().contains("bentpipe0"), "{}", routes());
}

#[test]
fn a_routed_prefix_is_reached_over_tls() {
    if !privileged("routes: a routed prefix over TLS") {
        return;
    }
    let site = Site::start(config(true, true).with_tls("tls")).expect("a site");
    let door = Tunnel::Tcp(TLS_PORT);
    let capture = Capture::start(site.topology.terminal(), LINK_DEVICE, door).expect("a capture");
    let result = everything(&site);
    result.unwrap_or_else(|error| panic!("{error:#}\n{}", site.logs()));
    expect_tunnel_alone(capture).expect("the tunnel alone");
}

/// Where the server has no LES, what the client would seal goes through the tunnel: also answers to connections from there.
#[test]
fn a_routed_prefix_answers_where_the_client_asks_for_les_in_vain() {
    if !privileged("routes: a client that asks for LES in vain") {
        return;
    }
    let mut config = config(true, true);
    config.client_tables += "[les]\ndestinations = [\"10.30.0.0/24\", \"fd00:30::/64\"]\n";
    let site = Site::start(config).expect("a site");
    let (patience, line) = (Duration::from_secs(20), "the server has no LES");
    let said = site.client().wait_for_line(line, patience);
    said.expect("no LES");
    let result = everything(&site);
    result.unwrap_or_else(|error| panic!("{error:#}\n{}", site.logs()));
}

fn everything(site: &Site) -> Result<()> {
    expect(site, "routed")?;
    let _packets = packet_echoes(site)?;
    let user = Place::from(site.topology.user());
    for [web, host, router] in SIDES {
        until_reached(site, web, host)?;
        let _echo = Service::start(&user, (host, ECHO).into(), echo)?;
        let _who = Service::start(&user, (host, WHO).into(), who)?;
        connections(site, host)?;
        let from = site.topology.web();
        for to in [host, router] {
            let said = ping(from, &["-c", "3", "-i", "0.2"], to)?;
            ensure!(said.contains(" 0% packet loss"), "{said}");
        }
        // As large as the device takes.
        let size = if host.is_ipv4() { "1472" } else { "1452" };
        let said = ping(from, &["-c", "1", "-s", size], host)?;
        ensure!(said.contains(" 0% packet loss"), "{said}");
        // The client's router shows on the way, by its address in the LAN.
        let said = ping(from, &["-c", "1", "-t", "2"], host)?;
        ensure!(said.contains(&format!("From {router}")), "{said}");
        closed(site, web, host)?;
        outward(site, web, host)?;
    }
    Ok(())
}

fn ping(from: &NetNs, more: &[&str], to: IpAddr) -> Result<String> {
    let script = format!("ping -n -W 3 {} {to} || true", more.join(" "));
    from.run("sh", &["-c", &script]).map_err(Into::into)
}

fn connect(site: &Site, to: SocketAddr) -> Result<TcpStream> {
    let connect = || TcpStream::connect_timeout(&to, PATIENCE);
    let stream = site.topology.web().enter(connect)??;
    set_patience(&stream, PATIENCE)?;
    Ok(stream)
}

fn connections(site: &Site, host: IpAddr) -> Result<()> {
    let said = payload(1 << 20);
    let mut stream = connect(site, (host, ECHO).into())?;
    let mut writer = stream.try_clone()?;
    let text = said.clone();
    let writing = thread::spawn(move || {
        writer.write_all(&text)?;
        writer.shutdown(Shutdown::Write)
    });
    let heard = read_to_eof(&mut stream).with_context(|| format!("echo of {host}"))?;
    writing.join().expect("it ends")?;
    ensure!(heard == said, "{} bytes came back from {host}", heard.len());
    let mut stream = connect(site, (host, WHO).into())?;
    let own = stream.local_addr()?.ip().to_string();
    let peer = String::from_utf8(read_to_eof(&mut stream)?)?;
    ensure!(peer.trim() == own, "{host} has seen {peer}");
    Ok(())
}

/// The host's own word that nobody listens comes back.
fn closed(site: &Site, web: IpAddr, host: IpAddr) -> Result<()> {
    let socket = site.topology.web().enter(|| UdpSocket::bind((web, 0)))??;
    socket.connect((host, NOBODY))?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.send(b"is anybody there?")?;
    let heard = socket.recv(&mut [0; 100]).map_err(|error| error.kind());
    ensure!(
        heard == Err(std::io::ErrorKind::ConnectionRefused),
        "{host}: {heard:?}"
    );
    Ok(())
}

/// What the LAN's host begins bears its own address as well.
fn outward(site: &Site, web: IpAddr, host: IpAddr) -> Result<()> {
    let there = site.topology.web().enter(|| UdpSocket::bind((web, 0)))??;
    there.set_read_timeout(Some(PATIENCE))?;
    let here = site
        .topology
        .user()
        .enter(|| UdpSocket::bind((host, 0)))??;
    here.send_to(b"hello", there.local_addr()?)?;
    let (_, seen) = there.recv_from(&mut [0; 8])?;
    ensure!(seen == here.local_addr()?, "{host} is seen as {seen}");
    Ok(())
}

/// Leads the prefixes to the device of the server, whatever that thinks of it.
fn lead(site: &Site) -> Result<()> {
    for (family, prefix) in [("-4", "10.10.0.0/24"), ("-6", "fd00:10::/64")] {
        let line = [family, "route", "replace", prefix, "dev", "bentpipe0"];
        site.topology.gateway().run("ip", &line)?;
    }
    Ok(())
}

#[test]
fn one_end_alone_routes_nothing() {
    if !privileged("routes: one end alone") {
        return;
    }
    for (server, client) in [(false, true), (true, false)] {
        let site = Site::start(config(server, client)).expect("a site");
        let alone = || {
            let hosts = packet_echoes(&site)?;
            if client {
                expect(&site, "unrouted")?;
            }
            ensure!(said(&site, "routed")?.is_empty());
            lead(&site)?;
            unreached(&site, &hosts)
        };
        let result = alone();
        result.unwrap_or_else(|error| panic!("{error:#}\n{}", site.logs()));
        let mend = "does not route 10.10.0.0/24, fd00:10::/64 to this client";
        assert_eq!(site.logs().contains(mend), client, "{}", site.logs());
    }
}

#[test]
fn a_reload_routes_and_takes_back_and_leaves_the_machines_own_routes_alone() {
    if !privileged("routes: reloads") {
        return;
    }
    let mut site = Site::start(config(false, true)).expect("a site");
    let result = reloads(&mut site);
    result.unwrap_or_else(|error| panic!("{error:#}\n{}", site.logs()));
}

fn reloads(site: &mut Site) -> Result<()> {
    let file = site.server_file();
    let allow = "allow = [\"10.30.0.0/24\", \"fd00:30::/64\"]\n";
    let granted = format!("{allow}{ROUTES}");
    let gateway = site.topology.gateway().clone();
    let own = ["10.10.0.0/24", "via", "10.20.0.2"];
    let route = |action: &str| gateway.run("ip", &[&["route", action], &own[..]].concat());
    route("add")?;
    edit(&file, allow, &granted)?;
    reload(site, "stay as they were")?;
    let fault = "this machine has a route of its own to 10.10.0.0/24 (`10.10.0.0/24 via 10.20.0.2";
    ensure!(site.logs().contains(fault), "no fault");
    ensure!(!route("show")?.is_empty(), "it is gone");
    route("del")?;

    reload(site, "reloaded")?;
    site.stop_client()?;
    site.start_client()?;
    expect(site, "routed")?;
    let hosts = packet_echoes(site)?;
    for [web, host, _] in SIDES {
        until_reached(site, web, host)?;
    }
    drop(hosts);

    edit(&file, &granted, allow)?;
    reload(site, "reloaded")?;
    for family in ["-4", "-6"] {
        let routes = gateway.run("ip", &[family, "route"])?;
        ensure!(!routes.contains("10::/64 dev bentpipe0"), "{routes}");
        ensure!(!routes.contains("10.10.0.0/24 dev bentpipe0"), "{routes}");
    }
    // What the LAN begins crosses as before; when the client has connected again, as that of other prefixes.
    outward_as_ever(site)?;
    site.stop_client()?;
    site.start_client()?;
    expect(site, "unrouted")?;
    outward_as_ever(site)?;
    lead(site)?;
    unreached(site, &packet_echoes(site)?)
}

fn outward_as_ever(site: &Site) -> Result<()> {
    for [web, ..] in SIDES {
        let (user, echo) = (site.topology.user(), Echo::start(site.topology.web(), web)?);
        // The client's rules follow its tunnel by some milliseconds.
        let deadline = Instant::now() + PATIENCE;
        while echoes(user, &echo, 1, 1)?.is_empty() {
            ensure!(Instant::now() < deadline, "nothing crosses to {web}");
        }
        cross(user, &echo, 20, 100)?;
    }
    Ok(())
}

/// The operator gives a client another address: it comes by a tunnel with that one, and connections go on in the old one.
#[test]
fn a_client_whose_address_is_moved_by_a_reload_gets_the_new_one_and_keeps_its_connections() {
    if !privileged("routes: a moved address") {
        return;
    }
    let mut config = config(false, false);
    config.grants = "addresses = [\"100.96.7.7\"]\n".into();
    let site = Site::start(config).expect("a site");
    let result = moves(&site);
    result.unwrap_or_else(|error| panic!("{error:#}\n{}", site.logs()));
}

fn moves(site: &Site) -> Result<()> {
    let until_assigned = |address: &str| {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let assigned = said(site, "assigned")?;
            if assigned.iter().any(|own| own == address) {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "{assigned:?}, not {address}");
            thread::sleep(Duration::from_millis(100));
        }
    };
    until_assigned("100.96.7.7")?;
    outward_as_ever(site)?;
    let web = Place::from(site.topology.web());
    let _echo = Service::start(&web, (WEB, ECHO).into(), echo)?;
    let to = SocketAddr::from((WEB, ECHO));
    let connected = || TcpStream::connect_timeout(&to, PATIENCE);
    let mut stream = site.topology.user().enter(connected)??;
    set_patience(&stream, PATIENCE)?;
    let mut says = |word: &[u8]| {
        stream.write_all(word)?;
        ensure!(read_exactly(&mut stream, word.len())? == word);
        Ok(())
    };
    says(b"before")?;
    edit(&site.server_file(), "100.96.7.7", "100.96.7.8")?;
    reload(site, "reloaded")?;
    until_assigned("100.96.7.8")?;
    outward_as_ever(site)?;
    says(b"after")?;
    ensure!(sessions(site)? == 2, "the old tunnel has a flow");
    drop(stream);
    let deadline = Instant::now() + PATIENCE;
    while sessions(site)? != 1 {
        ensure!(Instant::now() < deadline, "{} tunnels", sessions(site)?);
        thread::sleep(Duration::from_millis(100));
    }
    until_assigned("100.96.7.8")
}

/// Tunnels that the server has.
fn sessions(site: &Site) -> Result<usize> {
    let report = site.server_report()?;
    let clients = report["clients"].as_array();
    Ok(clients.context("no list of clients")?.len())
}
