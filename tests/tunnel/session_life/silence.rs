//! Nobody answers: the operator hears why, `status` says so, waiting is cheap, and another server takes over.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bentpipe_emulator::topology::{GATEWAY_SAT, LINK_DEVICE, Process, WEB6};
use bentpipe_testbed::edit::edit;
use bentpipe_testbed::peer::{Service, echo};
use bentpipe_testbed::route::Place;
use bentpipe_testbed::site::{PORT, Site, SiteConfig};
use bentpipe_testbed::start;
use serde_json::Value;

use super::two_servers::second_server;
use super::{RTT, SLACK, SOON, connect, echo_address, exchange, link, on_site};
use crate::BENTPIPE;

/// Silence after which another server is tried, and what may pass until it is told and up: probes, attempt, grace.
pub(super) const LEFT: Duration = Duration::from_secs(30);

/// Age that a tunnel has before it is made to fail.
const OLD: Duration = Duration::from_secs(6);

/// Exit code and first line of `bentpipe status` with these arguments, asked of the client.
fn status(site: &Site, arguments: &[&str]) -> Result<(i32, String)> {
    let mut command = Command::new(BENTPIPE);
    let socket = site.client_home().join("client.sock");
    command.arg("status").args(arguments).arg("--socket");
    let output = command.arg(socket).output()?;
    let code = output.status.code().context("a code")?;
    Ok((code, String::from_utf8(output.stdout)?))
}

/// Somebody on the internet who answers everything.
pub(super) fn echo_service(site: &Site) -> Result<Service> {
    Service::start(&Place::from(site.topology.web()), echo_address(), echo)
}

/// Bytes that the terminal has sent over the satellite, IP packets whole.
fn sent(site: &Site) -> Result<u64> {
    let arguments = ["-s", "-j", "link", "show", LINK_DEVICE];
    let text = site.topology.terminal().run("ip", &arguments)?;
    let value: Value = serde_json::from_str(&text)?;
    value[0]["stats64"]["tx"]["bytes"]
        .as_u64()
        .context("a count")
}

/// Warnings and errors in the log, apart from those about limits of the machine.
fn complaints(client: &Process) -> Vec<String> {
    let log = client.stderr_text();
    let lines = log
        .lines()
        .filter(|line| line.contains(" WARN ") || line.contains("ERROR"));
    let lines = lines.filter(|line| !line.contains("open files"));
    lines.map(str::to_owned).collect()
}

/// Without a server for a while: what is said, what it costs, and that every byte is accounted for.
fn waits_cheaply(
    site: &Site,
    client: &Process,
    expected: &str,
    (time, most): (Duration, u64),
) -> Result<()> {
    client.wait_for_line(expected, Duration::from_secs(5) + SLACK)?;
    thread::sleep(time);
    let bytes = sent(site)?;
    ensure!((7_000..most).contains(&bytes), "{bytes} bytes in {time:?}");
    let lines = complaints(client);
    ensure!(lines.len() == 1, "{lines:?}");
    let report = site.client_report()?;
    let (tunnel, ledger) = (&report["tunnel"], &report["ledger_bytes"]["sent"]);
    ensure!(tunnel["state"] == "connecting", "{tunnel}");
    let error = tunnel["last_error"].as_str().context("a reason")?;
    ensure!(error.contains("no answer from 10.20.0.1:4433"), "{error}");
    let counted = ledger["handshake"].as_u64().context("a count")?
        + ledger["ip_headers"].as_u64().context("a count")?;
    // The device counts what leaves while it is read.
    ensure!(counted.abs_diff(bytes) <= 2_600, "{counted} of {bytes}");
    let used = report["metering"]["used_bytes"]
        .as_u64()
        .context("a count")?;
    ensure!(used >= counted, "{used} metered of {counted}");
    let (code, line) = status(site, &["--check"])?;
    ensure!(code == 1 && line.lines().count() == 1, "{code}: {line}");
    ensure!(line.contains("no answer from 10.20.0.1:4433"), "{line}");
    Ok(())
}

fn metered() -> SiteConfig {
    SiteConfig {
        client_tables: "[intercept]\ninterfaces = [\"lan0\"]\n[metering]\ncap = \"1 GB\"\n".into(),
        ..SiteConfig::new(BENTPIPE)
    }
}

