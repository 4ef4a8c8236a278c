//! Which destinations a client may reach; checked on the address that is dialled, after resolution.
//!
//! Pure. Denied by default is everything through which a client could reach the server itself, its
//! neighbours or other clients; `allow` adds exceptions, `only` restricts what is left. The server's
//! own addresses are checked by [`super::dial`], which can ask the kernel.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use thiserror::Error;

/// One client's rules.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    /// Destinations permitted although they are denied by default.
    pub allow: Vec<IpNet>,
    /// If not empty, the only destinations permitted.
    pub only: Vec<IpNet>,
}

/// Why an address may not be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Denied {
    /// `only` is set and does not hold it.
    #[error("not among the client's `only` prefixes")]
    NotListed,
    /// Not a public unicast address and not in `allow`.
    #[error("not a public address and not among the client's `allow` prefixes")]
    NotPublic,
}

impl Policy {
    /// Whether `address` may be dialled.
    pub fn check(&self, address: IpAddr) -> Result<(), Denied> {
        if !self.only.is_empty() && !contains(&self.only, address) {
            return Err(Denied::NotListed);
        }
        // An IPv4 address inside an IPv6 one reaches the IPv4 host: it needs an exception of its own.
        let public = match address {
            IpAddr::V4(v4) => is_public_v4(v4),
            IpAddr::V6(v6) => is_public_v6(v6),
        };
        if public || contains(&self.allow, address) {
            Ok(())
        } else {
            Err(Denied::NotPublic)
        }
    }

    /// Whether `address`, one of the server's own, may be dialled: only if `allow` names it alone, or
    /// names loopback. A wider prefix opens the server's network, not the services on the server.
    pub fn allows_own(&self, address: IpAddr) -> bool {
        self.allow.iter().any(|prefix| {
            let alone =
                prefix.prefix_len() == prefix.max_prefix_len() || prefix.addr().is_loopback();
            alone && prefix.contains(&address)
        })
    }
}

fn contains(prefixes: &[IpNet], address: IpAddr) -> bool {
    prefixes.iter().any(|prefix| prefix.contains(&address))
}

/// IANA IPv4 Special-Purpose Address Registry, "globally reachable", minus multicast.
fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let shared = a == 100 && (64..128).contains(&b);
    let protocol = a == 192 && b == 0 && c == 0;
    let relay = a == 192 && b == 88 && c == 99;
    let benchmark = a == 198 && (18..20).contains(&b);
    !(a == 0
        || a >= 224
        || shared
        || protocol
        || relay
        || benchmark
        || address.is_loopback()
        || address.is_private()
        || address.is_link_local()
        || address.is_documentation())
}

/// Global unicast 2000::/3 without documentation, and without forms that embed IPv4 addresses
/// (mapped, NAT64, 6to4, Teredo): those outside 2000::/3 are refused with it.
fn is_public_v6(address: Ipv6Addr) -> bool {
    let [first, second, ..] = address.segments();
    let global = first & 0xe000 == 0x2000;
    let six_to_four = first == 0x2002;
    let protocol = first == 0x2001 && second < 0x0200; // 2001::/23: Teredo, ORCHID, benchmarking
    let documentation = (first == 0x2001 && second == 0x0db8) || first & 0xfff0 == 0x3ff0;
    global && !six_to_four && !protocol && !documentation
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(policy: &Policy, address: &str) -> Result<(), Denied> {
        policy.check(address.parse().expect("an address"))
    }

    #[test]
    fn only_public_unicast_is_open_by_default() {
        let policy = Policy::default();
        for address in [
            "127.0.0.1",
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "172.16.0.1",
            "192.168.1.1",
            "100.64.0.1",
            "169.254.169.254",
            "224.0.0.1",
            "255.255.255.255",
            "192.0.0.1",
            "198.18.0.1",
            "240.0.0.1",
            "192.0.2.1",
            "192.88.99.1",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:8.8.8.8",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "2002:7f00:1::1",
            "2001:0:1::1",
            "2001:db8::1",
            "3fff::1",
            "fe80::1",
            "fc00::1",
            "fd00:30::1",
            "ff02::1",
            "5f00::1",
            "100::1",
        ] {
            assert_eq!(check(&policy, address), Err(Denied::NotPublic), "{address}");
        }
        for address in [
            "8.8.8.8",
            "100.128.0.1",
            "172.32.0.1",
            "2606:4700::1111",
            "2001:4860::8888",
        ] {
            assert_eq!(check(&policy, address), Ok(()), "{address}");
        }
    }

    #[test]
    fn allow_opens_and_only_closes() {
        let prefix = |text: &str| text.parse().expect("a prefix");
        let policy = Policy {
            allow: vec![prefix("10.30.0.0/24"), prefix("fd00:30::/64")],
            only: vec![prefix("10.0.0.0/8"), prefix("fd00::/8")],
        };
        assert_eq!(check(&policy, "10.30.0.9"), Ok(()));
        assert_eq!(check(&policy, "fd00:30::9"), Ok(()));
        assert_eq!(check(&policy, "10.31.0.9"), Err(Denied::NotPublic));
        assert_eq!(check(&policy, "8.8.8.8"), Err(Denied::NotListed));
        assert_eq!(check(&policy, "::ffff:10.30.0.9"), Err(Denied::NotListed));
    }

    #[test]
    fn only_an_entry_of_its_own_opens_an_address_of_the_server() {
        let allow = ["10.30.0.0/24", "10.40.0.1/32", "127.0.0.0/8"];
        let policy = Policy {
            allow: allow.map(|text| text.parse().expect("a prefix")).to_vec(),
            only: Vec::new(),
        };
        let own = |address: &str| policy.allows_own(address.parse().expect("an address"));
        assert!(own("10.40.0.1") && own("127.0.0.1"));
        assert!(!own("10.30.0.1") && !own("8.8.8.8"));
    }
}
