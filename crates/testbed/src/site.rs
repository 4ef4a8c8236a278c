//! A terminal and a gateway with bentpipe on both, a user and a web, over an emulated satellite.

mod config;
mod reports;

use std::fmt::Write as _;
use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bentpipe_emulator::scenario::preset;
use bentpipe_emulator::topology::{
    GATEWAY_SAT, LINK_DEVICE, Process, TERMINAL_SAT, Topology, TopologyConfig, WEB, WEB6,
    unique_prefix,
};
use bentpipe_lab::capture::Capture;
use bentpipe_link::{Direction, ErrorUnit, Errors, Orbit, Scenario, Standard};
use bentpipe_sys::netns::NetNs;
use rustix::process::Signal;
use tempfile::TempDir;

pub use config::{Carried, SiteConfig};

use super::keys;
use super::route::{Place, Route};

/// The UDP port of the server.
pub const PORT: u16 = 4433;

/// TCP port of the server's TLS door, where there is one.
pub const TLS_PORT: u16 = 443;

/// User ID of a client without privileges.
const NOBODY: u32 = 65_534;

/// Time that `bentpipe` is given to come up, its handshake over the satellite included.
const COMES_UP: Duration = Duration::from_secs(20);

/// Time that `bentpipe` is given to stop: longer than it lets open flows finish.
const STOPS: Duration = Duration::from_secs(20);

/// 10/10 Mbit/s and an RTT of 500 ms.
pub fn geo() -> Scenario {
    preset("geo").expect("a preset")
}

/// [`geo`] with 20 Mbit/s in both directions.
pub fn fast_geo() -> Scenario {
    let twenty = Standard::Cbr {
        bit_rate: "20 Mbit/s".parse().expect("a rate"),
    };
    Scenario {
        forward_link: twenty.clone(),
        return_link: twenty,
        ..geo()
    }
}

/// 50/20 Mbit/s, an RTT of 50 ms, and one packet in a thousand lost.
pub fn near() -> Scenario {
    let standard = |rate: &str| Standard::Cbr {
        bit_rate: rate.parse().expect("a rate"),
    };
    Scenario {
        orbit: Orbit::constant(Duration::from_millis(25)),
        forward_link: standard("50 Mbit/s"),
        return_link: standard("20 Mbit/s"),
        ..losing("0.1 %")
    }
}

/// [`geo`] that loses 2 % of the packets.
pub fn lossy_geo() -> Scenario {
    losing("2 %")
}

fn losing(rate: &str) -> Scenario {
    Scenario {
        errors: Errors::Iid {
            rate: rate.parse().expect("a ratio"),
            unit: ErrorUnit::Ip,
            direction: Direction::Both,
        },
        ..geo()
    }
}

/// A site with bentpipe at both ends of its link. Daemons come first: they end before their namespaces do.
#[derive(Debug)]
pub struct Site {
    client: Option<Process>,
    server: Option<Process>,
    client_home: TempDir,
    config: SiteConfig,
    /// Namespaces of the site, and the link between them.
    pub topology: Topology,
}

impl Site {
    /// Builds the site and starts bentpipe on both sides; the tunnel is up.
    pub fn start(config: SiteConfig) -> Result<Self> {
        let mut site = Self::plain(config)?;
        if matches!(site.config.carried, Carried::Tunnel | Carried::Distributed) {
            site.start_server()?;
        }
        site.start_client()?;
        Ok(site)
    }

