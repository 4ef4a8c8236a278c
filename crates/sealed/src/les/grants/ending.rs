//! How K2 goes: a pair whose last K2 is about to is told while its ends can still be written to.

use std::time::Instant;

use super::super::sa::LAST_WORDS;
use super::super::{Spi, SpiPair, Toward};
use super::{
    ASSOCIATIONS_OF_CLIENT, ClientKey, Grants, MOST_OF_CLIENT, Pair, PepAssociation, Scope,
};

impl Grants {
    /// Makes room for one more association of this client.
    pub(super) fn make_room(&mut self, now: Instant, client: ClientKey) {
        let all = self.of_client(client);
        if let Some(oldest) = all.first().filter(|_| all.len() >= MOST_OF_CLIENT) {
            self.retire(now, *oldest);
            self.remove(*oldest);
        }
        let stays = |id: &&u64| self.held.get(id).is_some_and(|held| !held.ending);
        let own: Vec<_> = all.iter().filter(stays).collect();
        if let Some(oldest) = own.first().filter(|_| own.len() >= ASSOCIATIONS_OF_CLIENT) {
            self.retire(now, **oldest);
        }
    }

    /// Erases K2 of an association after [`LAST_WORDS`], or before if its time is over then.
    pub(super) fn retire(&mut self, now: Instant, id: u64) {
        let Some(held) = self.held.get_mut(&id).filter(|held| !held.ending) else {
            return;
        };
        held.ending = true;
        self.due.remove(&(held.until, id));
        held.until = held.until.min(now + LAST_WORDS);
        self.due.insert((held.until, id));
        let (pair, scope) = (held.pair, held.scope);
        if !self.stays(&scope) {
            self.ended.insert(pair);
        }
    }

    /// The client has ended an association: erases its K2 after [`LAST_WORDS`].
    pub fn end(&mut self, now: Instant, client: ClientKey, spis: SpiPair) {
        if let Some(id) = self.find(client, spis) {
            self.retire(now, id);
        }
    }

    /// The client has closed the connection, or is not to be served any more: erases all K2 of it
    /// after [`LAST_WORDS`].
    pub fn forget(&mut self, now: Instant, client: ClientKey) {
        for id in self.of_client(client) {
            self.retire(now, id);
        }
    }

    /// The next pair whose last K2 goes within [`LAST_WORDS`]: its flows are to be reset now, while
    /// their ends can be written to. To be asked after each word of a client, and every second.
    pub fn poll_ending(&mut self, now: Instant) -> Option<Pair> {
        self.handle_timeout(now);
        let soon = now + LAST_WORDS;
        let due = self.due.iter().take_while(|(until, _)| *until <= soon);
        for id in due.map(|(_, id)| *id).collect::<Vec<_>>() {
            self.retire(now, id);
        }
        loop {
            let pair = self.ended.pop_first()?;
            if !self.stays(&pair.scope()) {
                return Some(pair);
            }
        }
    }

    fn all_of(&self, scope: &Scope) -> impl Iterator<Item = &PepAssociation> {
        let ids = self.of_scope.get(scope).into_iter().flatten();
        ids.filter_map(|id| self.held.get(id))
    }

    /// Says whether K2 of the pair is here, but not of its association with this SPI.
    #[must_use]
    pub fn lacks(&self, scope: &Scope, toward: Toward, spi: Spi) -> bool {
        let is_it = |held: &PepAssociation| held.spis.of(toward) == spi;
        self.holds(scope) && !self.all_of(scope).any(is_it)
    }

    /// Says whether K2 of the pair is here, if only for last words.
    #[must_use]
    pub fn holds(&self, scope: &Scope) -> bool {
        self.of_scope.contains_key(scope)
    }

    /// Says whether K2 of the pair is here, and not about to go: flows may be relayed.
    #[must_use]
    pub fn stays(&self, scope: &Scope) -> bool {
        self.all_of(scope).any(|held| !held.ending)
    }

    /// Erases K2 whose time is over.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some((_, id)) = self.due.first().copied().filter(|(until, _)| *until <= now) {
            self.retire(now, id);
            self.remove(id);
        }
    }
}
