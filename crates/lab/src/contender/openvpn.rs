//! OpenVPN between terminal and gateway, over UDP or TCP: point to point, certificates known by their fingerprints, all
//! else as the program chooses.

use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result};
use aws_lc_rs::digest;
use bentpipe_sys::command::tool;
use rcgen::{CertificateParams, KeyPair};

use super::{Tuning, first_line, route_through};
use crate::capture::Tunnel;
use bentpipe_emulator::topology::{Congestion, GATEWAY_SAT, Process, TERMINAL_SAT, Topology};

const PORT: u16 = 1194;
const DEVICE: &str = "tun0";
/// Several round trips of TLS, and a machine that is busy.
const COMES_UP: Duration = Duration::from_secs(60);
/// What it says when traffic may begin.
const READY: &str = "Initialization Sequence Completed";

/// Addresses inside the tunnel: gateway, terminal.
const INSIDE: [&str; 2] = ["10.99.0.1", "10.99.0.2"];
const INSIDE6: [&str; 2] = ["fd00:99::1", "fd00:99::2"];

/// What its packets are carried in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Udp,
    Tcp,
}

impl Protocol {
    pub(super) fn tunnel(self) -> Tunnel {
        match self {
            Self::Udp => Tunnel::Udp(PORT),
            Self::Tcp => Tunnel::Tcp(PORT),
        }
    }
}

/// Its version, or why there is none.
pub(super) fn find() -> Result<String, String> {
    // Some versions count being asked as a failure.
    let version = first_line(Path::new("sh"), &["-c", "openvpn --version || true"])?;
    let mut words = version.split_whitespace();
    match (words.next(), words.next()) {
        (Some("OpenVPN"), Some(number)) => Ok(format!("OpenVPN {number}")),
        _ => Err("it is not installed; install the package openvpn".into()),
    }
}

/// What its manual and those who run it over long paths change: buffers for more than a path's bandwidth-delay product,
/// a longer queue before the device, for UDP no `select` per packet.
fn best(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Udp => "sndbuf 4194304\nrcvbuf 4194304\ntxqueuelen 1000\nfast-io\nmssfix 1450\n",
        // Setting its buffers would turn the kernel's own adaptation off.
        Protocol::Tcp => {
            "txqueuelen 1000\ntcp-queue-limit 1024\nsocket-flags TCP_NODELAY\nmssfix 1450\n"
        }
    }
}

pub(super) fn start(
    protocol: Protocol,
    tuning: Tuning,
    topology: &Topology,
    tcp: Congestion,
) -> Result<Vec<Process>> {
    let directory = topology.directory();
    let prints = [
        identity(directory, "gateway")?,
        identity(directory, "terminal")?,
    ];
    let own: [IpAddr; 2] = [GATEWAY_SAT.into(), TERMINAL_SAT.into()];
    let ends = [topology.gateway(), topology.terminal()];
    let tuned = match tuning {
        Tuning::Default => "",
        Tuning::Best => best(protocol),
    };
    let mut processes = Vec::new();
    for (end, name) in ["gateway", "terminal"].into_iter().enumerate() {
        let peer = 1 - end;
        let carried = match (protocol, end) {
            (Protocol::Udp, _) => "udp4",
            (Protocol::Tcp, 0) => "tcp4-server",
            (Protocol::Tcp, _) => "tcp4-client",
        };
        let role = match end {
            0 => "tls-server\ndh none\n".to_owned(),
            _ => format!("tls-client\nremote {GATEWAY_SAT}\n"),
        };
        let text = format!(
            "dev {DEVICE}\ndev-type tun\nproto {carried}\nport {PORT}\nlocal {}\n{role}\
             ifconfig {} {}\nifconfig-ipv6 {}/64 {}\n\
             cert {name}.crt\nkey {name}.pem\npeer-fingerprint {}\n\
             keepalive 10 120\n{tuned}",
            own[end], INSIDE[end], INSIDE[peer], INSIDE6[end], INSIDE6[peer], prints[peer]
        );
        let file = directory.join(format!("openvpn-{name}.conf"));
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        let mut command = tool("openvpn");
        command
            .arg("--cd")
            .arg(directory)
            .arg("--config")
            .arg(&file);
        command
            .args(["--log-append", "/dev/stderr"])
            .stdout(Stdio::null());
        processes.push(topology.spawn_in(ends[end], command)?);
    }
    // The terminal ends first.
    processes.reverse();
    for process in &processes {
        process.wait_for_line(READY, COMES_UP)?;
    }
    route_through(topology, [DEVICE, DEVICE], tcp)?;
    Ok(processes)
}

/// Makes `<name>.crt` and `<name>.pem`; returns the certificate's fingerprint.
pub(super) fn identity(directory: &Path, name: &str) -> Result<String> {
    let key = KeyPair::generate().context("cannot make a key")?;
    let certificate = CertificateParams::new([name.to_owned()])
        .and_then(|params| params.self_signed(&key))
        .context("cannot make a certificate")?;
    let write = |file: &str, text: String| {
        let path = directory.join(file);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    write(&format!("{name}.crt"), certificate.pem())?;
    write(&format!("{name}.pem"), key.serialize_pem())?;
    let print = digest::digest(&digest::SHA256, certificate.der());
    let bytes: Vec<String> = print
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02X}"))
        .collect();
    Ok(bytes.join(":"))
}
