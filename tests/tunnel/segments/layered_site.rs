//! Hosts that speak LES through two PEPs which have the keys of their headers, or are to get them.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bentpipe_emulator::topology::{GATEWAY_SAT, Process, TERMINAL_LAN, VPN_HOST, WEB, WEB6};
use bentpipe_link::Scenario;
use bentpipe_sys::command::run_command;
use bentpipe_testbed::keys;
use bentpipe_testbed::site::near;
use bentpipe_testbed::status::report;
use rustix::process::Signal;
use serde_json::Value;

use super::site::{Pep, PepSite, SOON};
use crate::BENTPIPE;

/// UDP port at which PEPs take keys.
pub(super) const KEYS: u16 = 4502;

/// UDP port of the hosts' tunnel.
pub(super) const TUNNEL: u16 = 4435;

/// UDP port of the hosts' packets.
pub(super) const PACKETS: u16 = 4501;

/// The hosts' daemons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Client,
    Server,
}

impl Role {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }
}

/// A site whose hosts speak LES, and their daemons, which end first.
pub(super) struct LayeredSite {
    daemons: [Option<Process>; 2],
    pub(super) site: PepSite,
}

impl LayeredSite {
    /// Builds the site over `link`; its PEPs run, and the hosts' daemons do not. `flow` is the client's.
    pub(super) fn plain(link: Scenario, flow: &str) -> Result<Self> {
        Self::with(link, flow, "")
    }

    /// [`Self::plain`] with more `tables` of both PEPs.
    fn with(link: Scenario, flow: &str, tables: &str) -> Result<Self> {
        let mut site = PepSite::plain(link, tables)?;
        let directory = site.topology.directory().to_owned();
        let [client, server] = ["client", "server"]
            .map(|name| keys::generate(BENTPIPE, &directory.join(format!("{name}.key"))));
        let (client, server) = (client?, server?);
        for pep in Pep::BOTH {
            site.add(pep, &format!("[les]\nclients = [\"{client}\"]\n"))?;
            site.run(pep)?;
        }
        site.until_joined()?;
        let web = site.topology.web();
        let address = format!("addr replace {VPN_HOST}/32 dev eth0\n");
        site.topology.configure(web, &address)?;
        let [gateway, terminal] = Pep::BOTH.map(|pep| site.key(pep));
        fs::write(
            directory.join("server.toml"),
            format!(
                "private_key_file = \"server.key\"\nstatus_socket = \"server.sock\"\nstate_dir = \"server-state\"\n\
                 listen = \"{VPN_HOST}:{TUNNEL}\"\n\
                 [[client]]\nname = \"user\"\npublic_key = \"{client}\"\n\
                 allow = [\"{WEB}\", \"{WEB6}\", \"10.30.0.0/24\", \"fd00:30::/64\"]\n\
                 [les]\nlisten = \"{VPN_HOST}:{PACKETS}\"\npeps = [\"{gateway}\", \"{terminal}\"]\n"
            ),
        )?;
        fs::write(
            directory.join("client.toml"),
            format!(
                "private_key_file = \"client.key\"\nstatus_socket = \"client.sock\"\nstate_dir = \"client-state\"\n\
                 [server]\naddress = \"{VPN_HOST}:{TUNNEL}\"\npublic_key = \"{server}\"\n\
                 [intercept]\nlocal = true\n[les]\nflow = \"{flow}\"\n\
                 destinations = [\"10.30.0.0/24\", \"fd00:30::/64\"]\n\
                 [[les.pep]]\nname = \"terminal\"\naddress = \"{TERMINAL_LAN}:{KEYS}\"\npublic_key = \"{terminal}\"\n\
                 [[les.pep]]\nname = \"gateway\"\naddress = \"{GATEWAY_SAT}:{KEYS}\"\npublic_key = \"{gateway}\"\n"
            ),
        )?;
        if flow == "psk" {
            let key = directory.join("les.psk");
            fs::write(&key, [7; 32])?;
            fs::set_permissions(&key, Permissions::from_mode(0o600))?;
            for role in ["client", "server"] {
                let file = directory.join(format!("{role}.toml"));
                let text = fs::read_to_string(&file)?;
                let table = "[les.laboratory]\npsk_file = \"les.psk\"\n";
                fs::write(file, format!("{text}\n{table}"))?;
            }
        }
        Ok(Self {
            daemons: [None, None],
            site,
        })
    }

