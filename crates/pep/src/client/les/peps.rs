//! PEPs of a client's LES: a standing connection to each, over which it hands K2 (Q4 of `PROTOCOL.md` §20.1).

mod lines;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use bentpipe_sealed::les::sa::{Grant, PepKey, Word};
use bentpipe_sealed::les::{Spi, SpiPair};
use bentpipe_units::Seed;
use quinn_proto::crypto::ClientConfig as ClientCrypto;
use zeroize::Zeroizing;

use super::super::memory::ClientMemory;
use super::standing::Standing;
use crate::config::LesPep;
use crate::keys::PrivateKey;
use crate::les_keys::KeyLines;
use crate::net::lookup::Lookups;
use crate::process::{self, RunError};
use crate::status;
use bentpipe_tunnel::engine::ConnectionId;
use bentpipe_tunnel::engine::identity;
use bentpipe_tunnel::lines::{LineCode, Lines};

/// PEPs of the configuration, and the lines to them.
pub(super) struct Peps {
    /// Key of this client, for PEPs that a reload brings.
    key: PrivateKey,
    allow_classical: bool,
    lines: KeyLines,
    /// The socket takes IPv4 addresses in their mapped form.
    dual_stack: bool,
    list: RefCell<Vec<Listed>>,
    /// PEPs that have had K2, in this run or an earlier one.
    introduced: RefCell<ClientMemory<bool>>,
    lookups: Lookups,
    /// False from [`Self::close`] to [`Self::reopen`]: no line is tried.
    open: Cell<bool>,
}

/// PEP of the configuration.
struct Listed {
    pep: LesPep,
    crypto: Arc<dyn ClientCrypto>,
    standing: Standing,
    line: Option<ConnectionId>,
    /// Associations whose K2 it has, and its number in the newest.
    granted: Vec<SpiPair>,
    writer: Option<u8>,
}

impl Listed {
    fn key(&self) -> PepKey {
        PepKey(self.pep.public_key.to_bytes())
    }

    /// The line is gone, and with it what is known of the PEP's keys.
    fn lose(&mut self) {
        self.line = None;
        self.granted.clear();
        self.writer = None;
    }
}

impl Peps {
    /// PEPs of `list`, to which a client with this `key` connects from `socket`. Needs the runtime.
    ///
    /// # Errors
    /// The key or the socket cannot be used.
    pub(super) fn new(
        list: &[LesPep],
        (key, allow_classical): (&PrivateKey, bool),
        socket: std::net::UdpSocket,
        (state_dir, lookups): (&Path, Lookups),
    ) -> Result<Self, RunError> {
        let seed = Seed::new(process::random_u64());
        let dual_stack = socket.local_addr()?.is_ipv6();
        let memory = ClientMemory::load(state_dir, "peps.json", "PEPs that have had keys");
        let peps = Self {
            key: PrivateKey::from_seed(Zeroizing::new(*key.seed())),
            allow_classical,
            lines: KeyLines::new(socket, Lines::new(identity::reset_key(key), None, seed))?,
            dual_stack,
            list: RefCell::default(),
            introduced: RefCell::new(memory),
            lookups,
            open: Cell::new(true),
        };
        for pep in list {
            peps.add(pep.clone())?;
        }
        Ok(peps)
    }

    fn add(&self, pep: LesPep) -> Result<(), RunError> {
        let crypto = identity::les_client_crypto(&self.key, pep.public_key, self.allow_classical);
        self.list.borrow_mut().push(Listed {
            crypto: crypto.map_err(RunError::key)?,
            standing: Standing::new(process::now()),
            line: None,
            granted: Vec::new(),
            writer: None,
            pep,
        });
        Ok(())
    }

    /// Keys of all PEPs.
    pub(super) fn keys(&self) -> Vec<PepKey> {
        self.list.borrow().iter().map(Listed::key).collect()
    }

    /// Keys of the PEPs of these `names`, the texts of their public keys, as far as they are listed.
    pub(super) fn among(&self, names: &[String]) -> BTreeSet<PepKey> {
        let list = self.list.borrow();
        let named = |listed: &&Listed| names.contains(&listed.pep.public_key.to_string());
        list.iter().filter(named).map(Listed::key).collect()
    }

    /// Texts of the public keys of those of `keys` that are listed.
    pub(super) fn names(&self, keys: &BTreeSet<PepKey>) -> Vec<String> {
        let list = self.list.borrow();
        let own = list.iter().filter(|listed| keys.contains(&listed.key()));
        own.map(|listed| listed.pep.public_key.to_string())
            .collect()
    }

    /// PEPs that have had K2, in this run or an earlier one.
    pub(super) fn introduced(&self) -> BTreeSet<PepKey> {
        let (list, known) = (self.list.borrow(), self.introduced.borrow());
        let had = |listed: &&Listed| known.get(&listed.pep.public_key.to_string()).is_some();
        list.iter().filter(had).map(Listed::key).collect()
    }

