//! Answers that would lead a host to itself or to its neighbours under a stranger's name (DNS rebinding).
//!
//! A page of `evil.example` may talk to whatever `evil.example` resolves to. If that turns into the router's address, the
//! page reads the router's pages with the host's rights. Public names have no such addresses, unless the operator says so:
//! then the server lets the client reach them ([`Answer::judged`](super::Answer::judged)), or `exempt` names them here.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use super::query::Query;
use super::zones::{self, Suffix};

/// Addresses that are withheld from hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rebinding {
    /// True if anything is withheld.
    pub enabled: bool,
    /// Names that may have any address.
    pub exempt: Vec<Suffix>,
}

impl Rebinding {
    /// True if the answer to `query` is to be withheld for one of its `addresses`. `reachable`: the server lets its client
    /// reach the private ones among them. `local`: prefixes and addresses of this machine and its LANs.
    pub(super) fn withholds(
        &self,
        query: &Query,
        addresses: impl IntoIterator<Item = IpAddr>,
        reachable: bool,
        local: &[IpNet],
    ) -> bool {
        let forbidden = |address: IpAddr| match Scope::of(address) {
            Scope::Public => false,
            Scope::Private(plain) => !reachable || local.iter().any(|net| net.contains(&plain)),
            Scope::Host => true,
        };
        self.enabled && addresses.into_iter().any(forbidden) && !zones::covered(&self.exempt, query)
    }
}

/// Scope in which an address means something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Everywhere.
    Public,
    /// At a site; the address without what it is wrapped in.
    Private(IpAddr),
    /// On one host or one link.
    Host,
}

impl Scope {
    /// The scope of `address`; of one that embeds an IPv4 address (mapped, compatible, NAT64, 6to4), that of the embedded.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(v4) => Self::of_ipv4(v4),
            IpAddr::V6(v6) => Self::of_ipv6(v6),
        }
    }

    fn of_ipv4(address: Ipv4Addr) -> Self {
        match address.octets() {
            [0 | 127, ..] | [169, 254, ..] | [255, 255, 255, 255] => Self::Host,
            [10, ..] | [192, 168, ..] | [172, 16..=31, ..] | [100, 64..=127, ..] => {
                Self::Private(address.into())
            }
            _ => Self::Public,
        }
    }

    fn of_ipv6(address: Ipv6Addr) -> Self {
        let embedded = |high: u16, low: u16| {
            let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
            Self::of_ipv4(Ipv4Addr::new(a, b, c, d))
        };
        match address.segments() {
            // `::`, `::1` and addresses like `::127.0.0.1`.
            [0, 0, 0, 0, 0, 0, high, low]
            | [0, 0, 0, 0, 0, 0xffff, high, low]
            | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
            | [0x2002, high, low, ..] => embedded(high, low),
            [0xfe80..=0xfebf, ..] => Self::Host,
            // Unique local, and the site-local ones of old.
            [0xfc00..=0xfdff | 0xfec0..=0xfeff, ..] | [0x64, 0xff9b, 1, ..] => {
                Self::Private(address.into())
            }
            _ => Self::Public,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrapped_counts_as_what_it_wraps() {
        for (text, scope) in [
            ("8.8.8.8", Scope::Public),
            ("172.32.0.1", Scope::Public),
            ("100.128.0.1", Scope::Public),
            ("127.1.2.3", Scope::Host),
            ("0.0.0.0", Scope::Host),
            ("169.254.169.254", Scope::Host),
            ("::", Scope::Host),
            ("::1", Scope::Host),
            ("fe80::1", Scope::Host),
            ("::ffff:127.0.0.1", Scope::Host),
            ("64:ff9b::7f00:1", Scope::Host),
            ("2002:7f00:1::", Scope::Host),
            ("2001:db8::1", Scope::Public),
            ("64:ff9b::808:808", Scope::Public),
        ] {
            assert_eq!(Scope::of(text.parse().unwrap()), scope, "{text}");
        }
        for (text, plain) in [
            ("10.1.2.3", "10.1.2.3"),
            ("192.168.1.1", "192.168.1.1"),
            ("100.64.0.1", "100.64.0.1"),
            ("fd00::1", "fd00::1"),
            ("::ffff:10.1.2.3", "10.1.2.3"),
            ("64:ff9b::a01:203", "10.1.2.3"),
        ] {
            let wanted = Scope::Private(plain.parse().unwrap());
            assert_eq!(Scope::of(text.parse().unwrap()), wanted, "{text}");
        }
    }
}
