//! Two servers on one machine: the kernel's part belongs to the first, and the second takes nothing of it away.

use std::fs;
use std::process::Command;

use anyhow::{Result, ensure};
use bentpipe_emulator::topology::Process;
use bentpipe_testbed::site::{PORT, Site, SiteConfig};

use super::{SOON, on_site};
use crate::BENTPIPE;

/// A second server at the gateway, on another port.
pub(super) fn second_server(site: &Site) -> Result<Process> {
    let text = fs::read_to_string(site.server_file())?;
    let text = text.replace(&format!(":{PORT}\""), ":4999\"");
    let text = text
        .replace("\"state\"", "\"state2\"")
        .replace("server.sock", "second.sock");
    let file = site.topology.directory().join("second.toml");
    fs::write(&file, format!("{text}\n"))?;
    let mut command = Command::new(BENTPIPE);
    command.args(["server", "--config"]).arg(file);
    let process = site.topology.spawn_in(site.topology.gateway(), command)?;
    process.wait_for_line("ready", SOON)?;
    Ok(process)
}

/// Table and routing rules of the gateway, as the kernel shows them.
fn kernel_part(site: &Site) -> Result<String> {
    let run = |program: &str, arguments: &[&str]| -> Result<String> {
        let mut command = site.topology.gateway().command(program);
        let output = command.args(arguments).output()?;
        ensure!(output.status.success(), "{program} {arguments:?}");
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    // Counters go on; chains and rules must not.
    let table = run(
        "nft",
        &["--stateless", "list", "table", "inet", "bentpipe_server"],
    )?;
    Ok(table + &run("ip", &["rule"])? + &run("ip", &["addr", "show", "bentpipe0"])?)
}

#[test]
fn a_second_server_takes_nothing_away_from_the_first() {
    on_site("two servers", SiteConfig::new(BENTPIPE), |site| {
        let before = kernel_part(site)?;
        let second = second_server(site)?;
        second.wait_for_line("another bentpipe server (process", SOON)?;
        ensure!(kernel_part(site)? == before, "the second changed it");
        drop(second);
        ensure!(kernel_part(site)? == before, "the second's stop changed it");
        let said = site.logs();
        ensure!(!said.contains("put back"), "something was taken away");
        Ok(())
    });
}
