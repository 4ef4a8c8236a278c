//! OpenVPN between terminal and gateway, or between the hosts, over UDP or TCP: point to point, certificates known by their fingerprints, all
//! else as the program chooses.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, Result};
use aws_lc_rs::digest;
use bentpipe_sys::command::tool;
use rcgen::{CertificateParams, KeyPair};

use super::ends::{Between, HANDSHAKE, Inside};
use super::{Tuning, first_line};
use crate::capture::Tunnel;
use bentpipe_emulator::topology::{Process, Topology};

const PORT: u16 = 1194;
const DEVICE: &str = "tun0";
/// Text that it writes when traffic may begin.
const READY: &str = "Initialization Sequence Completed";

/// Addresses inside the tunnel, of the user's end and the other.
const INSIDE: [Inside; 2] = [["10.99.0.2", "fd00:99::2"], ["10.99.0.1", "fd00:99::1"]];

/// Protocol that its packets are carried in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OpenVpnProtocol {
    Udp,
    Tcp,
}

impl OpenVpnProtocol {
    pub(super) fn tunnel(self) -> Tunnel {
        match self {
            Self::Udp => Tunnel::Udp(PORT),
            Self::Tcp => Tunnel::Tcp(PORT),
        }
    }
}

/// Version of OpenVPN, or why there is none.
pub(super) fn find() -> Result<String, String> {
    // Some versions count being asked as a failure.
    let version = first_line(Path::new("sh"), &["-c", "openvpn --version || true"])?;
    let mut words = version.split_whitespace();
    match (words.next(), words.next()) {
        (Some("OpenVPN"), Some(number)) => Ok(format!("OpenVPN {number}")),
        _ => Err("it is not installed; install the package openvpn".into()),
    }
}

/// Settings that its manual and those who run it over long paths change: buffers for more than a path's bandwidth-delay product,
/// a longer queue before the device, for UDP no `select` per packet.
fn best(protocol: OpenVpnProtocol) -> &'static str {
    match protocol {
        OpenVpnProtocol::Udp => {
            "sndbuf 4194304\nrcvbuf 4194304\ntxqueuelen 1000\nfast-io\nmssfix 1450\n"
        }
        // Setting its buffers would turn the kernel's own adaptation off.
        OpenVpnProtocol::Tcp => {
            "txqueuelen 1000\ntcp-queue-limit 1024\nsocket-flags TCP_NODELAY\nmssfix 1450\n"
        }
    }
}

pub(super) fn start(
    protocol: OpenVpnProtocol,
    tuning: Tuning,
    topology: &Topology,
    between: Between,
) -> Result<Vec<Process>> {
    let directory = topology.directory();
    let ends = between.ends(topology)?;
    let prints = [
        identity(directory, ends[0].name)?,
        identity(directory, ends[1].name)?,
    ];
    let tuned = match tuning {
        Tuning::Default => "",
        Tuning::Best => best(protocol),
    };
    let mut processes = Vec::new();
    // The server is the end that the user's calls.
    for end in [1, 0] {
        let (name, peer) = (ends[end].name, 1 - end);
        let carried = match (protocol, end) {
            (OpenVpnProtocol::Udp, _) => "udp4",
            (OpenVpnProtocol::Tcp, 1) => "tcp4-server",
            (OpenVpnProtocol::Tcp, _) => "tcp4-client",
        };
        let role = match end {
            1 => "tls-server\ndh none\n".to_owned(),
            _ => format!("tls-client\nremote {}\n", ends[1].address),
        };
        let ([own, own6], [other, other6]) = (INSIDE[end], INSIDE[peer]);
        let text = format!(
            "dev {DEVICE}\ndev-type tun\nproto {carried}\nport {PORT}\nlocal {}\n{role}\
             ifconfig {own} {other}\nifconfig-ipv6 {own6}/64 {other6}\n\
             cert {name}.crt\nkey {name}.pem\npeer-fingerprint {}\n\
             keepalive 10 120\n{tuned}",
            ends[end].address, prints[peer]
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
        processes.push(topology.spawn_in(ends[end].namespace, command)?);
    }
    // The user's end ends first.
    processes.reverse();
    for process in &processes {
        process.wait_for_line(READY, HANDSHAKE)?;
    }
    between.route_through(topology, [DEVICE, DEVICE], INSIDE[0])?;
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
