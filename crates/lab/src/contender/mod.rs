//! Who is measured: what carries the user's traffic over the satellite, and which TCP runs at the ends.
//!
//! Each kind has a file, which starts it as its operator would: programs, keys, files, routes. All are started by the
//! lab and measured from outside; what it is that carries the bytes is known here only for the capture to recognise it.
//!
//! ```text
//!  user ── terminal ─ sat0 ══ link ══ sat0 ─ gateway ── web
//!              └─ one end of the contender ─┘ the other
//! ```
//!
//! A VPN may also have its ends at user and web, and an operator's PEP under it; SLE and LES have them there alone.

mod accelerator;
mod ahead;
mod at_work;
mod available;
mod bentpipe;
mod binary;
mod build;
mod ends;
pub(crate) mod hystart;
mod interception;
mod ipsec;
mod les;
mod masque;
mod name;
mod openvpn;
mod packets;
mod program;
mod repairs;
mod road;
mod segments;
mod settings;
mod split;
mod variant;
mod vpn;
pub(crate) mod wireguard;

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use bentpipe_sys::command::run_with_input;
use bentpipe_sys::netns::NetNs;

use crate::workload::Tls;
use bentpipe_emulator::topology::{Congestion, Topology};

pub use ahead::{DsslMode, PagesAhead};
pub(crate) use ahead::{WEB_AUTHORITY, WEB_CERTIFICATE, WEB_KEY};
pub use at_work::{AtWork, Carried};
pub use available::{Available, kernel_bbr};
use available::{first_line, kernel};
pub(crate) use bentpipe::TRACES;
pub use bentpipe::{CLIENT_SOCKET, Daemons, SERVER_PORT, status};
pub use binary::Binary;
pub use ends::Between;
pub use les::{Layers, LesFlow};
pub use name::UnknownContender;
pub(crate) use name::check_programs;
pub use program::Named;
use program::Program;
pub(crate) use program::sha256;
pub use repairs::Repairs;
pub use road::Road;
pub use settings::{Settings, Tuned};
pub use split::Splitters;
use variant::BentpipeVariant;
use vpn::{Pep, Vpn};

/// One contender, as an experiment names it: `CARRIER` or `CARRIER/TCP`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contender {
    name: String,
    carrier: Carrier,
    tcp: Congestion,
    /// First congestion window of all nodes, in segments; the kernel's own if absent.
    initial_window: Option<u32>,
    /// TLS of its users; the task's if absent.
    tls: Option<Tls>,
}

/// Carrier of the traffic over the satellite.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Carrier {
    /// Nothing: the end hosts' own TCP.
    Plain,
    /// bentpipe.
    Bentpipe(BentpipeVariant),
    /// An operator's PEP at both ends, which is told the rates.
    Accelerator,
    /// PEPs of an operator's at both ends that relay TCP in clear, segment by segment.
    Segments,
    /// TCP split in clear.
    Split(split::Place),
    /// A VPN, and splitters inside or around it.
    Vpn(Vpn, Tuning, Option<split::Place>),
    /// A VPN, SLE or LES between user and web, and an operator's PEP between terminal and gateway, through which TCP of the VPN goes.
    Hosts(Vpn, Option<Pep>),
    /// A program that the user names.
    Program(Program),
}

/// Configuration of a VPN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tuning {
    /// As it chooses itself.
    Default,
    /// As those would who know the link.
    Best,
}

