//! bentpipe at both ends of the link, started as an operator starts it: keys, files, commands.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, anyhow, ensure};
use bentpipe_sys::command::run_command;
use bentpipe_sys::netns::NetNs;
use bentpipe_units::BitRate;
use serde_json::Value;

use super::Repairs;
use super::ends::HANDSHAKE;
use bentpipe_emulator::topology::{GATEWAY_SAT, Process, RESOLVER, Topology};

/// The UDP port of the tunnel.
pub const SERVER_PORT: u16 = 4433;
/// The TCP port of the tunnel over TLS.
pub(super) const TLS_PORT: u16 = 443;
/// Socket at which the client answers `bentpipe status`.
pub const CLIENT_SOCKET: &str = "client.sock";
const SERVER_SOCKET: &str = "server.sock";

/// Lines of a daemon's log that a failure shows.
const LOG_TAIL: usize = 10;

/// Settings of the client's `[link]`; those that are `None` are left out.
#[derive(Debug, Clone, Copy, Default)]
pub struct Settings {
    /// The class of link.
    pub profile: Option<&'static str>,
    /// Controller that both ends send with.
    pub controller: Option<&'static str>,
    /// Another key.
    pub tuned: Option<Tuned>,
    /// Rates that have been sold, of forward and return link.
    pub rates: Option<[BitRate; 2]>,
    /// True if everything but TCP passes as it is.
    pub tcp_alone: bool,
    /// True if the terminal's own traffic is taken in, too.
    pub local: bool,
    /// True if the tunnel goes over TLS, and nothing by UDP.
    pub tls: bool,
}

/// A key of `[link]` that is a number, for both directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuned {
    key: &'static str,
    number: u32,
}

impl Tuned {
    /// `KEY=NUMBER`; none if it is no such key.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (key, number) = text.split_once('=')?;
        let key = ["ack_packets", "initial_window"]
            .into_iter()
            .find(|known| *known == key)?;
        let number = number.parse().ok()?;
        Some(Self { key, number })
    }
}

/// Both daemons; dropped in this order.
#[derive(Debug)]
pub struct Daemons {
    client: Process,
    server: Process,
    bentpipe: PathBuf,
    sockets: [PathBuf; 2],
}

impl Daemons {
    /// Starts the server, then the client; the tunnel is up when this returns.
    ///
    /// # Errors
    /// A daemon did not come up; the text has what it wrote.
    pub fn start(bentpipe: &Path, topology: &Topology, settings: &Settings) -> Result<Self> {
        configure(bentpipe, topology, settings)?;
        let run = |role, namespace| run_daemon(bentpipe, topology, namespace, role, role);
        let server = run("server", topology.gateway())?;
        let client = run("client", topology.terminal())?;
        Ok(Self {
            client,
            server,
            bentpipe: bentpipe.to_owned(),
            sockets: [CLIENT_SOCKET, SERVER_SOCKET].map(|name| topology.directory().join(name)),
        })
    }

    /// Bytes of content that the client has carried, both ways.
    ///
    /// # Errors
    /// The client does not answer.
    pub(super) fn carried(&self) -> Result<u64> {
        carried(&status(&self.bentpipe, &self.sockets[0])?)
    }

    /// Repairs of both until now.
    ///
    /// # Errors
    /// One of them does not answer.
    pub fn repairs(&self) -> Result<Repairs> {
        let ends = self.sockets.each_ref();
        let [client, server] = ends.map(|socket| status(&self.bentpipe, socket));
        Ok(Repairs::of(&[client?, server?]))
    }

    /// Does `work`; if it fails, so may a daemon have, and its log is the better text.
    ///
    /// # Errors
    /// That of `work`, with what a daemon that ended wrote last.
    pub fn watch<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        work().map_err(|error| {
            let mut error = error;
            for (role, process) in [("client", &self.client), ("server", &self.server)] {
                if let Ok(Some(status)) = process.try_wait() {
                    let log = process.stderr_text();
                    let lines: Vec<&str> = log.lines().collect();
                    let tail = lines[lines.len().saturating_sub(LOG_TAIL)..].join("\n  ");
                    error =
                        anyhow!("{error:#}\nbentpipe {role} ended ({status}); it wrote:\n  {tail}");
                }
            }
            error
        })
    }
}

/// Keeps everything in at the terminal until there is no topology any more, whatever becomes of daemons.
pub(super) fn guard(bentpipe: &Path, topology: &Topology, settings: &Settings) -> Result<()> {
    configure(bentpipe, topology, settings)?;
    let file = topology.directory().join("client.toml");
    let mut command = topology.terminal().command(bentpipe);
    command.args(["guard", "on", "--config"]).arg(file);
    run_command(&mut command).map(drop)?;
    Ok(())
}

