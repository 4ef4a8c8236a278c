//! Addresses and prefixes of each client. Pure; the same after every start, and a client that has an address keeps it over reloads.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bentpipe_proto::packets::Prohibited;
use bentpipe_units::Seed;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::config::{Client, Packets};

/// Addresses and prefixes of one client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Assigned {
    pub(super) addresses: Vec<IpAddr>,
    /// Prefixes that are routed to it as they are.
    pub(super) routed: Vec<IpNet>,
}

impl Assigned {
    /// True if packets from `source` may come from this client.
    pub(super) fn holds(&self, source: IpAddr) -> bool {
        self.addresses.contains(&source)
            || self.routed.iter().any(|prefix| prefix.contains(&source))
    }

    /// Gives up what is not in `own`, and says what that was.
    pub(super) fn keep_only(&mut self, own: &Self) -> Self {
        let lost_address = |address: &mut IpAddr| !own.addresses.contains(address);
        let lost_prefix = |prefix: &mut IpNet| !own.routed.contains(prefix);
        Self {
            addresses: self.addresses.extract_if(.., lost_address).collect(),
            routed: self.routed.extract_if(.., lost_prefix).collect(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.addresses.is_empty() && self.routed.is_empty()
    }
}

/// The server's own addresses on the device and all clients' addresses.
#[derive(Clone, Debug, Default)]
pub(super) struct AddressPlan {
    /// The server's, with the lengths of their pools.
    pub(super) own: Vec<IpNet>,
    clients: HashMap<String, Assigned>,
}

impl AddressPlan {
    /// Addresses of `clients`, from the pools of `config` where a client has none of its own in that family. What a client has by the
    /// plan `before` it keeps, unless the list names another owner: a client that is added may come before it in the order of names.
    pub(super) fn new(config: &Packets, clients: &[Client], before: &Self) -> Self {
        let mut taken: HashSet<IpAddr> = clients
            .iter()
            .flat_map(|client| client.addresses.iter().copied())
            .collect();
        let own = [first(config.ipv4.into()), first(config.ipv6.into())];
        taken.extend(own.map(|net| net.addr()));
        let mut names: Vec<_> = clients.iter().collect();
        // Not in the order of the file: a client that is added at its top changes nobody else's.
        names.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        let mut given: Vec<_> = names
            .into_iter()
            .map(|client| (client, client.addresses.clone()))
            .collect();
        for keeps in [true, false] {
            for (client, addresses) in &mut given {
                for ipv6 in [false, true] {
                    if addresses.iter().any(|address| address.is_ipv6() == ipv6) {
                        continue;
                    }
                    let name = &client.name;
                    let found = match (keeps, ipv6) {
                        (true, _) => before.held(config, name, ipv6, &taken),
                        (false, false) => from_ipv4(config.ipv4, name, &taken),
                        (false, true) => from_ipv6(config.ipv6, name, &taken),
                    };
                    taken.extend(found);
                    addresses.extend(found);
                }
            }
        }
        let assigned = given.into_iter().map(|(client, addresses)| {
            let routed = client.routes.clone();
            (client.name.clone(), Assigned { addresses, routed })
        });
        Self {
            own: own.to_vec(),
            clients: assigned.collect(),
        }
    }

    /// Address of a pool that a client has, and that nobody else has `taken`.
    fn held(
        &self,
        config: &Packets,
        name: &str,
        ipv6: bool,
        taken: &HashSet<IpAddr>,
    ) -> Option<IpAddr> {
        let pools = [IpNet::V4(config.ipv4), IpNet::V6(config.ipv6)];
        let of_pool = |address: &&IpAddr| {
            address.is_ipv6() == ipv6 && pools.iter().any(|pool| pool.contains(*address))
        };
        let held = self.clients.get(name)?.addresses.iter().find(of_pool);
        held.copied().filter(|address| !taken.contains(address))
    }

    /// Addresses that errors to clients come from.
    pub(super) fn speaker(&self) -> Prohibited {
        let mut from = Prohibited::default();
        for own in &self.own {
            match own.addr() {
                IpAddr::V4(address) => from.ipv4 = Some(address),
                IpAddr::V6(address) => from.ipv6 = Some(address),
            }
        }
        from
    }

    /// Addresses and prefixes of the client of this name.
    pub(super) fn of(&self, name: &str) -> Assigned {
        self.clients.get(name).cloned().unwrap_or_default()
    }

    /// Every client's addresses, as prefixes.
    pub(super) fn addresses(&self) -> Vec<IpNet> {
        let of_client = |assigned: &Assigned| assigned.addresses.clone();
        let addresses = self.clients.values().flat_map(of_client);
        addresses.map(IpNet::from).collect()
    }

    /// Every prefix that is routed to a client.
    pub(super) fn routed(&self) -> Vec<IpNet> {
        let routed = self
            .clients
            .values()
            .flat_map(|assigned| assigned.routed.clone());
        routed.collect()
    }
}

/// The first host's address in `pool`: the server's.
fn first(pool: IpNet) -> IpNet {
    let address: IpAddr = match pool {
        IpNet::V4(pool) => Ipv4Addr::from_bits(pool.network().to_bits() + 1).into(),
        IpNet::V6(pool) => Ipv6Addr::from_bits(pool.network().to_bits() + 1).into(),
    };
    IpNet::new(address, pool.prefix_len()).unwrap_or(pool)
}

/// Place at which the search for a free address begins: far apart for different names, so that hardly anybody depends on others.
fn place(name: &str) -> u64 {
    Seed::new(0).stream(name).as_u64()
}

fn from_ipv4(pool: Ipv4Net, name: &str, taken: &HashSet<IpAddr>) -> Option<IpAddr> {
    let base = pool.network().to_bits();
    // Neither the network's own address nor its broadcast address.
    let hosts = (u64::from(pool.broadcast().to_bits() - base)).saturating_sub(1);
    let mut tries = (0..hosts).map(|step| {
        let host = (place(name) % hosts + step) % hosts + 1;
        IpAddr::from(Ipv4Addr::from_bits(base + host as u32))
    });
    tries.find(|address| !taken.contains(address))
}

fn from_ipv6(pool: Ipv6Net, name: &str, taken: &HashSet<IpAddr>) -> Option<IpAddr> {
    let base = pool.network().to_bits();
    let bits = u32::from(128 - pool.prefix_len()).min(32);
    let hosts = (1_u64 << bits) - 1;
    let mut tries = (0..hosts).map(|step| {
        let host = (place(name) % hosts + step) % hosts + 1;
        IpAddr::from(Ipv6Addr::from_bits(base + u128::from(host)))
    });
    tries.find(|address| !taken.contains(address))
}

#[cfg(test)]
mod tests {
    use bentpipe_units::ByteCount;

    use super::*;
    use crate::config::ClientKey;
    use crate::keys::PrivateKey;

    /// A pool of five addresses besides the server's.
    fn pools() -> Packets {
        Packets {
            ipv4: "100.96.0.0/29".parse().expect("a pool"),
            ..Packets::default()
        }
    }

    fn client(name: &str) -> Client {
        Client {
            name: name.into(),
            key: ClientKey::Own(PrivateKey::generate().expect("a key").public()),
            allow: Vec::new(),
            only: Vec::new(),
            addresses: Vec::new(),
            routes: Vec::new(),
            publish: Vec::new(),
            max_flows: 1,
            memory: ByteCount::new(0),
            max_rate: None,
            max_flows_per_s: 1,
            max_packets_per_s: 1,
        }
    }

    fn plan(clients: &[Client], before: &AddressPlan) -> AddressPlan {
        AddressPlan::new(&pools(), clients, before)
    }

    /// Two names, in the order of names, for which the search begins at one place.
    fn rivals() -> [Client; 2] {
        let alone = |name: &str| {
            plan(&[client(name)], &AddressPlan::default())
                .of(name)
                .addresses[0]
        };
        let first = "a";
        let second = ('b'..='z')
            .map(String::from)
            .find(|name| alone(name) == alone(first));
        [client(first), client(&second.expect("few places"))]
    }

    #[test]
    fn a_client_that_has_an_address_keeps_it_beside_one_that_is_added() {
        let [added, present] = rivals();
        let before = plan(std::slice::from_ref(&present), &AddressPlan::default());
        let after = plan(&[added.clone(), present.clone()], &before);
        assert_eq!(after.of(&present.name), before.of(&present.name));
        let both = [&added, &present].map(|client| after.of(&client.name).addresses);
        assert_ne!(both[0][0], both[1][0]);
        assert!(
            both.iter().all(|addresses| addresses.len() == 2),
            "{both:?}"
        );
        // Once more, and nothing moves.
        let again = plan(&[added.clone(), present], &after);
        assert_eq!(again.of(&added.name), after.of(&added.name));
    }

    #[test]
    fn an_address_that_the_list_gives_to_another_client_is_its_own() {
        let [mut added, present] = rivals();
        let before = plan(std::slice::from_ref(&present), &AddressPlan::default());
        added.addresses = before.of(&present.name).addresses;
        let after = plan(&[added.clone(), present.clone()], &before);
        assert_eq!(after.of(&added.name), before.of(&present.name));
        let mut kept = before.of(&present.name);
        let lost = kept.keep_only(&after.of(&present.name));
        assert_eq!(lost.addresses, added.addresses);
        assert!(kept.is_empty() && !lost.is_empty());
    }
}
