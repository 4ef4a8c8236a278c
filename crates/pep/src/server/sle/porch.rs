//! Outer connections that have said nothing yet: they are few or gone soon, whoever makes them.
//!
//! The kernel could keep them until they speak (`TCP_DEFER_ACCEPT`), but as half-open connections; beyond some thousand of these it keeps
//! no account of further ones, and what was taken in on its way would be forwarded.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::rc::Rc;

use tokio::task::{AbortHandle, spawn_local};

use crate::net::prefix;

/// Silent connections at one time; beyond, the oldest of a network that has most gives way. A host of IPv6 has addresses of a
/// whole network, so hosts are not told apart.
const MOST: usize = 4096;

/// Silent connections by one way.
#[derive(Default)]
pub(super) struct Porch {
    known: RefCell<PorchTable>,
}

#[derive(Default)]
struct PorchTable {
    next: u64,
    /// By age: numbers grow.
    waiting: BTreeMap<u64, (IpAddr, Option<AbortHandle>)>,
    of_network: HashMap<IpAddr, usize>,
}

/// Place of a silent connection, until it speaks.
pub(super) struct PorchPlace {
    porch: Rc<Porch>,
    number: u64,
}

impl Porch {
    /// Has a connection of `peer` wait in a task that `wait` makes, which ends early if a newer one needs the place. True if one
    /// gave way.
    pub(super) fn enter<F: Future<Output = ()> + 'static>(
        self: &Rc<Self>,
        peer: IpAddr,
        wait: impl FnOnce(PorchPlace) -> F,
    ) -> bool {
        let mut known = self.known.borrow_mut();
        let victim = known.victim();
        if let Some(task) = victim.and_then(|victim| known.leave(victim)) {
            task.abort();
        }
        let number = known.enter(prefix::network(peer));
        let place = PorchPlace {
            porch: self.clone(),
            number,
        };
        let task = spawn_local(wait(place));
        if let Some((_, handle)) = known.waiting.get_mut(&number) {
            *handle = Some(task.abort_handle());
        }
        victim.is_some()
    }
}

impl PorchTable {
    /// The connection that has to give way to one more.
    fn victim(&self) -> Option<u64> {
        if self.waiting.len() < MOST {
            return None;
        }
        let most = self.of_network.values().max()?;
        let of_most = |network| self.of_network.get(network) == Some(most);
        let mut oldest = self.waiting.iter();
        oldest
            .find(|(_, (network, _))| of_most(network))
            .map(|(number, _)| *number)
    }

    fn enter(&mut self, network: IpAddr) -> u64 {
        let number = self.next;
        self.next += 1;
        self.waiting.insert(number, (network, None));
        *self.of_network.entry(network).or_default() += 1;
        number
    }

    /// Removes a connection; returns its task, if it was still there.
    fn leave(&mut self, number: u64) -> Option<AbortHandle> {
        let (network, task) = self.waiting.remove(&number)?;
        if let Some(count) = self.of_network.get_mut(&network) {
            *count -= 1;
            if *count == 0 {
                self.of_network.remove(&network);
            }
        }
        task
    }
}

impl Drop for PorchPlace {
    fn drop(&mut self) {
        self.porch.known.borrow_mut().leave(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(network: u8) -> IpAddr {
        prefix::network([192, 0, network, 1].into())
    }

    #[test]
    fn the_oldest_of_the_network_with_most_gives_way() {
        let mut table = PorchTable::default();
        let honest = table.enter(at(1));
        let first = table.enter(at(2));
        for _ in 2..MOST {
            table.enter(at(2));
        }
        assert_eq!(table.victim(), Some(first));
        table.leave(first);
        assert_eq!(table.victim(), None);
        table.leave(honest);
        table.leave(honest);
        assert_eq!(table.of_network.get(&at(1)), None);
        assert_eq!(table.of_network[&at(2)], MOST - 2);
    }

    #[test]
    fn a_site_of_ipv6_is_one_network() {
        let [one, same, other] = ["fd00::1", "fd00:0:0:7::9", "fd00:0:1::1"]
            .map(|text| prefix::network(text.parse().unwrap()));
        assert!(one == same && one != other);
    }
}
