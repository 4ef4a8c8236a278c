//! Everything that the tunnel carries, over TLS, and nothing beside it.

use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bentpipe_emulator::topology::{GATEWAY_WAN, LINK_DEVICE, USER, WEB, WEB6};
use bentpipe_lab::capture::{Capture, Tunnel};
use bentpipe_testbed::datagrams::{PacketEcho, ask};
use bentpipe_testbed::echo::{Echo, cross};
use bentpipe_testbed::expect_tunnel_alone;
use bentpipe_testbed::peer::{Service, echo, read_exactly};
use bentpipe_testbed::route::Place;
use bentpipe_testbed::site::{Site, SiteConfig, TLS_PORT, near};
use bentpipe_testbed::transfer::{Transfer, Way};

use super::wire::tunnel;
use super::{RTT, SLACK, on_site, route, talk, wire_is};
use crate::dns::resolver::{Resolver, TRUE};
use crate::dns::{Host, LISTEN, verdict, web};
use crate::packets::{assigned, ping};
use crate::{BENTPIPE, publish};

/// Published ports of the server: connections and packets.
const PUBLISHED: [u16; 2] = [8080, 5000];

/// Ports of the host that they lead to.
const HOST: [u16; 2] = [7001, 6000];

/// A site that carries everything, and uses no UDP.
fn config() -> SiteConfig {
    let [connections, packets] = PUBLISHED;
    let [host_connections, host_packets] = HOST;
    let config = SiteConfig {
        server_tables: format!("[dns]\nservers = \"{WEB}\"\n"),
        grants: format!("publish = [\"tcp/{connections}\", \"udp/{packets}\"]"),
        client_tables: format!(
            "[intercept]\ninterfaces = [\"lan0\"]\nother = \"tunnel\"\n[dns]\nlisten = \"{LISTEN}\"\n\
             [[publish]]\nport = {connections}\nto = \"{USER}:{host_connections}\"\n\
             [[publish]]\nprotocol = \"udp\"\nport = {packets}\nto = \"{USER}:{host_packets}\"\n"
        ),
        ..SiteConfig::new(BENTPIPE)
    };
    config.with_tls("tls")
}

#[test]
fn everything_crosses_over_tls() {
    on_site("everything over TLS", config(), |site| {
        let door = Tunnel::Tcp(TLS_PORT);
        let capture = Capture::start(site.topology.terminal(), LINK_DEVICE, door)?;
        wire_is(site, "tls")?;
        connections(site).context("TCP")?;
        names(site).context("DNS")?;
        packets(site).context("packets")?;
        published(site).context("published ports")?;
        wire_is(site, "tls")?;
        expect_tunnel_alone(capture)
    });
}

/// The share of what had to wait for lost packets is that of the kernel's counters.
#[test]
fn status_tells_how_much_waited_for_lost_packets() {
    let config = SiteConfig {
        scenario: near(),
        ..SiteConfig::new(BENTPIPE)
    };
    on_site("losses over TLS", config.with_tls("tls"), |site| {
        let [route, _] = site.routes();
        Transfer::start(&route, Way::Download, 10_000_000)?.finish_whole()?;
        // Figures of the last second.
        thread::sleep(Duration::from_secs(2));
        let told = tunnel(site)?["receiving"]["blocked_ratio"].as_f64();
        let told = told.context("no share")?;
        let filter = format!("dport = :{TLS_PORT}");
        let sockets = site.topology.terminal().run("ss", &["-tinH", &filter])?;
        let counter = |name: &str| -> Result<f64> {
            let value = sockets
                .split_whitespace()
                .find_map(|word| word.strip_prefix(name));
            Ok(value.context("no counter")?.parse()?)
        };
        let counted = counter("rcv_ooopack:")? / counter("data_segs_in:")?;
        println!("{told:.3} waited, {counted:.3} counted");
        ensure!(
            told > 0.01 && (told - counted).abs() < 0.01,
            "{told}, {counted}"
        );
        Ok(())
    });
}

/// A request takes one round trip; both directions carry at once, over IPv4 and IPv6.
fn connections(site: &Site) -> Result<()> {
    let web = Service::start(
        &Place::from(site.topology.web()),
        super::echo_address(),
        echo,
    )?;
    let mut stream = super::connect(site, web.address, RTT)?;
    let began = Instant::now();
    super::exchange(&mut stream)?;
    in_one_round_trip("a request", began)?;
    let [_, other] = site.routes();
    let _idle = talk(&other)?;
    let transfers = [
        Transfer::start(&route(site, RTT), Way::Download, 3_000_000)?,
        Transfer::start(&other, Way::Upload, 3_000_000)?,
    ];
    for transfer in transfers {
        transfer.finish_whole()?;
    }
    Ok(())
}

/// `began` is no more than a round trip ago.
fn in_one_round_trip(what: &str, began: Instant) -> Result<()> {
    let took = began.elapsed();
    println!("{what} over TLS takes {took:?}");
    ensure!(took >= RTT && took <= RTT + SLACK, "{what}: {took:?}");
    Ok(())
}

fn names(site: &Site) -> Result<()> {
    let _resolver = Resolver::start(&Place::from(site.topology.web()), web())?;
    let began = Instant::now();
    let (answer, _) = Host::at(site).ask(LISTEN.parse()?, "www.example.com")?;
    in_one_round_trip("a name", began)?;
    ensure!(
        verdict(&answer) == (0, Some(TRUE)),
        "{:?}",
        verdict(&answer)
    );
    Ok(())
}

/// Pings of each size that is framed in its own way, and a call whose every packet comes back.
fn packets(site: &Site) -> Result<()> {
    assigned(site);
    let user = site.topology.user();
    for (web, largest) in [(IpAddr::V4(WEB), 1472), (IpAddr::V6(WEB6), 1452)] {
        for size in [56, largest, 4000] {
            ping(user, &web.to_string(), size).with_context(|| format!("{size} bytes to {web}"))?;
        }
        let echo = Echo::start(site.topology.web(), web)?;
        let median = cross(user, &echo, 500, 250)?;
        ensure!(median >= RTT && median <= RTT + SLACK, "{median:?}");
    }
    Ok(())
}

fn published(site: &Site) -> Result<()> {
    let user = site.topology.user();
    let [at, packets] = HOST.map(|port| SocketAddr::from((USER, port)));
    let _service = Service::start(&Place::from(user), at, echo)?;
    let _echo = PacketEcho::start(user, packets)?;
    for (protocol, port) in ["tcp", "udp"].into_iter().zip(PUBLISHED) {
        publish::expect(site, protocol, port, "open")?;
    }
    let [connections, packets] = PUBLISHED.map(|port| SocketAddr::from((GATEWAY_WAN, port)));
    let mut stream = publish::connect(site, connections)?;
    stream.write_all(b"hello")?;
    ensure!(
        read_exactly(&mut stream, 5)? == b"hello",
        "heard something else"
    );
    let (answer, own) = ask(site, WEB.into(), packets)?;
    ensure!(answer == Some(format!("{own} hello")), "{answer:?}");
    Ok(())
}
