//! Who is measured: what carries the user's traffic over the satellite, and which TCP runs at the ends.
//!
//! Each kind has a file, which starts it as its operator would: programs, keys, files, routes. All are started by the
//! lab and measured from outside; what it is that carries the bytes is known here only for the capture to recognise it.
//!
//! ```text
//!  user ── terminal ─ sat0 ══ link ══ sat0 ─ gateway ── web
//!              └─ one end of the contender ─┘ the other
//! ```

mod bentpipe;
mod openvpn;
pub(crate) mod wireguard;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context as _, Result};
use bentpipe_sys::command::{run_command, tool};
use bentpipe_sys::netns::NetNs;

use crate::capture::Tunnel;
use crate::topology::{Congestion, Process, Topology};

pub use bentpipe::{CLIENT_SOCKET, Daemons, SERVER_PORT, Settings};
use openvpn::Protocol;

/// One contender, as an experiment names it: `CARRIER` or `CARRIER/TCP`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contender {
    name: String,
    carrier: Carrier,
    tcp: Congestion,
}

/// What carries the traffic over the satellite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Carrier {
    /// Nothing: the end hosts' own TCP.
    Plain,
    /// bentpipe, with this controller at both ends.
    Bentpipe(&'static str),
    WireGuard,
    OpenVpn(Protocol),
}

/// Each carrier and its name.
const CARRIERS: [(&str, Carrier); 9] = [
    ("plain", Carrier::Plain),
    ("bentpipe", Carrier::Bentpipe("satellite")),
    ("bentpipe-bbr3", Carrier::Bentpipe("bbr3")),
    ("bentpipe-cubic", Carrier::Bentpipe("cubic")),
    (
        "bentpipe-cubic-no-hystart",
        Carrier::Bentpipe("cubic-no-hystart"),
    ),
    ("bentpipe-new-reno", Carrier::Bentpipe("new-reno")),
    ("wireguard", Carrier::WireGuard),
    ("openvpn-udp", Carrier::OpenVpn(Protocol::Udp)),
    ("openvpn-tcp", Carrier::OpenVpn(Protocol::Tcp)),
];

/// A name that no contender has; displays as one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownContender(String);

impl std::error::Error for UnknownContender {}

impl fmt::Display for UnknownContender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let carriers = CARRIERS.map(|(name, _)| name).join("`, `");
        let tcp = Congestion::ALL.map(Congestion::name).join("`, `");
        write!(
            f,
            "`{}` is no contender; known are `{carriers}`, alone or with `/` and the TCP of user and web: `{tcp}`",
            self.0
        )
    }
}

impl FromStr for Contender {
    type Err = UnknownContender;

    fn from_str(text: &str) -> Result<Self, UnknownContender> {
        let unknown = || UnknownContender(text.to_owned());
        let (carrier, tcp) = match text.split_once('/') {
            Some((carrier, tcp)) => (carrier, Some(tcp)),
            None => (text, None),
        };
        let (_, carrier) = CARRIERS
            .iter()
            .find(|(name, _)| *name == carrier)
            .ok_or_else(unknown)?;
        let tcp = match tcp {
            Some(name) => Congestion::named(name).ok_or_else(unknown)?,
            None => Congestion::default(),
        };
        Ok(Self {
            name: text.to_owned(),
            carrier: *carrier,
            tcp,
        })
    }
}

/// What this machine has to start contenders with.
#[derive(Debug)]
pub struct Stable {
    /// The binary `bentpipe`.
    pub bentpipe: PathBuf,
    wireguard: Result<wireguard::Build, String>,
    openvpn: Result<String, String>,
    tcp: String,
}

impl Stable {
    /// Looks what there is. `prefix` is what the names of namespaces begin with.
    ///
    /// # Errors
    /// No namespace can be made.
    pub fn new(bentpipe: PathBuf, prefix: &str) -> Result<Self> {
        let paddock = NetNs::temporary(&format!("{prefix}-paddock"))?;
        Ok(Self {
            bentpipe,
            wireguard: wireguard::find(&paddock),
            openvpn: openvpn::find(),
            // Absent where the kernel has no TCP, which is nowhere.
            tcp: fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")
                .unwrap_or_default(),
        })
    }

    /// What every kind of contender is here: its version, or why there is none.
    #[must_use]
    pub fn list(&self) -> Vec<(String, Result<String, String>)> {
        let carriers = CARRIERS.map(|(name, carrier)| {
            let contender = Contender {
                name: name.to_owned(),
                carrier,
                tcp: Congestion::default(),
            };
            (name.to_owned(), contender.version(self))
        });
        carriers.into()
    }
}

/// A contender at work; what it started ends when this is dropped.
#[derive(Debug)]
pub enum AtWork {
    /// Nothing was started.
    Plain,
    /// Both daemons.
    Bentpipe(Daemons),
    /// The processes of a VPN; none where the kernel is it.
    Vpn(Vec<Process>),
}

