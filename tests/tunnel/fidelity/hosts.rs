//! bentpipe on the hosts themselves: their flows are sealed end to end, whatever stands between them.

use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use bentpipe_emulator::topology::{Process, WEB, WEB6};
use bentpipe_sys::netns::NetNs;
use bentpipe_testbed::keys;
use bentpipe_testbed::site::Site;
use tempfile::TempDir;

use crate::BENTPIPE;

/// Time that the daemons are given to come up.
const COMES_UP: Duration = Duration::from_secs(20);

/// Client on the user's host and server on the web's, for flows that are sealed.
pub(super) struct SealedHosts {
    /// The last one stops first.
    processes: Vec<Process>,
    home: TempDir,
}

impl SealedHosts {
    /// Starts both in the namespaces of `site`.
    pub(super) fn start(site: &Site) -> Result<Self> {
        let home = tempfile::Builder::new().prefix("bp-hosts-").tempdir()?;
        let server_key = keys::generate(BENTPIPE, &home.path().join("server.key"))?;
        let client_key = keys::generate(BENTPIPE, &home.path().join("client.key"))?;
        let server = format!(
            "private_key_file = \"server.key\"\nlisten = \"{WEB}:4433\"\nstate_dir = \"server\"\n\
             status_socket = \"server.sock\"\n[sle]\nlisten = \"{WEB}:4434\"\n\
             [[client]]\nname = \"user\"\npublic_key = \"{client_key}\"\n\
             allow = [\"{WEB}\", \"{WEB6}\", \"10.30.0.0/24\", \"fd00:30::/64\"]\n"
        );
        let client = format!(
            "private_key_file = \"client.key\"\nstate_dir = \"client\"\n\
             status_socket = \"client.sock\"\n\
             [server]\naddress = \"{WEB}:4433\"\npublic_key = \"{server_key}\"\n\
             [link]\nprofile = \"geo\"\n[intercept]\nlocal = true\nport = 4436\n[sle]\n"
        );
        let mut hosts = Self {
            processes: Vec::new(),
            home,
        };
        hosts.run(site, site.topology.web(), "server", &server)?;
        hosts.run(site, site.topology.user(), "client", &client)?;
        Ok(hosts)
    }

    fn run(&mut self, site: &Site, place: &NetNs, role: &str, config: &str) -> Result<()> {
        let file = self.home.path().join(format!("{role}.toml"));
        fs::write(&file, config)?;
        let mut command = Command::new(BENTPIPE);
        command.args([role, "--config"]).arg(&file);
        let process = site.topology.spawn_in(place, command)?;
        process.wait_for_line("ready", COMES_UP)?;
        self.processes.push(process);
        Ok(())
    }

    /// What both have logged.
    pub(super) fn logs(&self) -> String {
        let logs = self.processes.iter().map(Process::stderr_text);
        logs.collect::<Vec<_>>().join("\n--- the other host:\n")
    }
}
