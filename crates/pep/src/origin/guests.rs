//! Places of an origin's connections once their handshake is done: where all are taken, whoever has most gives one up.
//!
//! Peers whose key is listed give way to each other alone, and half of the places are kept from them: neither can strangers displace a hub,
//! nor hubs all others.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::rc::Rc;

use tokio::sync::Notify;

use crate::keys::PublicKey;
use crate::net::prefix;

/// Connections at one time.
const MOST: usize = 1024;

/// Connections of listed peers at one time.
const LISTED: usize = MOST / 2;

/// Peer for which places count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum GuestPeer {
    /// Host with this IPv4 address, or in this IPv6 /64.
    Host(IpAddr),
    /// Server with this key, which `hubs` lists.
    Hub(PublicKey),
    /// Client with this key, which `clients` lists.
    Client(PublicKey),
}

impl GuestPeer {
    /// Host at `address`.
    pub(super) fn at(address: IpAddr) -> Self {
        Self::Host(prefix::host(address))
    }

    const fn is_listed(self) -> bool {
        matches!(self, Self::Hub(_) | Self::Client(_))
    }

    /// Peers that one operator may have many of: of an IPv4 /24, or an IPv6 /48.
    fn network(self) -> Self {
        match self {
            Self::Host(address) => Self::Host(prefix::network(address)),
            listed @ (Self::Hub(_) | Self::Client(_)) => listed,
        }
    }
}

/// Connections that have had their handshake.
#[derive(Default)]
pub(super) struct Guests {
    known: RefCell<GuestTable>,
}

#[derive(Default)]
struct GuestTable {
    next: u64,
    /// By age: numbers grow.
    guests: BTreeMap<u64, (GuestPeer, Rc<Notify>)>,
}

/// Place of one connection, for as long as this lives.
pub(super) struct Guest {
    all: Rc<Guests>,
    number: u64,
    gone: Rc<Notify>,
}

impl Guests {
    /// Connections that have a place.
    pub(super) fn len(&self) -> usize {
        self.known.borrow().guests.len()
    }

    /// Gives `peer` a place; `None`: all are taken, and no other peer of its kind has more than it would have.
    pub(super) fn admit(self: &Rc<Self>, peer: GuestPeer) -> Option<Guest> {
        let mut known = self.known.borrow_mut();
        if let Some(crowd) = known.crowd(peer) {
            let victim = known.victim(peer, crowd)?;
            if let Some((_, gone)) = known.guests.remove(&victim) {
                gone.notify_one();
            }
        }
        let number = known.next;
        known.next += 1;
        let gone = Rc::new(Notify::new());
        known.guests.insert(number, (peer, gone.clone()));
        Some(Guest {
            all: self.clone(),
            number,
            gone,
        })
    }

    /// Ends connections of peers that `stays` says no of.
    pub(super) fn retain(&self, stays: impl Fn(GuestPeer) -> bool) {
        self.known.borrow_mut().guests.retain(|_, (peer, gone)| {
            let stays = stays(*peer);
            if !stays {
                gone.notify_one();
            }
            stays
        });
    }
}

impl GuestTable {
    /// Peers of whom one has to give way to `newcomer`; `None`: there is a place.
    fn crowd(&self, newcomer: GuestPeer) -> Option<Crowd> {
        let listed = self.guests.values().filter(|(peer, _)| peer.is_listed());
        match newcomer.is_listed() && listed.count() >= LISTED {
            true => Some(Crowd::Listed),
            false => (self.guests.len() >= MOST).then_some(Crowd::Hosts),
        }
    }

    /// Oldest connection of the peer that has most, of the network that has most, of this `crowd`: if that is more than `newcomer` would have,
    /// or for a listed one, whatever it has.
    fn victim(&self, newcomer: GuestPeer, crowd: Crowd) -> Option<u64> {
        let within = || {
            let all = self.guests.iter();
            all.filter(|(_, (peer, _))| peer.is_listed() == (crowd == Crowd::Listed))
        };
        let preferred = newcomer.is_listed() && crowd == Crowd::Hosts;
        let (network, most) = most(within().map(|(_, (peer, _))| peer.network()))?;
        if newcomer.network() != network && !preferred {
            let own = within().map(|(_, (peer, _))| peer.network());
            let own = own.filter(|peer| *peer == newcomer.network()).count();
            if own + 1 >= most {
                return None;
            }
        }
        let inside = || within().filter(|(_, (peer, _))| peer.network() == network);
        let (host, most) = self::most(inside().map(|(_, (peer, _))| *peer))?;
        let own = inside().filter(|(_, (peer, _))| *peer == newcomer).count();
        if newcomer.network() == network && own + 1 >= most {
            return None;
        }
        let oldest = inside().find(|(_, (peer, _))| *peer == host);
        oldest.map(|(number, _)| *number)
    }
}

/// Peers among whom one has to give way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Crowd {
    /// Peers whose key is listed.
    Listed,
    /// All others.
    Hosts,
}