    /// Builds the site and starts all of it; both PEPs have keys.
    pub(super) fn start() -> Result<Self> {
        Self::started("short")
    }

    /// [`Self::start`] with this `flow` of the client's.
    pub(super) fn started(flow: &str) -> Result<Self> {
        Self::over(near(), flow, "")
    }

    /// [`Self::started`], over this `link`, with more `tables` of both PEPs.
    pub(super) fn over(link: Scenario, flow: &str, tables: &str) -> Result<Self> {
        let mut les = Self::with(link, flow, tables)?;
        les.run(Role::Server)?;
        les.run(Role::Client)?;
        les.until_keyed()?;
        Ok(les)
    }

    /// Starts a daemon; returns when it is ready.
    pub(super) fn run(&mut self, role: Role) -> Result<()> {
        self.begin(role)?.wait_for_line("ready", SOON).map(drop)
    }

    /// Starts a daemon, and does not wait for it.
    pub(super) fn begin(&mut self, role: Role) -> Result<&Process> {
        let place = match role {
            Role::Client => self.site.topology.user(),
            Role::Server => self.site.topology.web(),
        };
        let mut command = Command::new(BENTPIPE);
        let file = self.site.topology.directory();
        let file = file.join(format!("{}.toml", role.name()));
        command.args([role.name(), "--config"]).arg(file);
        let process = self.site.topology.spawn_in(place, command)?;
        Ok(self.daemons[role as usize].insert(process))
    }

    /// Lets nothing of the user's leave in clear, whatever runs.
    pub(super) fn guard(&self) -> Result<()> {
        let mut command = self.site.topology.user().command(BENTPIPE);
        let file = self.site.topology.directory().join("client.toml");
        command.args(["guard", "on", "--config"]).arg(file);
        run_command(&mut command)?;
        Ok(())
    }

    fn taken(&mut self, role: Role) -> Result<Process> {
        let process = self.daemons[role as usize].take();
        process.with_context(|| format!("no {} runs", role.name()))
    }

    /// SIGKILL; returns when the daemon is gone.
    pub(super) fn kill(&mut self, role: Role) -> Result<()> {
        let process = self.taken(role)?;
        process.signal(Signal::KILL)?;
        process.wait(SOON).map(drop)
    }

    /// SIGTERM; returns when the daemon is gone.
    pub(super) fn stop(&mut self, role: Role) -> Result<()> {
        let process = self.taken(role)?;
        process.signal(Signal::TERM)?;
        process.wait(SOON).map(drop)
    }

    /// Waits until both PEPs have keys.
    pub(super) fn until_keyed(&self) -> Result<()> {
        let deadline = Instant::now() + 2 * SOON;
        for pep in Pep::BOTH {
            while self.site.status(pep)?["keys"]["associations"] == 0 {
                ensure!(Instant::now() < deadline, "no key at {pep:?}");
                thread::sleep(Duration::from_millis(50));
            }
        }
        Ok(())
    }

    /// Has the server assign this address to the client from its next start on.
    pub(super) fn assign(&self, address: &str) -> Result<()> {
        let file = self.site.topology.directory().join("server.toml");
        let text = fs::read_to_string(&file)?;
        let assigned = format!("addresses = [\"{address}\"]\nallow = ");
        Ok(fs::write(file, text.replacen("allow = ", &assigned, 1))?)
    }

