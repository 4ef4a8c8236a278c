//! Packets that leave a round trip before a server's greeting: with the last message of the handshake, behind Q1.
//!
//! Such packets need a source that the server will assign, a server that has LES, and PEPs that it accepts. All of that is in
//! its greeting and in Q2; what it said the last time is taken for granted until then.

use std::collections::BTreeSet;
use std::path::Path;

use bentpipe_sealed::les::sa::{Handshake, PepKey};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::super::connections::Attempt;
use super::super::memory::ClientMemory;
use super::road::{LesAgreement, LesRoad};
use super::{Layering, LesAccord};
use bentpipe_tunnel::engine::Connection;

/// Words of one server the last time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LastWords {
    /// Addresses that it assigned to this client; none if it had no LES.
    assigned: Vec<IpNet>,
    /// Keys of PEPs that it accepted in the last association.
    peps: Vec<String>,
}

/// Last words of all servers, by their public keys.
pub(super) type LastWordsMemory = ClientMemory<LastWords>;

/// Reads what earlier runs have left in the state directory.
pub(super) fn load(state_dir: &Path) -> LastWordsMemory {
    ClientMemory::load(state_dir, "greetings.json", "what servers assigned")
}

impl Layering {
    fn last_words(&self, server: usize) -> LastWords {
        let last = self.last.borrow();
        last.get(&self.servers[server]).unwrap_or_default()
    }

    /// Addresses that the device begins with: those of the first server that is known to have LES; none where nothing leaves
    /// before the greeting.
    pub(in crate::client) fn assigned_before(&self) -> Vec<IpNet> {
        if self.config.handshake != Handshake::Short {
            return Vec::new();
        }
        let all = (0..self.servers.len()).map(|server| self.last_words(server).assigned);
        all.into_iter()
            .find(|it| !it.is_empty())
            .unwrap_or_default()
    }

    /// PEPs that a server has accepted, in this run or an earlier one.
    pub(super) fn accepted_by(&self, server: usize) -> BTreeSet<PepKey> {
        self.peps.among(&self.last_words(server).peps)
    }

    /// Remembers the PEPs that a server has accepted.
    pub(super) fn remember_accepted(&self, server: usize, accepted: &BTreeSet<PepKey>) {
        let peps = self.peps.names(accepted);
        let last = LastWords {
            peps,
            ..self.last_words(server)
        };
        self.last.borrow_mut().put(&self.servers[server], last);
    }

    /// Remembers what the server of a tunnel has assigned, if it has LES.
    pub(super) fn remember_greeting(&self, attempt: &Attempt, accord: LesAccord) {
        self.ungreeted.set(false);
        let assigned = self.tunnels.look_at(attempt.id, |connection| {
            let hello = connection.tunnel.agreement().remote()?;
            Some(hello.assigned.iter().copied().map(IpNet::from).collect())
        });
        let assigned = assigned.filter(|_| accord == LesAccord::Agreed);
        let last = LastWords {
            assigned: assigned.unwrap_or_default(),
            ..self.last_words(attempt.server)
        };
        self.last
            .borrow_mut()
            .put(&self.servers[attempt.server], last);
    }

    /// True if packets may leave by `agreed` before the server's greeting, from the device's addresses `own`.
    pub(super) fn goes_ahead(&self, agreed: &LesAgreement, own: &[IpNet]) -> bool {
        let plan = agreed.initiator.plan();
        // A connection whose beginning a PEP cannot read goes past it to its end.
        let legible = plan.peps.iter().all(|pep| plan.accepted.contains(pep));
        let known = !own.is_empty() && self.last_words(agreed.number).assigned == own;
        let over_udp = |connection: &Connection| (!connection.is_on_reliable_wire()).then_some(());
        plan.handshake == Handshake::Short
            // Once: a server that refuses this client does so after the handshake.
            && !self.ungreeted.get()
            && legible
            && known
            && matches!(&*self.road.borrow(), LesRoad::NoTunnel)
            && self.tunnels.look_at(agreed.tunnel, over_udp).is_some()
    }
}