#[test]
fn a_server_that_is_not_there_is_named_and_costs_little() {
    if !super::privileged("silence: no server") {
        return;
    }
    let site = Site::plain(metered()).expect("a site");
    let client = start::client(&site, |_| ()).expect("a client");
    let text = "no answer from 10.20.0.1:4433: port unreachable, says 10.20.0.1 (ICMP)";
    let minute = (Duration::from_secs(58), 60_000);
    let result = waits_cheaply(&site, &client, text, minute);
    assert!(
        result.is_ok(),
        "{:#}\n{}",
        result.unwrap_err(),
        client.stderr_text()
    );
}

#[test]
fn a_link_that_swallows_everything_is_named_and_a_host_that_asks_is_served_soon() {
    if !super::privileged("silence: swallowed") {
        return;
    }
    let mut site = Site::plain(metered()).expect("a site");
    site.start_server().expect("a server");
    let result = thread::scope(|scope| {
        let outage = scope.spawn(|| link::outage(&site.topology, Duration::from_secs(26)));
        thread::sleep(Duration::from_secs(1));
        let client = start::client(&site, |_| ())?;
        let text = "no answer from 10.20.0.1:4433 in 3 s (a firewall at either end or on the way drops UDP, wrong port, or server not running)";
        // Attempts after 0, 3 and 8 s, two datagrams and their repetition each, of the first with copies.
        let waited = waits_cheaply(&site, &client, text, (Duration::from_secs(15), 25_000));
        outage.join().expect("no panic")?;
        waited.with_context(|| client.stderr_text())?;
        // The next attempt by itself would come in ten seconds and more.
        let asked = Instant::now();
        let web = echo_service(&site)?;
        exchange(&mut connect(&site, web.address, SOON)?)?;
        let served = asked.elapsed();
        // The last attempt may just have begun, and then has its 3 s.
        let most = Duration::from_secs(3) + 5 * RTT + SLACK;
        ensure!(served <= most, "served after {served:?}");
        Ok(())
    });
    assert!(result.is_ok(), "{:#}", result.unwrap_err());
}

#[test]
fn a_silent_tunnel_is_called_silent_and_then_back() {
    on_site("silent tunnel", SiteConfig::new(BENTPIPE), |site| {
        let web = echo_service(site)?;
        let mut flow = connect(site, web.address, SOON)?;
        exchange(&mut flow)?;
        let (code, line) = status(site, &["--check"])?;
        ensure!(
            code == 0 && line.starts_with("healthy: tunnel to"),
            "{code}: {line}"
        );
        thread::scope(|scope| {
            let outage = scope.spawn(|| link::outage(&site.topology, Duration::from_secs(16)));
            site.client()
                .wait_for_line("link silent since", Duration::from_secs(12))?;
            let (code, line) = status(site, &["--check"])?;
            ensure!(code == 1 && line.contains("silent for"), "{code}: {line}");
            let (_, text) = status(site, &[])?;
            ensure!(text.contains("silent for"), "{text}");
            let tunnel = site.client_report()?["tunnel"].take();
            ensure!(tunnel["state"] == "silent", "{tunnel}");
            let heard = tunnel["last_heard_s"].as_u64().context("a time")?;
            ensure!((5..=16).contains(&heard), "{tunnel}");
            outage.join().expect("no panic")?;
            site.client().wait_for_line("link is back after", SOON)?;
            exchange(&mut flow)?;
            let (code, line) = status(site, &["--check"])?;
            ensure!(code == 0, "{code}: {line}");
            let log = site.client().stderr_text();
            let count = |text: &str| log.matches(text).count();
            ensure!(
                count("link silent since") == 1 && count("link is back") == 1,
                "{log}"
            );
            Ok(())
        })
    });
}

/// Packets that this machine itself drops are no fault of the server's: log, `status` and its check say so, before there is a tunnel and
/// while it is silent.
#[test]
fn a_firewall_of_the_terminal_itself_is_named_and_not_the_server() {
    if !super::privileged("silence: a firewall of one's own") {
        return;
    }
    let mut site = Site::plain(SiteConfig::new(BENTPIPE)).expect("a site");
    let result = is_named_for_its_own_firewall(&mut site);
    assert!(result.is_ok(), "{:#}\n{}", result.unwrap_err(), site.logs());
}

