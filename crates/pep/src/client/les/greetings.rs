//! Words of servers the last time, which packets that leave before the next greeting take for granted: a round trip is saved.
//!
//! Packets that leave so early need a source that the server will assign, a server that has LES, and PEPs that it accepts. All of that is in
//! its greeting and in Q2.

use std::cell::{Cell, RefCell};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::super::memory::ClientMemory;
use crate::config::ClientConfig;

/// Words of one server the last time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct LastWords {
    /// Addresses that it assigned to this client; none if it had no LES.
    assigned: Vec<IpNet>,
    /// Keys of PEPs that it accepted in the last association.
    peps: Vec<String>,
}

/// Words of each server the last time, by its number. A server that is only tried has a tunnel as well, so each has its own.
pub(super) struct Greetings {
    /// Public keys of the servers, by their numbers.
    servers: Vec<String>,
    last: RefCell<ClientMemory<LastWords>>,
    /// Packets have left before a greeting, and none has come since.
    ungreeted: Cell<bool>,
}

impl Greetings {
    /// Words that earlier runs have left in the state directory.
    pub(super) fn load(config: &ClientConfig) -> Self {
        let servers = config.servers.iter();
        let memory = ClientMemory::load(&config.state_dir, "greetings.json", "what servers said");
        Self {
            servers: servers
                .map(|server| server.public_key.to_string())
                .collect(),
            last: RefCell::new(memory),
            ungreeted: Cell::new(false),
        }
    }

    fn of(&self, server: usize) -> LastWords {
        let last = self.last.borrow();
        last.get(&self.servers[server]).unwrap_or_default()
    }

    fn put(&self, server: usize, words: LastWords) {
        self.last.borrow_mut().put(&self.servers[server], words);
    }

    /// Addresses of the first server that is known to have LES; empty: none is.
    pub(super) fn assigned(&self) -> Vec<IpNet> {
        let mut all = (0..self.servers.len()).map(|server| self.of(server).assigned);
        all.find(|assigned| !assigned.is_empty())
            .unwrap_or_default()
    }

    /// Keys of PEPs that a server has accepted.
    pub(super) fn accepted(&self, server: usize) -> Vec<String> {
        self.of(server).peps
    }

    /// A server has accepted these PEPs.
    pub(super) fn on_accepted(&self, server: usize, peps: Vec<String>) {
        let assigned = self.of(server).assigned;
        self.put(server, LastWords { assigned, peps });
    }

    /// A server has greeted, and assigned these addresses; none if it has no LES.
    pub(super) fn on_greeting(&self, server: usize, assigned: Vec<IpNet>) {
        self.ungreeted.set(false);
        let peps = self.of(server).peps;
        self.put(server, LastWords { assigned, peps });
    }

    /// True if packets from the addresses `own` may leave before the greeting of this server. Once: one that refuses this client
    /// does so after the handshake.
    pub(super) fn permit(&self, server: usize, own: &[IpNet]) -> bool {
        !self.ungreeted.get() && !own.is_empty() && self.of(server).assigned == own
    }

    /// Packets leave before the greeting.
    pub(super) fn on_ahead(&self) {
        self.ungreeted.set(true);
    }
}