/// Peer that is there most often, and how often.
fn most(peers: impl Iterator<Item = GuestPeer>) -> Option<(GuestPeer, usize)> {
    let mut counts: HashMap<GuestPeer, usize> = HashMap::new();
    peers.for_each(|peer| *counts.entry(peer).or_default() += 1);
    counts.into_iter().max_by_key(|(_, count)| *count)
}

impl Guest {
    /// Waits until the place is needed for another peer, or the peer is not to be served any more.
    pub(super) async fn evicted(&self) {
        self.gone.notified().await;
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.all.known.borrow_mut().guests.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use std::net::Ipv6Addr;

    use super::*;

    fn at(address: [u8; 4]) -> GuestPeer {
        GuestPeer::at(address.into())
    }

    async fn is_evicted(guest: &Guest) -> bool {
        timeout(Duration::ZERO, guest.evicted()).await.is_ok()
    }

    #[tokio::test]
    async fn who_has_most_gives_way_to_others_and_to_nobody_of_its_own() {
        let guests = Rc::new(Guests::default());
        let few = guests.admit(at([198, 51, 100, 1])).unwrap();
        let many: Vec<_> = (0..MOST - 1)
            .map(|_| guests.admit(at([203, 0, 113, 1])).unwrap())
            .collect();
        assert!(guests.admit(at([203, 0, 113, 1])).is_none());
        let other = guests.admit(at([192, 0, 2, 1]));
        assert!(other.is_some(), "one host keeps all others out");
        assert_eq!(guests.len(), MOST);
        assert!(is_evicted(&many[0]).await && !is_evicted(&many[1]).await);
        assert!(!is_evicted(&few).await);
        // A neighbour of the busy host, and a listed key.
        assert!(guests.admit(at([203, 0, 113, 2])).is_some());
        let key = GuestPeer::Hub(PublicKey::from_bytes([9; 32]).unwrap());
        assert!(guests.admit(key).is_some());
    }

    fn key(byte: u8) -> PublicKey {
        PublicKey::from_bytes([byte; 32]).unwrap()
    }

    #[tokio::test]
    async fn strangers_displace_no_hub_and_hubs_not_all_strangers() {
        let guests = Rc::new(Guests::default());
        let hub = GuestPeer::Hub(key(9));
        let listed: Vec<_> = (0..LISTED).map(|_| guests.admit(hub).unwrap()).collect();
        assert!(guests.admit(hub).is_none(), "the hub has all places");
        // Each from a network of its own, with one connection where the hub has hundreds.
        let strangers: Vec<_> = (0..MOST - LISTED)
            .map(|number| guests.admit(at([198, (number / 256) as u8, (number % 256) as u8, 1])))
            .collect();
        assert!(strangers.iter().all(Option::is_some));
        assert!(
            guests.admit(at([203, 0, 113, 1])).is_none(),
            "a hub gave way"
        );
        for guest in &listed {
            assert!(!is_evicted(guest).await);
        }
        // Another hub has the place of one of the first.
        let another = guests.admit(GuestPeer::Hub(key(2)));
        assert!(another.is_some());
        assert!(is_evicted(&listed[0]).await);
        assert_eq!(guests.len(), MOST);
    }

    #[tokio::test]
    async fn a_hub_has_a_place_among_strangers_that_have_one_each() {
        let guests = Rc::new(Guests::default());
        let strangers: Vec<_> = (0..MOST)
            .map(|number| guests.admit(at([198, (number / 256) as u8, (number % 256) as u8, 1])))
            .collect();
        let hub = guests.admit(GuestPeer::Hub(key(9)));
        assert!(hub.is_some() && strangers.iter().all(Option::is_some));
        assert_eq!(guests.len(), MOST);
    }

    #[tokio::test]
    async fn many_networks_of_ipv6_are_few_peers() {
        let guests = Rc::new(Guests::default());
        let of = |network: u128, host: u128| {
            let bits = 0x2001_0db8_u128 << 96 | network << 64 | host;
            GuestPeer::at(Ipv6Addr::from_bits(bits).into())
        };
        assert_eq!(of(1, 1), of(1, u128::from(u64::MAX)));
        assert_ne!(of(1, 1), of(2, 1));
        let many: Vec<_> = (0..MOST as u128)
            .map(|network| guests.admit(of(network, 1)).unwrap())
            .collect();
        assert!(guests.admit(at([192, 0, 2, 1])).is_some());
        drop(many);
        assert_eq!(guests.len(), 0, "a place outlives its connection");
    }

    #[tokio::test]
    async fn who_is_taken_off_the_list_is_ended() {
        let guests = Rc::new(Guests::default());
        let [first, second] = [[9; 32], [2; 32]].map(|key| PublicKey::from_bytes(key).unwrap());
        let admit = |key| guests.admit(GuestPeer::Hub(key)).unwrap();
        let (gone, stays) = (admit(first), admit(second));
        guests.retain(|peer| peer == GuestPeer::Hub(second));
        assert!(is_evicted(&gone).await && !is_evicted(&stays).await);
        assert_eq!(guests.len(), 1);
    }
}
