//! The table of host names: who is where. There is no DNS, so that its round trips are nobody's.

use std::net::IpAddr;

use crate::topology::{host, host6};

/// Host names and their addresses; a host is known by its place in the table.
#[derive(Debug, Clone)]
pub struct Hosts(Vec<(String, IpAddr)>);

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
        Self(
            (0..count)
                .map(|i| (format!("host-{i}.test"), address(i)))
                .collect(),
        )
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Name and address of the `i`-th host, from 0.
    #[must_use]
    pub fn get(&self, i: usize) -> Option<(&str, IpAddr)> {
        self.0.get(i).map(|(name, address)| (&**name, *address))
    }

    /// Their names, in order.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.0.iter().map(|(name, _)| name.clone()).collect()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&str, IpAddr)> {
        self.0.iter().map(|(name, address)| (&**name, *address))
    }
}
