//! Flows that are sealed beside the tunnel: what crosses so, what goes through the tunnel instead, and what ends them.

use std::fs;
use std::io::Read as _;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bentpipe_emulator::topology::{GATEWAY_SAT, LINK_DEVICE, WEB};
use bentpipe_lab::capture::{Capture, ExpectedPackets, Tunnel};
use bentpipe_testbed::expect_tunnel_alone;
use bentpipe_testbed::peer::{Service, echo, read_to_reset};
use bentpipe_testbed::reload::reload;
use bentpipe_testbed::route::Place;
use bentpipe_testbed::site::{PORT, Site, SiteConfig};
use bentpipe_testbed::transfer::{Transfer, Way};

use super::{RTT, SLACK, SOON, connect, echo_address, exchange, on_site, route, talk};
use crate::BENTPIPE;

/// TCP port of the server for outer connections.
const OUTER: u16 = 4434;

/// Time for which a client waits for an outer connection.
const CONNECT: Duration = Duration::from_secs(5);

/// Time that a host waits for an end.
const PATIENCE: Duration = Duration::from_secs(10);

/// Configuration of a site whose connections are sealed one by one.
pub(crate) fn sealing() -> SiteConfig {
    SiteConfig {
        server_tables: format!("[sle]\nlisten = \"{GATEWAY_SAT}:{OUTER}\"\n"),
        client_tables: "[intercept]\ninterfaces = [\"lan0\"]\nother = \"tunnel\"\n[sle]\n".into(),
        ..SiteConfig::new(BENTPIPE)
    }
}

/// A figure of the client's `status` about sealed flows.
fn figure(site: &Site, name: &str) -> Result<u64> {
    Ok(site.client_report()?["sle"][name]
        .as_u64()
        .unwrap_or_default())
}

#[test]
fn flows_are_sealed_beside_the_tunnel() {
    on_site("sealed flows", sealing(), |site| {
        let outer = ExpectedPackets {
            tunnel: Tunnel::Tcp(OUTER),
            idle: [Some(Tunnel::Udp(PORT)), None, None],
            names_beside: false,
        };
        let capture = Capture::start(site.topology.terminal(), LINK_DEVICE, outer)?;
        let web = Service::start(&Place::from(site.topology.web()), echo_address(), echo)?;
        let began = Instant::now();
        let mut stream = connect(site, web.address, RTT)?;
        exchange(&mut stream)?;
        let took = began.elapsed();
        // As clear TCP: one round trip for the outer connection, one for the answer.
        ensure!(took <= 2 * RTT + SLACK, "answered after {took:?}");
        let download = Transfer::start(&route(site, RTT), Way::Download, 3_000_000)?;
        let upload = Transfer::start(&route(site, RTT), Way::Upload, 3_000_000)?;
        let web = WEB.to_string();
        let ping = ["-c", "1", "-W", "5", &web];
        site.topology.user().run("ping", &ping)?;
        download.finish_whole()?;
        upload.finish_whole()?;
        let flows = figure(site, "flows_total")?;
        ensure!(flows == 3, "{flows} sealed flows");
        for name in ["bytes_in", "bytes_out"] {
            let bytes = figure(site, name)?;
            let most = 3_000_000 + 3_000_000 / 60;
            ensure!((3_000_000..most).contains(&bytes), "{name}: {bytes}");
        }
        let broken = figure(site, "broken_total")?;
        ensure!(broken == 0, "{broken} broken");
        expect_tunnel_alone(capture)
    });
}

#[test]
fn flows_that_cannot_be_sealed_go_through_the_tunnel() {
    on_site("a way that is shut", sealing(), |site| {
        let web = Service::start(&Place::from(site.topology.web()), echo_address(), echo)?;
        let table = format!(
            "add table inet shut; \
             add chain inet shut input {{ type filter hook input priority -300; }}; \
             add rule inet shut input tcp dport {OUTER} drop"
        );
        site.topology.gateway().run("nft", &[&table])?;
        let began = Instant::now();
        exchange(&mut connect(site, web.address, RTT)?)?;
        let took = began.elapsed();
        ensure!(took <= CONNECT + RTT + SLACK, "answered after {took:?}");
        let line = "flows cannot be sealed beside the tunnel";
        site.client().wait_for_line(line, SOON)?;
        // Nobody waits for it again.
        let began = Instant::now();
        exchange(&mut connect(site, web.address, RTT)?)?;
        let took = began.elapsed();
        ensure!(took <= RTT + SLACK, "answered after {took:?}");
        let fell_back = figure(site, "fell_back_total")?;
        ensure!(fell_back == 2, "{fell_back} fell back");
        Ok(())
    });
}

