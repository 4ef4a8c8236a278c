//! Who is measured: what carries the user's traffic over the satellite, and which TCP runs at the ends.
//!
//! Each kind has a file, which starts it as its operator would: programs, keys, files, routes. All are started by the
//! lab and measured from outside; what it is that carries the bytes is known here only for the capture to recognise it.
//!
//! ```text
//!  user ── terminal ─ sat0 ══ link ══ sat0 ─ gateway ── web
//!              └─ one end of the contender ─┘ the other
//! ```

mod accelerator;
mod bentpipe;
mod build;
pub(crate) mod hystart;
mod interception;
mod ipsec;
mod name;
mod openvpn;
mod program;
mod repairs;
mod split;
mod stable;
pub(crate) mod wireguard;

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use bentpipe_sys::command::run_with_input;
use bentpipe_sys::netns::NetNs;

use crate::capture::Tunnel;
use bentpipe_emulator::topology::{Congestion, Process, Topology};

pub use bentpipe::{CLIENT_SOCKET, Daemons, SERVER_PORT, Settings, Tuned};
use interception::Interception;
pub(crate) use name::check_programs;
pub use name::{Binary, UnknownContender};
use openvpn::Protocol;
pub use program::Named;
use program::Program;
pub use repairs::Repairs;
pub use split::Splitters;
pub use stable::{Stable, kernel_bbr};
use stable::{first_line, kernel};

/// One contender, as an experiment names it: `CARRIER` or `CARRIER/TCP`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contender {
    name: String,
    carrier: Carrier,
    tcp: Congestion,
    /// First congestion window of all nodes, in segments; the kernel's own if absent.
    initial_window: Option<u32>,
}

/// What carries the traffic over the satellite.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Carrier {
    /// Nothing: the end hosts' own TCP.
    Plain,
    /// bentpipe, with this controller at both ends.
    Bentpipe(&'static str, Option<Tuned>),
    /// bentpipe, and an operator's PEP in the gateway, which splits what TCP comes over the satellite beside the tunnel.
    BesidePep,
    /// An operator's PEP at both ends, which is told the rates.
    Accelerator,
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

/// The programs that an experiment names.
pub type Programs = BTreeMap<String, Named>;

/// A contender at work; what it started ends when this is dropped, in this order.
#[derive(Debug, Default)]
pub struct AtWork {
    splitters: Option<Splitters>,
    daemons: Option<Daemons>,
    processes: Vec<Process>,
    interception: Option<Interception>,
}

/// What somebody between user and satellite says of the content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Carried {
    /// Who.
    pub by: &'static str,
    /// Bytes that passed through its hands, both ways.
    pub bytes: u64,
    /// Packets that were to pass through them and did not.
    pub past: u64,
}

impl AtWork {
    /// What splitters, or the rules that hand TCP to a program, say of the content; `None` without either.
    ///
    /// # Errors
    /// They do not answer.
    pub fn carried(&self, topology: &Topology) -> Result<Option<Carried>> {
        let splitters = self.splitters.as_ref().filter(|_| self.daemons.is_none());
        let splitters = splitters.map(|splitters| {
            Ok(Carried {
                by: "the splitter",
                bytes: splitters.carried()?,
                past: 0,
            })
        });
        let interception = self.interception.as_ref();
        let carried = splitters.or_else(|| Some(interception?.carried(topology)));
        carried.transpose()
    }

    /// What bentpipe's ends say they have repaired; `None` where nobody is asked.
    ///
    /// # Errors
    /// They do not answer.
    pub fn repairs(&self) -> Result<Option<Repairs>> {
        self.daemons.as_ref().map(Daemons::repairs).transpose()
    }
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

    /// First congestion window of all nodes' TCP, in segments; the kernel's own if absent.
    #[must_use]
    pub fn initial_window(&self) -> Option<u32> {
        self.initial_window
    }

    /// Which program or part of the kernel it is, with its version.
    ///
    /// # Errors
    /// It cannot be measured here: why.
    pub fn version(&self, stable: &Stable) -> Result<String, String> {
        let tcp = self.tcp.kernel();
        if !stable.tcp.split_whitespace().any(|known| known == tcp) {
            return Err(format!(
                "the kernel has no TCP {tcp}; `modprobe tcp_{tcp}` may load it"
            ));
        }
        if self.tcp == Congestion::CubicNoHystart {
            hystart::check()?;
        }
        let bentpipe = || first_line(&stable.bentpipe, &["--version"]);
        let mut carrier = match &self.carrier {
            Carrier::Plain => kernel(),
            Carrier::Bentpipe(..) | Carrier::Accelerator => bentpipe()?,
            Carrier::BesidePep => format!("{0}, {0} plain", bentpipe()?),
            Carrier::Split(_) => format!("{}, plain", bentpipe()?),
            Carrier::Vpn(Vpn::WireGuard, ..) => {
                stable.wireguard.as_ref().map(ToString::to_string)?
            }
            Carrier::Vpn(Vpn::Openvpn(_), ..) => stable.openvpn.clone()?,
            Carrier::Vpn(Vpn::Ipsec, ..) => stable.ipsec.as_ref().map(ToString::to_string)?,
            Carrier::Program(program) => program.version()?,
        };
        if let Carrier::Vpn(_, _, Some(_)) = self.carrier {
            carrier = format!("{carrier}, {} plain", bentpipe()?);
        }
        Ok(match self.tcp {
            Congestion::Bbr => format!("{carrier}, TCP {}", kernel_bbr()),
            Congestion::CubicNoHystart => format!("{carrier}, TCP {tcp}, HyStart off"),
            Congestion::Cubic | Congestion::Reno => format!("{carrier}, TCP {tcp}"),
        })
    }

