//! IPsec by strongSwan between terminal and gateway, or between the hosts: IKEv2 with a shared secret, all else as the program chooses.
//!
//! ESP is the kernel's where it has it. Else it is processed by the daemon (kernel-libipsec) and carried in UDP, on port 4500.
//! The daemon is the one for systemd, which it does without: the other one runs only once on a machine.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use bentpipe_sys::command::{run_command, tool};
use bentpipe_sys::netns::NetNs;

use super::build::TunnelBuild;
use super::ends::{Between, End, HANDSHAKE, Inside};
use super::{Tuning, clamp, first_line, kernel};
use bentpipe_emulator::topology::{Process, Topology, VPN_HOST};

const DAEMON: &str = "/usr/sbin/charon-systemd";
const CIPHERS: &str = "/usr/lib/ipsec/plugins/libstrongswan-openssl.so";
const ESP: &str = "/usr/lib/ipsec/plugins/libstrongswan-kernel-libipsec.so";
const PACKAGES: &str = "install the packages charon-systemd, strongswan-swanctl, libstrongswan-standard-plugins and \
    libcharon-extra-plugins";
/// Of the daemon's control socket.
const COMES_UP: Duration = Duration::from_secs(10);

/// The LAN of the terminal.
const LAN: &str = "10.10.0.0/24,fd00:10::/64";
/// The network of the servers.
const WEB: &str = "10.30.0.0/24,fd00:30::/64";
/// Addresses of the user inside: that of its packets outside cannot be a traffic selector of kernel-libipsec.
const INSIDE: Inside = ["10.97.0.2/32", "fd00:97::2/128"];
/// The table in which strongSwan puts its routes, and that of the rule before it.
const TABLE: &str = "220";
const BEFORE: &str = "200";

/// The device of kernel-libipsec.
const DEVICE: &str = "ipsec0";

/// Looks for it; `namespace` is for trying.
pub(super) fn find(namespace: &NetNs) -> Result<TunnelBuild, String> {
    let in_kernel = has_esp(namespace);
    let needed: &[&str] = match in_kernel {
        true => &[DAEMON, CIPHERS],
        false => &[DAEMON, CIPHERS, ESP],
    };
    if let Some(missing) = needed.iter().find(|file| !Path::new(file).exists()) {
        return Err(format!("there is no {missing}; {PACKAGES}"));
    }
    // Asked for its version it would ask a daemon; its help begins with it, after what it says of plugins.
    let help = "swanctl --help 2>&1 | grep -m 1 '^strongSwan' || true";
    let text = first_line(Path::new("sh"), &["-c", help])?;
    let number = text
        .split_whitespace()
        .find(|word| word.starts_with(|c: char| c.is_ascii_digit()))
        .ok_or_else(|| format!("there is no swanctl; {PACKAGES}"))?;
    Ok(match in_kernel {
        true => TunnelBuild::Kernel(format!("strongSwan {number}, ESP of {}", kernel())),
        false => TunnelBuild::UserSpace(format!("strongSwan {number}, ESP in user space")),
    })
}

/// True if the kernel takes a state of ESP as strongSwan would give it one.
fn has_esp(namespace: &NetNs) -> bool {
    let state = [
        "xfrm",
        "state",
        "add",
        "src",
        "10.20.0.2",
        "dst",
        "10.20.0.1",
        "proto",
        "esp",
        "spi",
        "1",
        "mode",
        "tunnel",
        "aead",
        "rfc4106(gcm(aes))",
        "0x000102030405060708090a0b0c0d0e0f10111213",
        "128",
    ];
    namespace.run("ip", &state).is_ok()
}

/// The plugin that processes ESP, before the one for addresses and routes, which is the kernel's as well.
fn plugins(build: &TunnelBuild) -> &'static str {
    match build {
        TunnelBuild::Kernel(_) => "kernel-netlink",
        TunnelBuild::UserSpace(_) => "kernel-libipsec kernel-netlink",
    }
}

/// At its best it agrees on AES-GCM, which processors do fastest, instead of AES-CBC with SHA-2, segments fit into it, and the device
/// in user space queues more. Its MTU stays 1400: the daemon reads no longer packets, whatever the device takes.
fn improve(build: &TunnelBuild, topology: &Topology) -> Result<()> {
    for namespace in [topology.terminal(), topology.gateway()] {
        if let TunnelBuild::UserSpace(_) = build {
            let set = ["link", "set", DEVICE, "txqueuelen", "1000"];
            namespace.run("ip", &set)?;
        }
        clamp(namespace)?;
    }
    Ok(())
}

/// File of a daemon that is asked at `socket`.
fn of_daemon(plugins: &str, socket: &Path) -> String {
    format!(
        "charon-systemd {{\n  load = random nonce openssl aes sha1 sha2 hmac kdf gcm curve25519 {plugins} socket-default vici\n  \
         plugins {{\n    vici {{\n      socket = unix://{}\n    }}\n  }}\n  \
         filelog {{\n    stderr {{\n      default = 1\n    }}\n  }}\n}}\nswanctl {{\n  load = random openssl\n}}\n",
        socket.display()
    )
}

