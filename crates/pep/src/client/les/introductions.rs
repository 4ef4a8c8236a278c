//! PEPs of a client's LES that come and go: when they connect, when the configuration is read again, when the client stops.

use std::collections::BTreeSet;
use std::io;

use bentpipe_sealed::les::sa::PepKey;

use super::{Layering, LesRoad};
use crate::config::LesPep;
use crate::process::{self, RunError};

impl Layering {
    /// The client stops: its PEPs erase what they have.
    pub(in crate::client) fn close(&self) {
        self.on_lost();
        self.peps.close();
    }

    /// Keeps the connections to PEPs; never ends but with an error.
    pub(in crate::client) async fn keep_peps(&self) -> io::Result<()> {
        self.peps.tick();
        self.peps.look_up();
        self.peps.keep(|pep| self.introduce(pep)).await
    }

    /// A PEP has connected: it has K2 of the associations that stand.
    fn introduce(&self, pep: PepKey) {
        if let LesRoad::Agreed(agreed) = &mut *self.road.borrow_mut() {
            agreed.initiator.introduce(pep);
            self.advance(agreed);
        }
    }

    /// Takes over the PEPs of a configuration that was read again; says what has changed.
    ///
    /// # Errors
    /// The key that PEPs know this client by cannot be used.
    pub(in crate::client) fn reload(&self, fresh: &[LesPep]) -> Result<Option<String>, RunError> {
        let (gone, new) = self.peps.changes(fresh);
        if gone.is_empty() && new.is_empty() {
            return Ok(None);
        }
        let said = format!("+{} -{} PEPs", new.len(), gone.len());
        let key = |pep: &LesPep| PepKey(pep.public_key.to_bytes());
        if !gone.is_empty() {
            // Others have relayed together with it, and it may be dead: they reset that, and get the keys of the next association.
            self.peps.end_all_but(&BTreeSet::new());
        }
        let mut road = self.road.borrow_mut();
        if let LesRoad::Agreed(agreed) = &mut *road {
            // First: nothing more is sealed under keys that one has who is to go.
            gone.iter()
                .for_each(|pep| agreed.initiator.revoke(process::now(), key(pep)));
        }
        gone.iter().for_each(|pep| self.peps.revoke(key(pep)));
        let keys: Vec<_> = new.iter().map(key).collect();
        self.peps.admit(new)?;
        if let LesRoad::Agreed(agreed) = &mut *road {
            keys.into_iter().for_each(|pep| agreed.initiator.admit(pep));
            self.advance(agreed);
        }
        Ok(Some(said))
    }
}
