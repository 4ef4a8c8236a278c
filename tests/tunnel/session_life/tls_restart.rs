//! Servers that start late, and that restart, where TLS alone leads to them: the client finds them, and says what it waits for.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bentpipe_emulator::topology::{LINK_DEVICE, Process};
use bentpipe_lab::capture::{Capture, Tunnel};
use bentpipe_testbed::peer::{Service, echo};
use bentpipe_testbed::route::Place;
use bentpipe_testbed::site::{Site, SiteConfig, TLS_PORT};
use bentpipe_testbed::start;
use bentpipe_testbed::{expect_tunnel_alone, privileged};

use super::wire::{block_udp, tunnel, wire_is};
use super::{RTT, SLACK, SOON, connect, exchange};
use crate::BENTPIPE;

/// Longest pause from one attempt to open a TLS connection to the next, with jitter, in an outage of less than a minute.
const PAUSE: Duration = Duration::from_secs(25);

fn site(wire: &str) -> Option<Site> {
    if !privileged("TLS restart") {
        return None;
    }
    let config = SiteConfig::new(BENTPIPE).with_tls(wire);
    Some(Site::plain(config).expect("a site"))
}

fn run(wire: &str, case: impl FnOnce(&mut Site, &Process) -> Result<()>) {
    let Some(mut site) = site(wire) else {
        return;
    };
    let client = start::client(&site, |_| ()).expect("a client");
    let result = case(&mut site, &client);
    let log = client.stderr_text();
    assert!(
        result.is_ok(),
        "{:#}\n{log}\n{}",
        result.unwrap_err(),
        site.logs()
    );
}

#[test]
fn a_server_that_starts_late_is_found_over_tls() {
    run("tls", |site, client| {
        client.wait_for_line("no TLS connection for", SOON)?;
        let state = tunnel(site)?;
        ensure!(state["state"] == "connecting", "{state}");
        let error = state["last_error"].as_str().context("a reason")?;
        ensure!(error.contains("no TLS connection for"), "{error}");
        site.start_server()?;
        let up = Instant::now();
        client.wait_for_line("ready: tunnel to", PAUSE)?;
        println!("ready {:?} after the server", up.elapsed());
        wire_is(site, "tls")
    });
}

#[test]
fn a_server_that_restarts_is_found_over_tls() {
    run("tls", |site, client| {
        let door = Tunnel::Tcp(TLS_PORT);
        let capture = Capture::start(site.topology.terminal(), LINK_DEVICE, door)?;
        restarts(site, client)?;
        expect_tunnel_alone(capture)
    });
}

#[test]
fn a_server_that_restarts_is_found_over_tls_where_udp_is_blocked() {
    run("auto", |site, client| {
        block_udp(site)?;
        restarts(site, client)
    });
}

fn restarts(site: &mut Site, client: &Process) -> Result<()> {
    site.start_server()?;
    client.wait_for_line("ready: tunnel to", PAUSE)?;
    wire_is(site, "tls")?;
    let web = Service::start(
        &Place::from(site.topology.web()),
        super::echo_address(),
        echo,
    )?;
    let mut old = connect(site, web.address, PAUSE)?;
    exchange(&mut old)?;
    site.kill_server()?;
    client.wait_for_line("TLS connection", SOON)?;
    // By now the silence is noticed: what is opened waits.
    client.wait_for_line("link silent since", SOON)?;
    let state = tunnel(site)?;
    ensure!(state["state"] == "silent", "{state}");
    let mut waiting = connect(site, web.address, PAUSE)?;
    let waiting = thread::spawn(move || exchange(&mut waiting).map(|()| Instant::now()));
    site.start_server()?;
    let up = Instant::now();
    let answered = waiting.join().expect("a verdict")? - up;
    println!("answered {answered:?} after the server was back");
    ensure!(answered <= PAUSE + 6 * RTT + SLACK, "{answered:?}");
    ensure!(exchange(&mut old).is_err(), "a flow of the old server");
    wire_is(site, "tls")
}
