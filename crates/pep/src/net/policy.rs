//! Which destinations a client may reach; checked on the address that is dialled, after resolution.
//!
//! Pure. Denied by default is everything through which a client could reach the server itself, its
//! neighbours or other clients; `allow` adds exceptions, `only` restricts what is left. The server's
//! own addresses are known to [`super::judge`], which can ask the kernel.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use thiserror::Error;

use super::nat64::Translation;
use crate::config::{Destinations, Service};

/// Addresses at which clouds tell their machines secrets, whoever asks: AWS, Azure, Google, Oracle, Alibaba, Tencent, Scaleway and
/// those that do as AWS does. Most are link-local or private by themselves; Azure's is public.
const METADATA: [IpAddr; 12] = [
    v4(169, 254, 169, 254),
    v4(169, 254, 170, 2),
    v4(169, 254, 170, 23),
    v4(169, 254, 42, 42),
    v4(169, 254, 0, 23),
    v4(168, 63, 129, 16),
    v4(100, 100, 100, 200),
    v4(192, 0, 0, 192),
    v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254]),
    v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23]),
    v6([0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254]),
    v6([0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42]),
];

/// Bits of the prefix of an IPv6 subnet (RFC 4291 §2.5.1).
const SUBNET: u8 = 64;

const fn v4(a: u8, b: u8, c: u8, d: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(a, b, c, d))
}

const fn v6([a, b, c, d, e, f, g, h]: [u16; 8]) -> IpAddr {
    IpAddr::V6(Ipv6Addr::new(a, b, c, d, e, f, g, h))
}

/// One client's rules.
#[derive(Debug, Clone, Default)]
pub(crate) struct Policy {
    /// Destinations permitted although they are denied by default.
    pub allow: Vec<Destinations>,
    /// If not empty, the only destinations permitted.
    pub only: Vec<Destinations>,
}

/// Reason why a destination may not be reached, and what would permit it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum Denied {
    /// `only` is set and does not hold it.
    #[error("not in only; name it in only")]
    NotListed,
    /// Not a public unicast address and not in `allow`.
    #[error("not public; name it in allow")]
    NotPublic,
    /// In `allow` or `only`, but not for this port or protocol.
    #[error("other ports of it are named; add this one to the entry")]
    OtherPort,
    /// The metadata service of a cloud.
    #[error("a cloud's metadata service; name it alone in allow")]
    Metadata,
    /// A translator of the network makes this IPv4 address of it, which is not permitted.
    #[error("{0} by the network's NAT64, not public; name it in allow")]
    Translated(Ipv4Addr),
    /// An address of the server itself.
    #[error("an address of this server; name it alone in allow")]
    Own,
}

impl Policy {
    /// Checks that `service` of `address` may be dialled, as far as that does not depend on this machine's own addresses.
    /// An address that one of `translations` makes an IPv4 address of is judged by that, too.
    ///
    /// # Errors
    /// [`Denied`]: it may not.
    pub(crate) fn check(
        &self,
        address: IpAddr,
        service: Service,
        translations: &[Translation],
    ) -> Result<(), Denied> {
        if !self.only.is_empty() && !cover(&self.only, address, service) {
            let other = cover(&self.only, address, Service::Related);
            return Err(if other {
                Denied::OtherPort
            } else {
                Denied::NotListed
            });
        }
        self.check_public(address, service)?;
        for translation in translations {
            let Some(embedded) = translation.embedded(address) else {
                continue;
            };
            // An entry inside the translator's prefix means this very address; a wider one holds it by chance.
            let length = translation.prefix().prefix_len();
            let named = |entry: &&Destinations| entry.prefix().prefix_len() >= length;
            let mut named = self.allow.iter().filter(named);
            if named.any(|entry| entry.cover(address, service)) {
                continue;
            }
            self.check_public(embedded.into(), service)
                .map_err(|denied| match denied {
                    Denied::Metadata => denied,
                    _ => Denied::Translated(embedded),
                })?;
        }
        Ok(())
    }

    /// Checks that `address` is public, or permitted although it is not.
    fn check_public(&self, address: IpAddr, service: Service) -> Result<(), Denied> {
        if METADATA.contains(&address.to_canonical()) && !self.names_alone(address, service) {
            return Err(Denied::Metadata);
        }
        // An IPv4 address inside an IPv6 one reaches the IPv4 host: it needs an exception of its own.
        let public = match address {
            IpAddr::V4(v4) => is_public_v4(v4),
            IpAddr::V6(v6) => is_public_v6(v6),
        };
        if public || cover(&self.allow, address, service) {
            return Ok(());
        }
        match cover(&self.allow, address, Service::Related) {
            true => Err(Denied::OtherPort),
            false => Err(Denied::NotPublic),
        }
    }

    /// True if `address`, one of the server's own, may be dialled: only if `allow` names it alone, or
    /// names loopback. A wider prefix opens the server's network, not the services on the server.
    pub(crate) fn allows_own(&self, address: IpAddr, service: Service) -> bool {
        let loopback = |entry: &Destinations| {
            entry.prefix().addr().is_loopback() && entry.cover(address, service)
        };
        self.names_alone(address, service) || self.allow.iter().any(loopback)
    }

    fn names_alone(&self, address: IpAddr, service: Service) -> bool {
        self.allow.iter().any(|entry| {
            let alone = entry.prefix().prefix_len() == entry.prefix().max_prefix_len();
            alone && entry.cover(address, service)
        })
    }

    /// True if `address` is an IPv6 one that a translator of the network (NAT64) may turn into an IPv4 one. An address that
    /// an entry of at least 64 bits in `allow` or `only` covers is taken for a host of that IPv6 subnet.
    pub(crate) fn may_be_translated(&self, address: IpAddr) -> bool {
        let mut entries = self.allow.iter().chain(&self.only);
        let named = entries.any(|entry| {
            entry.prefix().prefix_len() >= SUBNET && entry.cover(address, Service::Related)
        });
        address.is_ipv6() && !named
    }

