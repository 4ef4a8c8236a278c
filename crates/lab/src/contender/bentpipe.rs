//! bentpipe at both ends of the link, started as an operator starts it: keys, files, commands.

use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, anyhow, ensure};
use bentpipe_sys::command::run_command;
use bentpipe_sys::netns::NetNs;
use serde_json::Value;

use super::Repairs;
use super::ends::{End, HANDSHAKE};
use super::settings::Settings;
use bentpipe_emulator::topology::{Process, RESOLVER, Topology};

/// The UDP port of the tunnel.
pub const SERVER_PORT: u16 = 4433;
/// The UDP port of the tunnel between hosts: another, for an operator's PEP may be under it.
pub(super) const HOSTS_PORT: u16 = 4435;
/// The TCP port of flows that are sealed beside the tunnel.
pub(super) const SLE_PORT: u16 = 4434;
/// The TCP port of the tunnel over TLS.
pub(super) const TLS_PORT: u16 = 443;
/// Name of the client's files where it runs at the user's host.
pub(super) const CLIENT_OF_HOSTS: &str = "host-client";
/// Socket at which the client answers `bentpipe status`.
pub const CLIENT_SOCKET: &str = "client.sock";
const SERVER_SOCKET: &str = "server.sock";

/// Lines of a daemon's log that a failure shows.
const LOG_TAIL: usize = 10;

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
        let [near, far] = settings.between.ends(topology)?;
        configure(bentpipe, topology, settings, far.address)?;
        let prefix = settings.between.prefix();
        let run = |role, end: End<'_>| {
            run_daemon(
                bentpipe,
                topology,
                end.namespace,
                role,
                &format!("{prefix}{role}"),
            )
        };
        let (server, client) = (run("server", far)?, run("client", near)?);
        let socket = |name| topology.directory().join(format!("{prefix}{name}"));
        Ok(Self {
            client,
            server,
            bentpipe: bentpipe.to_owned(),
            sockets: [CLIENT_SOCKET, SERVER_SOCKET].map(socket),
        })
    }

    /// The processes alone, which end in this order.
    pub(super) fn into_processes(self) -> Vec<Process> {
        vec![self.client, self.server]
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
    let [near, far] = settings.between.ends(topology)?;
    configure(bentpipe, topology, settings, far.address)?;
    let file = format!("{}client.toml", settings.between.prefix());
    let file = topology.directory().join(file);
    let mut command = near.namespace.command(bentpipe);
    command.args(["guard", "on", "--config"]).arg(file);
    run_command(&mut command).map(drop)?;
    Ok(())
}

/// Writes keys and files of both ends; the server is at `address`.
fn configure(
    bentpipe: &Path,
    topology: &Topology,
    settings: &Settings,
    address: Ipv4Addr,
) -> Result<()> {
    let between = settings.between;
    let (directory, prefix) = (topology.directory(), between.prefix());
    let [client, server] = ["client", "server"].map(|role| format!("{prefix}{role}"));
    let keys = |name: &str| keys(bentpipe, directory, name);
    let (client_key, server_key) = (keys(&client)?, keys(&server)?);
    let listen = format!("{address}:{}", between.port());
    let own = |name: &str, socket| {
        format!(
            "private_key_file = \"{name}.key\"\nstatus_socket = \"{prefix}{socket}\"\nstate_dir = \"{prefix}state\"\n"
        )
    };
    let (listen_tls, tls) = settings.tls_keys(address);
    let (listen_sle, sle) = settings.sle_tables(address);
    let layers = settings
        .les
        .map(|les| les.tables(bentpipe, topology, address));
    let [listen_les, les] = layers.transpose()?.unwrap_or_default();
    let ahead = settings.ahead.map(|pages| pages.tables(topology));
    let [served_pages, pages] = ahead.unwrap_or_default();
    let server_file = format!(
        "{}listen = \"{listen}\"\n{listen_tls}\n\
         [[client]]\nname = \"terminal-1\"\npublic_key = \"{client_key}\"\nallow = [{}]\n\n\
         [dns]\nservers = \"{RESOLVER}\"\n{listen_sle}{listen_les}{served_pages}",
        own(&server, SERVER_SOCKET),
        between.allowed(),
    );
    let client_file = format!(
        "{}\n[server]\naddress = \"{listen}\"\npublic_key = \"{server_key}\"\n{tls}\n\
         [intercept]\n{}{}\n{sle}{les}{}[link]\n{}{pages}",
        own(&client, CLIENT_SOCKET),
        between.taken(settings.local),
        settings.other(),
        settings.names(),
        settings.lines()
    );
    write(topology, &server, &server_file)?;
    write(topology, &client, &client_file)?;
    match settings.ahead {
        Some(pages) => {
            let file = directory.join(format!("{client}.toml"));
            pages.prepare(bentpipe, &file)
        }
        None => Ok(()),
    }
}

/// Public key of `<name>.key`, which is made if it is not there.
pub(super) fn keys(bentpipe: &Path, directory: &Path, name: &str) -> Result<String> {
    let path = directory.join(format!("{name}.key"));
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
    if !path.exists() {
        let file =
            File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
        run("genkey", Stdio::null(), file.into())?;
    }
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

/// Report of the daemon behind `socket`, as the program `bentpipe` prints it.
///
/// # Errors
/// No daemon answers; the text has what `bentpipe status` wrote.
pub fn status(bentpipe: &Path, socket: &Path) -> Result<Value> {
    let mut command = Command::new(bentpipe);
    command.args(["status", "--json", "--socket"]).arg(socket);
    let text = run_command(&mut command)?;
    serde_json::from_str(&text).context("its status is no JSON")
}

/// Directory in that of the topology into which daemons write traces of their connections, if it is there.
pub(crate) const TRACES: &str = "qlog";

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
    let traces = topology.directory().join(TRACES);
    if traces.exists() {
        command.arg("--qlog").arg(traces);
    }
    let process = topology.spawn_in(namespace, command)?;
    process.wait_for_line("ready", HANDSHAKE)?;
    Ok(process)
}
