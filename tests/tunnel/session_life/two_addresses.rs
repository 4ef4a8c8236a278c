//! One server at two addresses: the client goes on by the second while it does not hear the first, and stays with the first if it does.

use std::fs;
use std::io::Write as _;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bentpipe_emulator::topology::{GATEWAY_SAT, GATEWAY_SAT6, WEB, WEB6};
use bentpipe_testbed::edit::edit;
use bentpipe_testbed::peer::read_exactly;
use bentpipe_testbed::site::{PORT, Site, SiteConfig, geo, near};

use super::silence::{LEFT, echo_service};
use super::{SOON, connect};
use crate::BENTPIPE;
use crate::packets::{assigned, ping};
use crate::talk::exchange;

/// Name of the firewall table that [`shut`] makes.
const DEAF: &str = "inet deaf";

/// Runs `test` on a site whose server listens at two addresses, and whose client knows both and has a tunnel to the first.
fn on_site(name: &str, config: SiteConfig, test: impl FnOnce(&mut Site) -> Result<()>) {
    if !super::privileged(name) {
        return;
    }
    let mut site = Site::plain(config).expect("a site");
    let result = start(&mut site).and_then(|()| test(&mut site));
    assert!(result.is_ok(), "{:#}\n{}", result.unwrap_err(), site.logs());
}

fn start(site: &mut Site) -> Result<()> {
    let file = site.client_file();
    let text = fs::read_to_string(&file)?;
    let key = text.split("public_key = \"").nth(1).context("a key")?;
    let key = key.split('"').next().context("a key")?.to_owned();
    let second = format!(
        "[[server]]\naddress = \"[{GATEWAY_SAT6}]:{PORT}\"\npublic_key = \"{key}\"\n[link]"
    );
    edit(&file, "[server]", "[[server]]")?;
    edit(&file, "[link]", &second)?;
    let both = format!("listen = \":{PORT}\"");
    edit(
        &site.server_file(),
        &format!("listen = \"{GATEWAY_SAT}:{PORT}\""),
        &both,
    )?;
    site.start_server()?;
    site.start_client()
}

/// Drops what comes to the first of the server's addresses.
fn shut(site: &Site) -> Result<()> {
    let table = format!(
        "add table {DEAF}; add chain {DEAF} input {{ type filter hook input priority -300; }}; \
         add rule {DEAF} input meta nfproto ipv4 udp dport {PORT} drop"
    );
    site.topology.gateway().run("nft", &[&table])?;
    Ok(())
}

/// Tunnels that the server lists.
fn listed(site: &Site) -> Result<usize> {
    let status = site.server_report()?;
    Ok(status["clients"].as_array().context("clients")?.len())
}

/// Waits until the server lists one tunnel.
fn one_is_listed(site: &Site, limit: Duration) -> Result<()> {
    let deadline = Instant::now() + limit;
    while listed(site)? != 1 {
        ensure!(Instant::now() < deadline, "two tunnels are listed");
        thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}

/// The first address is lost: the client goes on by the other, and is listed once before long.
#[test]
#[ignore = "takes a minute and a half; `make test-full` runs it"]
fn a_tunnel_that_was_left_for_another_address_is_not_listed_for_long() {
    on_site("two addresses", SiteConfig::new(BENTPIPE), |site| {
        shut(site)?;
        let web = echo_service(site)?;
        let _ = connect(site, web.address, LEFT).and_then(|mut flow| exchange(&mut flow));
        site.client().wait_for_line("takes over", LEFT)?;
        one_is_listed(site, Duration::from_secs(75))?;
        site.server()
            .wait_for_line("the client has a newer one", SOON)?;
        exchange(&mut connect(site, web.address, SOON)?)
    });
}

/// Has the first address heard again when the tunnel by the second has just come up, and does `then` at that moment, as part of a
/// change of the gateway's firewall.
fn heard_again(site: &mut Site, then: &str) -> Result<()> {
    assigned(site);
    answers(site).context("before")?;
    let web = echo_service(site)?;
    let mut flow = connect(site, web.address, SOON)?;
    exchange(&mut flow)?;
    shut(site)?;
    // While a flow waits the first address is tried several times a second.
    flow.write_all(b"is anybody there?")?;
    site.server().wait_for_line("address=[", LEFT)?;
    let open = format!("delete table {DEAF}; {then}");
    site.topology.gateway().run("nft", &[&open])?;
    site.client().wait_for_line("link is back after", SOON)?;
    read_exactly(&mut flow, 17)?;
    let log = site.client().stderr_text();
    ensure!(!log.contains("takes over"), "the first tunnel was left");
    Ok(())
}

/// A site where a ping that is lost comes by no tunnel.
fn lossless() -> SiteConfig {
    let mut scenario = near();
    scenario.errors = geo().errors;
    SiteConfig {
        scenario,
        ..SiteConfig::new(BENTPIPE)
    }
}

/// The client stays with the first tunnel, and packets from outside come to it as before.
#[test]
fn a_tunnel_that_is_heard_again_has_its_packets() {
    on_site("two addresses: heard again", lossless(), |site| {
        heard_again(site, "")?;
        one_is_listed(site, SOON)?;
        answers(site).context("after")
    });
}

/// CONNECTION_CLOSE of the second tunnel is lost: packets from outside go into it until it is known to answer nothing.
#[test]
#[ignore = "takes a minute and a half; `make test-full` runs it"]
fn a_tunnel_whose_end_was_lost_keeps_no_packets() {
    on_site("two addresses: end lost", lossless(), |site| {
        heard_again(
            site,
            &format!(
                "add table {DEAF}; add chain {DEAF} input {{ type filter hook input priority -300; }}; \
                 add rule {DEAF} input meta nfproto ipv6 udp dport {PORT} drop"
            ),
        )?;
        ensure!(listed(site)? == 2, "the end was not lost");
        let deadline = Instant::now() + Duration::from_secs(45);
        while let Err(error) = answers(site) {
            ensure!(Instant::now() < deadline, "{error:#}");
        }
        one_is_listed(site, Duration::from_secs(75))
    });
}

/// Pings cross in both families.
fn answers(site: &Site) -> Result<()> {
    for web in [WEB.to_string(), WEB6.to_string()] {
        ping(site.topology.user(), &web, 56).with_context(|| format!("ping {web}"))?;
    }
    Ok(())
}
