//! Changes of the kernel that fail, because `nft` does: a server tries them again, goes on with what was in force, and says what it
//! leaves behind.

use std::fs;
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use bentpipe_emulator::topology::{GATEWAY_WAN, Process, USER, WEB};
use bentpipe_sys::command::run_with_input;
use bentpipe_testbed::datagrams::{PacketEcho, ask};
use bentpipe_testbed::edit::edit;
use bentpipe_testbed::failing::FailingTool;
use bentpipe_testbed::privileged;
use bentpipe_testbed::site::{Site, SiteConfig};
use bentpipe_testbed::start;
use rustix::process::Signal;

use crate::BENTPIPE;
use crate::publish::expect;

/// Time in which something is said or done on a busy machine.
const SOON: Duration = Duration::from_secs(20);

/// Time in which what failed is tried once more, and the guardian of the rules has looked twice.
const AGAIN: Duration = Duration::from_secs(6);

/// Port of the server, and of the host that it leads to.
const PORT: u16 = 5000;
const HOST_PORT: u16 = 6000;

/// Firewall of the gateway that drops what it does not know.
const FIREWALL: &str =
    "table inet fw {\nchain forward {\ntype filter hook forward priority 0; policy drop;\n}\n}\n";

fn config() -> SiteConfig {
    SiteConfig {
        grants: format!("publish = [\"udp/{PORT}\"]"),
        client_tables: format!(
            "[intercept]\ninterfaces = [\"lan0\"]\n\
             [[publish]]\nprotocol = \"udp\"\nport = {PORT}\nto = \"{USER}:{HOST_PORT}\"\n"
        ),
        ..SiteConfig::new(BENTPIPE)
    }
}

/// Runs `case` on a site whose server, which is ready, finds this `nft`.
fn with_nft(name: &str, case: impl FnOnce(&mut Site, &Process, &FailingTool) -> Result<()>) {
    if !privileged(name) {
        return;
    }
    let mut site = Site::plain(config()).expect("a site");
    let gateway = site.topology.gateway();
    let mut firewall = gateway.command("nft");
    run_with_input(firewall.args(["-f", "-"]), FIREWALL).expect("a firewall");
    let state = site.topology.directory().join("state");
    fs::create_dir(&state).expect("a directory");
    let nft = FailingTool::new(&state, "nft").expect("a tool");
    let mut led = Ok(());
    let server = start::server(&site, |command| led = nft.put_first(command)).expect("a server");
    led.expect("a search path");
    let result = server
        .wait_for_line("ready", SOON)
        .and_then(|()| case(&mut site, &server, &nft));
    let logs = format!(
        "{}--- log of the server:\n{}",
        site.logs(),
        server.stderr_text()
    );
    result.unwrap_or_else(|error| panic!("{error:#}\n{logs}"));
}

fn lines(server: &Process, text: &str) -> usize {
    server.stderr_text().matches(text).count()
}

#[test]
fn a_udp_port_whose_rule_was_refused_opens_once_it_is_not() {
    with_nft("refused changes: a port", |site, server, nft| {
        let line = format!("cannot lead UDP port {PORT} to its client");
        nft.fail()?;
        site.start_client()?;
        server.wait_for_line(&line, SOON)?;
        let _host = PacketEcho::start(site.topology.user(), (USER, HOST_PORT).into())?;
        let reach = |site: &Site| ask(site, WEB.into(), (GATEWAY_WAN, PORT).into());
        let (answer, _) = reach(site)?;
        ensure!(answer.is_none(), "{answer:?}");
        thread::sleep(AGAIN);
        ensure!(lines(server, &line) == 1, "it is told again");
        nft.work()?;
        expect(site, "udp", PORT, "open")?;
        let (answer, own) = reach(site)?;
        ensure!(answer == Some(format!("{own} hello")), "{answer:?}");
        Ok(())
    });
}

#[test]
fn a_reload_that_fails_leaves_routes_as_they_were() {
    const PREFIX: &str = "10.77.0.0/24";
    with_nft("refused changes: a reload", |site, server, nft| {
        let allow = "allow = [\"10.30.0.0/24\", \"fd00:30::/64\"]\n";
        let routed = format!("{allow}routes = [\"{PREFIX}\"]\n");
        edit(&site.server_file(), allow, &routed)?;
        let gateway = site.topology.gateway().clone();
        let routes = || gateway.run("ip", &["route", "show", PREFIX]);
        nft.fail()?;
        server.signal(Signal::HUP)?;
        server.wait_for_line("addresses and routes stay as they were", SOON)?;
        server.wait_for_line("reloaded: ", SOON)?;
        ensure!(routes()?.is_empty(), "it is routed: {}", routes()?);
        nft.work()?;
        thread::sleep(AGAIN);
        ensure!(lines(server, "put back") == 0, "another program is blamed");
        ensure!(routes()?.is_empty(), "it is routed: {}", routes()?);
        server.signal(Signal::HUP)?;
        let taken = || lines(server, "reloaded: ") == 2;
        while !taken() {
            thread::sleep(Duration::from_millis(50));
        }
        ensure!(routes()?.contains("dev bentpipe0"), "it is not routed");
        Ok(())
    });
}

/// Has the server stop in order.
fn stop(server: &Process) -> Result<()> {
    server.signal(Signal::TERM)?;
    let status = server.wait(SOON)?;
    ensure!(status.success(), "{status}");
    Ok(())
}

#[test]
fn a_server_that_stops_says_what_stays_in_the_kernel() {
    with_nft("refused changes: a stop", |_, server, nft| {
        nft.fail()?;
        stop(server)?;
        let log = server.stderr_text();
        for words in [
            "table inet bentpipe_server stays in the kernel: ",
            "remove it by hand: `nft delete table inet bentpipe_server`",
            "what lets the packets of bentpipe0 pass in chains of other programs stays in the kernel: ",
        ] {
            ensure!(log.contains(words), "no `{words}`");
        }
        Ok(())
    });
    with_nft("refused changes: a clean stop", |site, server, _| {
        stop(server)?;
        ensure!(lines(server, "stays") == 0, "nothing stays");
        let tables = site.topology.gateway().run("nft", &["list", "tables"])?;
        ensure!(!tables.contains("bentpipe"), "{tables}");
        Ok(())
    });
}
