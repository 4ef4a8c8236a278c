//! An operator's PEPs at terminal and gateway, which relay TCP segment by segment: in clear, and of LES if its hosts hand them the
//! key of the headers.
//!
//! ```text
//!  user ─ segments ─ PEP ══ link: tunnel, a stream per flow ══ PEP ─ segments ─ web
//!    └─────────────────── SYNs, and what is not relayed ───────────────────┘
//! ```

use std::net::Ipv4Addr;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bentpipe_emulator::topology::{GATEWAY_SAT, LINK_DEVICE, Process, TERMINAL_LAN, Topology};
use bentpipe_sys::netns::NetNs;
use serde_json::Value;

use super::SERVER_PORT;
use super::bentpipe::{CLIENT_OF_HOSTS, keys, run_daemon, status, write};
use super::ends::HANDSHAKE;
use super::settings::sold;

/// The UDP port at which a PEP takes keys of headers.
pub(super) const KEYS_PORT: u16 = 4502;

/// Time from one look at a PEP to the next.
const LOOK: Duration = Duration::from_millis(50);

/// Place of a PEP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PepPlace {
    Terminal,
    Gateway,
}

impl PepPlace {
    pub(super) const BOTH: [Self; 2] = [Self::Terminal, Self::Gateway];

    /// Name of its files.
    fn name(self) -> &'static str {
        match self {
            Self::Terminal => "pep-terminal",
            Self::Gateway => "pep-gateway",
        }
    }

    fn other(self) -> Self {
        match self {
            Self::Terminal => Self::Gateway,
            Self::Gateway => Self::Terminal,
        }
    }

    fn namespace(self, topology: &Topology) -> &NetNs {
        match self {
            Self::Terminal => topology.terminal(),
            Self::Gateway => topology.gateway(),
        }
    }

    /// Interface towards its host.
    fn lan(self) -> &'static str {
        match self {
            Self::Terminal => "lan0",
            Self::Gateway => "wan0",
        }
    }

    /// Address at which the user finds it.
    fn address(self) -> Ipv4Addr {
        match self {
            Self::Terminal => TERMINAL_LAN,
            Self::Gateway => GATEWAY_SAT,
        }
    }

    /// Public key of the PEP.
    ///
    /// # Errors
    /// The key cannot be made.
    pub(super) fn public_key(self, bentpipe: &Path, topology: &Topology) -> Result<String> {
        keys(bentpipe, topology.directory(), self.name())
    }

    /// Table of the client of LES that hands it keys.
    pub(super) fn table_of_client(self, public_key: &str) -> String {
        let (name, address) = (self.name(), self.address());
        format!(
            "[[les.pep]]\nname = \"{name}\"\naddress = \"{address}:{KEYS_PORT}\"\npublic_key = \"{public_key}\"\n\n"
        )
    }

    /// Status that the PEP tells of itself.
    fn status(self, bentpipe: &Path, topology: &Topology) -> Result<Value> {
        let socket = topology.directory().join(format!("{}.sock", self.name()));
        status(bentpipe, &socket)
    }

    /// Waits until the PEP's status is as `wanted`; `lacks` says what it lacks else.
    ///
    /// # Errors
    /// That does not come in time.
    fn await_status(
        self,
        bentpipe: &Path,
        topology: &Topology,
        wanted: impl Fn(&Value) -> bool,
        lacks: &str,
    ) -> Result<()> {
        let end = Instant::now() + HANDSHAKE;
        while !wanted(&self.status(bentpipe, topology)?) {
            ensure!(Instant::now() < end, "{} {lacks}", self.name());
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// File of the PEP. `les`: it relays packets of LES, of the hosts' client; else all TCP in clear.
    fn file(self, bentpipe: &Path, topology: &Topology, les: bool) -> Result<String> {
        let (name, lan) = (self.name(), self.lan());
        let listen = format!("{GATEWAY_SAT}:{SERVER_PORT}");
        let (own, peer) = match self {
            Self::Gateway => (format!("listen = \"{listen}\"\n"), String::new()),
            Self::Terminal => (String::new(), format!("address = \"{listen}\"\n")),
        };
        let public_key = self.other().public_key(bentpipe, topology)?;
        let relayed = match les {
            false => "[clear]\n".to_owned(),
            true => {
                let client = keys(bentpipe, topology.directory(), CLIENT_OF_HOSTS)?;
                format!("[les]\nclients = [\"{client}\"]\nlisten = \":{KEYS_PORT}\"\n")
            }
        };
        let rates = sold(topology.nominal_rates());
        Ok(format!(
            "private_key_file = \"{name}.key\"\nstatus_socket = \"{name}.sock\"\nstate_dir = \"{name}-state\"\n\
             lan = [\"{lan}\"]\nwan = [\"{LINK_DEVICE}\"]\n{own}\n\
             [peer]\n{peer}public_key = \"{public_key}\"\n\n{relayed}\n[link]\nprofile = \"geo\"\n{rates}"
        ))
    }
}

/// Starts both PEPs; the tunnel between them is up when this returns. `les`: they relay packets of LES; else all TCP in clear.
///
/// # Errors
/// One did not come up; the text has what it wrote.
pub(super) fn start(bentpipe: &Path, topology: &Topology, les: bool) -> Result<Vec<Process>> {
    for pep in PepPlace::BOTH {
        pep.public_key(bentpipe, topology)?;
    }
    for pep in PepPlace::BOTH {
        write(topology, pep.name(), &pep.file(bentpipe, topology, les)?)?;
    }
    let run = |pep: PepPlace| {
        run_daemon(
            bentpipe,
            topology,
            pep.namespace(topology),
            "pep",
            pep.name(),
        )
    };
    let (gateway, terminal) = (run(PepPlace::Gateway)?, run(PepPlace::Terminal)?);
    // What begins without the tunnel passes the PEPs untouched.
    for pep in PepPlace::BOTH {
        let ready = |status: &Value| status["tunnel"]["state"] == "ready";
        pep.await_status(bentpipe, topology, ready, "has no tunnel to the other")?;
    }
    Ok(vec![terminal, gateway])
}

/// Waits until both PEPs have the key of the hosts' headers: what begins before passes them untouched.
///
/// # Errors
/// One has none in time.
pub(super) fn await_keys(bentpipe: &Path, topology: &Topology) -> Result<()> {
    for pep in PepPlace::BOTH {
        let keys = |status: &Value| status["keys"]["associations"].as_u64() > Some(0);
        pep.await_status(bentpipe, topology, keys, "got no key of headers")?;
    }
    Ok(())
}

/// Checks that the PEPs have relayed flows; what they let pass was measured without them.
///
/// # Errors
/// A PEP has relayed none, or does not answer.
pub(super) fn check_relayed(bentpipe: &Path, topology: &Topology) -> Result<()> {
    for pep in PepPlace::BOTH {
        let status = pep.status(bentpipe, topology)?;
        let relayed = status["segments"]["relayed_total"].as_u64();
        ensure!(relayed > Some(0), "{} has relayed no flow", pep.name());
    }
    Ok(())
}
