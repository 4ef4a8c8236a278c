//! Where UDP does not pass, the tunnel goes over TLS, and back; no flow is reset.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bentpipe_emulator::topology::{GATEWAY_SAT, LINK_DEVICE, TERMINAL_SAT, WEB};
use bentpipe_lab::capture::{Capture, ExpectedPackets, Tunnel};
use bentpipe_sys::netns::NetNs;
use bentpipe_testbed::edit::edit;
use bentpipe_testbed::moving::change_address;
use bentpipe_testbed::peer::{PATIENCE, Service, echo, read_exactly, read_to_eof, set_patience};
use bentpipe_testbed::privileged;
use bentpipe_testbed::route::Place;
use bentpipe_testbed::site::{PORT, Site, SiteConfig, TLS_PORT};
use bentpipe_testbed::transfer::{Transfer, Way};
use serde_json::Value;

use super::{RTT, SLACK, SOON, connect, echo_address, exchange, on_site, route, talk};
use crate::BENTPIPE;

/// A web server's port behind that door.
const FALLBACK: u16 = 8443;

/// Silence after which a tunnel tries TLS, and what may pass until that is noticed.
const SILENT: Duration = Duration::from_secs(12);

/// Time for which UDP is tried beside a tunnel that has come up over TLS, and a little.
const TRIAL: Duration = Duration::from_secs(10);

const PACKETS: &str = "[intercept]\ninterfaces = [\"lan0\"]\nother = \"tunnel\"\n";

/// A site whose two ends know of TLS; nothing runs.
fn site(client_tables: &str) -> Result<Site> {
    let config = SiteConfig {
        client_tables: client_tables.into(),
        ..SiteConfig::new(BENTPIPE)
    };
    Site::plain(config.with_tls("auto"))
}

/// Has nobody hear UDP that comes over the satellite, as behind a firewall that lets TCP pass.
pub(super) fn block_udp(site: &Site) -> Result<()> {
    for namespace in [site.topology.terminal(), site.topology.gateway()] {
        let table = "add table inet udp_firewall; \
                     add chain inet udp_firewall input { type filter hook input priority -300; }; \
                     add rule inet udp_firewall input ip saddr 10.20.0.0/24 meta l4proto udp drop";
        namespace.run("nft", &[table])?;
    }
    Ok(())
}

fn free_udp(site: &Site) -> Result<()> {
    for namespace in [site.topology.terminal(), site.topology.gateway()] {
        namespace.run("nft", &["delete table inet udp_firewall"])?;
    }
    Ok(())
}

/// Watches the link for what is in clear beside the tunnel, whichever wire that has.
fn watch(site: &Site) -> Result<Capture> {
    let wires = ExpectedPackets {
        tunnel: Tunnel::Tcp(TLS_PORT),
        idle: [Some(Tunnel::Udp(PORT)), None, None],
        names_beside: false,
    };
    Capture::start(site.topology.terminal(), LINK_DEVICE, wires)
}

/// Fails if anything has crossed in clear, or one of the wires was not in use.
fn expect_wires_alone(watched: Capture) -> Result<()> {
    let crossed = watched.stop()?;
    crossed.expect_only_tunnel()?;
    ensure!(crossed.idle_packets > 0, "no UDP crossed: {crossed}");
    Ok(())
}

/// What `status` says of the client's tunnel.
pub(super) fn tunnel(site: &Site) -> Result<Value> {
    Ok(site.client_report()?["tunnel"].take())
}

/// The client's `status` names this wire within a few seconds.
pub(crate) fn wire_is(site: &Site, expected: &str) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let wire = &tunnel(site)?["wire"];
        if wire == expected {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{wire} instead of {expected}");
        thread::sleep(Duration::from_millis(200));
    }
}

fn answers_ping(user: &NetNs) -> Result<()> {
    let web = WEB.to_string();
    user.run("ping", &["-c", "1", "-W", "5", &web])?;
    Ok(())
}

