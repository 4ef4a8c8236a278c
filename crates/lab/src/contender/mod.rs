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
pub(crate) mod hystart;
mod ipsec;
mod openvpn;
mod program;
mod split;
pub(crate) mod wireguard;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context as _, Result};
use bentpipe_config::{ConfigError, Source};
use bentpipe_sys::command::{run_command, tool};
use bentpipe_sys::netns::NetNs;

use crate::capture::Tunnel;
use crate::topology::{Congestion, Process, Topology};

pub use bentpipe::{CLIENT_SOCKET, Daemons, SERVER_PORT, Settings, Tuned};
use openvpn::Protocol;
pub use program::Named;
use program::{Known, Program};
pub use split::Splitters;

/// One contender, as an experiment names it: `CARRIER` or `CARRIER/TCP`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contender {
    name: String,
    carrier: Carrier,
    tcp: Congestion,
}

/// What carries the traffic over the satellite.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Carrier {
    /// Nothing: the end hosts' own TCP.
    Plain,
    /// The same, and CUBIC without HyStart.
    NoHystart,
    /// bentpipe, with this controller at both ends.
    Bentpipe(&'static str, Option<Tuned>),
    /// TCP split in clear.
    Split(split::Place),
    /// A VPN, and splitters inside or around it.
    Vpn(Vpn, Tuning, Option<split::Place>),
    /// What the user names.
    Program(Program),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Vpn {
    WireGuard,
    Openvpn(Protocol),
    Ipsec,
}

/// How a VPN is configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tuning {
    /// As it chooses itself.
    Default,
    /// As those would who know the link.
    Best,
}

/// Each carrier that needs no word of the user's, and its name.
fn carriers() -> Vec<(String, Carrier)> {
    use split::Place;
    let bentpipe = ["bbr3", "cubic", "cubic-no-hystart", "new-reno"]
        .map(|name| (format!("bentpipe-{name}"), Carrier::Bentpipe(name, None)));
    let mut all = vec![
        ("plain".to_owned(), Carrier::Plain),
        ("plain-no-hystart".to_owned(), Carrier::NoHystart),
        ("bentpipe".to_owned(), Carrier::Bentpipe("satellite", None)),
    ];
    all.extend(bentpipe);
    let split = [
        ("split", Place::Distributed),
        ("split-terminal", Place::Terminal),
        ("split-gateway", Place::Gateway),
    ];
    all.extend(split.map(|(name, place)| (name.to_owned(), Carrier::Split(place))));
    for (name, vpn) in [
        ("wireguard", Vpn::WireGuard),
        ("openvpn-udp", Vpn::Openvpn(Protocol::Udp)),
        ("openvpn-tcp", Vpn::Openvpn(Protocol::Tcp)),
        ("ipsec", Vpn::Ipsec),
    ] {
        let best = (vpn != Vpn::Ipsec).then_some(("-best", Tuning::Best));
        for (tuned, tuning) in [("", Tuning::Default)].into_iter().chain(best) {
            // After the VPN there is TCP to be split only if the VPN itself is TCP.
            let after =
                (vpn == Vpn::Openvpn(Protocol::Tcp)).then_some(("-pep-a", Some(Place::Around)));
            let positions = [("", None), ("-pep-b", Some(Place::Inside))];
            let positions = positions.into_iter().chain(after);
            all.extend(positions.map(|(pep, place)| {
                (
                    format!("{name}{tuned}{pep}"),
                    Carrier::Vpn(vpn, tuning, place),
                )
            }));
        }
    }
    let known =
        Known::ALL.map(|(name, kind)| (name.to_owned(), Carrier::Program(Program::unnamed(kind))));
    all.extend(known);
    all
}

/// The programs that an experiment names.
pub type Programs = BTreeMap<String, Named>;

/// A name that no contender has; displays as one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownContender(String);

impl std::error::Error for UnknownContender {}

impl fmt::Display for UnknownContender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let carriers: Vec<String> = carriers().into_iter().map(|(name, _)| name).collect();
        let tcp = Congestion::ALL.map(Congestion::name).join("`, `");
        write!(
            f,
            "`{}` is no contender; known are `{}` and those of `[contender.NAME]`, alone or with `/` and the TCP of user and web: `{tcp}`; bentpipe may be tuned, as in `bentpipe:ack_packets=10`",
            self.0,
            carriers.join("`, `")
        )
    }
}

impl FromStr for Contender {
    type Err = UnknownContender;

    fn from_str(text: &str) -> Result<Self, UnknownContender> {
        Self::parse(text, &BTreeMap::new())
    }
}

