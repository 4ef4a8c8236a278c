//! Everything but TCP through real daemons and the emulated satellite: ping, traceroute, UDP, WireGuard, over IPv4 and IPv6.
//!
//! Needs root. Nothing but the tunnel crosses the link while they run.
mod bulk;
mod http3;
mod kept;
mod neighbours;
mod sockets;
mod wireguard;

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bentpipe_emulator::topology::{GATEWAY_SAT, GATEWAY_WAN, WEB, WEB6};
use bentpipe_link::Scenario;
use bentpipe_sys::netns::NetNs;
use bentpipe_testbed::echo::{Echo, any, bind, cross, echoes, median};
use bentpipe_testbed::site::{Site, SiteConfig, near};
use bentpipe_testbed::{expect_tunnel_alone, installed, privileged};

use crate::BENTPIPE;

const WEBS: [IpAddr; 2] = [IpAddr::V4(WEB), IpAddr::V6(WEB6)];

/// A site over a short path that loses nothing.
fn site() -> Site {
    near_site("")
}

/// [`site`] with more keys of `[intercept]`.
fn near_site(keys: &str) -> Site {
    site_with(near(), keys)
}

/// [`site`] with another link, which loses nothing either.
fn site_over(scenario: Scenario) -> Site {
    site_with(scenario, "")
}

fn site_with(mut scenario: Scenario, keys: &str) -> Site {
    scenario.errors = bentpipe_testbed::site::geo().errors;
    let site = Site::start(SiteConfig {
        scenario,
        client_tables: format!("[intercept]\ninterfaces = [\"lan0\"]\n{keys}"),
        ..SiteConfig::new(BENTPIPE)
    })
    .expect("a site");
    assigned(&site);
    site
}

/// The addresses on the client's device, once it has them.
pub(crate) fn assigned(site: &Site) -> Vec<String> {
    assigned_at(site, site.topology.terminal())
}

