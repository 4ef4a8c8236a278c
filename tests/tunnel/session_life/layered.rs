//! TCP that is sealed packet by packet beside the tunnel: what crosses so, what becomes of it without a server or without LES
//! there, and what ends it.

mod other_keys;
mod peps;

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bentpipe_emulator::topology::{GATEWAY_SAT, LINK_DEVICE};
use bentpipe_lab::capture::{Capture, CaptureReport, ExpectedPackets, Tunnel};
use bentpipe_sys::command::run_with_input;
use bentpipe_testbed::peer::{self, accept, read_exactly, read_to_reset};
use bentpipe_testbed::reload::reload;
use bentpipe_testbed::route::{Place, Route};
use bentpipe_testbed::site::{PORT, Site, SiteConfig, near};
use bentpipe_testbed::transfer::{Transfer, Way};
use serde_json::Value;

use super::{RTT, SOON, exchange, on_site, route, talk};
use crate::BENTPIPE;
use crate::talk::half_close;

/// UDP port of LES.
const LES: u16 = 4501;

/// Length of a transfer, bytes.
const LENGTH: usize = 3_000_000;

/// Site whose client leads TCP of the web's networks to LES, over a near satellite.
pub(crate) fn layering() -> SiteConfig {
    SiteConfig {
        scenario: near(),
        server_tables: format!("[les]\nlisten = \"{GATEWAY_SAT}:{LES}\"\n"),
        client_tables: tables(""),
        ..SiteConfig::new(BENTPIPE)
    }
}

/// Tables of a client that leads TCP of the web's networks to LES, with more keys of `[les]`.
fn tables(keys: &str) -> String {
    format!(
        "[intercept]\ninterfaces = [\"lan0\"]\nother = \"drop\"\n\
         [les]\ndestinations = [\"10.30.0.0/24\", \"fd00:30::/64\"]\n{keys}"
    )
}

/// Watches the link: the tunnel counts as idle, LES as what is measured.
fn watch(site: &Site) -> Result<Capture> {
    let expected = ExpectedPackets {
        idle: [Some(Tunnel::Udp(PORT)), None, None],
        ..Tunnel::Udp(LES).into()
    };
    Capture::start(site.topology.terminal(), LINK_DEVICE, expected)
}