/// The programs that an experiment names, checked; paths are relative to its file.
///
/// # Errors
/// The first that cannot be started as it is described.
pub(crate) fn check_programs(
    source: &Source,
    programs: &Programs,
) -> Result<BTreeMap<String, CheckedProgram>, ConfigError> {
    let check = |(name, named): (&String, &Named)| {
        if carriers()
            .iter()
            .any(|(known, carrier)| known == name && !matches!(carrier, Carrier::Program(_)))
        {
            let text = format!("`{name}` is the lab's own; choose another name");
            return Err(source.error_at_key(&format!("contender.{name}"), text));
        }
        let program = named.clone().program(source, name)?;
        Ok((name.clone(), CheckedProgram(program)))
    };
    programs.iter().map(check).collect()
}

/// A program that can be started as it is described.
#[derive(Debug, Clone)]
pub(crate) struct CheckedProgram(Program);

/// What this machine has to start contenders with.
#[derive(Debug)]
pub struct Stable {
    /// The binary `bentpipe`.
    pub bentpipe: PathBuf,
    wireguard: Result<wireguard::Build, String>,
    openvpn: Result<String, String>,
    ipsec: Result<String, String>,
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
            ipsec: ipsec::find(),
            // Absent where the kernel has no TCP, which is nowhere.
            tcp: fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")
                .unwrap_or_default(),
        })
    }

    /// What every kind of contender is here: its version, or why there is none.
    #[must_use]
    pub fn list(&self) -> Vec<(String, Result<String, String>)> {
        let version = |(name, carrier): (String, Carrier)| {
            let contender = Contender {
                name: name.clone(),
                carrier,
                tcp: Congestion::default(),
            };
            (name, contender.version(self))
        };
        carriers().into_iter().map(version).collect()
    }
}

/// A contender at work; what it started ends when this is dropped, in this order.
#[derive(Debug, Default)]
pub struct AtWork {
    splitters: Option<Splitters>,
    daemons: Option<Daemons>,
    processes: Vec<Process>,
    hystart: Option<hystart::Off>,
}

impl AtWork {
    /// Bytes of content that splitters say they have carried; `None` without splitters.
    ///
    /// # Errors
    /// They do not answer.
    pub fn carried(&self) -> Result<Option<u64>> {
        self.splitters.as_ref().map(Splitters::carried).transpose()
    }
}

