//! Prefixes of NAT64: which IPv4 address a translator of the server's network makes of an IPv6 one (RFC 6052), and how
//! such prefixes are found (RFC 7050).
//!
//! Pure but for the list that all shards share.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ipnet::Ipv6Net;
use tokio::sync::watch;

use crate::config::{NAT64_LENGTHS, Nat64};

/// A name that has only these IPv4 addresses: an IPv6 address of it comes from a translator (RFC 7050 §8).
pub(crate) const PROBE: &str = "ipv4only.arpa";
const PROBE_ADDRESSES: [Ipv4Addr; 2] =
    [Ipv4Addr::new(192, 0, 0, 170), Ipv4Addr::new(192, 0, 0, 171)];

/// Bits 64 to 71 are zero in every such address (RFC 6052 §2.2).
const ZERO_OCTET: usize = 8;

/// Prefixes that are kept; no network has more.
const MOST: usize = 16;

/// A prefix whose addresses hold IPv4 addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Translation(Ipv6Net);

impl Translation {
    /// `None`: no translator uses a prefix of this length.
    #[must_use]
    pub(crate) fn new(prefix: Ipv6Net) -> Option<Self> {
        let known = NAT64_LENGTHS.contains(&prefix.prefix_len());
        known.then(|| Self(prefix.trunc()))
    }

    /// The prefix.
    #[must_use]
    pub(crate) fn prefix(&self) -> Ipv6Net {
        self.0
    }

    /// The IPv4 address that a packet to `address` ends at; `None` outside the prefix.
    #[must_use]
    pub(crate) fn embedded(&self, address: IpAddr) -> Option<Ipv4Addr> {
        match address {
            IpAddr::V6(address) if self.0.contains(&address) => {
                Some(embedded(address, self.0.prefix_len()))
            }
            _ => None,
        }
    }

    /// The address by which a packet ends at `v4`; the reverse of [`Self::embedded`].
    #[must_use]
    pub(crate) fn translated(&self, v4: Ipv4Addr) -> Ipv6Addr {
        let mut octets = self.0.addr().octets();
        let places = places(self.0.prefix_len());
        for (from, at) in v4.octets().into_iter().zip(places) {
            octets[at] = from;
        }
        octets.into()
    }
}

/// Places of the octets of an IPv4 address behind a prefix of this length, past the octet that is always zero.
fn places(length: u8) -> impl Iterator<Item = usize> {
    (usize::from(length / 8)..size_of::<Ipv6Addr>()).filter(|at| *at != ZERO_OCTET)
}

/// The 32 bits that follow the prefix, past the octet that is always zero.
fn embedded(address: Ipv6Addr, length: u8) -> Ipv4Addr {
    let mut v4 = [0; 4];
    let octets = address.octets();
    for (to, at) in v4.iter_mut().zip(places(length)) {
        *to = octets[at];
    }
    v4.into()
}

/// The prefixes that the addresses of [`PROBE`] show. Where an address can be read in two ways, both count: that denies
/// more, never less.
pub(crate) fn discover(addresses: &[IpAddr]) -> Vec<Translation> {
    let mut found: Vec<Translation> = Vec::new();
    for address in addresses {
        let IpAddr::V6(address) = *address else {
            continue;
        };
        for length in NAT64_LENGTHS {
            let prefix = Ipv6Net::new(address, length).ok();
            let shows = PROBE_ADDRESSES.contains(&embedded(address, length));
            if let Some(translation) = prefix.and_then(Translation::new).filter(|_| shows)
                && !found.contains(&translation)
                && found.len() < MOST
            {
                found.push(translation);
            }
        }
    }
    found
}

/// Prefixes, at most one of each length, that would make an IPv4 destination of `address`. Those
/// that would make an address of 0.0.0.0/8 of it, as most lengths do, are left out: that is no
/// destination (RFC 6890), and leads nowhere.
pub(crate) fn readings(address: IpAddr) -> Vec<Translation> {
    let IpAddr::V6(v6) = address else {
        return Vec::new();
    };
    let prefixes = NAT64_LENGTHS.iter();
    let prefixes = prefixes.filter_map(|length| Ipv6Net::new(v6, *length).ok());
    prefixes
        .filter_map(Translation::new)
        .filter(|reading| {
            let read = reading.embedded(address);
            read.is_some_and(|v4| v4.octets()[0] != 0)
        })
        .collect()
}

/// Knowledge of the network's translator.
#[derive(Clone, Debug)]
enum Knowledge {
    /// Nothing, and nobody has asked: a server whose clients use IPv4 alone sends no query.
    Idle,
    /// Nothing yet, but a client waits for it.
    Wanted,
    /// As much as the configuration or the resolvers say.
    Settled(Arc<[Translation]>),
}

impl Knowledge {
    fn prefixes(&self) -> Option<&Arc<[Translation]>> {
        match self {
            Self::Settled(prefixes) => Some(prefixes),
            Self::Idle | Self::Wanted => None,
        }
    }
}

/// The prefixes in force, shared by all shards.
#[derive(Clone, Debug)]
pub(crate) struct Translations(Arc<watch::Sender<Knowledge>>);

