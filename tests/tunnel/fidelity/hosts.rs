//! bentpipe on the hosts themselves: their flows are sealed end to end, whatever stands between them.

use std::fs;
use std::net::Ipv4Addr;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bentpipe_emulator::topology::{Process, WEB, WEB6, host};
use bentpipe_sys::netns::NetNs;
use bentpipe_testbed::site::{Site, TLS_PORT};
use bentpipe_testbed::{keys, status};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::BENTPIPE;

/// Address of the server, on the web's host. What goes to a server's own address is never taken in, so it is another than flows go to.
const SERVER: Ipv4Addr = host(3);

/// Time that the daemons are given to come up, and to stop.
const COMES_UP: Duration = Duration::from_secs(20);

/// Client on the user's host and server on the web's.
pub(super) struct SealedHosts {
    /// The last one stops first.
    processes: Vec<Process>,
    home: TempDir,
    /// Time from the client's start until its tunnel was ready.
    pub(super) ready_after: Duration,
}

/// Lines by which flows cross from host to host: of the server before its tables and in them, of the client's `[server]` and its
/// last table.
struct Crossing {
    listens: String,
    server_table: String,
    reaches: String,
    client_table: &'static str,
}

impl SealedHosts {
    /// Starts both in the namespaces of `site`, for flows that are sealed one by one.
    pub(super) fn start(site: &Site) -> Result<Self> {
        Self::crossing(
            site,
            &Crossing {
                listens: String::new(),
                server_table: format!("[sle]\nlisten = \"{SERVER}:4434\"\n"),
                reaches: String::new(),
                client_table: "[sle]\n",
            },
        )
    }

    /// Starts both in the namespaces of `site`, with their tunnel over TLS.
    pub(super) fn over_tls(site: &Site) -> Result<Self> {
        let door = format!("{SERVER}:{TLS_PORT}");
        Self::crossing(
            site,
            &Crossing {
                listens: format!("listen_tls = \"{door}\"\n"),
                server_table: String::new(),
                reaches: format!("tls = \"{door}\"\nwire = \"tls\"\n"),
                client_table: "",
            },
        )
    }

    fn crossing(site: &Site, crossing: &Crossing) -> Result<Self> {
        let home = tempfile::Builder::new().prefix("bp-hosts-").tempdir()?;
        let server_key = keys::generate(BENTPIPE, &home.path().join("server.key"))?;
        let client_key = keys::generate(BENTPIPE, &home.path().join("client.key"))?;
        let Crossing {
            listens,
            server_table,
            reaches,
            client_table,
        } = crossing;
        let server = format!(
            "private_key_file = \"server.key\"\nlisten = \"{SERVER}:4433\"\n{listens}state_dir = \"server\"\n\
             status_socket = \"server.sock\"\n{server_table}\
             [[client]]\nname = \"user\"\npublic_key = \"{client_key}\"\n\
             allow = [\"{WEB}\", \"{WEB6}\", \"10.30.0.0/24\", \"fd00:30::/64\"]\n"
        );
        let client = format!(
            "private_key_file = \"client.key\"\nstate_dir = \"client\"\n\
             status_socket = \"client.sock\"\n\
             [server]\naddress = \"{SERVER}:4433\"\npublic_key = \"{server_key}\"\n{reaches}\
             [link]\nprofile = \"geo\"\n[intercept]\nlocal = true\nport = 4436\n{client_table}"
        );
        let mut hosts = Self {
            processes: Vec::new(),
            home,
            ready_after: Duration::ZERO,
        };
        hosts.run(site, site.topology.web(), "server", &server)?;
        let began = Instant::now();
        hosts.run(site, site.topology.user(), "client", &client)?;
        hosts.ready_after = began.elapsed();
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

    /// What `status` says of the client.
    pub(super) fn status(&self) -> Result<Value> {
        status::report(BENTPIPE, &self.home.path().join("client.sock"))
    }

    /// Stops both, the client first, with their rules.
    pub(super) fn stop(mut self) -> Result<()> {
        while let Some(process) = self.processes.pop() {
            process.signal(Signal::TERM)?;
            let stopped = process.wait(COMES_UP);
            let status = stopped.with_context(|| process.stderr_text())?;
            ensure!(status.success(), "{status}: {}", process.stderr_text());
        }
        Ok(())
    }

    /// What both have logged.
    pub(super) fn logs(&self) -> String {
        let logs = self.processes.iter().map(Process::stderr_text);
        logs.collect::<Vec<_>>().join("\n--- the other host:\n")
    }
}