    /// PEPs that are not in `fresh`, and those of `fresh` that are new; others have their names from there.
    pub(super) fn changes(&self, fresh: &[LesPep]) -> (Vec<LesPep>, Vec<LesPep>) {
        let mut list = self.list.borrow_mut();
        for pep in fresh {
            let own = list.iter_mut().find(|own| is_same(&own.pep, pep));
            own.into_iter()
                .for_each(|own| own.pep.name.clone_from(&pep.name));
        }
        let before: Vec<_> = list.iter().map(|listed| listed.pep.clone()).collect();
        let missing = |pep: &&LesPep, all: &[LesPep]| !all.iter().any(|own| is_same(own, pep));
        let gone = before.iter().filter(|pep| missing(pep, fresh));
        let new = fresh.iter().filter(|pep| missing(pep, &before));
        (gone.cloned().collect(), new.cloned().collect())
    }

    /// Takes PEPs of a reload in.
    pub(super) fn admit(&self, new: Vec<LesPep>) -> Result<(), RunError> {
        for pep in new {
            self.add(pep)?;
        }
        self.tick();
        Ok(())
    }

    /// Takes a PEP's rights: the line to it is closed, and it erases K2.
    pub(super) fn revoke(&self, key: PepKey) {
        let mut list = self.list.borrow_mut();
        let Some(at) = list.iter().position(|listed| listed.key() == key) else {
            return;
        };
        let gone = list.remove(at);
        if let Some(line) = gone.line {
            self.lines.with(|lines, now| {
                lines.close(
                    now,
                    line,
                    LineCode::Revoked,
                    "the client has taken it from its list",
                );
            });
        }
        tracing::warn!("PEP {} has no rights any more", gone.pep.name);
    }

    /// Hands K2 to a PEP, if there is a line to it.
    pub(super) fn grant(&self, key: PepKey, grant: Box<Grant>) {
        let mut list = self.list.borrow_mut();
        let listed = list.iter_mut().find(|listed| listed.key() == key);
        let up = listed.filter(|listed| listed.standing.since().is_some());
        let Some((listed, line)) = up.and_then(|listed| {
            let line = listed.line?;
            Some((listed, line))
        }) else {
            return;
        };
        let (spis, writer) = (grant.spis, grant.writer.get());
        listed.granted.retain(|known| *known != spis);
        listed.granted.push(spis);
        listed.writer = Some(writer);
        // Before it can have the key: a crash in between must not make it a stranger.
        let name = listed.pep.public_key.to_string();
        self.introduced.borrow_mut().put(&name, true);
        let word = Word::Grant(grant).encode();
        self.lines.with(|lines, now| lines.send(now, line, &word));
        tracing::debug!(
            "PEP {} has the keys of headers of association {}, as writer {writer}",
            listed.pep.name,
            spis.to_b
        );
    }

    /// Tells PEPs of associations that are over: all but those that are received by one of `live`.
    pub(super) fn end_all_but(&self, live: &BTreeSet<Spi>) {
        self.end(|_, spis| !live.contains(&spis.to_a));
    }

    /// Ends all associations of PEPs that have no key of the `newest`, by which the ends go on.
    pub(super) fn end_without(&self, newest: Spi) {
        self.end(|granted, _| !granted.iter().any(|spis| spis.to_a == newest));
    }

    /// Tells PEPs of associations that are `over`, which is asked with all that a PEP has.
    fn end(&self, over: impl Fn(&[SpiPair], &SpiPair) -> bool) {
        for listed in self.list.borrow_mut().iter_mut() {
            let granted = listed.granted.clone();
            let over = |spis: &SpiPair| over(&granted, spis);
            let ended: Vec<_> = listed.granted.iter().copied().filter(over).collect();
            let Some(line) = listed.line.filter(|_| !ended.is_empty()) else {
                continue;
            };
            listed.granted.retain(|spis| !over(spis));
            if listed.granted.is_empty() {
                listed.writer = None;
            }
            for spis in ended {
                let word = Word::Ended(spis).encode();
                self.lines.with(|lines, now| lines.send(now, line, &word));
            }
        }
    }

    /// Closes all lines: the client stops, or carries nothing any more, and its PEPs erase what they have.
    pub(super) fn close(&self) {
        self.open.set(false);
        for listed in self.list.borrow_mut().iter_mut() {
            if let Some(line) = listed.line {
                self.lines
                    .with(|lines, now| lines.close(now, line, LineCode::Stopped, ""));
            }
            listed.lose();
            listed.standing = Standing::new(process::now());
        }
        self.lines.finish();
    }

    /// Has lines tried again: a client that had stopped at the cap of `[metering]` carries again.
    pub(super) fn reopen(&self) {
        self.open.set(true);
    }

    /// Part of `status`; `refused` says whether the server does not let a PEP have keys.
    pub(super) fn report(&self, refused: impl Fn(PepKey) -> bool) -> Vec<status::LesPepStatus> {
        let now = process::now();
        let report = |listed: &Listed| {
            let since = listed.standing.since();
            let refused = refused(listed.key())
                .then(|| "the server does not accept it: add its key to `peps` there".to_owned());
            let why = || listed.standing.reason().map(str::to_owned);
            status::LesPepStatus {
                name: listed.pep.name.clone(),
                address: listed.pep.address.to_string(),
                connected: since.is_some(),
                reason: refused.or_else(why),
                writer: listed.writer,
                connected_s: since.map(|since| now.saturating_duration_since(since).as_secs()),
            }
        };
        self.list.borrow().iter().map(report).collect()
    }
}

/// Says whether both are one PEP, whatever it is called.
fn is_same(one: &LesPep, other: &LesPep) -> bool {
    one.public_key == other.public_key && one.address == other.address
}

#[cfg(test)]
mod tests;