/// Runs `case` on a site whose client knows both wires and has these tables, and shows the daemons' logs if it fails.
fn on_wires(name: &str, tables: &str, case: impl FnOnce(&mut Site) -> Result<()>) {
    if !privileged(name) {
        return;
    }
    let mut site = site(tables).expect("a site");
    let result = case(&mut site);
    assert!(result.is_ok(), "{:#}\n{}", result.unwrap_err(), site.logs());
}

#[test]
fn behind_a_firewall_that_drops_udp_everything_goes_over_tls() {
    on_wires("TLS wire", PACKETS, comes_up_over_tls);
}

fn comes_up_over_tls(site: &mut Site) -> Result<()> {
    site.start_server()?;
    block_udp(site)?;
    let web = Service::start(&Place::from(site.topology.web()), echo_address(), echo)?;
    let watched = watch(site)?;
    // TCP, TLS, QUIC and HELLO take a round trip each; a start on a known network does not wait for UDP first.
    for waits in [Duration::from_millis(1500), Duration::ZERO] {
        let began = Instant::now();
        site.start_client()?;
        let took = began.elapsed();
        println!("ready over TLS after {took:?}");
        ensure!(took >= 4 * RTT, "{took:?}: UDP has passed");
        ensure!(took <= waits + 4 * RTT + SLACK, "ready after {took:?}");
        site.client().wait_for_line("over TLS", SOON)?;
        let began = Instant::now();
        let mut stream = connect(site, web.address, RTT)?;
        exchange(&mut stream)?;
        let took = began.elapsed();
        ensure!(took <= RTT + SLACK, "answered after {took:?}");
        if waits.is_zero() {
            break;
        }
        drop(stream);
        // UDP is tried once more before the network is remembered as one without it.
        thread::sleep(TRIAL);
        site.stop_client()?;
    }
    let download = Transfer::start(&route(site, RTT), Way::Download, 3_000_000)?;
    let upload = Transfer::start(&route(site, RTT), Way::Upload, 3_000_000)?;
    answers_ping(site.topology.user())?;
    wire_is(site, "tls")?;
    download.finish_whole()?;
    upload.finish_whole()?;
    expect_wires_alone(watched)?;
    site.stop_client()?;
    site.stop_server()
}

#[test]
fn no_flow_is_reset_when_udp_is_lost_or_returns() {
    on_wires(
        "change of wire",
        "[intercept]\ninterfaces = [\"lan0\"]\n",
        changes_wire,
    );
}

fn changes_wire(site: &mut Site) -> Result<()> {
    site.start_server()?;
    let watched = watch(site)?;
    site.start_client()?;
    let mut idle = talk(&route(site, SILENT))?;
    wire_is(site, "udp")?;
    let download = Transfer::start(&route(site, SILENT), Way::Download, 40_000_000)?;
    let upload = Transfer::start(&route(site, SILENT), Way::Upload, 20_000_000)?;
    download.until(1_000_000, SOON)?;
    upload.until(1_000_000, SOON)?;

    block_udp(site)?;
    let began = Instant::now();
    site.client()
        .wait_for_line("the tunnel goes over TLS from now on", SILENT + 4 * SLACK)?;
    thread::sleep(3 * RTT + SLACK);
    exchange(&mut idle)?;
    wire_is(site, "tls")?;
    println!("over TLS after {:?}", began.elapsed());

    // Another network, where UDP passes.
    free_udp(site)?;
    let new = Ipv4Addr::new(10, 20, 0, 99);
    change_address(site.topology.terminal(), TERMINAL_SAT, new)?;
    site.client()
        .wait_for_line("UDP passes again", SOON + SLACK)?;
    exchange(&mut idle)?;
    download.finish_whole()?;
    upload.finish_whole()?;
    exchange(&mut idle)?;
    wire_is(site, "udp")?;
    drop(idle);
    expect_wires_alone(watched)?;
    site.stop_client()?;
    site.stop_server()
}

