//! WireGuard between terminal and gateway, or between the hosts: the kernel's where it has it, else wireguard-go in user space.
//!
//! Keys, peers and addresses are set as operators do, the MTU as `wg-quick` would choose.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use bentpipe_sys::command::{run_command, run_with_input, tool};
use bentpipe_sys::netns::NetNs;

use super::build::TunnelBuild;
use super::ends::{Between, HANDSHAKE, Inside};
use super::{Tuning, clamp, first_line, kernel};
use bentpipe_emulator::topology::{Process, Topology};

/// The UDP port of both ends.
pub(super) const PORT: u16 = 51_820;

/// Directory in which wireguard-go takes orders: one, whatever the namespace.
const SOCKETS: &str = "/var/run/wireguard";
/// The path's 1500 bytes less IPv6, UDP and WireGuard headers.
const MTU: &str = "1420";
/// Less IPv4's, which is what these are carried in.
const BEST_MTU: &str = "1440";
/// Addresses inside, of the user's end and the other: what a node sends of its own has to come back the same way.
const INSIDE: [Inside; 2] = [["10.98.0.2", "fd00:98::2"], ["10.98.0.1", "fd00:98::1"]];
/// Lengths of their networks.
const NETWORKS: [&str; 2] = ["24", "64"];
const COMES_UP: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);

/// Looks for it; `namespace` is for trying.
pub(super) fn find(namespace: &NetNs) -> Result<TunnelBuild, String> {
    let absent = |package: &str| format!("it is not installed; install the package {package}");
    run_command(tool("wg").arg("--version")).map_err(|_| absent("wireguard-tools"))?;
    let made = namespace.run("ip", &["link", "add", "wg-trial", "type", "wireguard"]);
    if made.is_ok() {
        return Ok(TunnelBuild::Kernel(format!("WireGuard of {}", kernel())));
    }
    let version = first_line(Path::new("wireguard-go"), &["--version"]);
    version
        .map(TunnelBuild::UserSpace)
        .map_err(|_| absent("wireguard-go"))
}

/// The devices of the user's end and the other. User space finds them by name, so each experiment has names of its own; a name
/// has 15 bytes at most.
fn devices() -> [String; 2] {
    ["t", "g"].map(|end| format!("bpw{end}{}", std::process::id()))
}

/// The sockets that an experiment of `process` may have left.
pub(crate) fn sockets(process: u32) -> [PathBuf; 2] {
    ["t", "g"].map(|end| Path::new(SOCKETS).join(format!("bpw{end}{process}.sock")))
}

pub(super) fn start(
    found: &Result<TunnelBuild, String>,
    tuning: Tuning,
    topology: &Topology,
    between: Between,
) -> Result<Vec<Process>> {
    let build = found.as_ref().map_err(|reason| anyhow!("{reason}"))?;
    let names = devices();
    let ends = between.ends(topology)?;
    let mut processes = Vec::new();
    for (end, name) in ends.iter().zip(&names) {
        processes.extend(make_device(build, topology, end.namespace, name)?);
    }
    let keys = [key(topology, ends[0].name)?, key(topology, ends[1].name)?];
    // The other end first: it must know the user's when that shakes hands.
    for end in [1, 0] {
        let namespace = ends[end].namespace;
        let (own, peer) = (&keys[end], &keys[1 - end]);
        let name = &names[end];
        let mut command = namespace.command("wg");
        command.args(["set", name, "listen-port", &PORT.to_string()]);
        command.arg("private-key").arg(&own.file);
        command.args(["peer", &peer.public, "allowed-ips", "0.0.0.0/0,::/0"]);
        if end == 0 {
            // The keepalive is usual behind a NAT, and makes it shake hands before it is asked to carry anything.
            let endpoint = format!("{}:{PORT}", ends[1].address);
            command.args(["endpoint", &endpoint, "persistent-keepalive", "25"]);
        }
        run_command(&mut command)?;
        for (address, network) in INSIDE[end].iter().zip(NETWORKS) {
            let address = format!("{address}/{network}");
            namespace.run("ip", &["address", "add", &address, "dev", name])?;
        }
        let (mtu, queue) = match tuning {
            Tuning::Default => (MTU, "500"),
            Tuning::Best => (BEST_MTU, "1000"),
        };
        let set = ["link", "set", name, "mtu", mtu, "txqueuelen", queue, "up"];
        namespace.run("ip", &set)?;
        if tuning == Tuning::Best {
            clamp(namespace)?;
        }
    }
    let [near, far] = &names;
    between.route_through(topology, [near, far], INSIDE[0])?;
    wait_for_handshake(ends[0].namespace, near)?;
    Ok(processes)
}

/// Makes the device `name`; the process that holds it, if it is not the kernel's.
fn make_device(
    build: &TunnelBuild,
    topology: &Topology,
    namespace: &NetNs,
    name: &str,
) -> Result<Option<Process>> {
    match build {
        TunnelBuild::Kernel(_) => {
            namespace.run("ip", &["link", "add", name, "type", "wireguard"])?;
            Ok(None)
        }
        TunnelBuild::UserSpace(_) => {
            let mut command = tool("wireguard-go");
            command.args(["--foreground", name]).stdout(Stdio::null());
            command.env("LOG_LEVEL", "error");
            let process = topology.spawn_in(namespace, command)?;
            let socket = Path::new(SOCKETS).join(format!("{name}.sock"));
            process.wait_for_file(&socket, COMES_UP)?;
            Ok(Some(process))
        }
    }
}

fn wait_for_handshake(namespace: &NetNs, name: &str) -> Result<()> {
    let deadline = Instant::now() + HANDSHAKE;
    loop {
        // The peer's key and when it answered, 0 for not yet.
        let shown = namespace.run("wg", &["show", name, "latest-handshakes"])?;
        if shown
            .split_whitespace()
            .nth(1)
            .is_some_and(|time| time != "0")
        {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("no handshake within {HANDSHAKE:?}");
        }
        thread::sleep(POLL);
    }
}

struct Key {
    file: PathBuf,
    public: String,
}

fn key(topology: &Topology, end: &str) -> Result<Key> {
    let file = topology.directory().join(format!("wireguard-{end}.key"));
    let private = run_command(tool("wg").arg("genkey"))?;
    // The directory is closed to others.
    fs::write(&file, &private).with_context(|| format!("cannot write {}", file.display()))?;
    let public = run_with_input(tool("wg").arg("pubkey"), &private)?;
    Ok(Key {
        file,
        public: public.trim().to_owned(),
    })
}
