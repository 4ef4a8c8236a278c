//! Names that an association sends to: where they are, or what waits until that is known.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::tunnel::HostName;

/// Names of one association.
const MOST: usize = 32;

/// Datagrams of one association that wait.
const MOST_WAITING: usize = 16;

/// For how long a name stays where it was found; after that it is asked for again, mostly of a cache.
const LIFE: Duration = Duration::from_secs(60);

#[derive(Debug)]
enum Name {
    /// Asked for; the ports and contents of what waits.
    Asked(Vec<(u16, Bytes)>),
    At(IpAddr, Instant),
}

/// Knowledge of a name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NameFound {
    At(IpAddr),
    /// The name was asked for.
    Asked,
    /// The name was not asked for yet.
    Unknown,
    /// No room for another name.
    Full,
}

/// The names of one association.
#[derive(Debug, Default)]
pub(super) struct Names {
    names: HashMap<HostName, Name>,
    waiting: usize,
}

impl Names {
    /// Datagrams that wait.
    pub(super) const fn waiting(&self) -> usize {
        self.waiting
    }

    pub(super) fn find(&mut self, now: Instant, name: &HostName) -> NameFound {
        match self.names.get(name) {
            Some(Name::At(address, until)) if now < *until => return NameFound::At(*address),
            Some(Name::At(..)) => {
                self.names.remove(name);
            }
            Some(Name::Asked(_)) => return NameFound::Asked,
            None => {}
        }
        if self.names.len() >= MOST {
            self.names
                .retain(|_, known| matches!(known, Name::Asked(_)));
        }
        match self.names.len() >= MOST {
            true => NameFound::Full,
            false => NameFound::Unknown,
        }
    }

    /// Keeps a datagram until the name is known; true if it is the first to ask for it, `None` if there is no room.
    pub(super) fn keep(&mut self, name: &HostName, port: u16, content: Bytes) -> Option<bool> {
        if self.waiting >= MOST_WAITING {
            return None;
        }
        self.waiting += 1;
        match self.names.get_mut(name) {
            Some(Name::Asked(waiting)) => {
                waiting.push((port, content));
                Some(false)
            }
            _ => {
                let waiting = Name::Asked(vec![(port, content)]);
                self.names.insert(name.clone(), waiting);
                Some(true)
            }
        }
    }

    /// The name is at `address`, or nowhere: what waited for that.
    pub(super) fn resolved(
        &mut self,
        now: Instant,
        name: &HostName,
        address: Option<IpAddr>,
    ) -> Vec<(u16, Bytes)> {
        let Some(Name::Asked(waiting)) = self.names.remove(name) else {
            return Vec::new();
        };
        if let Some(address) = address {
            let known = Name::At(address, now + LIFE);
            self.names.insert(name.clone(), known);
        }
        self.waiting -= waiting.len();
        waiting
    }
}
