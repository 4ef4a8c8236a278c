//! What this machine has to start contenders with, and which versions of it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use bentpipe_sys::command::{run_command, tool};
use bentpipe_sys::netns::NetNs;

use super::build::TunnelBuild;
use super::masque::Envoy;
use super::name::carriers;
use super::{Carrier, Contender, ipsec, openvpn, wireguard};
use bentpipe_emulator::topology::Congestion;

/// Programs that this machine has to start contenders with.
#[derive(Debug)]
pub struct Available {
    /// The binary `bentpipe`.
    pub bentpipe: PathBuf,
    pub(super) wireguard: Result<TunnelBuild, String>,
    pub(super) openvpn: Result<String, String>,
    pub(super) ipsec: Result<TunnelBuild, String>,
    pub(super) envoy: Result<Envoy, String>,
    pub(super) tcp: String,
}

impl Available {
    /// Looks what there is. `prefix` is what the names of namespaces begin with.
    ///
    /// # Errors
    /// No namespace can be made.
    pub fn new(bentpipe: PathBuf, prefix: &str) -> Result<Self> {
        let trial = NetNs::temporary(&format!("{prefix}-trial"))?;
        Ok(Self {
            envoy: Envoy::find(&bentpipe),
            bentpipe,
            wireguard: wireguard::find(&trial),
            openvpn: openvpn::find(),
            ipsec: ipsec::find(&trial),
            // Absent where the kernel has no TCP, which is nowhere.
            tcp: fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")
                .unwrap_or_default(),
        })
    }

    /// Version of every carrier and of every TCP here, or why there is none.
    #[must_use]
    pub fn list(&self) -> Vec<(String, Result<String, String>)> {
        let version = |name: String, carrier, tcp| {
            let contender = Contender {
                name: name.clone(),
                carrier,
                tcp,
                initial_window: None,
                tls: None,
            };
            (name, contender.version(self))
        };
        let usual = Congestion::default();
        let carriers = carriers().into_iter();
        let carriers = carriers.map(|(name, carrier)| version(name, carrier, usual));
        let others = Congestion::ALL.into_iter().filter(|tcp| *tcp != usual);
        let others =
            others.map(|tcp| version(format!("plain/{}", tcp.name()), Carrier::Plain, tcp));
        carriers.chain(others).collect()
    }
}

/// The first line that a command writes.
pub(super) fn first_line(program: &Path, arguments: &[&str]) -> Result<String, String> {
    let output = run_command(tool(program).args(arguments)).map_err(|error| error.to_string())?;
    Ok(output.lines().next().unwrap_or_default().trim().to_owned())
}

pub(super) fn kernel() -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("Linux {}", release.trim())
}

/// Kernels that have a later version than the first say so.
#[must_use]
pub fn kernel_bbr() -> String {
    let version = fs::read_to_string("/sys/module/tcp_bbr/version").unwrap_or_default();
    match version.trim() {
        "" => "bbr v1".into(),
        version => format!("bbr v{version}"),
    }
}
