//! How many connections the hosts behind the front ends may hold: of all kinds, and of those that wait.
//!
//! A connection takes a descriptor before anything is known of it, and keeps it for as long as it lasts. While there is room,
//! everybody gets what he asks for; once it is used up, the newest connection of the host with most of them makes way. So
//! one host that opens thousands takes nothing from the others.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::net::IpAddr;
use std::rc::Rc;

use tokio::sync::oneshot;

use crate::process;
use crate::throttle::Throttle;

/// Connections at one proxy that have not said where they go, of all hosts together.
pub(super) const SPEECHLESS: usize = 1024;

/// Intercepted connections that wait for a tunnel, of all hosts together.
pub(super) const WAITING: usize = 4096;

/// Descriptors that are kept for all else than the hosts' connections: the tunnel, listeners, lookups, files.
const KEPT_FILES: usize = 128;

/// All connections that hosts have open at the front ends, as many as this process has descriptors for.
#[derive(Debug, Clone)]
pub(super) struct Open {
    shares: Rc<Shares>,
}

impl Open {
    /// Room for what a limit of `files` descriptors permits, of which a connection takes up to `each`.
    pub(super) fn new(files: usize, each: usize) -> Self {
        let places = (files - KEPT_FILES.min(files / 4)) / each;
        let what = "connections that this process has file descriptors for (LimitNOFILE)";
        Self {
            shares: Shares::new(places.max(1), what),
        }
    }

    /// Runs `future`, which serves a connection of `host`, to its end, or until the connection has to make way.
    pub(super) async fn run(self, host: IpAddr, future: impl Future<Output = ()>) {
        self.shares.run(host, future).await;
    }
}

/// Connections by host, no more than a number of them.
#[derive(Debug)]
pub(super) struct Shares {
    most: usize,
    /// Name of the shared thing, in the plural, for the log.
    what: &'static str,
    named: Throttle,
    state: RefCell<PlacesHeld>,
}

#[derive(Debug, Default)]
struct PlacesHeld {
    hosts: HashMap<IpAddr, BTreeMap<u64, oneshot::Sender<()>>>,
    count: usize,
    next: u64,
}

/// A place of one connection; free again when this is dropped.
#[derive(Debug)]
struct SharePlace {
    shares: Rc<Shares>,
    host: IpAddr,
    number: u64,
    evicted: oneshot::Receiver<()>,
}

impl Shares {
    /// Room for `most` of `what`, which is in the plural and for the log.
    pub(super) fn new(most: usize, what: &'static str) -> Rc<Self> {
        Rc::new(Self {
            most,
            what,
            named: Throttle::new(),
            state: RefCell::default(),
        })
    }

    /// Takes a place for a connection of `host`; another one, or this one, may have to go.
    fn take(self: &Rc<Self>, host: IpAddr) -> SharePlace {
        let host = share_of(host);
        let (sender, evicted) = oneshot::channel();
        let mut state = self.state.borrow_mut();
        let number = state.next;
        state.next += 1;
        state.count += 1;
        state.hosts.entry(host).or_default().insert(number, sender);
        if state.count > self.most {
            state.evict();
        }
        SharePlace {
            shares: self.clone(),
            host,
            number,
            evicted,
        }
    }

    /// Runs `future` for a connection of `host` while it has a place; `None` if it had to go.
    pub(super) async fn run<T>(
        self: &Rc<Self>,
        host: IpAddr,
        future: impl Future<Output = T>,
    ) -> Option<T> {
        let mut place = self.take(host);
        tokio::select! {
            done = future => Some(done),
            () = place.evicted() => {
                if self.named.is_due(process::now()) {
                    let Self { most, what, .. } = self.as_ref();
                    tracing::warn!(
                        "{host} has most of the {most} {what}: its newest are reset, so that others find room"
                    );
                }
                None
            }
        }
    }
}

impl PlacesHeld {
    /// The newest connection of the host with most of them goes.
    fn evict(&mut self) {
        let greediest = self.hosts.iter().max_by_key(|(_, held)| held.len());
        let Some(host) = greediest.map(|(host, _)| *host) else {
            return;
        };
        let newest = self.hosts.get_mut(&host).and_then(BTreeMap::pop_last);
        if let Some((_, sender)) = newest {
            self.count -= 1;
            let _ = sender.send(());
        }
    }
}

impl SharePlace {
    /// Waits until this connection has to go; never ends if it need not.
    async fn evicted(&mut self) {
        if (&mut self.evicted).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for SharePlace {
    fn drop(&mut self) {
        let mut state = self.shares.state.borrow_mut();
        let Some(held) = state.hosts.get_mut(&self.host) else {
            return;
        };
        let was = held.remove(&self.number).is_some();
        if held.is_empty() {
            state.hosts.remove(&self.host);
        }
        state.count -= usize::from(was);
    }
}

/// The address that counts as one host: an IPv6 host has a whole /64 to choose from.
fn share_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) & !u128::from(u64::MAX)).into()),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_evicted(place: &mut SharePlace) -> bool {
        matches!(place.evicted.try_recv(), Ok(()))
    }

    #[test]
    fn the_greediest_host_makes_way_and_places_come_back() {
        let shares = Shares::new(10, "connections");
        let [greedy, modest]: [IpAddr; 2] = [[10, 0, 0, 1].into(), [10, 0, 0, 2].into()];
        let mut held: Vec<_> = (0..50).map(|_| shares.take(greedy)).collect();
        let kept = held.iter_mut().map(is_evicted).filter(|gone| !gone).count();
        assert_eq!(kept, 10);
        let mut others: Vec<_> = (0..5).map(|_| shares.take(modest)).collect();
        assert!(!others.iter_mut().any(is_evicted), "its share is half");
        drop(held);
        let mut again: Vec<_> = (0..5).map(|_| shares.take(greedy)).collect();
        assert!(!again.iter_mut().chain(&mut others).any(is_evicted));
        drop((again, others));
        assert_eq!(shares.state.borrow().count, 0);
        assert!(shares.state.borrow().hosts.is_empty());
    }

    #[test]
    fn one_host_has_many_addresses_in_ipv6() {
        let shares = Shares::new(4, "connections");
        let of = |prefix: u128, host: u128| IpAddr::V6((prefix << 64 | host).into());
        let mut held: Vec<_> = (0..8).map(|host| shares.take(of(1, host))).collect();
        let mut other = shares.take(of(2, 1));
        assert!(!is_evicted(&mut other));
        let kept = held.iter_mut().map(is_evicted).filter(|gone| !gone).count();
        assert_eq!(kept, 3);
    }
}