/// File of the connection of the first of `ends` with the other; `child` is what it carries.
fn of_connection(
    [(name, address), (peer, peer_address)]: [(&str, Ipv4Addr); 2],
    child: &str,
) -> String {
    format!(
        "connections {{\n  satellite {{\n    version = 2\n    local_addrs = {address}\n    remote_addrs = {peer_address}\n    \
         local {{\n      auth = psk\n      id = {name}\n    }}\n    remote {{\n      auth = psk\n      id = {peer}\n    }}\n    \
         children {{\n      all {{\n        {child}      }}\n    }}\n  }}\n}}\n\
         secrets {{\n  ike-1 {{\n    secret = \"of this experiment alone\"\n  }}\n}}\n"
    )
}

/// Starts the daemon of an end, which is asked at `socket`.
fn run_daemon(topology: &Topology, end: &End<'_>, socket: &Path) -> Result<Process> {
    let file = format!("{}-strongswan.conf", end.name);
    let mut command = Command::new(DAEMON);
    command.env("STRONGSWAN_CONF", topology.directory().join(file));
    command.stdout(Stdio::null());
    let process = topology.spawn_in(end.namespace, command)?;
    process.wait_for_file(socket, COMES_UP)?;
    Ok(process)
}

/// Has the daemon of the end `name` read its connections, once it listens: its socket has a name before.
fn hand_over(directory: &Path, name: &str) -> Result<()> {
    let deadline = Instant::now() + COMES_UP;
    loop {
        match load_all(directory, name) {
            Err(error)
                if error.to_string().contains("Connection refused")
                    && Instant::now() < deadline =>
            {
                thread::sleep(Duration::from_millis(50));
            }
            result => return result,
        }
    }
}

fn load_all(directory: &Path, name: &str) -> Result<()> {
    let mut command = tool("swanctl");
    command.env(
        "STRONGSWAN_CONF",
        directory.join(format!("{name}-strongswan.conf")),
    );
    command.env("SWANCTL_DIR", directory);
    let socket = directory.join(format!("{name}.vici"));
    let socket = format!("unix://{}", socket.display());
    command.args(["--load-all", "--uri", &socket, "--file"]);
    command.arg(directory.join(format!("{name}-swanctl.conf")));
    run_command(&mut command)?;
    Ok(())
}

pub(super) fn start(
    found: &Result<TunnelBuild, String>,
    tuning: Tuning,
    topology: &Topology,
    between: Between,
) -> Result<Vec<Process>> {
    let build = found.as_ref().map_err(|reason| anyhow!("{reason}"))?;
    let plugins = plugins(build);
    let proposals = match tuning {
        Tuning::Default => "",
        Tuning::Best => "        esp_proposals = aes128gcm16\n",
    };
    let ends = between.ends(topology)?;
    let selectors = selectors(between, topology)?;
    let directory = topology.directory();
    let write = |name: &str, text: String| {
        let path = directory.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    let mut processes = Vec::new();
    for (place, end) in ends.into_iter().enumerate() {
        let (End { name, address, .. }, peer) = (end, ends[1 - place]);
        let End {
            name: peer,
            address: peer_address,
            ..
        } = peer;
        let socket = directory.join(format!("{name}.vici"));
        write(
            &format!("{name}-strongswan.conf"),
            of_daemon(plugins, &socket),
        )?;
        let action = if place == 0 { "start" } else { "none" };
        let [own, other] = [&selectors[place], &selectors[1 - place]];
        let child = format!(
            "local_ts = {own}\n        remote_ts = {other}\n        start_action = {action}\n{proposals}"
        );
        write(
            &format!("{name}-swanctl.conf"),
            of_connection([(name, address), (peer, peer_address)], &child),
        )?;
        processes.push(run_daemon(topology, &end, &socket)?);
    }
    // The other end first: it must know the user's when that shakes hands.
    for End { name, .. } in ends.into_iter().rev() {
        hand_over(directory, name)?;
    }
    for process in &processes {
        process.wait_for_line("CHILD_SA all{1} established", HANDSHAKE)?;
    }
    if tuning == Tuning::Best {
        improve(build, topology)?;
    }
    if between == Between::Hosts {
        mark_routes(ends, topology)?;
    }
    Ok(processes)
}

/// Traffic that the VPN carries, at both ends. A host has an address for it, and keeps the VPN's own packets out.
fn selectors(between: Between, topology: &Topology) -> Result<[String; 2]> {
    Ok(match between {
        Between::Nodes => [LAN, WEB].map(str::to_owned),
        Between::Hosts => {
            let own = INSIDE.map(|address| format!("addr replace {address} dev lo\n"));
            let out = format!("rule add to {VPN_HOST} lookup main priority {BEFORE}\n");
            topology.configure(topology.user(), &(own.concat() + &out))?;
            [INSIDE.join(","), WEB.to_owned()]
        }
    })
}

/// Has strongSwan's own routes at the hosts say how TCP sends, as the topology's do.
fn mark_routes(ends: [End<'_>; 2], topology: &Topology) -> Result<()> {
    for End { namespace, .. } in ends {
        for family in ["-4", "-6"] {
            // A table without a route is none.
            let show = [family, "route", "show", "table", TABLE];
            let shown = namespace.run("ip", &show).unwrap_or_default();
            let line = |route: &str| format!("route replace {} table {TABLE}\n", route.trim());
            let lines: String = shown.lines().map(line).collect();
            topology.configure(namespace, &lines)?;
        }
    }
    Ok(())
}
