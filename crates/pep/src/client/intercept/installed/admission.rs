//! Connections that wait at gates: which gates there are, and whom they let through.

use std::io;
use std::net::SocketAddr;

use bentpipe_sys::{nft, nftables};

use super::super::draining;
use super::super::gate::{self, ADMITTED_FOR};
use super::super::{Carrying, Interception};
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

    /// Has hosts wait with what they begin for the client that comes next, until the interception is removed. Of this machine's own, new
    /// connections and lookups wait.
    ///
    /// # Errors
    /// As [`Self::update`].
    pub fn drain(&mut self) -> io::Result<()> {
        if !self.current.carries() {
            // What hosts begin goes in clear, as it did before.
            return Ok(());
        }
        let draining = Interception {
            carrying: Carrying::Draining,
            ..self.current.clone()
        };
        self.update(&draining)
    }

    /// Puts the gates of `changed` in force, and that the client drains, if it differs in these alone: what is counted, refused or
    /// admitted goes on. False if there is more to do, because another program has changed the table, too.
    pub(super) fn change_gates(&mut self, changed: &Interception) -> io::Result<bool> {
        let current = Interception {
            gates: changed.gates.clone(),
            carrying: match changed.carrying {
                Carrying::Draining if self.current.carries() => Carrying::Draining,
                _ => self.current.carrying,
            },
            ..self.current.clone()
        };
        let differs = *changed != self.current && *changed == current;
        if !differs || nftables::fingerprint(CLIENT_TABLE)? != self.print {
            return Ok(false);
        }
        let gates = gate::exchange(CLIENT_TABLE, &changed.gates);
        let draining = draining::exchange(CLIENT_TABLE, changed.carrying);
        nft::apply(&format!("{gates}{draining}"))?;
        self.current = current;
        self.remember()?;
        Ok(true)
    }
}
