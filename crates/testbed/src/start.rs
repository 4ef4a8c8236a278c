//! Daemons that are started without being waited for: they may be refused, or may wait for a link.

use std::process::Command;

use anyhow::Result;
use bentpipe_emulator::topology::Process;

use super::site::Site;

/// Starts the site's server at the gateway; `change` may add arguments and variables.
pub fn server(site: &Site, change: impl FnOnce(&mut Command)) -> Result<Process> {
    let mut command = Command::new(site.program());
    command.args(["server", "--config"]).arg(site.server_file());
    change(&mut command);
    site.topology.spawn_in(site.topology.gateway(), command)
}

/// Starts the site's client at the terminal; `change` may add arguments and variables.
pub fn client(site: &Site, change: impl FnOnce(&mut Command)) -> Result<Process> {
    let mut command = Command::new(site.program());
    command.args(["client", "--config"]).arg(site.client_file());
    change(&mut command);
    site.topology.spawn_in(site.topology.terminal(), command)
}
