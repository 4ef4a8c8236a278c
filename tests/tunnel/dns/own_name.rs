//! The name of the client's own server, on a machine whose own questions are intercepted.

use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use bentpipe_emulator::topology::{GATEWAY_SAT, WEB};
use bentpipe_sys::command::run_command;
use bentpipe_testbed::privileged;
use bentpipe_testbed::site::{Site, SiteConfig, with_config};

use super::resolver::{Resolver, SERVER};
use super::web;
use crate::BENTPIPE;

/// Starts the client of a site whose server has a name; this process alone sees the machine's resolver at [`WEB`].
fn joins_by_name(guard: bool) -> Result<()> {
    let mut site = Site::plain(SiteConfig {
        client_tables: "[intercept]\ninterfaces = [\"lan0\"]\nlocal = true\n".into(),
        ..SiteConfig::new(BENTPIPE)
    })?;
    let file = site.client_home().join("client.toml");
    let text = fs::read_to_string(&file)?;
    let named = text.replace(
        &format!("\"{GATEWAY_SAT}:"),
        &format!("\"{SERVER}.example:"),
    );
    ensure!(named != text, "no address in {text}");
    fs::write(&file, named)?;
    if guard {
        let mut command = site.topology.terminal().command(BENTPIPE);
        command.args(["guard", "on", "--config"]).arg(&file);
        run_command(&mut command)?;
    }
    let resolver = Resolver::start(&site.topology.web().into(), web())?;
    site.start_server()?;
    let list = site.client_home().join("resolv");
    fs::write(&list, format!("nameserver {WEB}\n"))?;
    let mut command = Command::new("unshare");
    let script = "mount --bind \"$0\" /etc/resolv.conf && exec \"$@\"";
    command.args(["--mount", "--propagation", "private", "sh", "-c", script]);
    command.arg(list).arg(BENTPIPE);
    with_config(&mut command, site.client_home());
    let client = site.start_client_in(site.topology.terminal(), command);
    client.with_context(|| format!("after {} questions", resolver.asked()))?;
    ensure!(resolver.asked() > 0, "nobody was asked");
    Ok(())
}

#[test]
fn a_client_that_intercepts_its_own_machine_finds_its_server_by_name() {
    if !privileged("dns: the server's name") {
        return;
    }
    for guard in [false, true] {
        let result = joins_by_name(guard);
        result.unwrap_or_else(|error| panic!("guard {guard}: {error:#}"));
    }
}