/// Writes keys and files of both ends.
fn configure(bentpipe: &Path, topology: &Topology, settings: &Settings) -> Result<()> {
    let directory = topology.directory();
    let keys = |name| keys(bentpipe, directory, name);
    let (client_key, server_key) = (keys("client")?, keys("server")?);
    let listen = format!("{GATEWAY_SAT}:{SERVER_PORT}");
    let (listen_tls, tls) = settings.tls_keys();
    let server_file = format!(
        "private_key_file = \"server.key\"\nlisten = \"{listen}\"\n{listen_tls}status_socket = \"{SERVER_SOCKET}\"\nstate_dir = \"state\"\n\n\
         [[client]]\nname = \"terminal-1\"\npublic_key = \"{client_key}\"\n\
         allow = [\"10.30.0.0/24\", \"fd00:30::/64\"]\n\n[dns]\nservers = \"{RESOLVER}\"\n"
    );
    let (local, other) = (settings.local, settings.other());
    let client_file = format!(
        "private_key_file = \"client.key\"\nstatus_socket = \"{CLIENT_SOCKET}\"\nstate_dir = \"state\"\n\n\
         [server]\naddress = \"{listen}\"\npublic_key = \"{server_key}\"\n{tls}\n\
         [intercept]\ninterfaces = [\"lan0\"]\nlocal = {local}\n{other}\n\
         [link]\n{}",
        settings.lines()
    );
    write(topology, "server", &server_file)?;
    write(topology, "client", &client_file)
}

impl Settings {
    /// Lines about TLS of the server's file, and of the client's `[server]`.
    fn tls_keys(&self) -> (String, String) {
        let address = format!("{GATEWAY_SAT}:{TLS_PORT}");
        match self.tls {
            true => (
                format!("listen_tls = \"{address}\"\n"),
                format!("tls = \"{address}\"\nwire = \"tls\"\n"),
            ),
            false => Default::default(),
        }
    }

    /// The line of `[intercept]` on what is not TCP.
    fn other(&self) -> &'static str {
        match self.tcp_alone {
            true => "other = \"direct\"\n",
            false => "",
        }
    }

    /// The lines of `[link]`, and the tables under it.
    fn lines(&self) -> String {
        let keys = [("profile", self.profile), ("controller", self.controller)];
        let said = keys
            .iter()
            .filter_map(|(key, value)| value.map(|value| (key, value)));
        let tuned = self
            .tuned
            .map(|Tuned { key, number }| format!("{key} = {number}\n"));
        said.map(|(key, value)| format!("{key} = \"{value}\"\n"))
            .chain(tuned)
            .chain(self.rates.map(sold))
            .collect()
    }
}

/// The tables that tell each direction its rate.
fn sold([forward, back]: [BitRate; 2]) -> String {
    let table =
        |name, rate: BitRate| format!("[link.{name}]\nrate = \"{} bit/s\"\n", rate.as_u64());
    table("forward", forward) + &table("return", back)
}

/// Makes `<name>.key`; returns the public key.
fn keys(bentpipe: &Path, directory: &Path, name: &str) -> Result<String> {
    let path = directory.join(format!("{name}.key"));
    let file = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
    let run = |command: &str, input: Stdio, output: Stdio| {
        let child = Command::new(bentpipe)
            .arg(command)
            .stdin(input)
            .stdout(output)
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", bentpipe.display()))?;
        let output = child.wait_with_output()?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "bentpipe {command} failed: {}",
            stderr.trim()
        );
        Ok(output.stdout)
    };
    run("genkey", Stdio::null(), file.into())?;
    let public = run("pubkey", File::open(&path)?.into(), Stdio::piped())?;
    Ok(String::from_utf8(public)?.trim().to_owned())
}

/// Writes `text` into `<name>.toml`.
pub(super) fn write(topology: &Topology, name: &str, text: &str) -> Result<()> {
    let file = topology.directory().join(format!("{name}.toml"));
    fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
}

/// Bytes that a client with this `status` has exchanged with its LAN, both ways.
pub(super) fn carried(status: &Value) -> Result<u64> {
    let bytes = |key: &str| status["bytes"][key].as_u64();
    let both = bytes("lan_in").zip(bytes("lan_out"));
    let (read, written) = both.context("its status has no bytes of the LAN")?;
    Ok(read + written)
}

/// Status that the daemon behind `socket` tells of itself.
pub(super) fn status(bentpipe: &Path, socket: &Path) -> Result<Value> {
    let mut command = Command::new(bentpipe);
    command.args(["status", "--json", "--socket"]).arg(socket);
    let text = run_command(&mut command)?;
    serde_json::from_str(&text).context("its status is no JSON")
}

/// Starts `bentpipe` as a client or server with `<name>.toml`; it is ready when this returns.
pub(super) fn run_daemon(
    bentpipe: &Path,
    topology: &Topology,
    namespace: &NetNs,
    role: &str,
    name: &str,
) -> Result<Process> {
    let file = topology.directory().join(format!("{name}.toml"));
    let mut command = Command::new(bentpipe);
    command.arg(role).arg("--config").arg(&file);
    let process = topology.spawn_in(namespace, command)?;
    process.wait_for_line("ready", HANDSHAKE)?;
    Ok(process)
}