impl Translations {
    /// Prefixes that `config` names, or none until somebody wants them found out.
    pub(crate) fn new(config: &Nat64) -> Self {
        Self::with(match config {
            Nat64::Discovered => Knowledge::Idle,
            Nat64::Prefixes(prefixes) => {
                let prefixes = prefixes.iter();
                let known = prefixes.filter_map(|prefix| Translation::new(*prefix));
                Knowledge::Settled(known.collect())
            }
        })
    }

    /// No prefixes, and nothing to be found out.
    pub(crate) fn none() -> Self {
        Self::with(Knowledge::Settled(Arc::default()))
    }

    fn with(known: Knowledge) -> Self {
        Self(Arc::new(watch::Sender::new(known)))
    }

    /// The prefixes; `None` until they were found out.
    pub(crate) fn known(&self) -> Option<Arc<[Translation]>> {
        self.0.borrow().prefixes().cloned()
    }

    /// Has the prefixes found out, unless they are known.
    pub(crate) fn want(&self) {
        self.0.send_if_modified(|known| {
            let idle = matches!(known, Knowledge::Idle);
            if idle {
                *known = Knowledge::Wanted;
            }
            idle
        });
    }

    /// Waits until somebody wants the prefixes.
    pub(crate) async fn wanted(&self) {
        self.wait_for(|known| !matches!(known, Knowledge::Idle))
            .await;
    }

    /// Waits until the prefixes are known.
    pub(crate) async fn settled(&self) {
        self.wait_for(|known| known.prefixes().is_some()).await;
    }

    async fn wait_for(&self, wish: impl Fn(&Knowledge) -> bool) {
        // The sender lives as long as `self`: there is no error.
        let _ = self.0.subscribe().wait_for(|known| wish(known)).await;
    }

    /// Takes what the resolvers have shown; `None`: they were silent, which changes no prefix. True if the prefixes were
    /// others before.
    pub(crate) fn learn(&self, found: Option<&[Translation]>) -> bool {
        let before = self.known().unwrap_or_default();
        let now = found.map_or_else(|| before.clone(), Arc::from);
        let changed = before != now;
        self.0.send_replace(Knowledge::Settled(now));
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of RFC 6052 §2.4, for 192.0.2.33.
    const EXAMPLES: [(&str, &str); 6] = [
        ("2001:db8::/32", "2001:db8:c000:221::"),
        ("2001:db8:100::/40", "2001:db8:1c0:2:21::"),
        ("2001:db8:122::/48", "2001:db8:122:c000:2:2100::"),
        ("2001:db8:122:300::/56", "2001:db8:122:3c0:0:221::"),
        ("2001:db8:122:344::/64", "2001:db8:122:344:c0:2:2100::"),
        ("2001:db8:122:344::/96", "2001:db8:122:344::192.0.2.33"),
    ];

    #[test]
    fn every_length_of_rfc_6052_is_read() {
        for (prefix, address) in EXAMPLES {
            let translation = Translation::new(prefix.parse().expect("a prefix"));
            let embedded = translation.and_then(|known| known.embedded(address.parse().ok()?));
            let v4 = Ipv4Addr::new(192, 0, 2, 33);
            assert_eq!(embedded, Some(v4), "{prefix}");
            let translated = translation.map(|known| known.translated(v4).to_string());
            let expected: Option<Ipv6Addr> = address.parse().ok();
            assert_eq!(translated, expected.map(|one| one.to_string()), "{prefix}");
        }
        assert_eq!(
            Translation::new("2001:db8::/80".parse().expect("a prefix")),
            None
        );
    }

    #[test]
    fn the_probe_shows_the_prefix() {
        for (prefix, address) in [
            ("64:ff9b::/96", "64:ff9b::192.0.0.170"),
            ("2600:64::/96", "2600:64::192.0.0.171"),
            ("2600:64::/32", "2600:64:c000:aa::"),
            ("2600:64:5:6::/64", "2600:64:5:6:c0:0:aa00:0"),
        ] {
            let found = discover(&[address.parse().expect("an address")]);
            let prefixes: Vec<_> = found
                .iter()
                .map(|known| known.prefix().to_string())
                .collect();
            assert!(
                prefixes.contains(&prefix.to_owned()),
                "{address}: {prefixes:?}"
            );
        }
        let honest = ["192.0.0.170", "2606:4700::1111"].map(|text| text.parse().expect("one"));
        assert_eq!(discover(&honest), []);
    }

    #[test]
    fn an_address_is_read_in_every_way_that_leads_somewhere() {
        for (address, prefixes) in [
            ("2600:64::a00:1", vec!["2600:64::/96"]),
            (
                "2606:2800:220::34",
                vec!["2606:2800::/32", "2606:2800:200::/40"],
            ),
            ("2606::1", vec![]),
            ("192.0.2.1", vec![]),
        ] {
            let found = readings(address.parse().expect("an address"));
            let found: Vec<_> = found.iter().map(|it| it.prefix().to_string()).collect();
            assert_eq!(found, prefixes, "{address}");
        }
    }
}