fn is_named_for_its_own_firewall(site: &mut Site) -> Result<()> {
    const FAULT: &str = "what is sent to 10.20.0.1:4433 does not leave this machine: a firewall of this machine drops it";
    let close = |site: &Site, verdict: &str| {
        let table = format!(
            "add table inet shut; add chain inet shut output {{ type filter hook output priority 0; }}; \
             add rule inet shut output udp dport {PORT} {verdict}"
        );
        site.topology.terminal().run("nft", &[&table]).map(drop)
    };
    let is_blamed = |site: &Site, state: &str| {
        let (code, line) = status(site, &["--check"])?;
        ensure!(code == 1 && line.contains(FAULT), "{code}: {line}");
        let tunnel = site.client_report()?["tunnel"].take();
        ensure!(tunnel["state"] == state, "{tunnel}");
        let error = tunnel["last_error"].as_str().context("a reason")?;
        ensure!(error.starts_with(FAULT), "{error}");
        Ok(())
    };
    site.start_server()?;
    close(site, "drop")?;
    let client = start::client(site, |_| ())?;
    client.wait_for_line(FAULT, SOON)?;
    // Longer than an answer is waited for.
    thread::sleep(Duration::from_secs(4));
    is_blamed(site, "connecting")?;
    let log = client.stderr_text();
    ensure!(!log.contains("no answer from"), "{log}");
    site.topology
        .terminal()
        .run("nft", &["delete table inet shut"])?;
    client.wait_for_line("ready: tunnel to", LEFT)?;
    let web = echo_service(site)?;
    let mut flow = connect(site, web.address, SOON)?;
    exchange(&mut flow)?;
    // An ICMP error of this machine itself comes with it.
    close(site, "reject")?;
    flow.write_all(b"is anybody there?")?;
    let silent = format!("s ago: {FAULT}");
    client.wait_for_line(&silent, LEFT)?;
    is_blamed(site, "silent")
}

/// Has a client of two servers lose the first one by what `fail` does, and be served by the second.
fn fails_over(name: &str, fail: impl FnOnce(&mut Site) -> Result<()>) {
    on_site_unstarted(name, |site| goes_over(site, fail));
}

#[test]
fn a_dead_server_is_left_for_the_next_one() {
    fails_over("failover", Site::kill_server);
}

#[test]
fn a_server_that_is_heard_and_does_not_hear_is_left_for_the_next_one() {
    fails_over("failover from a path blocked in one direction", |site| {
        let table = format!(
            "add table inet deaf; add chain inet deaf input {{ type filter hook input priority -300; }}; \
             add rule inet deaf input udp dport {PORT} drop"
        );
        site.topology.gateway().run("nft", &[&table])?;
        Ok(())
    });
}

fn goes_over(site: &mut Site, fail: impl FnOnce(&mut Site) -> Result<()>) -> Result<()> {
    let file = site.client_file();
    let text = fs::read_to_string(&file)?;
    let key = text.split("public_key = \"").nth(1).context("a key")?;
    let key = key.split('"').next().context("a key")?.to_owned();
    let second =
        format!("[[server]]\naddress = \"{GATEWAY_SAT}:4999\"\npublic_key = \"{key}\"\n[link]");
    edit(&file, "[server]", "[[server]]")?;
    edit(&file, "[link]", &second)?;
    // Packets belong to one device, and so to one server of the gateway.
    edit(
        &site.server_file(),
        "[[client]]",
        "[packets]\nenabled = false\n[[client]]",
    )?;
    site.start_server()?;
    let _second = second_server(site)?;
    site.start_client()?;
    let web = echo_service(site)?;
    // An open flow for which the server probes in an outage.
    let mut open = connect(site, web.address, SOON)?;
    exchange(&mut open)?;
    let place = Place::from(site.topology.web());
    let web6 = Service::start(&place, SocketAddr::new(WEB6.into(), 0), echo)?;
    let at_once = |_| time_to_connect(site, web6.address).is_ok_and(|took| took < RTT);
    ensure!((0..10).any(at_once), "IPv6 is not accepted at once");
    // As long as a tunnel has to stand that a younger one is told from.
    thread::sleep(OLD);
    fail(site)?;
    let (site, failed, over) = (&*site, Instant::now(), AtomicBool::new(false));
    thread::scope(|scope| {
        let looks = scope.spawn(|| shows_no_other_tunnel(site, &over));
        let left = is_left(site, [web.address, web6.address], failed);
        over.store(true, Ordering::Relaxed);
        left.and(looks.join().expect("no panic"))
    })
}

