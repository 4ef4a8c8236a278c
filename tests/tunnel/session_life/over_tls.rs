//! Everything that the tunnel carries, over TLS, and nothing beside it.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bentpipe_emulator::topology::{GATEWAY_SAT, LINK_DEVICE};
use bentpipe_lab::capture::{Capture, Tunnel};
use bentpipe_testbed::expect_tunnel_alone;
use bentpipe_testbed::route::Place;
use bentpipe_testbed::site::{SiteConfig, TLS_PORT, near};
use bentpipe_testbed::transfer::{Transfer, Way};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::version::TLS13;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::json;

use super::wire::tunnel;
use super::{everything, on_site, wire_is};
use crate::BENTPIPE;
use crate::dns::resolver::Resolver;
use crate::dns::web;

#[test]
fn everything_crosses_over_tls() {
    let config = everything::config().with_tls("tls");
    on_site("everything over TLS", config, |site| {
        let door = Tunnel::Tcp(TLS_PORT);
        let capture = Capture::start(site.topology.terminal(), LINK_DEVICE, door)?;
        let _resolver = Resolver::start(&Place::from(site.topology.web()), web())?;
        wire_is(site, "tls")?;
        everything::crosses(site, "www.example.com")?;
        wire_is(site, "tls")?;
        expect_tunnel_alone(capture)
    });
}

/// Whoever is turned away at the port is counted by the cause, and so are clients.
#[test]
fn status_tells_who_was_refused_at_the_port() {
    let config = SiteConfig::new(BENTPIPE).with_tls("tls");
    on_site("refusals at the port of TLS", config, |site| {
        let place = Place::from(site.topology.terminal());
        let port = SocketAddr::from((GATEWAY_SAT, TLS_PORT));
        drop(place.at(|| TcpStream::connect(port))??);
        let mut web = place.at(|| TcpStream::connect(port))??;
        web.write_all(b"GET / HTTP/1.1\r\n\r\n")?;
        let mut distrusts =
            StreamOwned::new(distrustful()?, place.at(|| TcpStream::connect(port))??);
        ensure!(distrusts.conn.complete_io(&mut distrusts.sock).is_err());
        drop(distrusts);
        let expected = json!({
            "crowded": 0, "displaced": 0, "incomplete": 1, "handshake": 1, "content": 0, "unproven": 0, "no_fallback": 1, "busy": 0
        });
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let status = site.server_report()?;
            if status["tls"]["refused_total"] == expected && status["tls"]["clients_total"] == 1 {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "{}", status["tls"]);
            thread::sleep(Duration::from_millis(200));
        }
    });
}

/// A TLS client that believes no certificate.
fn distrustful() -> Result<ClientConnection> {
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&TLS13])?
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    Ok(ClientConnection::new(
        Arc::new(config),
        "a.example".try_into()?,
    )?)
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