/// Time for which UDP is blocked, and in which it is found again: the client tries it a minute after it has gone over to TLS.
const BLOCKED: Duration = Duration::from_secs(60);
const FOUND_AGAIN: Duration = Duration::from_secs(150);

#[test]
#[ignore = "takes two minutes"]
fn udp_that_is_permitted_again_on_the_same_network_is_returned_to() {
    let _alone = crate::alone();
    on_wires(
        "UDP again",
        "[intercept]\ninterfaces = [\"lan0\"]\n",
        returns_to_udp,
    );
}

/// Nothing tells the client that UDP is free: it tries.
fn returns_to_udp(site: &mut Site) -> Result<()> {
    site.start_server()?;
    let watched = watch(site)?;
    site.start_client()?;
    let mut idle = talk(&route(site, SILENT))?;
    wire_is(site, "udp")?;
    let (here, over) = (&*site, &AtomicBool::new(false));
    // Downloads and uploads are under way at every moment, the changes of wire among them.
    let transfers = thread::scope(|scope| {
        let all = [Way::Download, Way::Upload].map(|way| {
            scope.spawn(move || {
                let mut count = 0;
                while !over.load(Ordering::Relaxed) {
                    Transfer::start(&route(here, SILENT), way, 20_000_000)?.finish_whole()?;
                    count += 1;
                }
                anyhow::Ok(count)
            })
        });
        let result = blocks_and_frees(here, &mut idle);
        over.store(true, Ordering::Relaxed);
        let counts = all.map(|one| one.join().expect("no panic"));
        result.and_then(|()| counts.into_iter().collect::<Result<Vec<u32>>>())
    })?;
    println!("{transfers:?} transfers");
    exchange(&mut idle)?;
    wire_is(site, "udp")?;
    drop(idle);
    expect_wires_alone(watched)?;
    site.stop_client()?;
    site.stop_server()
}

/// Talks over one flow all the time, while UDP is blocked and freed.
fn blocks_and_frees(site: &Site, flow: &mut TcpStream) -> Result<()> {
    block_udp(site)?;
    let began = Instant::now();
    site.client()
        .wait_for_line("the tunnel goes over TLS from now on", SILENT + 4 * SLACK)?;
    while began.elapsed() < BLOCKED {
        exchange(flow)?;
        thread::sleep(Duration::from_secs(1));
    }
    wire_is(site, "tls")?;
    free_udp(site)?;
    let freed = Instant::now();
    while !site.client().stderr_text().contains("UDP passes again") {
        let after = freed.elapsed();
        ensure!(after < FOUND_AGAIN, "still over TLS after {after:?}");
        exchange(flow)?;
        thread::sleep(Duration::from_secs(1));
    }
    println!("UDP again {:?} after it was free", freed.elapsed());
    exchange(flow)?;
    wire_is(site, "udp")
}

#[test]
fn a_server_that_is_restarted_is_reached_by_udp_again() {
    let tables = "[intercept]\ninterfaces = [\"lan0\"]\n";
    on_wires("restarts of a server", tables, survives_restarts);
}

/// A server that takes as long to start as a client waits for UDP may answer TLS first.
fn survives_restarts(site: &mut Site) -> Result<()> {
    site.start_server()?;
    site.start_client()?;
    for pause in [500, 1000, 1500, 2000] {
        site.stop_server()?;
        thread::sleep(Duration::from_millis(pause));
        site.start_server()?;
        let deadline = Instant::now() + TRIAL + SOON;
        loop {
            let tunnel = tunnel(site)?;
            if tunnel["state"] == "ready" && tunnel["wire"] == "udp" {
                break;
            }
            ensure!(Instant::now() < deadline, "after {pause} ms: {tunnel}");
            thread::sleep(Duration::from_millis(100));
        }
    }
    site.stop_client()?;
    site.stop_server()
}

#[test]
fn a_tunnel_that_began_over_tls_goes_on_by_udp_of_either_family() {
    on_wires(
        "change of wire at a server of both families",
        "[intercept]\ninterfaces = [\"lan0\"]\n",
        leaves_tls,
    );
}

