//! Which addresses and prefixes each client has. Pure, and the same after every start: a client keeps what it had.

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
}

/// The server's own addresses on the device and all clients' addresses.
#[derive(Clone, Debug, Default)]
pub(super) struct AddressPlan {
    /// The server's, with the lengths of their pools.
    pub(super) own: Vec<IpNet>,
    clients: HashMap<String, Assigned>,
}

impl AddressPlan {
    /// Addresses of `clients`, from the pools of `config` where a client has none of its own in that family.
    pub(super) fn new(config: &Packets, clients: &[Client]) -> Self {
        let mut taken: HashSet<IpAddr> = clients
            .iter()
            .flat_map(|client| client.addresses.iter().copied())
            .collect();
        let own = [first(config.ipv4.into()), first(config.ipv6.into())];
        taken.extend(own.map(|net| net.addr()));
        let mut names: Vec<_> = clients.iter().collect();
        // Not in the order of the file: a client that is added at its top changes nobody else's.
        names.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        let mut plan = Self {
            own: own.to_vec(),
            clients: HashMap::new(),
        };
        for client in names {
            let mut addresses = client.addresses.clone();
            for ipv6 in [false, true] {
                if !addresses.iter().any(|address| address.is_ipv6() == ipv6) {
                    let free = match ipv6 {
                        false => from_ipv4(config.ipv4, &client.name, &taken),
                        true => from_ipv6(config.ipv6, &client.name, &taken),
                    };
                    taken.extend(free);
                    addresses.extend(free);
                }
            }
            let assigned = Assigned {
                addresses,
                routed: client.routes.clone(),
            };
            plan.clients.insert(client.name.clone(), assigned);
        }
        plan
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
