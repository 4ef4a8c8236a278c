//! Everything that the tunnel carries: connections, names, packets and published ports, over IPv4 and IPv6.

use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use bentpipe_emulator::topology::{GATEWAY_WAN, USER, WEB, WEB6};
use bentpipe_testbed::datagrams::{PacketEcho, ask};
use bentpipe_testbed::echo::{Echo, cross};
use bentpipe_testbed::peer::{Service, echo, read_exactly};
use bentpipe_testbed::route::Place;
use bentpipe_testbed::site::{Site, SiteConfig};
use bentpipe_testbed::transfer::{Transfer, Way};

use super::{RTT, SLACK, route, talk};
use crate::dns::resolver::TRUE;
use crate::dns::{Host, LISTEN, verdict};
use crate::packets::{assigned, ping};
use crate::{BENTPIPE, publish};

/// Published ports of the server: connections and packets.
const PUBLISHED: [u16; 2] = [8080, 5000];

/// Ports of the host that they lead to.
const HOST: [u16; 2] = [7001, 6000];

/// Configuration of a site that carries everything.
pub(super) fn config() -> SiteConfig {
    let [connections, packets] = PUBLISHED;
    let [host_connections, host_packets] = HOST;
    SiteConfig {
        server_tables: format!("[dns]\nservers = \"{WEB}\"\n"),
        grants: format!("publish = [\"tcp/{connections}\", \"udp/{packets}\"]"),
        client_tables: format!(
            "[intercept]\ninterfaces = [\"lan0\"]\nother = \"tunnel\"\n[dns]\nlisten = \"{LISTEN}\"\n\
             [[publish]]\nport = {connections}\nto = \"{USER}:{host_connections}\"\n\
             [[publish]]\nprotocol = \"udp\"\nport = {packets}\nto = \"{USER}:{host_packets}\"\n"
        ),
        ..SiteConfig::new(BENTPIPE)
    }
}

/// Fails unless everything crosses; a resolver of the web's knows `name`, for which nobody has asked so far.
pub(super) fn crosses(site: &Site, name: &str) -> Result<()> {
    connections(site).context("TCP")?;
    names(site, name).context("DNS")?;
    packets(site).context("packets")?;
    published(site).context("published ports")
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
    println!("{what} takes {took:?}");
    ensure!(took >= RTT && took <= RTT + SLACK, "{what}: {took:?}");
    Ok(())
}

/// A name that has not been asked for is answered in one round trip.
fn names(site: &Site, name: &str) -> Result<()> {
    let began = Instant::now();
    let (answer, _) = Host::at(site).ask(LISTEN.parse()?, name)?;
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
