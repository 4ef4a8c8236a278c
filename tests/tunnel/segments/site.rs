//! A terminal and a gateway with an operator's PEP on each, a user and a web without anything, over an emulated satellite.

use std::fmt::Write as _;
use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bentpipe_emulator::topology::{
    GATEWAY_SAT, LINK_DEVICE, Process, Topology, TopologyConfig, USER, USER6, WEB, WEB6,
    unique_prefix,
};
use bentpipe_link::Scenario;
use bentpipe_sys::netns::NetNs;
use bentpipe_testbed::keys;
use bentpipe_testbed::peer::PATIENCE;
use bentpipe_testbed::privileged;
use bentpipe_testbed::route::{Place, Route};
use bentpipe_testbed::status::report;
use rustix::process::Signal;
use serde_json::Value;

use crate::BENTPIPE;

/// UDP port of the PEP that listens.
pub(super) const PORT: u16 = 4434;

/// Time in which something comes up or goes down on a busy machine.
pub(super) const SOON: Duration = Duration::from_secs(20);

/// The two PEPs, by where they stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pep {
    /// At the terminal; it connects.
    Terminal,
    /// At the gateway; it listens.
    Gateway,
}

impl Pep {
    pub(super) const BOTH: [Self; 2] = [Self::Gateway, Self::Terminal];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Terminal => "terminal",
            Self::Gateway => "gateway",
        }
    }
}

/// Namespaces, a link, and PEPs that run or do not. Daemons come first: they end before their namespaces do.
pub(super) struct PepSite {
    peps: [Option<Process>; 2],
    /// Public keys of the PEPs.
    keys: [String; 2],
    pub(super) topology: Topology,
}