/// New connections are served within [`LEFT`], by the second server.
fn is_left(site: &Site, [web, web6]: [SocketAddr; 2], failed: Instant) -> Result<()> {
    let mut flow = connect(site, web, LEFT)?;
    // What was opened before the silence was noticed goes down with the first tunnel.
    let _ = exchange(&mut flow);
    let mut flow = connect(site, web, LEFT)?;
    exchange(&mut flow)?;
    let after = failed.elapsed();
    println!("left after {after:?}");
    ensure!(after <= LEFT, "left after {after:?}");
    site.client().wait_for_line("takes over", SOON)?;
    // That the first server reached IPv6 says nothing of the second.
    let took = time_to_connect(site, web6)?;
    ensure!(
        took >= RTT,
        "accepted after {took:?}, before the second server can have answered"
    );
    Ok(())
}

/// Time until a connection from the user to `address` is accepted.
fn time_to_connect(site: &Site, address: SocketAddr) -> Result<Duration> {
    let began = Instant::now();
    let [_, route] = site.routes();
    route.connect(address)?;
    Ok(began.elapsed())
}

/// What `status` says until it is `over` is true at each moment: one that is ready and young is the tunnel to the second server.
fn shows_no_other_tunnel(site: &Site, over: &AtomicBool) -> Result<()> {
    let mut looks = 0;
    // Without a process for each look: what is wrong may be so for a moment.
    let socket = site.client_home().join("client.sock");
    while !over.load(Ordering::Relaxed) {
        let report: Value = serde_json::from_reader(UnixStream::connect(&socket)?)?;
        let tunnel = &report["tunnel"];
        let peer = tunnel["peer"].as_str().context("an address")?;
        let age = tunnel["since_s"].as_u64().context("a time")?;
        let is_second = peer.ends_with(":4999");
        // Nothing younger than the first tunnel is ready but the second.
        ensure!(
            tunnel["state"] != "ready" || is_second || age >= OLD.as_secs(),
            "after {looks} looks: {tunnel}"
        );
        looks += 1;
        thread::sleep(Duration::from_millis(1));
    }
    println!("{looks} looks");
    Ok(())
}

/// Runs `test` on a site whose daemons do not run yet.
fn on_site_unstarted(name: &str, test: impl FnOnce(&mut Site) -> Result<()>) {
    if !super::privileged(name) {
        return;
    }
    let mut site = Site::plain(SiteConfig::new(BENTPIPE)).expect("a site");
    let result = test(&mut site);
    assert!(result.is_ok(), "{:#}\n{}", result.unwrap_err(), site.logs());
}

/// A modem or a PPP session that comes back with a small MTU: QUIC has no smaller packets.
#[test]
fn a_link_too_small_for_quic_is_named_and_crosses_again_when_it_is_larger() {
    static UPLOAD: [u8; 50_000] = [7; 50_000];
    on_site("silence: a small MTU", SiteConfig::new(BENTPIPE), |site| {
        let web = echo_service(site)?;
        exchange(&mut connect(site, web.address, SOON)?)?;
        let resize = |mtu: &str| {
            let arguments = ["link", "set", LINK_DEVICE, "mtu", mtu];
            site.topology.terminal().run("ip", &arguments)
        };
        resize("1100")?;
        let mut uploads = connect(site, web.address, LEFT)?;
        // Small packets pass as before: a download's acknowledgements, or a click.
        uploads.write_all(&UPLOAD)?;
        let named = "cannot send to 10.20.0.1: its interface, or the path, carries no packet of";
        let deadline = Instant::now() + LEFT;
        while !site.logs().contains(named) {
            ensure!(Instant::now() < deadline, "nothing is said");
            thread::sleep(Duration::from_millis(100));
        }
        ensure!(site.logs().contains("QUIC needs an MTU of 1228"), "{named}");
        resize("1500")?;
        let mut echoed = [0; 50_000];
        uploads.read_exact(&mut echoed)?;
        ensure!(echoed == UPLOAD, "another content");
        Ok(())
    });
}
