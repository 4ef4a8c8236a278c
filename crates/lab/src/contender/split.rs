//! TCP split without encryption, by `bentpipe` with `transport = "plain"`: at both ends of the link, at one of them, inside a
//! VPN or around one.
//!
//! ```text
//!  Distributed   user ── client ══ link ══ server ── web
//!  Terminal      user ── client ══ link ══════════── web          Gateway   user ──══ link ══ client ── web
//!  Inside (B)    user ── client ─ VPN ══ link ══ VPN ─ server ── web
//!  Around (A)    user ── VPN ─ client ══ link ══ VPN ── web       of a VPN that is TCP itself
//! ```
//!
//! How much it has carried it says itself (`bentpipe status`): of an integrated one nothing else shows.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

use super::bentpipe::{carried, run_daemon, status, write};
use bentpipe_emulator::topology::{Congestion, GATEWAY_SAT, GATEWAY_WAN, Process, Topology};

/// The TCP port of the server.
pub(super) const PORT: u16 = 4433;
const SOCKET: &str = "split-client.sock";

/// Place at which it splits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Distributed,
    Terminal,
    Gateway,
    Inside,
    Around,
}

/// The splitters of a run; dropped in this order.
#[derive(Debug)]
pub struct Splitters {
    _client: Process,
    _server: Option<Process>,
    bentpipe: PathBuf,
    socket: PathBuf,
}

/// Starts them; they take connections in when this returns. Inside a VPN that must be up, and around one it must not.
pub(super) fn start(
    bentpipe: &Path,
    topology: &Topology,
    place: Place,
    tcp: Congestion,
) -> Result<Splitters> {
    let common = |socket: &str| {
        format!(
            "transport = \"plain\"\ncontroller = \"{}\"\nstatus_socket = \"{socket}\"\n",
            tcp.kernel()
        )
    };
    // Inside a VPN the way to the gateway's far side leads through it; that to its satellite address does not.
    let listen = match place {
        Place::Distributed => Some(GATEWAY_SAT),
        Place::Inside => Some(GATEWAY_WAN),
        Place::Terminal | Place::Gateway | Place::Around => None,
    };
    let run = |role, text: &str, namespace| {
        let name = format!("split-{role}");
        write(topology, &name, text)?;
        run_daemon(bentpipe, topology, namespace, role, &name)
    };
    let server = listen.map(|address| {
        let text = format!(
            "{}listen = \"{address}:{PORT}\"\n[[client]]\nname = \"terminal-1\"\nsource = \"10.0.0.0/8\"\n\
             allow = [\"10.30.0.0/24\", \"fd00:30::/64\"]\n",
            common("split-server.sock")
        );
        run("server", &text, topology.gateway())
    });
    let server = server.transpose()?;
    let towards = listen.map_or(String::new(), |address| {
        format!("[server]\naddress = \"{address}:{PORT}\"\n")
    });
    let (namespace, taken) = match place {
        Place::Gateway => (topology.gateway(), "interfaces = [\"sat0\"]"),
        Place::Around => (topology.terminal(), "local = true"),
        _ => (topology.terminal(), "interfaces = [\"lan0\"]"),
    };
    // Voice and pings pass: whoever only splits TCP leaves them alone.
    let text = format!(
        "{}{towards}[intercept]\n{taken}\nother = \"direct\"\n",
        common(SOCKET)
    );
    Ok(Splitters {
        _client: run("client", &text, namespace)?,
        _server: server,
        bentpipe: bentpipe.to_owned(),
        socket: topology.directory().join(SOCKET),
    })
}

impl Splitters {
    /// Bytes of content that it has carried, both ways.
    ///
    /// # Errors
    /// It does not answer.
    pub fn carried(&self) -> Result<u64> {
        let status = status(&self.bentpipe, &self.socket)?;
        ensure!(status["transport"] == "plain", "it is no splitter");
        carried(&status)
    }
}
