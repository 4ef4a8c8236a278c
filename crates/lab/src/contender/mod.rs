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
mod available;
mod bentpipe;
mod build;
mod ends;
pub(crate) mod hystart;
mod interception;
mod ipsec;
mod les;
mod name;
mod openvpn;
mod packets;
mod program;
mod repairs;
mod road;
mod segments;
mod split;
mod vpn;
pub(crate) mod wireguard;

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use bentpipe_sys::command::run_with_input;
use bentpipe_sys::netns::NetNs;

use bentpipe_emulator::topology::{Congestion, Process, Topology};

pub use ahead::{DsslMode, PagesAhead};
pub(crate) use ahead::{WEB_AUTHORITY, WEB_CERTIFICATE, WEB_KEY};
pub use available::{Available, kernel_bbr};
use available::{first_line, kernel};
pub(crate) use bentpipe::TRACES;
pub use bentpipe::{CLIENT_SOCKET, Daemons, SERVER_PORT, Settings, Tuned};
pub use ends::Between;
use interception::Interception;
pub use les::{Layers, LesFlow};
pub(crate) use name::check_programs;
pub use name::{Binary, UnknownContender};
pub use program::Named;
use program::Program;
pub(crate) use program::sha256;
pub use repairs::Repairs;
pub use road::Road;
pub use split::Splitters;
use vpn::{Pep, Vpn};

/// One contender, as an experiment names it: `CARRIER` or `CARRIER/TCP`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contender {
    name: String,
    carrier: Carrier,
    tcp: Congestion,
    /// First congestion window of all nodes, in segments; the kernel's own if absent.
    initial_window: Option<u32>,
}