    /// True if a verdict depends on the port.
    pub(crate) fn has_ports(&self) -> bool {
        let mut all = self.allow.iter().chain(&self.only);
        all.any(Destinations::has_ports)
    }
}

fn cover(entries: &[Destinations], address: IpAddr, service: Service) -> bool {
    entries.iter().any(|entry| entry.cover(address, service))
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
        check_at(policy, address, Service::Port(7))
    }

    fn check_at(policy: &Policy, address: &str, service: Service) -> Result<(), Denied> {
        policy.check(address.parse().expect("an address"), service, &[])
    }

    fn entries<const N: usize>(texts: [&str; N]) -> Vec<Destinations> {
        let entry = |text: &str| text.parse::<Destinations>().expect("destinations");
        texts.map(entry).to_vec()
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
            "169.254.1.1",
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
        let policy = Policy {
            allow: entries(["10.30.0.0/24", "fd00:30::/64"]),
            only: entries(["10.0.0.0/8", "fd00::/8"]),
        };
        assert_eq!(check(&policy, "10.30.0.9"), Ok(()));
        assert_eq!(check(&policy, "fd00:30::9"), Ok(()));
        assert_eq!(check(&policy, "10.31.0.9"), Err(Denied::NotPublic));
        assert_eq!(check(&policy, "8.8.8.8"), Err(Denied::NotListed));
        assert_eq!(check(&policy, "::ffff:10.30.0.9"), Err(Denied::NotListed));
    }

    #[test]
    fn only_an_entry_of_its_own_opens_an_address_of_the_server() {
        let policy = Policy {
            allow: entries(["10.30.0.0/24", "10.40.0.1/32", "127.0.0.0/8"]),
            only: Vec::new(),
        };
        let own = |address: &str| {
            policy.allows_own(address.parse().expect("an address"), Service::Port(7))
        };
        assert!(own("10.40.0.1") && own("127.0.0.1"));
        assert!(!own("10.30.0.1") && !own("8.8.8.8"));
    }

    #[test]
    fn metadata_services_are_opened_by_name_alone() {
        let wide = Policy {
            allow: entries(["0.0.0.0/0", "::/0"]),
            only: Vec::new(),
        };
        for address in METADATA {
            for policy in [&Policy::default(), &wide] {
                let verdict = policy.check(address, Service::Port(80), &[]);
                assert_eq!(verdict, Err(Denied::Metadata), "{address}");
            }
            let alone = Policy {
                allow: vec![ipnet::IpNet::from(address).into()],
                only: Vec::new(),
            };
            assert_eq!(
                alone.check(address, Service::Port(80), &[]),
                Ok(()),
                "{address}"
            );
        }
        assert_eq!(check(&wide, "::ffff:168.63.129.16"), Err(Denied::Metadata));
    }

    #[test]
    fn ports_of_allow_and_only_bind() {
        let policy = Policy {
            allow: entries(["10.30.0.0/24:22", "[fd00:30::/64]:22"]),
            only: Vec::new(),
        };
        for address in ["10.30.0.9", "fd00:30::9"] {
            let at = |service| check_at(&policy, address, service);
            assert_eq!(at(Service::Port(22)), Ok(()));
            assert_eq!(at(Service::Port(23)), Err(Denied::OtherPort));
            assert_eq!(at(Service::Portless), Err(Denied::OtherPort));
            assert_eq!(at(Service::Related), Ok(()));
        }
        // `allow` takes nothing away.
        assert_eq!(check_at(&policy, "8.8.8.8", Service::Port(25)), Ok(()));
        let policy = Policy {
            allow: Vec::new(),
            only: entries(["0.0.0.0/0:80,443"]),
        };
        assert_eq!(check_at(&policy, "8.8.8.8", Service::Port(443)), Ok(()));
        for service in [Service::Port(25), Service::Portless] {
            let verdict = check_at(&policy, "8.8.8.8", service);
            assert_eq!(verdict, Err(Denied::OtherPort));
        }
        assert_eq!(
            check_at(&policy, "10.0.0.1", Service::Port(443)),
            Err(Denied::NotPublic)
        );
        assert!(policy.has_ports() && !Policy::default().has_ports());
    }

    #[test]
    fn what_a_translator_leads_to_is_judged_as_well() {
        let translation = Translation::new("2600:64::/96".parse().expect("a prefix"));
        let translations = [translation.expect("a prefix of RFC 6052")];
        let check = |policy: &Policy, address: &str| {
            let address = address.parse().expect("an address");
            policy.check(address, Service::Port(7), &translations)
        };
        let inside = Denied::Translated(Ipv4Addr::new(10, 0, 0, 1));
        let policy = Policy::default();
        assert_eq!(check(&policy, "2600:64::808:808"), Ok(()));
        assert_eq!(check(&policy, "2600:64::a00:1"), Err(inside));
        assert_eq!(check(&policy, "2600:64::a9fe:a9fe"), Err(Denied::Metadata));
        assert_eq!(check(&policy, "2600:65::a00:1"), Ok(()));
        for (allow, verdict) in [
            ("2600::/16", Err(inside)),
            ("2600:64::/96", Ok(())),
            ("2600:64::a00:1", Ok(())),
            ("10.0.0.0/8", Ok(())),
        ] {
            let policy = Policy {
                allow: entries([allow]),
                only: Vec::new(),
            };
            assert_eq!(check(&policy, "2600:64::a00:1"), verdict, "{allow}");
        }
    }
}