/// [`assigned`] of the client at `terminal`.
fn assigned_at(site: &Site, terminal: &NetNs) -> Vec<String> {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let routes = terminal.run("ip", &["route", "show", "table", "all", "dev", "bentpipe0"]);
        let listing = terminal.run("ip", &["-o", "addr", "show", "dev", "bentpipe0"]);
        let listing = listing.expect("the device");
        let words = listing.split_whitespace();
        let assigned =
            words.filter(|word| word.starts_with("100.96.") || word.starts_with("fd62:"));
        let mut assigned: Vec<_> = assigned.map(str::to_owned).collect();
        assigned.sort_unstable();
        if assigned.len() == 2 && routes.is_ok_and(|routes| routes.contains("default")) {
            return assigned;
        }
        assert!(Instant::now() < deadline, "{listing}\n{}", site.logs());
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn what_is_not_tcp_crosses_and_in_the_tunnel_alone() {
    if !privileged("packets: everything crosses") {
        return;
    }
    let site = site();
    let capture = site.watch().expect("a capture");
    let result = everything(&site);
    result.unwrap_or_else(|error| panic!("{error:#}\n{}", site.logs()));
    expect_tunnel_alone(capture).expect("the tunnel alone");
}

fn everything(site: &Site) -> Result<()> {
    let user = site.topology.user();
    for web in WEBS {
        let address = web.to_string();
        ping(user, &address, 56).with_context(|| format!("ping {web}"))?;
        // A packet as large as the device takes crosses in two datagrams.
        let overhead = if web.is_ipv4() { 28 } else { 48 };
        ping(user, &address, 1500 - overhead).with_context(|| format!("large ping {web}"))?;
        // And a larger one in two packets.
        ping(user, &address, 4000).with_context(|| format!("fragments to {web}"))?;
        let echo = Echo::start(site.topology.web(), web)?;
        cross(user, &echo, 3000, 1000)?;
    }
    refused(site)
}

pub(crate) fn ping(user: &NetNs, address: &str, size: usize) -> Result<()> {
    let size = size.to_string();
    let said = user.run(
        "ping",
        &[
            "-n", "-c", "3", "-i", "0.2", "-W", "3", "-s", &size, address,
        ],
    )?;
    ensure!(said.contains(" 0% packet loss"), "{said}");
    Ok(())
}

/// A closed port on the far side is heard of as if nothing were between.
fn refused(site: &Site) -> Result<()> {
    for web in WEBS {
        let closed = bind(site.topology.web(), web)?.local_addr()?;
        let socket = bind(site.topology.user(), any(web))?;
        socket.connect(closed)?;
        socket.send(b"is anybody there?")?;
        let heard = socket.recv(&mut [0; 100]).map_err(|error| error.kind());
        ensure!(
            heard == Err(ErrorKind::ConnectionRefused),
            "{web}: {heard:?}"
        );
    }
    Ok(())
}

/// The 60,000 packets of a call of a minute at 1,000 packets a second.
#[test]
#[ignore = "takes three minutes"]
fn a_minute_of_udp_loses_nothing() {
    let _alone = crate::alone();
    if !privileged("packets: a minute") {
        return;
    }
    let site = site();
    let mut medians = Vec::new();
    for web in WEBS {
        let echo = Echo::start(site.topology.web(), web).expect("an echo");
        let crossed = cross(site.topology.user(), &echo, 60_000, 1000);
        medians.push(crossed.unwrap_or_else(|error| panic!("{error:#}\n{}", site.logs())));
    }
    if !installed("packets: beside WireGuard", "wireguard-go") {
        return;
    }
    let ends = [site.topology.terminal(), site.topology.gateway()];
    let delays = wireguard::between(&site, ends, GATEWAY_SAT, || {
        let echo = Echo::start(ends[1], wireguard::FAR.into())?;
        echoes(ends[0], &echo, 60_000, 1000)
    });
    let bare = median(&delays.expect("WireGuard"));
    println!("UDP echo through wireguard-go, without the LANs: median {bare:?}");
    for median in medians {
        assert!(
            median <= bare + Duration::from_millis(1),
            "{median:?} {bare:?}"
        );
    }
}

/// Every router shows: the client's machine, the server's, then the world.
#[test]
fn traceroute_shows_client_server_and_destination() {
    if !privileged("packets: traceroute") {
        return;
    }
    let site = site();
    for web in WEBS {
        let hops: Vec<_> = (1..=3)
            .map(|hops| {
                hop(site.topology.user(), web, hops).unwrap_or_else(|error| {
                    panic!("{web}, {hops} hops: {error:#}\n{}", site.logs())
                })
            })
            .collect();
        println!("to {web}: {hops:?}");
        let pools = ["100.96.", "fd62:656e:7470::"];
        assert!(
            hops[0].starts_with("10.10.0.1") || hops[0].starts_with("fd00:10::1"),
            "{hops:?}"
        );
        assert!(
            pools.iter().any(|pool| hops[1].starts_with(pool)),
            "{hops:?}"
        );
        assert_eq!(hops[2], web.to_string());
    }
}

/// Who answers an echo request that may take so many hops.
fn hop(user: &NetNs, web: IpAddr, hops: u32) -> Result<String> {
    let (hops, address) = (hops.to_string(), web.to_string());
    let script = format!("ping -n -c 1 -W 3 -t {hops} {address} || true");
    let said = user.run("sh", &["-c", &script])?;
    let line = said
        .lines()
        .find(|line| line.starts_with("From ") || line.contains(" bytes from "));
    let line = line.with_context(|| said.clone())?;
    let word = line
        .split_whitespace()
        .nth(if line.starts_with("From ") { 1 } else { 3 });
    Ok(word.context("an address")?.trim_end_matches(':').to_owned())
}

/// The server's own addresses are not for clients; whoever asks for them is told.
#[test]
fn denied_destinations_are_answered() {
    if !privileged("packets: denied destinations") {
        return;
    }
    let site = site();
    let socket = bind(site.topology.user(), Ipv4Addr::UNSPECIFIED.into()).expect("a socket");
    socket.connect((GATEWAY_WAN, 9)).expect("a route");
    socket.send(b"let me in").expect("a packet");
    let heard = socket
        .recv(&mut [0; 10])
        .map_err(|error| error.raw_os_error());
    // "Administratively prohibited" is EHOSTUNREACH to a socket.
    assert_eq!(heard, Err(Some(113)), "{}", site.logs());
    let report = site.newer_server_report().expect("a report");
    let denied = &report["clients"][0]["packets"]["dropped"]["policy"];
    assert_eq!(denied, 1, "{report}");
}

/// A client that has lost its manners: what it sends from others' addresses goes nowhere.
#[test]
fn nobody_speaks_for_others() {
    if !privileged("packets: others' addresses") {
        return;
    }
    let site = site();
    let terminal = site.topology.terminal();
    let run = |program: &str, arguments: &str| {
        let arguments: Vec<_> = arguments.split(' ').collect();
        terminal.run(program, &arguments).expect(program)
    };
    let own = assigned(&site);
    // The client's rules would give each packet its own address: who is not tracked is not translated.
    run("nft", "add table inet liar");
    run(
        "nft",
        "add chain inet liar output { type filter hook output priority raw ; }",
    );
    run("nft", "add rule inet liar output notrack");
    let others = [
        ["100.96.0.77", "10.30.0.77", "198.51.100.7"],
        ["fd62:656e:7470::77", "fd00:30::77", "2001:db8::7"],
    ];
    for (web, others) in WEBS.into_iter().zip(others) {
        let sink = bind(site.topology.web(), web).expect("a sink");
        sink.set_read_timeout(Some(Duration::from_secs(1)))
            .expect("a timeout");
        let to = sink.local_addr().expect("an address");
        run("ip", &format!("route add {web} dev bentpipe0"));
        let send = |from: IpAddr| {
            let socket = bind(terminal, from).expect("a socket");
            socket.send_to(b"from whom?", to).expect("a packet");
        };
        let own = own
            .iter()
            .filter_map(|own| own.split('/').next()?.parse().ok());
        let own = own
            .into_iter()
            .find(|own: &IpAddr| own.is_ipv4() == web.is_ipv4());
        send(own.expect("an address"));
        sink.recv(&mut [0; 16]).expect("what is its own crosses");
        for other in others {
            let nodad = if web.is_ipv4() { "" } else { " nodad" };
            run("ip", &format!("addr add {other} dev bentpipe0{nodad}"));
            send(other.parse().expect("an address"));
        }
        let heard = sink.recv(&mut [0; 16]).map_err(|error| error.kind());
        assert_eq!(heard, Err(ErrorKind::WouldBlock), "{}", site.logs());
    }
    let report = site.newer_server_report().expect("a report");
    let dropped = &report["clients"][0]["packets"]["dropped"]["spoofed"];
    assert!(dropped.as_u64() >= Some(6), "{report}");
}

/// The addresses that a client has outlive its process and the server's; nothing that was translated to them is lost.
#[test]
fn addresses_stay_and_packets_cross_again_after_a_restart() {
    if !privileged("packets: restarts") {
        return;
    }
    let mut site = site();
    let echo = Echo::start(site.topology.web(), WEB.into()).expect("an echo");
    let crossed = cross(site.topology.user(), &echo, 50, 100);
    crossed.unwrap_or_else(|error| panic!("{error:#}\n{}", site.logs()));
    let before = assigned(&site);
    site.kill_server().expect("a kill");
    site.start_server().expect("a start");
    let deadline = Instant::now() + Duration::from_secs(15);
    while echoes(site.topology.user(), &echo, 5, 100)
        .expect("sockets")
        .len()
        < 5
    {
        assert!(Instant::now() < deadline, "{}", site.logs());
    }
    assert_eq!(assigned(&site), before);
    site.stop_client().expect("a stop");
    site.stop_server().expect("a stop");
    let rules = site
        .topology
        .gateway()
        .run("nft", &["list", "tables"])
        .expect("nft");
    assert!(!rules.contains("bentpipe"), "{rules}");
}
