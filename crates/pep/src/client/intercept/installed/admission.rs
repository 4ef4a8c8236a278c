//! Connections that wait at gates: which gates there are, and whom they let through.

use std::io;
use std::net::SocketAddr;

use bentpipe_sys::{nft, nftables};

use super::super::Interception;
use super::super::gate::{self, ADMITTED_FOR};
use super::Installed;
use crate::firewall::CLIENT_TABLE;

impl Installed {
    /// Lets a connection through that a [`Gate`](super::super::Gate) holds: the next of its opening segments passes.
    ///
    /// # Errors
    /// As [`Self::refuse`].
    pub fn admit(&self, source: SocketAddr, destination: SocketAddr) -> io::Result<()> {
        let set = if destination.is_ipv4() {
            "admitted4"
        } else {
            "admitted6"
        };
        let [from, to] = [source, destination].map(|end| format!("{} . {}", end.ip(), end.port()));
        self.table
            .add_element(set, &format!("{from} . {to}"), Some(ADMITTED_FOR))
    }

    /// Puts the gates of `changed` in force, if it differs in them alone: what is counted, refused or admitted goes on. False if there
    /// is more to do, because another program has changed the table, too.
    pub(super) fn change_gates(&mut self, changed: &Interception) -> io::Result<bool> {
        let current = Interception {
            gates: changed.gates.clone(),
            ..self.current.clone()
        };
        let differs = changed.gates != self.current.gates && *changed == current;
        if !differs || nftables::fingerprint(CLIENT_TABLE)? != self.print {
            return Ok(false);
        }
        nft::apply(&gate::exchange(CLIENT_TABLE, &changed.gates))?;
        self.current = current;
        self.remember()?;
        Ok(true)
    }
}