impl Contender {
    /// As the experiment calls it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The TCP of the end hosts, and of all others in the topology.
    #[must_use]
    pub fn tcp(&self) -> Congestion {
        self.tcp
    }

    /// Which program or part of the kernel it is, with its version.
    ///
    /// # Errors
    /// It cannot be measured here: why.
    pub fn version(&self, stable: &Stable) -> Result<String, String> {
        let tcp = self.tcp.name();
        if !stable.tcp.split_whitespace().any(|known| known == tcp) {
            return Err(format!(
                "the kernel has no TCP {tcp}; `modprobe tcp_{tcp}` may load it"
            ));
        }
        let carrier = match self.carrier {
            Carrier::Plain => kernel(),
            Carrier::Bentpipe(_) => first_line(&stable.bentpipe, &["--version"])?,
            Carrier::WireGuard => stable.wireguard.as_ref().map(ToString::to_string)?,
            Carrier::OpenVpn(_) => stable.openvpn.clone()?,
        };
        Ok(match self.tcp {
            Congestion::Bbr => format!("{carrier}, TCP {}", kernel_bbr()),
            other => format!("{carrier}, TCP {}", other.name()),
        })
    }

    /// What crosses the satellite if it does its work; without, everything may.
    #[must_use]
    pub fn tunnel(&self) -> Option<Tunnel> {
        match self.carrier {
            Carrier::Plain => None,
            Carrier::Bentpipe(_) => Some(Tunnel::Udp(SERVER_PORT)),
            Carrier::WireGuard => Some(Tunnel::Udp(wireguard::PORT)),
            Carrier::OpenVpn(protocol) => Some(protocol.tunnel()),
        }
    }

    /// Starts it between terminal and gateway; traffic crosses in it when this returns.
    ///
    /// # Errors
    /// It did not come up; the text has what it said.
    pub fn start(&self, stable: &Stable, topology: &Topology) -> Result<AtWork> {
        let started = match self.carrier {
            Carrier::Plain => Ok(AtWork::Plain),
            Carrier::Bentpipe(controller) => {
                let settings = Settings {
                    profile: None,
                    controller: Some(controller),
                };
                Daemons::start(&stable.bentpipe, topology, &settings).map(AtWork::Bentpipe)
            }
            Carrier::WireGuard => {
                wireguard::start(&stable.wireguard, topology, self.tcp).map(AtWork::Vpn)
            }
            Carrier::OpenVpn(protocol) => {
                openvpn::start(protocol, topology, self.tcp).map(AtWork::Vpn)
            }
        };
        started.with_context(|| format!("{} did not come up", self.name))
    }
}

/// Sends everything that the terminal and the gateway route over the satellite through the devices of a tunnel.
fn route_through(
    topology: &Topology,
    [terminal, gateway]: [&str; 2],
    tcp: Congestion,
) -> Result<()> {
    let tcp = tcp.name();
    for (namespace, device) in [
        (topology.terminal(), terminal),
        (topology.gateway(), gateway),
    ] {
        for family in ["-4", "-6"] {
            namespace.run(
                "ip",
                &[
                    family, "route", "replace", "default", "dev", device, "congctl", tcp,
                ],
            )?;
        }
    }
    Ok(())
}

/// The first line that a command writes.
fn first_line(program: &Path, arguments: &[&str]) -> Result<String, String> {
    let output = run_command(tool(program).args(arguments)).map_err(|error| error.to_string())?;
    Ok(output.lines().next().unwrap_or_default().trim().to_owned())
}

fn kernel() -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("Linux {}", release.trim())
}

/// Kernels that have a later version than the first say so.
fn kernel_bbr() -> String {
    let version = fs::read_to_string("/sys/module/tcp_bbr/version").unwrap_or_default();
    match version.trim() {
        "" => "bbr v1".into(),
        version => format!("bbr v{version}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_a_carrier_and_a_tcp() {
        let parsed = |text: &str| text.parse::<Contender>();
        let plain = parsed("plain/bbr").unwrap();
        assert_eq!((plain.name(), plain.tcp()), ("plain/bbr", Congestion::Bbr));
        assert_eq!(parsed("wireguard").unwrap().tcp(), Congestion::Cubic);
        assert_eq!(plain.tunnel(), None);
        assert_eq!(
            parsed("openvpn-tcp").unwrap().tunnel(),
            Some(Tunnel::Tcp(1194))
        );
        for wrong in ["", "/", "plain/", "plain/x", "plain/cubic/bbr", "Plain"] {
            let error = parsed(wrong).unwrap_err().to_string();
            assert!(
                error.contains("`plain`") && error.contains("`bbr`"),
                "{error}"
            );
        }
    }
}