impl PepSite {
    /// Builds the site; the PEPs are configured with these `tables`, and not running.
    pub(super) fn plain(scenario: Scenario, tables: &str) -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let topology = Topology::build(&TopologyConfig {
            link: scenario.into(),
            prefix: format!("{}-p{number}", unique_prefix()),
            hosts: 0,
        })?;
        let mut site = Self {
            peps: [None, None],
            keys: Default::default(),
            topology,
        };
        let keys = Pep::BOTH.map(|pep| {
            let directory = site.topology.directory().join(pep.name());
            fs::create_dir(&directory)?;
            keys::generate(BENTPIPE, &directory.join("pep.key"))
        });
        let [gateway, terminal] = keys;
        let (gateway, terminal) = (gateway?, terminal?);
        site.keys[Pep::Gateway as usize].clone_from(&gateway);
        site.keys[Pep::Terminal as usize].clone_from(&terminal);
        let here = format!("{GATEWAY_SAT}:{PORT}");
        site.configure(
            Pep::Gateway,
            &format!(
                "listen = \"{here}\"\nlan = [\"wan0\"]\nwan = [\"{LINK_DEVICE}\"]\n\
                 [peer]\npublic_key = \"{terminal}\"\n{tables}"
            ),
        )?;
        site.configure(
            Pep::Terminal,
            &format!(
                "lan = [\"lan0\"]\nwan = [\"{LINK_DEVICE}\"]\n\
                 [peer]\naddress = \"{here}\"\npublic_key = \"{gateway}\"\n{tables}"
            ),
        )?;
        Ok(site)
    }

    fn configure(&self, pep: Pep, text: &str) -> Result<()> {
        let directory = self.topology.directory().join(pep.name());
        let head = "private_key_file = \"pep.key\"\nstate_dir = \"state\"\nstatus_socket = \"pep.sock\"\n\
                    drain_timeout = \"3 s\"\n";
        fs::write(directory.join("pep.toml"), format!("{head}{text}"))?;
        Ok(())
    }

    /// Public key of a PEP.
    pub(super) fn key(&self, pep: Pep) -> &str {
        &self.keys[pep as usize]
    }

    /// Directory of a PEP's files.
    pub(super) fn home(&self, pep: Pep) -> PathBuf {
        self.topology.directory().join(pep.name())
    }

    /// Process of a PEP that runs.
    pub(super) fn pid(&self, pep: Pep) -> Option<u32> {
        self.peps[pep as usize].as_ref().map(Process::id)
    }

    /// Adds `tables` to the file of a PEP.
    pub(super) fn add(&self, pep: Pep, tables: &str) -> Result<()> {
        let file = self.topology.directory().join(pep.name()).join("pep.toml");
        let text = fs::read_to_string(&file)?;
        Ok(fs::write(file, format!("{text}\n{tables}"))?)
    }

    /// Builds the site and starts both PEPs; their tunnel is up.
    pub(super) fn start(scenario: Scenario, tables: &str) -> Result<Self> {
        let mut site = Self::plain(scenario, tables)?;
        for pep in Pep::BOTH {
            site.run(pep)?;
        }
        site.until_joined()?;
        Ok(site)
    }

    /// Namespace of a PEP.
    pub(super) fn place(&self, pep: Pep) -> &NetNs {
        match pep {
            Pep::Terminal => self.topology.terminal(),
            Pep::Gateway => self.topology.gateway(),
        }
    }

    /// Starts a PEP and waits until it takes packets.
    pub(super) fn run(&mut self, pep: Pep) -> Result<()> {
        self.run_with(pep, |_| Ok(()))
    }

    /// As [`Self::run`]; `change` may add arguments and variables.
    pub(super) fn run_with(
        &mut self,
        pep: Pep,
        change: impl FnOnce(&mut Command) -> Result<()>,
    ) -> Result<()> {
        let mut command = Command::new(BENTPIPE);
        let file = self.topology.directory().join(pep.name()).join("pep.toml");
        command
            .args(["--log", "debug", "pep", "--config"])
            .arg(file);
        change(&mut command)?;
        let process = self.topology.spawn_in(self.place(pep), command)?;
        process.wait_for_line("ready", SOON)?;
        self.peps[pep as usize] = Some(process);
        Ok(())
    }

    /// Waits until the tunnel between the PEPs is up at both ends.
    pub(super) fn until_joined(&self) -> Result<()> {
        let deadline = Instant::now() + SOON;
        for pep in Pep::BOTH {
            while self.status(pep)?["tunnel"]["state"] != "ready" {
                ensure!(Instant::now() < deadline, "no tunnel at the {}", pep.name());
                thread::sleep(Duration::from_millis(50));
            }
        }
        Ok(())
    }

    fn taken(&mut self, pep: Pep) -> Result<Process> {
        let process = self.peps[pep as usize].take();
        process.with_context(|| format!("the PEP at the {} does not run", pep.name()))
    }

    /// SIGKILL; returns when the process is gone.
    pub(super) fn kill(&mut self, pep: Pep) -> Result<()> {
        let process = self.taken(pep)?;
        process.signal(Signal::KILL)?;
        process.wait(SOON).map(drop)
    }

    /// SIGHUP.
    pub(super) fn hang_up(&self, pep: Pep) -> Result<()> {
        let process = self.peps[pep as usize].as_ref();
        process.context("it does not run")?.signal(Signal::HUP)
    }

    /// SIGTERM; the exit code must be 0. Returns what the PEP has logged.
    pub(super) fn stop(&mut self, pep: Pep) -> Result<String> {
        let process = self.taken(pep)?;
        process.signal(Signal::TERM)?;
        let status = process.wait(SOON)?;
        let log = process.stderr_text();
        ensure!(status.success(), "{status}; it wrote:\n{log}");
        Ok(log)
    }

    /// Document that `status` prints for a PEP.
    pub(super) fn status(&self, pep: Pep) -> Result<Value> {
        let directory = self.topology.directory().join(pep.name());
        report(BENTPIPE, &directory.join("pep.sock"))
    }

    /// A figure of a PEP's `segments`, by its path.
    pub(super) fn figure(&self, pep: Pep, path: &str) -> Result<u64> {
        let status = self.status(pep)?;
        let figure = status["segments"].pointer(path);
        let figure = figure.and_then(Value::as_u64);
        figure.with_context(|| format!("no {path} in {}", status["segments"]))
    }

    /// Text that a running PEP has logged.
    pub(super) fn log(&self, pep: Pep) -> String {
        let process = self.peps[pep as usize].as_ref();
        process.map(Process::stderr_text).unwrap_or_default()
    }

    /// Text that the running PEPs have logged, to be shown with a failure.
    pub(super) fn logs(&self) -> String {
        let mut text = String::new();
        for pep in Pep::BOTH {
            if let Some(process) = &self.peps[pep as usize] {
                let log = process.stderr_text();
                let _ = write!(text, "--- log of the {}:\n{log}", pep.name());
                if let Ok(status) = self.status(pep) {
                    let _ = writeln!(text, "{}", status["segments"]);
                }
            }
        }
        text
    }

    fn route_between(&self, name: &'static str, [user, web]: [&NetNs; 2], server: IpAddr) -> Route {
        let nobody = if server.is_ipv4() {
            "10.30.0.251"
        } else {
            "fd00:30::dead"
        };
        Route {
            name,
            user: Place::from(user),
            web: Place::from(web),
            server,
            nobody: nobody.parse().expect("an address"),
            patience: PATIENCE,
            silence: Duration::from_secs(75),
            detour: None,
        }
    }

    /// From the user to the web, over IPv4 and over IPv6.
    pub(super) fn routes(&self) -> [Route; 2] {
        let ends = [self.topology.user(), self.topology.web()];
        [
            self.route_between("IPv4", ends, WEB.into()),
            self.route_between("IPv6", ends, WEB6.into()),
        ]
    }

    /// From the web to the user.
    pub(super) fn backwards(&self) -> [Route; 2] {
        let ends = [self.topology.web(), self.topology.user()];
        [
            self.route_between("IPv4, from the web", ends, USER.into()),
            self.route_between("IPv6, from the web", ends, USER6.into()),
        ]
    }
}

/// Runs `case` on a site, and shows the logs if it fails.
pub(super) fn on_site(
    name: &str,
    site: impl FnOnce() -> Result<PepSite>,
    case: impl FnOnce(&mut PepSite) -> Result<()>,
) {
    if !privileged(name) {
        return;
    }
    let mut site = site().expect("a site");
    let result = case(&mut site);
    assert!(result.is_ok(), "{:#}\n{}", result.unwrap_err(), site.logs());
}