/// The server has sockets of both families, as `server init` writes its file; where its TLS connections come to, nobody chooses.
fn leaves_tls(site: &mut Site) -> Result<()> {
    let listen = format!("listen = \"{GATEWAY_SAT}:");
    edit(
        &site.topology.directory().join("server.toml"),
        &listen,
        "listen = \":",
    )?;
    block_udp(site)?;
    let watched = watch(site)?;
    site.start_server()?;
    site.start_client()?;
    let mut idle = talk(&route(site, SILENT))?;
    wire_is(site, "tls")?;
    let download = Transfer::start(&route(site, SILENT), Way::Download, 20_000_000)?;
    download.until(1_000_000, SOON)?;

    free_udp(site)?;
    let new = Ipv4Addr::new(10, 20, 0, 99);
    change_address(site.topology.terminal(), TERMINAL_SAT, new)?;
    site.client()
        .wait_for_line("UDP passes again", SOON + SLACK)?;
    exchange(&mut idle)?;
    download.finish_whole()?;
    wire_is(site, "udp")?;
    let logs = site.logs();
    ensure!(!logs.contains("cannot send"), "{logs}");
    drop(idle);
    expect_wires_alone(watched)?;
    site.stop_client()?;
    site.stop_server()
}

/// What comes to the TLS port and is not for bentpipe gets the web server behind it.
#[test]
fn strangers_at_the_tls_port_get_the_web_server() {
    let config = SiteConfig {
        server_tables: format!("[tls]\nfallback = \"127.0.0.1:{FALLBACK}\"\n"),
        ..SiteConfig::new(BENTPIPE)
    };
    on_site("fallback", config.with_tls("auto"), |site| {
        let local: SocketAddr = (Ipv4Addr::LOCALHOST, FALLBACK).into();
        let gateway = Place::from(site.topology.gateway());
        let web = Service::start(&gateway, local, echo)?;
        let ask = |said: &[u8]| -> Result<Vec<u8>> {
            let mut stream = tls_port(site)?;
            stream.write_all(said)?;
            read_exactly(&mut stream, said.len())
        };
        let request = b"GET / HTTP/1.1\r\nHost: www.example.com\r\n\r\n";
        ensure!(ask(request)? == request, "the web server has not had it");
        let hello = browser_hello();
        ensure!(ask(&hello)? == hello, "a browser's first words");
        drop(web);
        let mut closed = tls_port(site)?;
        closed.write_all(request)?;
        ensure!(read_to_eof(&mut closed).map_or(true, |said| said.is_empty()));
        let told = format!("the web server of `fallback` = {local} cannot be reached");
        ensure!(site.logs().contains(&told), "{}", site.logs());
        // One that says nothing is not kept.
        let mut silent = tls_port(site)?;
        let began = Instant::now();
        ensure!(read_to_eof(&mut silent)?.is_empty(), "nothing was asked");
        ensure!(
            began.elapsed() < Duration::from_secs(15),
            "kept for too long"
        );
        Ok(())
    });
}

/// A connection from the terminal to the server's TLS port.
fn tls_port(site: &Site) -> Result<TcpStream> {
    let address = SocketAddr::new(IpAddr::V4(GATEWAY_SAT), TLS_PORT);
    let place = Place::from(site.topology.terminal());
    let stream = place.at(|| TcpStream::connect_timeout(&address, PATIENCE))??;
    set_patience(&stream, PATIENCE)?;
    Ok(stream)
}

/// A ClientHello that offers HTTP/1.1.
fn browser_hello() -> Vec<u8> {
    let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().expect("TLS");
    let roots = rustls::RootCertStore::empty();
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let name = "www.example.com".try_into().expect("a name");
    let mut client = rustls::ClientConnection::new(config.into(), name).expect("a client");
    let mut hello = Vec::new();
    client.write_tls(&mut hello).expect("memory");
    hello
}
