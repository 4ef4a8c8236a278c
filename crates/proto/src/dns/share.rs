//! Questions under way by the host that began them, so that no host takes the places of all others.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

/// A host, as far as shares go: an IPv4 address, or the /64 prefix of an IPv6 address, which one host may have whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Host(IpAddr);

impl Host {
    pub(super) fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self(address),
            IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
                Some(v4) => Self(v4.into()),
                None => Self(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX)).into()),
            },
        }
    }
}

/// Places that hosts have taken.
#[derive(Clone, Debug, Default)]
pub(super) struct Shares(HashMap<Host, usize>);

impl Shares {
    pub(super) fn take(&mut self, host: Host) {
        *self.0.entry(host).or_default() += 1;
    }

    pub(super) fn give_back(&mut self, host: Host) {
        if let Some(places) = self.0.get_mut(&host) {
            *places = places.saturating_sub(1);
            if *places == 0 {
                self.0.remove(&host);
            }
        }
    }

    /// Places that `host` has taken.
    pub(super) fn of(&self, host: Host) -> usize {
        self.0.get(&host).copied().unwrap_or(0)
    }

    /// The host that has to give a place to `host` when all are taken: the one with most, if it has more than `host`
    /// would have then.
    pub(super) fn to_yield(&self, host: Host) -> Option<Host> {
        let most = self
            .0
            .iter()
            .max_by_key(|(greedy, places)| (**places, **greedy));
        let own = self.of(host);
        most.filter(|(_, places)| **places > own + 1)
            .map(|(greedy, _)| *greedy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> Host {
        Host::of(text.parse().unwrap())
    }

    #[test]
    fn the_greediest_yields_until_all_have_the_same() {
        let (greedy, small) = (host("10.0.0.1"), host("10.0.0.2"));
        let mut shares = Shares::default();
        assert_eq!(shares.to_yield(small), None, "nobody has anything");
        (0..4).for_each(|_| shares.take(greedy));
        assert_eq!(shares.to_yield(greedy), None, "not to itself");
        for _ in 0..2 {
            assert_eq!(shares.to_yield(small), Some(greedy));
            shares.give_back(greedy);
            shares.take(small);
        }
        assert_eq!(shares.to_yield(small), None, "two each");
        assert_eq!(shares.to_yield(greedy), None);
    }

    #[test]
    fn addresses_of_one_prefix_are_one_host() {
        assert_eq!(host("fd00::1"), host("fd00::2:3:4:5"));
        assert_ne!(host("fd00::1"), host("fd00:0:0:1::1"));
        assert_eq!(host("::ffff:10.0.0.1"), host("10.0.0.1"));
        assert_ne!(host("10.0.0.1"), host("10.0.0.2"));
    }
}
