//! How many of the server's descriptors may be held for each client: a part of those that are free, so that some always are. Flows hold
//! them, connections that come in at published ports, the sockets of these ports, and those of UDP and ping without a device.
//!
//! ```text
//!   client alone       3/4 of all places, and 1/4 is free for the next one
//!   two that want all  3/7 each, 1/7 is free
//!   only client        all
//! ```
//!
//! Shared by all shards.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::clients::Clients;
use super::notices::Notices;

/// Descriptors that are kept for all else than flows: sockets of shards, listeners, lookups, files.
const KEPT: usize = 128;

/// Places that a client may hold, as a multiple of those that are free.
const OF_FREE: usize = 3;

/// Places of the server's clients, each a descriptor.
#[derive(Debug)]
struct ClientShares {
    places: usize,
    held: Mutex<Holdings>,
}

/// Places that are held, of all clients and of each that has some.
#[derive(Debug, Default)]
struct Holdings {
    all: usize,
    by_client: HashMap<Arc<str>, usize>,
}

/// Places that something holds; free again when this is dropped.
#[derive(Debug)]
pub(super) struct HeldPlaces {
    shares: Arc<ClientShares>,
    client: Arc<str>,
    number: usize,
}

/// Places as clients are given them, and told when there are no more.
pub(super) struct ClientPlaces {
    shares: Arc<ClientShares>,
    clients: Arc<Clients>,
    notices: Arc<Notices>,
}

impl ClientPlaces {
    /// Places of a process that may have `files` descriptors, for `clients`; `notices` tells of those who have their share.
    pub(super) fn new(files: usize, clients: Arc<Clients>, notices: Arc<Notices>) -> Arc<Self> {
        Arc::new(Self {
            shares: ClientShares::new(files),
            clients,
            notices,
        })
    }

    /// Takes `number` places for `client`; `None`, and a line in the log: that would be more than its share.
    pub(super) fn take(&self, client: &str, number: usize) -> Option<HeldPlaces> {
        let is_only = || self.clients.len() <= 1;
        let place = self.shares.take(client, number, is_only);
        if place.is_none() {
            let what = "file descriptors";
            self.notices.tell_of_client(client, what, |name| {
                format!(
                    "{name} has its share of the {} connections that this process has file descriptors for: more are refused, so \
                     that other clients find room; raise LimitNOFILE, or set its max_flows",
                    self.shares.places()
                )
            });
        }
        place
    }
}

impl ClientShares {
    /// Places of a process that may have `files` descriptors.
    fn new(files: usize) -> Arc<Self> {
        Arc::new(Self {
            places: (files - KEPT.min(files / 4)).max(1),
            held: Mutex::default(),
        })
    }

    /// Places of all clients together.
    fn places(&self) -> usize {
        self.places
    }

    fn held(&self) -> MutexGuard<'_, Holdings> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes `number` places for `client`; `None` if that would be more than its share. That is all there are for who `is_only`
    /// client of the server.
    fn take(
        self: &Arc<Self>,
        client: &str,
        number: usize,
        is_only: impl FnOnce() -> bool,
    ) -> Option<HeldPlaces> {
        let mut held = self.held();
        let known = held.by_client.get_key_value(client);
        let (client, own) = match known {
            Some((name, own)) => (name.clone(), own + number),
            None => (client.into(), number),
        };
        let all = held.all + number;
        let free = self.places.checked_sub(all)?;
        if own > free.saturating_mul(OF_FREE) && !is_only() {
            return None;
        }
        held.all = all;
        held.by_client.insert(client.clone(), own);
        Some(HeldPlaces {
            shares: self.clone(),
            client,
            number,
        })
    }
}

impl Drop for HeldPlaces {
    fn drop(&mut self) {
        let mut held = self.shares.held();
        held.all -= self.number;
        if let Some(own) = held.by_client.get_mut(&self.client) {
            *own -= self.number;
            if *own == 0 {
                held.by_client.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(shares: &Arc<ClientShares>, client: &str, is_only: bool) -> Vec<HeldPlaces> {
        let more = || shares.take(client, 1, || is_only);
        std::iter::from_fn(more).take(10_000).collect()
    }

    #[test]
    fn who_takes_all_that_it_may_leaves_room_for_another() {
        let shares = ClientShares::new(1128);
        let greedy = all(&shares, "greedy", false);
        assert_eq!(greedy.len(), 750);
        let other = all(&shares, "other", false);
        assert_eq!(other.len(), 187, "three quarters of what is left");
        drop(greedy);
        let again = all(&shares, "greedy", false);
        assert!((550..=650).contains(&again.len()), "{}", again.len());
        drop((other, again));
        assert!(shares.held().by_client.is_empty() && shares.held().all == 0);
    }

    #[test]
    fn the_only_client_has_all_and_never_more() {
        let shares = ClientShares::new(1128);
        assert_eq!(all(&shares, "only", true).len(), 1000);
        assert_eq!(ClientShares::new(0).places(), 1);
    }

    #[test]
    fn a_flow_of_two_descriptors_counts_twice() {
        let shares = ClientShares::new(8 * 4 / 3);
        let places = shares.places();
        let pairs = std::iter::from_fn(|| shares.take("only", 2, || true));
        assert_eq!(pairs.take(100).collect::<Vec<_>>().len(), places / 2);
    }
}