/// Waits until an association stands.
pub(crate) fn until_it_stands(site: &Site) -> Result<()> {
    let deadline = Instant::now() + SOON;
    while site.client_report()?["les"]["stands"] != true {
        ensure!(Instant::now() < deadline, "no association");
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// Fails unless all figures of a table are 0.
fn expect_none(table: &Value) -> Result<()> {
    let figures = table.as_object().context("a table")?;
    let none = figures.values().all(|figure| figure == 0);
    ensure!(none, "{table}");
    Ok(())
}

/// Fails unless LES alone has carried, in clear of nothing.
fn expect_sealed(crossed: &CaptureReport, least: usize) -> Result<()> {
    crossed.expect_only_tunnel()?;
    let bytes = crossed.tunnel_bytes;
    ensure!(bytes > least as u64, "{bytes} bytes by LES: {crossed}");
    Ok(())
}

/// Fails unless LES has carried `least` bytes in each direction at both ends, and the tunnel no TCP.
pub(crate) fn les_alone_has_carried(site: &Site, least: usize) -> Result<()> {
    let (client, server) = (site.client_report()?, site.newer_server_report()?);
    let opened = &client["flows"]["opened_total"];
    ensure!(*opened == 0, "{opened} flows in the tunnel");
    for les in [&client["les"], &server["clients"][0]["les"]] {
        let crossed = [&les["bytes_in"], &les["bytes_out"]];
        let enough = |bytes: &Value| bytes.as_u64() > Some(least as u64);
        ensure!(crossed.into_iter().all(enough), "{les}");
    }
    Ok(())
}

/// A reset of the server's host is a reset at the user.
fn reset(route: &Route) -> Result<()> {
    let (listener, address) = route.listen()?;
    let patience = route.patience;
    let server = thread::spawn(move || -> Result<()> {
        let mut stream = accept(&listener, patience)?;
        read_exactly(&mut stream, 5)?;
        Ok(peer::reset(stream)?)
    });
    let mut stream = route.connect(address)?;
    stream.write_all(b"hello")?;
    let heard = read_to_reset(&mut stream)?;
    ensure!(heard.is_empty(), "heard {} bytes", heard.len());
    server.join().expect("no panic")
}

fn everything_crosses(site: &mut Site) -> Result<()> {
    until_it_stands(site)?;
    let capture = watch(site)?;
    let [ipv4, ipv6] = site.routes();
    let mut idle = talk(&ipv4)?;
    let download = Transfer::start(&ipv4, Way::Download, LENGTH)?;
    let upload = Transfer::start(&ipv6, Way::Upload, LENGTH)?;
    download.finish_whole()?;
    upload.finish_whole()?;
    for route in [&ipv4, &ipv6] {
        half_close(route).with_context(|| format!("half-close over {}", route.name))?;
        reset(route).with_context(|| format!("reset over {}", route.name))?;
    }
    exchange(&mut idle)?;
    expect_sealed(&capture.stop()?, 2 * LENGTH)?;

    les_alone_has_carried(site, LENGTH)?;
    let (client, server) = (site.client_report()?, site.newer_server_report()?);
    for les in [&client["les"], &server["clients"][0]["les"]] {
        ensure!(les["associations_total"] == 1, "{les}");
        expect_none(&les["dropped_total"])?;
        expect_none(&les["refused_total"])?;
    }
    expect_none(&server["les"])
}

#[test]
fn tcp_of_the_prefixes_is_sealed_packet_by_packet() {
    on_site("LES", layering(), everything_crosses);
}

#[test]
fn the_flow_of_the_paper_carries_the_same() {
    let config = SiteConfig {
        client_tables: tables("flow = \"paper\"\n"),
        ..layering()
    };
    on_site("LES, the paper's flow", config, everything_crosses);
}

#[test]
fn a_server_without_les_gets_it_through_the_tunnel() {
    let config = SiteConfig {
        server_tables: String::new(),
        ..layering()
    };
    on_site("a server without [les]", config, |site| {
        let capture = site.watch()?;
        site.client().wait_for_line("the server has no LES", SOON)?;
        let download = Transfer::start(&route(site, RTT), Way::Download, LENGTH)?;
        download.finish_whole()?;
        capture.stop()?.expect_only_tunnel()?;
        let status = site.client_report()?;
        ensure!(status["les"]["reason"] == "the server has no LES");
        let opened = &status["flows"]["opened_total"];
        ensure!(*opened == 1, "{opened} flows in the tunnel");
        Ok(())
    });
}

#[test]
fn over_tls_it_goes_through_the_tunnel_until_udp_passes() {
    on_site("LES over TLS", layering().with_tls("auto"), |site| {
        until_it_stands(site)?;
        block_udp(site)?;
        let told = "the tunnel goes over TLS, and LES needs UDP";
        site.client().wait_for_line(told, 3 * SOON)?;
        // What begins while the rules change may be reset.
        let deadline = Instant::now() + SOON;
        while let Err(error) = talk(&route(site, RTT)) {
            ensure!(Instant::now() < deadline, "no connection: {error:#}");
        }
        let download = Transfer::start(&route(site, RTT), Way::Download, LENGTH)?;
        download.finish_whole()?;
        let status = site.client_report()?;
        ensure!(status["les"]["stands"] == false, "{}", status["les"]);
        let reason = status["les"]["reason"].as_str().unwrap_or_default();
        ensure!(reason.contains("TLS"), "{reason}");
        let opened = status["flows"]["opened_total"].as_u64();
        ensure!(opened > Some(1), "{opened:?} flows in the tunnel");
        Ok(())
    });
}

/// Drops UDP between client and server from now on.
fn block_udp(site: &Site) -> Result<()> {
    let rules = "table inet blocked {\n chain block {\n type filter hook prerouting priority raw; meta l4proto udp drop\n }\n}\n";
    let gateway = site.topology.gateway();
    run_with_input(gateway.command("nft").args(["-f", "-"]), rules)?;
    Ok(())
}

#[test]
fn packets_that_a_middle_box_drops_are_told() {
    on_site("LES and a box that drops it", layering(), |site| {
        until_it_stands(site)?;
        exchange(&mut talk(&route(site, RTT))?)?;
        let rules = format!(
            "table inet blocked {{\n chain block {{\n type filter hook prerouting priority raw; udp dport {LES} drop\n }}\n}}\n"
        );
        let gateway = site.topology.gateway();
        run_with_input(gateway.command("nft").args(["-f", "-"]), &rules)?;
        let deadline = Instant::now() + 3 * SOON;
        let told = "packets of LES have left for 10 s and none has come";
        let reason = |site: &Site| -> Result<String> {
            let status = site.client_report()?;
            Ok(status["les"]["reason"]
                .as_str()
                .unwrap_or_default()
                .to_owned())
        };
        while !reason(site)?.starts_with(told) {
            ensure!(Instant::now() < deadline, "not told");
            ensure!(!connects(&route(site, RTT))?, "it passes all the same");
        }
        site.client().wait_for_line(told, SOON)?;
        gateway.run("nft", &["delete", "table", "inet", "blocked"])?;
        exchange(&mut talk(&route(site, RTT))?)?;
        site.client()
            .wait_for_line("packets of LES come in again", SOON)?;
        ensure!(reason(site)?.is_empty(), "still told");
        Ok(())
    });
}

#[test]
fn a_server_that_is_restarted_cuts_nothing_short() {
    on_site("LES and a restarted server", layering(), |site| {
        until_it_stands(site)?;
        let capture = watch(site)?;
        let [ipv4, ipv6] = site.routes();
        let long = 4 * LENGTH;
        let download = Transfer::start(&ipv4, Way::Download, long)?;
        let upload = Transfer::start(&ipv6, Way::Upload, long)?;
        download.until(LENGTH / 4, SOON)?;
        upload.until(LENGTH / 4, SOON)?;
        site.kill_server()?;
        thread::sleep(Duration::from_secs(3));
        site.start_server()?;
        // Each fails if a clean end comes early, or other bytes.
        for (name, transfer) in [("download", download), ("upload", upload)] {
            let end = transfer.finish().with_context(|| name)?.end;
            println!("{name} over a restart: {end:?}");
            let reset = |error: std::io::Error| error.kind() == ErrorKind::ConnectionReset;
            ensure!(
                end.map_or_else(reset, |()| true),
                "{name}: neither an end nor a reset"
            );
        }
        exchange(&mut talk(&ipv4)?)?;
        let crossed = capture.stop()?;
        ensure!(crossed.marker_packets == 0, "{crossed}");
        ensure!(crossed.clear_packets == 0, "{crossed}");
        let associations = &site.client_report()?["les"]["associations_total"];
        ensure!(*associations == 2, "{associations} associations");
        Ok(())
    });
}

/// True if somebody answers within seconds.
fn connects(route: &Route) -> Result<bool> {
    let (_listener, address) = route.listen()?;
    let patience = Duration::from_secs(4);
    let connected = (route.user).at(|| TcpStream::connect_timeout(&address, patience))?;
    Ok(connected.is_ok())
}

#[test]
fn a_client_that_is_gone_lets_nothing_out_in_clear() {
    on_site("LES and a killed client", layering(), |site| {
        until_it_stands(site)?;
        let [ipv4, ipv6] = site.routes();
        let download = Transfer::start(&ipv4, Way::Download, 20 * LENGTH)?;
        download.until(LENGTH / 4, SOON)?;
        let capture = watch(site)?;
        site.kill_client()?;
        for route in [&ipv4, &ipv6] {
            ensure!(!connects(route)?, "{} without a client", route.name);
        }
        let crossed = capture.stop()?;
        ensure!(crossed.clear_packets == 0, "{crossed}");
        ensure!(crossed.marker_packets == 0, "{crossed}");
        Ok(())
    });
}

#[test]
fn without_a_tunnel_packets_are_dropped_and_counted() {
    on_site("LES without a tunnel", layering(), |site| {
        until_it_stands(site)?;
        let server = site.server_file();
        let whole = fs::read_to_string(&server)?;
        let other = whole.split("[[client]]").next().context("a head")?;
        let mut flow = talk(&route(site, RTT))?;
        fs::write(&server, other)?;
        // The client goes from the list, and its associations with it.
        reload(site, "removed from the configuration")?;
        site.client()
            .wait_for_line("the server does not know", SOON)?;
        let capture = watch(site)?;
        flow.write_all(b"is anybody there?")?;
        ensure!(!connects(&route(site, RTT))?, "a connection all the same");
        let crossed = capture.stop()?;
        ensure!(
            crossed.tunnel_packets == 0,
            "sealed all the same: {crossed}"
        );
        ensure!(crossed.clear_packets == 0, "{crossed}");
        let les = &site.client_report()?["les"];
        ensure!(les["stands"] == false, "{les}");
        let dropped = les["dropped_total"]["no_association"].as_u64();
        ensure!(dropped > Some(1), "{les}");
        Ok(())
    });
}

#[test]
fn a_client_that_is_given_a_rate_has_no_les_any_more() {
    on_site("a rate beside LES", layering(), |site| {
        until_it_stands(site)?;
        let server = site.server_file();
        let whole = fs::read_to_string(&server)?;
        let paced = whole.replace("[[client]]\n", "[[client]]\nmax_rate = \"8 Mbit/s\"\n");
        ensure!(paced != whole, "no client in {whole}");
        fs::write(&server, paced)?;
        reload(site, "has a max_rate now")?;
        site.client().wait_for_line("the server has no LES", SOON)?;
        // What begins while the rules change may be reset.
        let deadline = Instant::now() + SOON;
        while let Err(error) = talk(&route(site, RTT)) {
            ensure!(Instant::now() < deadline, "no connection: {error:#}");
        }
        let carried = &site.client_report()?["flows"]["opened_total"];
        ensure!(carried.as_u64() > Some(0), "not in the tunnel");
        Ok(())
    });
}

/// Connections of the client's own machine go by LES as well.
#[test]
fn connections_of_the_client_itself_are_sealed_as_well() {
    let config = SiteConfig {
        client_tables: tables("").replace("other =", "local = true\nother ="),
        ..layering()
    };
    on_site("LES of the client's own machine", config, |site| {
        until_it_stands(site)?;
        let capture = watch(site)?;
        let terminal = site.topology.terminal().clone();
        let [ipv4, ipv6] = site.routes().map(|route| Route {
            user: Place::from(&terminal),
            ..route
        });
        let download = Transfer::start(&ipv4, Way::Download, LENGTH)?;
        let upload = Transfer::start(&ipv6, Way::Upload, LENGTH)?;
        download.finish_whole()?;
        upload.finish_whole()?;
        expect_sealed(&capture.stop()?, 2 * LENGTH)
    });
}

#[test]
fn what_is_made_up_is_refused_and_counted() {
    on_site("LES and a stranger", layering(), |site| {
        until_it_stands(site)?;
        exchange(&mut talk(&route(site, RTT))?)?;
        let terminal = site.topology.terminal();
        let stranger = terminal.enter(|| -> Result<()> {
            let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
            for length in [3, 60] {
                socket.send_to(&vec![9; length], (GATEWAY_SAT, LES))?;
            }
            Ok(())
        });
        stranger??;
        // What nobody begins is held for 3 s.
        thread::sleep(Duration::from_secs(4));
        let refused = &site.newer_server_report()?["les"];
        let counts = [&refused["association"], &refused["malformed"]];
        ensure!(counts.into_iter().all(|count| *count == 1), "{refused}");
        exchange(&mut talk(&route(site, RTT))?)
    });
}
