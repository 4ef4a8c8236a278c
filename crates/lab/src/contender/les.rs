//! LES between the hosts, and operator's PEPs at terminal and gateway to which they hand the key of the headers, if there are some.

use std::fs::{self, Permissions};
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::Result;
use bentpipe_emulator::topology::Topology;

use super::ends::WEB_NETWORKS;
use super::segments::PepPlace;

/// The UDP port of TCP that is sealed packet by packet.
pub(super) const LES_PORT: u16 = 4501;

/// File of the key that both have beforehand.
const PSK_FILE: &str = "les.psk";

/// Way in which hosts seal TCP packet by packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layers {
    pub(super) flow: LesFlow,
    /// True if PEPs get the key of the headers.
    pub(super) peps: bool,
}

/// Messages that LES sets up its keys with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LesFlow {
    /// bentpipe's own: data goes with the first message.
    Short,
    /// The paper's: data goes after the third.
    Paper,
    /// Those of a key that both have beforehand.
    Psk,
}

impl LesFlow {
    /// Value of the client's key `flow`.
    fn name(self) -> &'static str {
        match self {
            Self::Short => "short",
            Self::Paper => "paper",
            Self::Psk => "psk",
        }
    }
}

impl Layers {
    /// Tables of the server at `address`, and of its client.
    ///
    /// # Errors
    /// A PEP's key cannot be made.
    pub(super) fn tables(
        self,
        bentpipe: &Path,
        topology: &Topology,
        address: Ipv4Addr,
    ) -> Result<[String; 2]> {
        let ([ipv4, ipv6], flow) = (WEB_NETWORKS, self.flow.name());
        let mut laboratory = String::new();
        let mut server = format!("\n[les]\nlisten = \"{address}:{LES_PORT}\"\n");
        let mut client = format!(
            "[les]\nport = {LES_PORT}\nflow = \"{flow}\"\ndestinations = [\"{ipv4}\", \"{ipv6}\"]\n\n"
        );
        if self.flow == LesFlow::Psk {
            // What both had beforehand is a secret of this run's alone.
            let path = topology.directory().join(PSK_FILE);
            let name = topology.directory().display().to_string();
            fs::write(&path, format!("{name:0>64}"))?;
            fs::set_permissions(&path, Permissions::from_mode(0o600))?;
            let table = format!("\n[les.laboratory]\npsk_file = \"{PSK_FILE}\"\n\n");
            client += &table;
            laboratory = table;
        }
        if self.peps {
            let keys = PepPlace::BOTH.map(|pep| pep.public_key(bentpipe, topology));
            let [terminal, gateway] = keys;
            let keys = [terminal?, gateway?];
            server += &format!("peps = [\"{}\"]\n", keys.join("\", \""));
            for (pep, key) in PepPlace::BOTH.into_iter().zip(keys) {
                client += &pep.table_of_client(&key);
            }
        }
        Ok([server + &laboratory, client])
    }
}