/// The programs that an experiment names.
pub type Programs = BTreeMap<String, Named>;

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

    /// TLS that its users speak whatever the task says; the task's if absent.
    #[must_use]
    pub fn tls(&self) -> Option<Tls> {
        self.tls
    }

    /// Program or part of the kernel, with its version.
    ///
    /// # Errors
    /// It cannot be measured here: why.
    pub fn version(&self, available: &Available) -> Result<String, String> {
        let tcp = self.tcp.kernel();
        if !available.tcp.split_whitespace().any(|known| known == tcp) {
            return Err(format!(
                "the kernel has no TCP {tcp}; `modprobe tcp_{tcp}` may load it"
            ));
        }
        if self.tcp == Congestion::CubicNoHystart {
            hystart::check()?;
        }
        let bentpipe = || first_line(&available.bentpipe, &["--version"]);
        let mut carrier = match &self.carrier {
            Carrier::Plain => kernel(),
            Carrier::Bentpipe(variant) if variant.splitter().is_some() => {
                format!("{0}, {0} plain", bentpipe()?)
            }
            Carrier::Bentpipe(_) | Carrier::Segments | Carrier::Accelerator => bentpipe()?,
            Carrier::Split(_) => format!("{}, plain", bentpipe()?),
            Carrier::Vpn(vpn, ..) | Carrier::Hosts(vpn, None) => vpn.version(available)?,
            Carrier::Hosts(vpn, Some(pep)) => {
                format!("{}, {}", vpn.version(available)?, pep.version(available)?)
            }
            Carrier::Program(program) => program.version(&available.envoy)?,
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

    /// True if it is a program that the user names.
    #[must_use]
    pub fn is_program(&self) -> bool {
        matches!(self.carrier, Carrier::Program(_))
    }

    /// True if it asks for the objects of pages over TLS, or in clear, beyond the link, before the browser does.
    #[must_use]
    pub fn fetches_ahead(&self, encrypted: bool) -> bool {
        matches!(self.carrier, Carrier::Bentpipe(variant) if variant.fetches_ahead(encrypted))
    }

    /// True if the terminal hands it HTTP/3, as it hands it TCP.
    #[must_use]
    pub fn is_handed_http3(&self) -> bool {
        matches!(&self.carrier, Carrier::Program(program) if program.takes_http3())
    }

    /// Checks that what it is measured by carries UDP; of HTTP/3 alone, if `http3`.
    ///
    /// # Errors
    /// It does not: why.
    pub fn carries_udp(&self, http3: bool) -> Result<(), String> {
        let past = || Err("it splits TCP; UDP passes it by".into());
        let beside = || {
            Err("it seals TCP; UDP goes through the tunnel beside, as that of `bentpipe`".into())
        };
        match &self.carrier {
            Carrier::Split(_) | Carrier::Accelerator | Carrier::Segments => past(),
            Carrier::Program(_) if self.is_handed_http3() => match http3 {
                true => Ok(()),
                false => Err("it takes in TCP and HTTP/3; all other UDP passes it by".into()),
            },
            Carrier::Program(program) if program.intercepts() => past(),
            Carrier::Bentpipe(variant) if variant.seals_tcp_alone() => beside(),
            Carrier::Hosts(vpn, _) if vpn.is_bentpipe() => beside(),
            _ => Ok(()),
        }
    }

    /// Starts it between terminal and gateway; traffic crosses in it when this returns.
    ///
    /// # Errors
    /// It did not come up; the text has what it said.
    pub fn start(&self, available: &Available, topology: &Topology) -> Result<AtWork> {
        self.start_parts(available, topology, false)
            .with_context(|| format!("{} did not come up", self.name))
    }

    /// [`Self::start`] for all that leaves the terminal, its own traffic included.
    ///
    /// # Errors
    /// As there.
    pub fn start_whole(&self, available: &Available, topology: &Topology) -> Result<AtWork> {
        self.start_parts(available, topology, true)
            .with_context(|| format!("{} did not come up", self.name))
    }

    /// Does what its operator does at boot for nothing to leave in clear whatever happens; most do nothing.
    ///
    /// # Errors
    /// It could not be done.
    pub fn arm(&self, available: &Available, topology: &Topology) -> Result<()> {
        match self.carrier {
            Carrier::Bentpipe(variant) => {
                bentpipe::guard(&available.bentpipe, topology, &variant.settings(true))
            }
            _ => Ok(()),
        }
    }

    fn start_parts(
        &self,
        available: &Available,
        topology: &Topology,
        local: bool,
    ) -> Result<AtWork> {
        let bentpipe = &available.bentpipe;
        let splitters = |place| split::start(bentpipe, topology, place, self.tcp);
        let mut at_work = AtWork::default();
        match &self.carrier {
            Carrier::Plain => {}
            Carrier::Bentpipe(variant) => {
                at_work.splitters = variant.splitter().map(splitters).transpose()?;
                let settings = variant.settings(local);
                if let Some(pages) = settings.ahead {
                    at_work.processes = pages.start_origins(bentpipe, topology)?;
                }
                at_work.daemons = Some(Daemons::start(bentpipe, topology, &settings)?);
                at_work.local_authority = ahead::local_authority(topology)?;
            }
            Carrier::Accelerator => {
                at_work.daemons = Some(accelerator::start(bentpipe, topology, local)?);
            }
            Carrier::Segments => {
                at_work.processes = segments::start(bentpipe, topology, false)?;
                at_work.segments = Some(bentpipe.clone());
            }
            Carrier::Split(place) => at_work.splitters = Some(splitters(*place)?),
            Carrier::Vpn(vpn, tuning, place) => {
                if *place == Some(split::Place::Around) {
                    at_work.splitters = Some(splitters(split::Place::Around)?);
                }
                at_work.processes = vpn.start(available, *tuning, topology, Between::Nodes)?;
                if *place == Some(split::Place::Inside) {
                    at_work.splitters = Some(splitters(split::Place::Inside)?);
                }
            }
            Carrier::Hosts(vpn, pep) => {
                // First: what the VPN sends before the PEP is there, it does not split.
                if let Some(pep) = pep {
                    self.start_under(pep, available, topology, local, &mut at_work)?;
                }
                let processes = vpn.start(available, Tuning::Default, topology, Between::Hosts)?;
                at_work.processes.extend(processes);
                if *pep == Some(Pep::Segments) {
                    segments::await_keys(bentpipe, topology)?;
                    at_work.segments = Some(bentpipe.clone());
                }
                at_work.over = Some(*vpn);
            }
            Carrier::Program(program) => {
                (at_work.processes, at_work.interception) =
                    program.start(topology, &available.envoy)?;
            }
        }
        Ok(at_work)
    }

    /// Starts the PEP of an operator's under a VPN of the hosts.
    fn start_under(
        &self,
        pep: &Pep,
        available: &Available,
        topology: &Topology,
        local: bool,
        at_work: &mut AtWork,
    ) -> Result<()> {
        let bentpipe = &available.bentpipe;
        match pep {
            Pep::Accelerator => {
                at_work.daemons = Some(accelerator::start(bentpipe, topology, local)?);
            }
            Pep::Split => {
                let place = split::Place::Distributed;
                at_work.splitters = Some(split::start(bentpipe, topology, place, self.tcp)?);
            }
            Pep::Segments => at_work.processes = segments::start(bentpipe, topology, true)?,
            Pep::Pepsal(program) => {
                (at_work.processes, at_work.interception) =
                    program.start(topology, &available.envoy)?;
            }
        }
        Ok(())
    }
}

/// Has connections agree on segments that fit, so that nobody has to find out by losing some.
fn clamp(namespace: &NetNs) -> Result<()> {
    let text = "table inet bentpipe_lab_mss {\n  chain forward {\n    type filter hook forward priority mangle; policy accept;\n    \
                tcp flags & syn == syn tcp option maxseg size set rt mtu\n  }\n}\n";
    run_with_input(namespace.command("nft").args(["-f", "-"]), text)?;
    Ok(())
}