    /// Takes PEPs from the client's list: all, or the one of this name.
    pub(super) fn take_off(&self, name: Option<&str>) -> Result<()> {
        const TABLE: &str = "[[les.pep]]\n";
        let file = self.site.topology.directory().join("client.toml");
        let text = fs::read_to_string(&file)?;
        let mut parts = text.split(TABLE);
        let head = parts.next().expect("a first part").to_owned();
        let stays = |part: &&str| name.is_some_and(|name| !part.contains(&format!("\"{name}\"")));
        let kept: String = parts
            .filter(stays)
            .map(|part| TABLE.to_owned() + part)
            .collect();
        fs::write(&file, head + &kept)?;
        let client = self.daemons[Role::Client as usize].as_ref();
        client.context("no client runs")?.signal(Signal::HUP)
    }

    /// Adds a PEP that nobody knows to the client's list: a new association begins, as an hour later, and this waits for it.
    pub(super) fn renew(&self) -> Result<()> {
        let associations = || -> Result<Option<u64>> {
            Ok(self.status(Role::Client)?["les"]["associations_total"].as_u64())
        };
        let before = associations()?;
        let directory = self.site.topology.directory();
        let stranger = keys::generate(BENTPIPE, &directory.join("spare.key"))?;
        let file = directory.join("client.toml");
        let text = fs::read_to_string(&file)?;
        let spare = format!(
            "[[les.pep]]\nname = \"spare\"\naddress = \"{GATEWAY_SAT}:4503\"\npublic_key = \"{stranger}\"\n"
        );
        fs::write(&file, text + &spare)?;
        let client = self.daemons[Role::Client as usize].as_ref();
        client.context("no client runs")?.signal(Signal::HUP)?;
        let deadline = Instant::now() + SOON;
        while associations()? <= before {
            ensure!(Instant::now() < deadline, "no new association");
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Takes all PEPs from the client's list, and waits until they have no keys of it.
    pub(super) fn revoke(&self) -> Result<()> {
        self.take_off(None)?;
        let deadline = Instant::now() + SOON;
        for pep in Pep::BOTH {
            while self.site.status(pep)?["keys"]["associations"] != 0 {
                ensure!(Instant::now() < deadline, "{pep:?} keeps its keys");
                thread::sleep(Duration::from_millis(50));
            }
        }
        Ok(())
    }

    /// Number of flows that have been relayed at both.
    pub(super) fn relayed(&self) -> Result<[u64; 2]> {
        let [one, other] = Pep::BOTH.map(|pep| self.site.figure(pep, "/relayed_total"));
        Ok([one?, other?])
    }

    /// Document that `status` prints for a daemon.
    pub(super) fn status(&self, role: Role) -> Result<Value> {
        let directory = self.site.topology.directory();
        report(BENTPIPE, &directory.join(format!("{}.sock", role.name())))
    }

    /// Text that a daemon has logged since its start; empty if it does not run.
    pub(super) fn log(&self, role: Role) -> String {
        let daemon = self.daemons[role as usize].as_ref();
        daemon.map(Process::stderr_text).unwrap_or_default()
    }

    /// Text that the daemons have logged, to be shown with a failure.
    pub(super) fn logs(&self) -> String {
        let daemons = self.daemons.iter().flatten();
        let own: String = daemons.map(Process::stderr_text).collect();
        format!("{}\n{own}", self.site.logs())
    }
}

/// Runs `case` on a site of LES, and shows the logs if it fails.
pub(super) fn on_layered_site(
    name: &str,
    site: impl FnOnce() -> Result<LayeredSite>,
    case: impl FnOnce(&mut LayeredSite) -> Result<()>,
) {
    if !bentpipe_testbed::privileged(name) {
        return;
    }
    let mut les = site().expect("a site");
    let result = case(&mut les);
    assert!(result.is_ok(), "{:#}\n{}", result.unwrap_err(), les.logs());
}