impl Contender {
    /// The one of that name, or of the `programs`.
    pub(crate) fn parse(
        text: &str,
        programs: &BTreeMap<String, CheckedProgram>,
    ) -> Result<Self, UnknownContender> {
        let unknown = || UnknownContender(text.to_owned());
        let (name, tcp) = match text.split_once('/') {
            Some((name, tcp)) => (name, Some(tcp)),
            None => (text, None),
        };
        let (name, tuned) = match name.split_once(':') {
            Some((name, tuned)) => (name, Some(Tuned::parse(tuned).ok_or_else(unknown)?)),
            None => (name, None),
        };
        let named = programs.get(name);
        let carrier = named.map(|CheckedProgram(program)| Carrier::Program(program.clone()));
        let known = || carriers().into_iter().find(|(known, _)| known == name);
        let carrier = carrier.or_else(|| known().map(|(_, carrier)| carrier));
        let carrier = match (carrier, tuned) {
            (Some(carrier), None) => carrier,
            (Some(Carrier::Bentpipe(controller, _)), tuned) => Carrier::Bentpipe(controller, tuned),
            _ => return Err(unknown()),
        };
        let tcp = match tcp {
            Some(name) => Congestion::named(name).ok_or_else(unknown)?,
            None => Congestion::default(),
        };
        Ok(Self {
            name: text.to_owned(),
            carrier,
            tcp,
        })
    }

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
        let bentpipe = || first_line(&stable.bentpipe, &["--version"]);
        let mut carrier = match &self.carrier {
            Carrier::Plain => kernel(),
            Carrier::NoHystart if self.tcp != Congestion::Cubic => {
                return Err(format!("HyStart is CUBIC's: {tcp} has none"));
            }
            Carrier::NoHystart => {
                hystart::check()?;
                format!("{}, HyStart off", kernel())
            }
            Carrier::Bentpipe(..) => bentpipe()?,
            Carrier::Split(_) => format!("{}, plain", bentpipe()?),
            Carrier::Vpn(Vpn::WireGuard, ..) => {
                stable.wireguard.as_ref().map(ToString::to_string)?
            }
            Carrier::Vpn(Vpn::Openvpn(_), ..) => stable.openvpn.clone()?,
            Carrier::Vpn(Vpn::Ipsec, ..) => stable.ipsec.clone()?,
            Carrier::Program(program) => program.version()?,
        };
        if let Carrier::Vpn(_, _, Some(_)) = self.carrier {
            carrier = format!("{carrier}, {} plain", bentpipe()?);
        }
        Ok(match self.tcp {
            Congestion::Bbr => format!("{carrier}, TCP {}", kernel_bbr()),
            other => format!("{carrier}, TCP {}", other.name()),
        })
    }

    /// Whether it carries UDP.
    ///
    /// # Errors
    /// It does not: why.
    pub fn carries_udp(&self) -> Result<(), String> {
        match self.carrier {
            Carrier::Bentpipe(..) => {
                Err("it carries TCP alone; what is not TCP it drops, so that nothing leaks".into())
            }
            Carrier::Split(_) => Err("it splits TCP; UDP passes it by".into()),
            _ => Ok(()),
        }
    }

    /// What crosses the satellite if it does its work; without, everything may.
    #[must_use]
    pub fn tunnel(&self) -> Option<Tunnel> {
        match &self.carrier {
            Carrier::Plain | Carrier::NoHystart => None,
            Carrier::Bentpipe(..) => Some(Tunnel::Udp(SERVER_PORT)),
            Carrier::Split(split::Place::Distributed) => Some(Tunnel::Tcp(split::PORT)),
            Carrier::Split(_) => None,
            Carrier::Vpn(Vpn::WireGuard, ..) => Some(Tunnel::Udp(wireguard::PORT)),
            Carrier::Vpn(Vpn::Openvpn(protocol), ..) => Some(protocol.tunnel()),
            Carrier::Vpn(Vpn::Ipsec, ..) => Some(Tunnel::Ipsec),
            Carrier::Program(program) => program.tunnel(),
        }
    }

    /// Whether content may be read in its tunnel.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        match &self.carrier {
            Carrier::Split(_) => true,
            Carrier::Program(program) => program.readable(),
            _ => false,
        }
    }

    /// Starts it between terminal and gateway; traffic crosses in it when this returns.
    ///
    /// # Errors
    /// It did not come up; the text has what it said.
    pub fn start(&self, stable: &Stable, topology: &Topology) -> Result<AtWork> {
        self.start_parts(stable, topology)
            .with_context(|| format!("{} did not come up", self.name))
    }

    fn start_parts(&self, stable: &Stable, topology: &Topology) -> Result<AtWork> {
        let splitters = |place| split::start(&stable.bentpipe, topology, place, self.tcp);
        let mut at_work = AtWork::default();
        match &self.carrier {
            Carrier::Plain => {}
            Carrier::NoHystart => at_work.hystart = Some(hystart::off(topology.prefix())?),
            Carrier::Bentpipe(controller, tuned) => {
                let settings = Settings {
                    profile: None,
                    controller: Some(controller),
                    tuned: *tuned,
                };
                at_work.daemons = Some(Daemons::start(&stable.bentpipe, topology, &settings)?);
            }
            Carrier::Split(place) => at_work.splitters = Some(splitters(*place)?),
            Carrier::Vpn(vpn, tuning, place) => {
                if *place == Some(split::Place::Around) {
                    at_work.splitters = Some(splitters(split::Place::Around)?);
                }
                at_work.processes = match vpn {
                    Vpn::WireGuard => {
                        wireguard::start(&stable.wireguard, *tuning, topology, self.tcp)?
                    }
                    Vpn::Openvpn(protocol) => {
                        openvpn::start(*protocol, *tuning, topology, self.tcp)?
                    }
                    Vpn::Ipsec => ipsec::start(topology)?,
                };
                if *place == Some(split::Place::Inside) {
                    at_work.splitters = Some(splitters(split::Place::Inside)?);
                }
            }
            Carrier::Program(program) => at_work.processes = program.start(topology)?,
        }
        Ok(at_work)
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
        assert_eq!(
            parsed("openvpn-tcp-best-pep-a").unwrap().tunnel(),
            Some(Tunnel::Tcp(1194))
        );
        assert!(parsed("split/bbr").unwrap().is_readable());
        // After WireGuard there is no TCP to split.
        assert!(parsed("wireguard-pep-a").is_err() && parsed("wireguard-best-pep-b").is_ok());
        let tuned = parsed("bentpipe-cubic:ack_packets=10/bbr").unwrap();
        let setting = Tuned::parse("ack_packets=10");
        assert_eq!(tuned.carrier, Carrier::Bentpipe("cubic", setting));
        for wrong in [
            "bentpipe:",
            "bentpipe:ack_packets",
            "bentpipe:x=1",
            "plain:ack_packets=1",
        ] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
        for wrong in ["", "/", "plain/", "plain/x", "plain/cubic/bbr", "Plain"] {
            let error = parsed(wrong).unwrap_err().to_string();
            assert!(
                error.contains("`plain`") && error.contains("`bbr`"),
                "{error}"
            );
        }
    }
}