#[test]
fn a_server_without_sealed_flows_gets_them_through_the_tunnel() {
    let config = SiteConfig {
        server_tables: String::new(),
        ..sealing()
    };
    on_site("a server without [sle]", config, |site| {
        exchange(&mut talk(&route(site, RTT))?)?;
        let line = "the server seals no flows";
        site.client().wait_for_line(line, SOON)
    });
}

#[test]
fn sealed_flows_end_with_the_rights_of_their_client_and_with_its_server() {
    on_site("rights of sealed flows", sealing(), |site| {
        let mut permitted = talk(&route(site, RTT))?;
        let server = site.server_file();
        let whole = fs::read_to_string(&server)?;
        let narrow = whole.replace("allow = [", "allow = [\"192.0.2.1\"] # [");
        ensure!(narrow != whole, "no `allow` in {whole}");
        fs::write(&server, narrow)?;
        reload(site, "reloaded: +0 -0 ~1 clients")?;
        read_to_reset(&mut permitted)?;

        fs::write(&server, whole)?;
        reload(site, "reloaded: +0 -0 ~1 clients")?;
        let mut flow = talk(&route(site, RTT))?;
        let flows = figure(site, "flows_active")?;
        ensure!(flows == 1, "{flows} sealed flows");
        site.kill_server()?;
        read_to_reset(&mut flow)?;
        Ok(())
    });
}

#[test]
fn a_client_that_is_removed_loses_its_sealed_flows_at_once() {
    on_site("a removed client's sealed flows", sealing(), |site| {
        let mut flow = talk(&route(site, RTT))?;
        let flows = figure(site, "flows_active")?;
        ensure!(flows == 1, "{flows} sealed flows");
        let server = site.server_file();
        let whole = fs::read_to_string(&server)?;
        let (rest, _) = whole.split_once("[[client]]").context("no client")?;
        fs::write(&server, rest)?;
        reload(site, "removed from the configuration")?;
        let began = Instant::now();
        read_to_reset(&mut flow)?;
        let took = began.elapsed();
        ensure!(took <= RTT + SLACK, "reset after {took:?}");
        Ok(())
    });
}

#[test]
fn a_client_that_is_given_a_rate_seals_no_more() {
    on_site("a rate beside sealed flows", sealing(), |site| {
        let mut unpaced = talk(&route(site, RTT))?;
        let server = site.server_file();
        let whole = fs::read_to_string(&server)?;
        let paced = whole.replace("[[client]]\n", "[[client]]\nmax_rate = \"8 Mbit/s\"\n");
        ensure!(paced != whole, "no client in {whole}");
        fs::write(&server, paced)?;
        reload(site, "has a max_rate now")?;
        read_to_reset(&mut unpaced)?;
        // The word of it crosses beside the reset.
        let told = "the server seals no more flows";
        site.client().wait_for_line(told, SOON)?;
        talk(&route(site, RTT))?;
        let sealed = figure(site, "flows_total")?;
        ensure!(sealed == 1, "{sealed} sealed flows");
        Ok(())
    });
}

/// Ends a connection at once.
fn hang_up(stream: TcpStream) -> Result<()> {
    drop(stream);
    Ok(())
}

/// The end of the destination and its answer cross in one segment, and the client has no connection of the host to end yet.
#[test]
fn an_end_that_comes_with_the_answer_reaches_the_host() {
    let config = SiteConfig {
        client_tables: format!("{}[[rule]]\noptimistic = false\n", sealing().client_tables),
        ..sealing()
    };
    on_site("an early end of sealed flows", config, |site| {
        let web = Service::start(&Place::from(site.topology.web()), echo_address(), hang_up)?;
        for _ in 0..5 {
            let mut stream = connect(site, web.address, PATIENCE)?;
            let mut said = Vec::new();
            stream.read_to_end(&mut said)?;
            ensure!(said.is_empty(), "{said:?}");
        }
        let flows = figure(site, "flows_total")?;
        ensure!(flows == 5, "{flows} sealed flows");
        Ok(())
    });
}