    /// Builds the site; bentpipe is configured, and not running.
    pub fn plain(config: SiteConfig) -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let topology = Topology::build(&TopologyConfig {
            link: config.scenario.clone().into(),
            prefix: format!("{}-{number}", unique_prefix()),
            hosts: 4,
        })?;
        let site = Self {
            client: None,
            server: None,
            client_home: tempfile::Builder::new().prefix("bp-client-").tempdir()?,
            config,
            topology,
        };
        site.configure()?;
        Ok(site)
    }

    /// Configures both ends without a tunnel.
    fn configure_splitters(&self) -> Result<()> {
        let text = format!(
            "transport = \"plain\"\nlisten = \"{GATEWAY_SAT}:{PORT}\"\nstatus_socket = \"server.sock\"\n\
             drain_timeout = \"5 s\"\n\
             [[client]]\nname = \"terminal-1\"\nsource = \"{TERMINAL_SAT}\"\n\
             allow = [\"10.30.0.0/24\", \"fd00:30::/64\"]\n"
        );
        fs::write(self.topology.directory().join("server.toml"), text)?;
        let server = match self.config.carried {
            Carried::Distributed => format!("[server]\naddress = \"{GATEWAY_SAT}:{PORT}\"\n"),
            _ => String::new(),
        };
        let SiteConfig {
            client_keys,
            client_tables,
            ..
        } = &self.config;
        let text = format!(
            "transport = \"plain\"\nstatus_socket = \"client.sock\"\ndrain_timeout = \"5 s\"\n\
             {client_keys}\n{server}{client_tables}"
        );
        fs::write(self.client_home.path().join("client.toml"), text)?;
        Ok(())
    }

    fn configure(&self) -> Result<()> {
        if self.config.carried != Carried::Tunnel {
            return self.configure_splitters();
        }
        let (server, client) = (self.topology.directory(), self.client_home.path());
        let server_key = keys::generate(self.config.program, &server.join("server.key"))?;
        let client_key = keys::generate(self.config.program, &client.join("client.key"))?;
        let listen = format!("{GATEWAY_SAT}:{PORT}");
        let server_tables = &self.config.server_tables;
        let grants = &self.config.grants;
        let text = format!(
            "private_key_file = \"server.key\"\nlisten = \"{listen}\"\nstate_dir = \"state\"\n\
             status_socket = \"server.sock\"\n\
             drain_timeout = \"5 s\"\n{server_tables}\
             [[client]]\nname = \"terminal-1\"\npublic_key = \"{client_key}\"\n\
             allow = [\"10.30.0.0/24\", \"fd00:30::/64\"]\n{grants}\n"
        );
        fs::write(server.join("server.toml"), text)?;
        let SiteConfig {
            client_keys,
            server_keys,
            client_tables,
            ..
        } = &self.config;
        let text = format!(
            "private_key_file = \"client.key\"\nstate_dir = \"state\"\nstatus_socket = \"client.sock\"\n\
             drain_timeout = \"5 s\"\n{client_keys}\n\
             [server]\naddress = \"{listen}\"\npublic_key = \"{server_key}\"\n{server_keys}\
             [link]\nprofile = \"geo\"\n{client_tables}"
        );
        fs::write(client.join("client.toml"), text)?;
        if self.config.unprivileged {
            // Somewhere that nobody can get at: the build's own directory may be closed to others.
            // In a process of its own: a thread of ours that forks meanwhile would keep it open for writing, and the copy
            // could not be run ("text file busy").
            let copied = Command::new("cp")
                .arg(self.program())
                .arg(client)
                .status()?;
            ensure!(copied.success(), "cannot copy {}", self.program());
            for file in [client, &client.join("client.key")] {
                chown(file, Some(NOBODY), Some(NOBODY))?;
            }
        }
        Ok(())
    }

    /// Path of the client.
    pub fn program(&self) -> &'static str {
        self.config.program
    }

    /// Starts the server and waits until it is ready.
    pub fn start_server(&mut self) -> Result<()> {
        let process = self
            .topology
            .spawn_in(self.topology.gateway(), self.server_command()?)?;
        process.wait_for_line("ready", COMES_UP)?;
        self.server = Some(process);
        Ok(())
    }

    fn server_command(&self) -> Result<Command> {
        let directory = self.topology.directory();
        let mut command = Command::new(self.config.server_program);
        if self.config.server_unprivileged {
            // It stays root by name, since the build's directory may be closed to others; the kernel asks for capabilities.
            command = Command::new("setpriv");
            command.args([
                "--inh-caps=-all",
                "--bounding-set=-all",
                "--",
                self.config.server_program,
            ]);
        }
        if let Some(hosts) = &self.config.server_hosts {
            let (hosts_file, resolver_file) = (directory.join("hosts"), directory.join("resolv"));
            fs::write(&hosts_file, hosts)?;
            fs::write(&resolver_file, "nameserver 127.0.0.1\n")?;
            // The mounts are seen by this process alone; it then becomes the server.
            command = Command::new("unshare");
            let script = "mount --bind \"$0\" /etc/hosts && mount --bind \"$1\" /etc/resolv.conf && shift && exec \"$@\"";
            command
                .args(["--mount", "--propagation", "private", "sh", "-c", script])
                .args([&hosts_file, &resolver_file])
                .arg(self.config.server_program);
        }
        command
            .args(["server", "--config"])
            .arg(directory.join("server.toml"));
        Ok(command)
    }

    /// Starts the client and waits until the tunnel is up.
    pub fn start_client(&mut self) -> Result<()> {
        let home = self.client_home.path();
        let mut command = Command::new(self.program());
        if self.config.unprivileged {
            command = Command::new(home.join("bentpipe"));
            command.uid(NOBODY).gid(NOBODY);
        }
        with_config(&mut command, home);
        let place = match self.config.carried {
            Carried::IntegratedAtGateway => self.topology.gateway(),
            _ => self.topology.terminal(),
        };
        self.client = Some(self.start_client_in(place, command)?);
        Ok(())
    }

    /// Starts the client of `command` in `place`, and waits until its tunnel is up.
    pub fn start_client_in(&self, place: &NetNs, command: Command) -> Result<Process> {
        let process = self.topology.spawn_in(place, command)?;
        process.wait_for_line("ready", COMES_UP)?;
        Ok(process)
    }

    /// SIGKILL; returns when the process is gone.
    pub fn kill_client(&mut self) -> Result<()> {
        kill(self.client.take(), "client")
    }

    /// Waits until the client ends by itself; how it did, and what it wrote.
    pub fn client_ends(&mut self) -> Result<(ExitStatus, String)> {
        let process = running(self.client.take(), "client")?;
        let status = process.wait(STOPS)?;
        Ok((status, process.stderr_text()))
    }

    /// SIGKILL; returns when the process is gone.
    pub fn kill_server(&mut self) -> Result<()> {
        kill(self.server.take(), "server")
    }

    /// SIGTERM; the exit code must be 0.
    pub fn stop_client(&mut self) -> Result<()> {
        stop(self.client.take(), "client")
    }

    /// SIGTERM; the exit code must be 0.
    pub fn stop_server(&mut self) -> Result<()> {
        stop(self.server.take(), "server")
    }

    /// Stops the server and starts `program` in its place, as an upgrade does.
    pub fn replace_server(&mut self, program: &'static str) -> Result<()> {
        self.stop_server()?;
        self.config.server_program = program;
        self.start_server()
    }

    /// Stops the client and starts `program` in its place, as an upgrade does; the tunnel is up.
    pub fn replace_client(&mut self, program: &'static str) -> Result<()> {
        self.stop_client()?;
        self.config.program = program;
        self.start_client()
    }

    /// The client, which must be running.
    pub fn client(&self) -> &Process {
        self.client.as_ref().expect("the client is running")
    }

    /// The server, which must be running.
    pub fn server(&self) -> &Process {
        self.server.as_ref().expect("the server is running")
    }

    /// Text that the running daemons have logged, to be shown with a failure.
    pub fn logs(&self) -> String {
        let mut text = String::new();
        for (role, process) in [("client", &self.client), ("server", &self.server)] {
            if let Some(process) = process {
                let _ = write!(text, "--- log of the {role}:\n{}", process.stderr_text());
            }
        }
        text
    }

    /// From the user to the web, over IPv4 and over IPv6.
    pub fn routes(&self) -> [Route; 2] {
        let route = |name, server: IpAddr, nobody: &str| Route {
            name,
            user: Place::from(self.topology.user()),
            web: Place::from(self.topology.web()),
            server,
            nobody: nobody.parse().expect("an address"),
            patience: super::peer::PATIENCE,
            silence: Duration::from_secs(75),
            detour: None,
        };
        [
            route("IPv4", WEB.into(), "10.30.0.251"),
            route("IPv6", WEB6.into(), "fd00:30::dead"),
        ]
    }

    /// Watches both directions of the link, at the terminal.
    pub fn watch(&self) -> Result<Capture> {
        Capture::start(self.topology.terminal(), LINK_DEVICE, PORT)
    }

    /// Directory of the client's files.
    pub fn client_home(&self) -> &Path {
        self.client_home.path()
    }
}

/// A client whose files are in `home`.
pub fn with_config<'a>(command: &'a mut Command, home: &Path) -> &'a mut Command {
    let file = home.join("client.toml");
    command.args(["client", "--config"]).arg(file)
}

fn running(process: Option<Process>, role: &str) -> Result<Process> {
    process.with_context(|| format!("the {role} is not running"))
}

fn kill(process: Option<Process>, role: &str) -> Result<()> {
    let process = running(process, role)?;
    process.signal(Signal::KILL)?;
    process.wait(Duration::from_secs(5)).map(drop)
}

fn stop(process: Option<Process>, role: &str) -> Result<()> {
    let process = running(process, role)?;
    process.signal(Signal::TERM)?;
    let status = process
        .wait(STOPS)
        .with_context(|| format!("it wrote:\n{}", process.stderr_text()))?;
    let log = process.stderr_text();
    ensure!(
        status.success(),
        "the {role} stopped with {status}; it wrote:\n{log}"
    );
    Ok(())
}
