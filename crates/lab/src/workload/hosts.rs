//! The table of host names: who is where. Whoever looks a name up does so here, for nothing, or asks the web's resolver, which
//! has the same table.

use std::net::{IpAddr, SocketAddr};

use bentpipe_emulator::topology::{host, host6};

/// Hosts of the web, the first ones, that are web servers of their own: each has an origin before it under contenders with origins.
pub const MOST_SERVERS: u8 = 4;

/// Host names and their addresses; a host is known by its place in the table.
#[derive(Debug, Clone)]
pub struct Hosts {
    table: Vec<(String, IpAddr)>,
    resolver: Option<SocketAddr>,
}

impl Hosts {
    /// The first `count` hosts of the topology's web namespace, by turns at their IPv4 and IPv6 addresses.
    #[must_use]
    pub fn of_topology(count: u8) -> Self {
        let address = |i: u8| -> IpAddr {
            if i.is_multiple_of(2) {
                host(i).into()
            } else {
                host6(i).into()
            }
        };
        Self {
            table: (0..count)
                .map(|i| (format!("host-{i}.test"), address(i)))
                .collect(),
            resolver: None,
        }
    }

    /// The hosts for users who ask this resolver.
    #[must_use]
    pub fn asked_of(self, resolver: SocketAddr) -> Self {
        Self {
            resolver: Some(resolver),
            ..self
        }
    }

    /// Resolver that users ask for names; none where the table is theirs.
    #[must_use]
    pub fn resolver(&self) -> Option<SocketAddr> {
        self.resolver
    }

    /// Number of hosts.
    #[must_use]
    pub fn count(&self) -> usize {
        self.table.len()
    }

    /// Name and address of the `i`-th host, from 0.
    #[must_use]
    pub fn get(&self, i: usize) -> Option<(&str, IpAddr)> {
        self.table.get(i).map(|(name, address)| (&**name, *address))
    }

    /// Address of the host of this name.
    #[must_use]
    pub fn address(&self, name: &str) -> Option<IpAddr> {
        self.iter()
            .find(|(known, _)| *known == name)
            .map(|(_, address)| address)
    }

    /// Names of the hosts, in order.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.table.iter().map(|(name, _)| name.clone()).collect()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&str, IpAddr)> {
        self.table.iter().map(|(name, address)| (&**name, *address))
    }
}
