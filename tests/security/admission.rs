//! Clients that the server does not know, and servers that are not who they should be.

use std::io::Read as _;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bentpipe_emulator::topology::{Process, WEB};
use bentpipe_lab::leaks::Prober;
use bentpipe_testbed::edit::edit;
use bentpipe_testbed::keys;
use bentpipe_testbed::peer::{Service, echo};
use bentpipe_testbed::reload::reload;
use bentpipe_testbed::site::{Site, SiteConfig};
use bentpipe_testbed::{expect_tunnel_alone, start};

use crate::BENTPIPE;
use crate::{RTT, SOON, lines, on_site};

/// How soon an unknown client is told: its certificate is the last thing that a handshake of 1.5 RTT brings.
const TOLD: Duration = Duration::from_millis(2 * 500 + 50);

/// Time for a process to start, and for its rules to come into force, on a busy machine; a second attempt begins after 3 s.
const START: Duration = Duration::from_millis(1900);

/// The public key in a file that has one.
fn public_key(text: &str) -> Result<&str> {
    let after = text.split("public_key = \"").nth(1);
    after
        .and_then(|rest| rest.split('"').next())
        .context("no public key")
}

/// While `client` runs without a tunnel: nothing gets through or past it, and the log stays at `lines`.
fn expect_shut(site: &Site, client: &Process, duration: Duration, count: usize) -> Result<()> {
    let web = Service::start(
        &site.topology.web().into(),
        SocketAddr::new(WEB.into(), 0),
        echo,
    )?;
    let prober = Prober::start(site.topology.user())?;
    let [route, _] = site.routes();
    let mut flow = route.connect(web.address)?;
    flow.set_read_timeout(Some(duration))?;
    // Neither answered nor let through; `open_wait` is longer than this.
    let silence = flow.read(&mut [0]);
    ensure!(
        silence.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock),
        "a connection without a tunnel did not wait"
    );
    drop(prober);
    ensure!(web.accepted() == 0, "the web was reached without a tunnel");
    let log = client.stderr_text();
    ensure!(lines(&log).len() == count, "not {count} lines:\n{log}");
    Ok(())
}

#[test]
fn an_unknown_client_is_told_what_to_do_and_gets_in_once_it_is_known() {
    on_site("unknown client", SiteConfig::new(BENTPIPE), |site| {
        let file = site.server_file();
        let known = std::fs::read_to_string(&file)?;
        let key = public_key(&known)?;
        let other = keys::generate(BENTPIPE, &site.topology.directory().join("other.key"))?;
        edit(&file, key, &other)?;
        site.start_server()?;

        let capture = site.watch()?;
        let started = Instant::now();
        let client = start::client(site, |_| ())?;
        let mend = format!("[[client]] with public_key = \"{key}\"");
        client.wait_for_line(&mend, SOON)?;
        let told = started.elapsed();
        println!("told after {told:?}");
        ensure!(told <= TOLD + START, "told after {told:?}");
        ensure!(
            client.stderr_text().contains("does not know this client"),
            "no reason"
        );
        // Long enough for four more attempts.
        expect_shut(site, &client, Duration::from_secs(15), 1)?;
        let crossed = capture.stop()?;
        crossed.expect_only_tunnel()?;

        std::fs::write(&file, &known)?;
        reload(site, "reloaded: ")?;
        let known_since = Instant::now();
        // Pauses grow with every refusal.
        client.wait_for_line("ready", 3 * SOON)?;
        println!("ready {:?} after the reload", known_since.elapsed());
        let log = client.stderr_text();
        ensure!(lines(&log).len() == 2, "not two lines:\n{log}");
        Ok(())
    });
}

#[test]
fn a_server_with_another_key_gets_nothing() {
    on_site("wrong server", SiteConfig::new(BENTPIPE), |site| {
        let file = site.client_file();
        let text = std::fs::read_to_string(&file)?;
        let other = keys::generate(BENTPIPE, &site.topology.directory().join("other.key"))?;
        edit(&file, public_key(&text)?, &other)?;
        site.start_server()?;

        let capture = site.watch()?;
        let started = Instant::now();
        let client = start::client(site, |_| ())?;
        client.wait_for_line("the server shows another key", SOON)?;
        let told = started.elapsed();
        println!("told after {told:?}");
        ensure!(
            told <= RTT + Duration::from_millis(50) + START,
            "told after {told:?}"
        );
        expect_shut(site, &client, Duration::from_secs(8), 1)?;
        expect_tunnel_alone(capture)?;
        ensure!(
            !site.server().stderr_text().contains(" connected "),
            "the client is connected"
        );

        // The client goes on trying, and finds the right one.
        edit(&file, &other, public_key(&text)?)?;
        drop(client);
        site.start_client()
    });
}