    /// Whether it is a program that the user names.
    #[must_use]
    pub fn is_program(&self) -> bool {
        matches!(self.carrier, Carrier::Program(_))
    }

    /// Whether it carries UDP.
    ///
    /// # Errors
    /// It does not: why.
    pub fn carries_udp(&self) -> Result<(), String> {
        match self.carrier {
            Carrier::Split(_) | Carrier::Accelerator => {
                Err("it splits TCP; UDP passes it by".into())
            }
            _ => Ok(()),
        }
    }

    /// Whether it takes in TCP alone, so that names are asked for beside it: the terminal forwards what it does not take.
    #[must_use]
    pub fn leaves_names(&self) -> bool {
        match &self.carrier {
            Carrier::Split(_) | Carrier::Accelerator => true,
            Carrier::Program(program) => program.intercepts(),
            _ => false,
        }
    }

    /// What crosses the satellite if it does its work; without, everything may.
    #[must_use]
    pub fn tunnel(&self) -> Option<Tunnel> {
        match &self.carrier {
            Carrier::Plain => None,
            Carrier::Bentpipe(..) | Carrier::BesidePep | Carrier::Accelerator => {
                Some(Tunnel::Udp(SERVER_PORT))
            }
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
        self.start_parts(stable, topology, false)
            .with_context(|| format!("{} did not come up", self.name))
    }

    /// [`Self::start`] for all that leaves the terminal, its own traffic included.
    ///
    /// # Errors
    /// As there.
    pub fn start_whole(&self, stable: &Stable, topology: &Topology) -> Result<AtWork> {
        self.start_parts(stable, topology, true)
            .with_context(|| format!("{} did not come up", self.name))
    }

    /// What its operator does at boot for nothing to leave in clear whatever happens; most have nothing.
    ///
    /// # Errors
    /// It could not be done.
    pub fn arm(&self, stable: &Stable, topology: &Topology) -> Result<()> {
        match &self.carrier {
            Carrier::Bentpipe(controller, tuned) => {
                let settings = settings(controller, *tuned, true);
                bentpipe::guard(&stable.bentpipe, topology, &settings)
            }
            Carrier::BesidePep => {
                let settings = settings("satellite", None, true);
                bentpipe::guard(&stable.bentpipe, topology, &settings)
            }
            _ => Ok(()),
        }
    }

    fn start_parts(&self, stable: &Stable, topology: &Topology, local: bool) -> Result<AtWork> {
        let splitters = |place| split::start(&stable.bentpipe, topology, place, self.tcp);
        let mut at_work = AtWork::default();
        match &self.carrier {
            Carrier::Plain => {}
            Carrier::Bentpipe(controller, tuned) => {
                let settings = settings(controller, *tuned, local);
                at_work.daemons = Some(Daemons::start(&stable.bentpipe, topology, &settings)?);
            }
            Carrier::BesidePep => {
                at_work.splitters = Some(splitters(split::Place::Gateway)?);
                let settings = settings("satellite", None, local);
                at_work.daemons = Some(Daemons::start(&stable.bentpipe, topology, &settings)?);
            }
            Carrier::Accelerator => {
                let settings = accelerator::settings(topology, local);
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
                    Vpn::Ipsec => ipsec::start(&stable.ipsec, *tuning, topology)?,
                };
                if *place == Some(split::Place::Inside) {
                    at_work.splitters = Some(splitters(split::Place::Inside)?);
                }
            }
            Carrier::Program(program) => {
                (at_work.processes, at_work.interception) = program.start(topology)?;
            }
        }
        Ok(at_work)
    }
}

fn settings(controller: &'static str, tuned: Option<Tuned>, local: bool) -> Settings {
    Settings {
        controller: Some(controller),
        tuned,
        local,
        ..Settings::default()
    }
}

/// Sends everything that the terminal and the gateway route over the satellite through the devices of a tunnel.
fn route_through(
    topology: &Topology,
    [terminal, gateway]: [&str; 2],
    tcp: Congestion,
) -> Result<()> {
    let tcp = tcp.kernel();
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

/// Has connections agree on segments that fit, so that nobody has to find out by losing some.
fn clamp(namespace: &NetNs) -> Result<()> {
    let text = "table inet bentpipe_lab_mss {\n  chain forward {\n    type filter hook forward priority mangle; policy accept;\n    \
                tcp flags & syn == syn tcp option maxseg size set rt mtu\n  }\n}\n";
    run_with_input(namespace.command("nft").args(["-f", "-"]), text)?;
    Ok(())
}