/// Carrier of the traffic over the satellite.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Carrier {
    /// Nothing: the end hosts' own TCP.
    Plain,
    /// bentpipe, with this controller at both ends.
    Bentpipe(&'static str, Option<Tuned>),
    /// bentpipe over TLS alone, as where no UDP passes, with this controller at both ends.
    BentpipeTls(&'static str),
    /// bentpipe that carries HTTP/3 as packets, where it else refuses that and carries the TCP in its place.
    BentpipeHttp3,
    /// bentpipe that seals TCP beside its tunnel, a connection for each.
    BentpipeSle,
    /// bentpipe that seals TCP beside its tunnel, packet by packet.
    BentpipeLes,
    /// bentpipe that fetches pages ahead.
    BentpipePages(PagesAhead),
    /// bentpipe, and an operator's PEP in the gateway, which splits what TCP comes over the satellite beside the tunnel.
    BesidePep,
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

/// A contender at work; what it started ends when this is dropped, in this order.
#[derive(Debug, Default)]
pub struct AtWork {
    splitters: Option<Splitters>,
    daemons: Option<Daemons>,
    processes: Vec<Process>,
    interception: Option<Interception>,
    /// The program, where PEPs that relay segment by segment are at work.
    segments: Option<PathBuf>,
    /// The VPN of the hosts that the others are under.
    over: Option<Vpn>,
    /// Certificate of the CA, in PEM, that the user's browsers are to trust besides the web's.
    local_authority: Option<String>,
}

/// Report of somebody between user and satellite on the content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Carried {
    /// Name of who reports.
    pub by: &'static str,
    /// Bytes that passed through its hands, both ways.
    pub bytes: u64,
    /// Packets that were to pass through them and did not.
    pub past: u64,
    /// True if all of the content is to pass through them; if not, nothing of it: a PEP does not split a VPN's UDP.
    pub all: bool,
}

impl AtWork {
    /// Report of splitters, or of the rules that hand TCP to a program, on the content; `None` without either.
    ///
    /// # Errors
    /// They do not answer.
    pub fn carried(&self, topology: &Topology) -> Result<Option<Carried>> {
        let all = self.over.is_none_or(Vpn::is_tcp);
        if let Some(bentpipe) = &self.segments {
            segments::check_relayed(bentpipe, topology)?;
        }
        let own = |by, bytes| Carried {
            by,
            bytes,
            past: 0,
            all,
        };
        let carried = match (&self.splitters, &self.daemons, &self.interception) {
            (Some(splitters), None, _) => Some(own("the splitter", splitters.carried()?)),
            (_, Some(daemons), _) if self.over.is_some() => {
                Some(own("the PEP", daemons.carried()?))
            }
            (_, _, Some(interception)) => Some(Carried {
                all,
                ..interception.carried(topology)?
            }),
            _ => None,
        };
        Ok(carried)
    }

    /// Certificate of the CA, in PEM, that the user's browsers are to trust besides the web's own; `None` without one.
    #[must_use]
    pub fn local_authority(&self) -> Option<&str> {
        self.local_authority.as_deref()
    }

    /// Repairs that bentpipe's ends report; `None` where nobody is asked.
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
            Carrier::Bentpipe(..)
            | Carrier::BentpipeTls(_)
            | Carrier::BentpipeSle
            | Carrier::BentpipeLes
            | Carrier::BentpipePages(_)
            | Carrier::BentpipeHttp3
            | Carrier::Segments
            | Carrier::Accelerator => bentpipe()?,
            Carrier::BesidePep => format!("{0}, {0} plain", bentpipe()?),
            Carrier::Split(_) => format!("{}, plain", bentpipe()?),
            Carrier::Vpn(vpn, ..) | Carrier::Hosts(vpn, None) => vpn.version(available)?,
            Carrier::Hosts(vpn, Some(pep)) => {
                format!("{}, {}", vpn.version(available)?, pep.version(available)?)
            }
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

    /// True if it is a program that the user names.
    #[must_use]
    pub fn is_program(&self) -> bool {
        matches!(self.carrier, Carrier::Program(_))
    }

    /// True if it asks for the objects of pages over TLS, or in clear, beyond the link, before the browser does.
    #[must_use]
    pub fn fetches_ahead(&self, encrypted: bool) -> bool {
        match self.carrier {
            Carrier::BentpipePages(PagesAhead::Clear) => !encrypted,
            Carrier::BentpipePages(PagesAhead::Trusted) => true,
            Carrier::BentpipePages(PagesAhead::Sealed(_)) => encrypted,
            _ => false,
        }
    }

    /// Checks that what it is measured by carries UDP.
    ///
    /// # Errors
    /// It does not: why.
    pub fn carries_udp(&self) -> Result<(), String> {
        let past = || Err("it splits TCP; UDP passes it by".into());
        match &self.carrier {
            Carrier::Split(_) | Carrier::Accelerator | Carrier::Segments => past(),
            Carrier::Program(program) if program.intercepts() => past(),
            Carrier::BentpipeSle
            | Carrier::BentpipeLes
            | Carrier::Hosts(Vpn::Sle(_) | Vpn::Les(_), _) => Err(
                "it seals TCP; UDP goes through the tunnel beside, as that of `bentpipe`".into(),
            ),
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
        match self.bentpipe(true) {
            Some(settings) => bentpipe::guard(&available.bentpipe, topology, &settings),
            None => Ok(()),
        }
    }

    /// Settings of bentpipe between terminal and gateway, if that is what carries; `local`: the terminal's own traffic is taken
    /// in, too.
    fn bentpipe(&self, local: bool) -> Option<Settings> {
        let settings = |controller| Settings {
            controller: Some(controller),
            local,
            ..Settings::default()
        };
        match self.carrier {
            Carrier::Bentpipe(controller, tuned) => Some(Settings {
                tuned,
                ..settings(controller)
            }),
            Carrier::BentpipeTls(controller) => Some(Settings {
                tls: true,
                ..settings(controller)
            }),
            Carrier::BentpipeHttp3 => Some(Settings {
                http3: true,
                ..settings("satellite")
            }),
            Carrier::BentpipeSle => Some(Settings {
                sle: Some(vpn::OuterEnd::Server),
                ..settings("satellite")
            }),
            Carrier::BentpipeLes => Some(Settings {
                les: Some(Layers {
                    flow: LesFlow::Short,
                    peps: false,
                }),
                ..settings("satellite")
            }),
            Carrier::BentpipePages(pages) => Some(Settings {
                ahead: Some(pages),
                ..settings("satellite")
            }),
            Carrier::BesidePep => Some(settings("satellite")),
            _ => None,
        }
    }

    fn start_parts(
        &self,
        available: &Available,
        topology: &Topology,
        local: bool,
    ) -> Result<AtWork> {
        let splitters = |place| split::start(&available.bentpipe, topology, place, self.tcp);
        let mut at_work = AtWork::default();
        match &self.carrier {
            Carrier::Plain
            | Carrier::Bentpipe(..)
            | Carrier::BentpipeTls(_)
            | Carrier::BentpipePages(_)
            | Carrier::BentpipeHttp3
            | Carrier::BentpipeSle
            | Carrier::BentpipeLes => {}
            Carrier::BesidePep => at_work.splitters = Some(splitters(split::Place::Gateway)?),
            Carrier::Accelerator => {
                let settings = accelerator::settings(topology, local);
                at_work.daemons = Some(Daemons::start(&available.bentpipe, topology, &settings)?);
            }
            Carrier::Segments => {
                at_work.processes = segments::start(&available.bentpipe, topology, false)?;
                at_work.segments = Some(available.bentpipe.clone());
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
                match pep {
                    None => {}
                    Some(Pep::Accelerator) => {
                        let settings = accelerator::settings(topology, local);
                        let daemons = Daemons::start(&available.bentpipe, topology, &settings)?;
                        at_work.daemons = Some(daemons);
                    }
                    Some(Pep::Split) => {
                        at_work.splitters = Some(splitters(split::Place::Distributed)?);
                    }
                    Some(Pep::Segments) => {
                        at_work.processes = segments::start(&available.bentpipe, topology, true)?;
                    }
                    Some(Pep::Pepsal(program)) => {
                        (at_work.processes, at_work.interception) = program.start(topology)?;
                    }
                }
                let vpn_processes =
                    vpn.start(available, Tuning::Default, topology, Between::Hosts)?;
                at_work.processes.extend(vpn_processes);
                if *pep == Some(Pep::Segments) {
                    segments::await_keys(&available.bentpipe, topology)?;
                    at_work.segments = Some(available.bentpipe.clone());
                }
                at_work.over = Some(*vpn);
            }
            Carrier::Program(program) => {
                (at_work.processes, at_work.interception) = program.start(topology)?;
            }
        }
        if let Some(settings) = self.bentpipe(local) {
            if let Some(pages) = settings.ahead {
                let origin = pages.start_origin(&available.bentpipe, topology)?;
                at_work.processes.extend(origin);
            }
            at_work.daemons = Some(Daemons::start(&available.bentpipe, topology, &settings)?);
            at_work.local_authority = ahead::local_authority(topology)?;
        }
        Ok(at_work)
    }
}

/// Has connections agree on segments that fit, so that nobody has to find out by losing some.
fn clamp(namespace: &NetNs) -> Result<()> {
    let text = "table inet bentpipe_lab_mss {\n  chain forward {\n    type filter hook forward priority mangle; policy accept;\n    \
                tcp flags & syn == syn tcp option maxseg size set rt mtu\n  }\n}\n";
    run_with_input(namespace.command("nft").args(["-f", "-"]), text)?;
    Ok(())
}
