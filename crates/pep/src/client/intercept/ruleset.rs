//! The text of the table `inet bentpipe_client`: a pure function of what is to be intercepted.
//!
//! Order is the point: exempt, refuse, mark, tproxy, drop. TPROXY without a listener leaves its rule and
//! the next one drops; a mark without a route is caught on the way out. It runs nothing.
//!
//! ```text
//! LAN ──► prerouting ─► from_lan ─┬ TCP ──► intercept ─► (lo route) ─► listener
//!                                 ├ DNS ──► dns ───────► (lo route) ─► DNS listener
//!                                 ├ rest ─► other ─► mark ─► forward ─► device ─► masquerade
//!                                 └ exempt, direct ────────► forward: passes, what has no reason to is dropped
//! own ──► output: the same marks; TCP and DNS come back by lo ─► prerouting      wrong way out ─► guard_out
//! ```

use std::net::IpAddr;

use bentpipe_sys::connections::Inbound;
use ipnet::IpNet;

use super::kept::Kept;
use super::packets::{self, PacketSource};
use super::{DnsInterception, Interception, Lan, RouterDns};
use super::{draining, gate, hooks, inbound, policy};
use crate::firewall::{Chain, Family, Set};

/// A SYN that opens a connection.
pub(super) const OPENING: &str = "tcp flags & (syn | ack) == syn";
pub(super) const ICMP: &str = "meta l4proto { icmp, icmpv6 }";
/// Name lookups.
pub(super) const DNS: &str = "meta l4proto { tcp, udp } th dport 53";
pub(super) const EXEMPT: [&str; 2] = ["ip daddr @exempt4 return", "ip6 daddr @exempt6 return"];
/// Exemption for what the LAN forwards: it bears the mark of what may leave in clear, because a routing rule bars what has none
/// ([`super::barrier`]).
pub(super) const LEFT_ALONE: [&str; 2] = [
    "ip daddr @exempt4 goto direct",
    "ip6 daddr @exempt6 goto direct",
];
pub(super) const NEVER: &str = "fib daddr type { local, broadcast, multicast, anycast } return";
/// Packets of this machine to its neighbours on a link that the link needs to work: addresses, routers, groups.
pub(super) const NEIGHBOURS: [&str; 3] = [
    "icmpv6 type { nd-router-solicit, nd-router-advert, nd-neighbor-solicit, nd-neighbor-advert, mld-listener-query, mld-listener-report, mld-listener-done, mld2-listener-report } ip6 hoplimit { 1, 255 } return",
    "ip protocol igmp ip ttl 1 return",
    "udp sport . udp dport { 68 . 67, 67 . 68, 546 . 547, 547 . 546 } return",
];

/// The sets and chains, as between the braces of the table.
pub(super) fn body(it: &Interception, lan: &Lan, inbound: &[Inbound], kept: &Kept) -> String {
    let mut text = exempt_sets(&exempt(it, lan.prefixes()));
    text.push_str(&refusals());
    text.push_str(&policy::sets(&it.rules, kept));
    text.push_str(&gate::sets());
    if it.local {
        text.push_str(&inbound::set(inbound));
    }
    text.push_str(&refuse(it).to_string());
    text.push_str(&gate::chains(&it.gates));
    text.push_str(&draining::chain(it.carrying).to_string());
    text.push_str(&intercept(it).to_string());
    text.push_str(&printed(
        it.dns.map(|dns| lookups(it, dns)).into_iter().flatten(),
    ));
    text.push_str(&packets::chains(it, lan.addresses()));
    text.push_str(&printed(rules(it)));
    let held = lan.surfaces();
    text.push_str(&printed(hooks::prerouting(it, &held)));
    let forward = (!it.interfaces.is_empty()).then(|| hooks::forward(it, lan));
    text.push_str(&printed(forward));
    text.push_str(&printed(hooks::renamed(it, lan.indices())));
    text.push_str(&printed(hooks::held(&held)));
    if it.local {
        text.push_str(&printed(hooks::output(it)));
    }
    text.push_str(&printed([hooks::guard_out(it), hooks::guard_in(it)]));
    text.push_str(&quiet(&it.server).to_string());
    text
}

/// The text of chains, one behind the other.
pub(super) fn printed(chains: impl IntoIterator<Item = Chain>) -> String {
    chains.into_iter().map(|chain| chain.to_string()).collect()
}

/// A daemon that was killed leaves datagrams of its peer unclaimed, and the kernel would answer each
/// across the link with an ICMP error.
fn quiet(servers: &[IpAddr]) -> Chain {
    let rules = servers.iter().map(|server| {
        let family = Family::of(*server);
        let (header, icmp) = (family.header(), family.icmp());
        format!(
            "{header} daddr {server} {icmp} type destination-unreachable {icmp} code port-unreachable drop"
        )
    });
    Chain::at("quiet", "filter", "output priority filter").rules(rules)
}

/// Destinations that are left alone.
pub(super) fn exempt(it: &Interception, connected: &[IpNet]) -> Vec<IpNet> {
    link_local()
        .chain(connected.iter().copied())
        .chain(it.bypass.iter().map(IpNet::trunc))
        .chain(it.server.iter().map(|address| IpNet::from(*address)))
        .collect()
}

pub(super) fn link_local() -> impl Iterator<Item = IpNet> {
    let nets = ["169.254.0.0/16", "fe80::/10"].map(|net| net.parse::<IpNet>());
    nets.into_iter().flatten()
}

/// The sets `exempt4` and `exempt6`.
pub(super) fn exempt_sets(exempt: &[IpNet]) -> String {
    let set = |family: Family| {
        let own = exempt.iter();
        let own = own.filter(|net| Family::of(net.addr()) == family);
        Set::new(format!("exempt{}", family.digit()), family.address())
            .with("flags interval")
            // Prefixes of the user may overlap, which nft refuses otherwise.
            .with("auto-merge")
            .elements(own)
            .to_string()
    };
    Family::BOTH.map(set).concat()
}

/// The sets of destinations that connections are refused to.
fn refusals() -> String {
    let set = |family: Family| {
        ["refused", "unreachable"].map(|name| {
            let kind = format!("{} . inet_service", family.address());
            Set::new(format!("{name}{}", family.digit()), kind)
                .with("flags timeout")
                .with("size 65535")
                .to_string()
        })
    };
    Family::BOTH.map(set).concat().concat()
}

/// The rules, asked in both ways in, and where each leads what is to be carried.
fn rules(it: &Interception) -> Vec<Chain> {
    let carry = |name: &str, source: PacketSource, dns: &str, end: &str| {
        let suffix = source.suffix();
        let dns = it.dns.map(|_| format!("{DNS} {dns}"));
        Chain::new(format!("{name}{suffix}"))
            .rules(dns)
            .rules(packets::tcp(it, source))
            .rule(format_args!("meta l4proto tcp goto intercept{suffix}"))
            .rule(format_args!("goto {end}{suffix}"))
    };
    let always = match it.needs_device() {
        true => "tunnelled",
        false => "other",
    };
    let both = |source: PacketSource, dns: &str| {
        let suffix = source.suffix();
        [
            carry("carry", source, dns, "other"),
            carry("carry_always", source, dns, always),
            policy::chain(
                &it.rules,
                &format!("rules{suffix}"),
                &format!("carry_always{suffix}"),
            ),
        ]
    };
    let mut chains = vec![policy::blocked(it.routing.intercepted())];
    chains.extend(both(PacketSource::Lan, "goto dns"));
    if it.local {
        // The changed mark makes the output hook route again, to loopback; the rest happens in prerouting there.
        let taken = it.routing.local_intercepted().set() + " accept";
        chains.push(Chain::new("intercept_own").rule("jump refuse").rule(&taken));
        chains.extend(both(PacketSource::Own, &taken));
    }
    chains
}

/// Name lookups, to our own listener. What a host asks of the router's addresses as well, unless they are in `bypass` or
/// another name server is to have them.
fn lookups(it: &Interception, DnsInterception { port, router }: DnsInterception) -> [Chain; 2] {
    let dns = Chain::new("dns")
        .rules(draining::of_lookups())
        .rule(it.routing.intercepted().set_on_connection())
        .rule(it.routing.intercepted().set())
        .rule(format_args!("{DNS} tproxy to :{port} accept"))
        .rules(unheard(it));
    let bypass = it.bypass.iter().map(|net| {
        let header = Family::of(net.addr()).header();
        format!("{header} daddr {} return", net.trunc())
    });
    // The kernel looks for the socket that would get the packet, each time: a name server that starts or ends later counts.
    let wildcards: &[u8] = match router {
        RouterDns::Auto => &[0],
        RouterDns::Leave => &[0, 1],
        RouterDns::Answer => &[],
    };
    // The rest of a TCP connection is for whom its first packet was for. `socket wildcard` does not see a connection whose
    // handshake is under way.
    let rest = (!wildcards.is_empty())
        .then_some("tcp flags & (syn | ack) != syn socket transparent 0 return");
    let wildcards = wildcards.iter();
    let of_router = Chain::new("dns_of_router")
        .rules(bypass)
        .rules(wildcards.map(|wildcard| format!("socket wildcard {wildcard} return")))
        .rules(rest)
        .rule("goto dns");
    [dns, of_router]
}

/// Answers new connections to what cannot be had. Own connections come here from the output hook: in
/// prerouting the destination has already become local, so that the kernel would send its ICMP error
/// from an address it does not have, and drops it instead.
fn refuse(it: &Interception) -> Chain {
    // A missing family meets a browser's dozens of attempts at once: a reset, for the kernel limits the rate of ICMP errors per host.
    let families = it.out_of_reach().flat_map(|family| {
        let protocol = family.protocol();
        [
            format!("meta nfproto {protocol} {OPENING} reject with tcp reset"),
            format!("meta nfproto {protocol} counter drop"),
        ]
    });
    let answers = [
        ("refused", "tcp reset"),
        ("unreachable", "icmpx type host-unreachable"),
    ];
    let destinations = answers.into_iter().flat_map(|(set, answer)| {
        Family::BOTH.map(|family| {
            let (header, digit) = (family.header(), family.digit());
            format!("{OPENING} {header} daddr . tcp dport @{set}{digit} reject with {answer}")
        })
    });
    Chain::new("refuse").rules(families).rules(destinations)
}

fn intercept(it: &Interception) -> Chain {
    // What answers on the connection is known by its mark, refusals first of all; see `hooks::guard_out`.
    Chain::new("intercept")
        .rule(it.routing.intercepted().set_on_connection())
        .rule("jump refuse")
        .rule(format_args!("{OPENING} jump gates"))
        .rule(draining::of_connections())
        .rule(it.routing.intercepted().set())
        .rule(format_args!(
            "meta l4proto tcp tproxy to :{} accept",
            it.port
        ))
        .rules(unheard(it))
}

/// Fate of packets for a listener that is not there.
fn unheard(it: &Interception) -> impl Iterator<Item = &'static str> {
    // What this machine sent comes from loopback, with no other way to go.
    let in_clear = it.fail_open.then_some("iifname != \"lo\" goto direct");
    in_clear.into_iter().chain(["counter drop"])
}

/// Names of the intercepted interfaces, as between the braces of an anonymous set.
pub(super) fn names(it: &Interception) -> String {
    let quoted = it.interfaces.iter().map(|name| format!("\"{name}\""));
    quoted.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::hooks::{output, prerouting};
    use super::super::{Carrying, Other};
    use super::*;

    fn position(text: &str, part: &str) -> usize {
        text.find(part)
            .unwrap_or_else(|| panic!("no `{part}` in\n{text}"))
    }

    #[test]
    fn marks_then_tproxies_then_drops() {
        let text = intercept(&Interception::new(7)).to_string();
        let order = [
            "ct mark set",
            "jump refuse",
            "jump gates",
            "meta mark set",
            "tproxy to :7 accept",
            "counter drop",
        ];
        assert!(
            order.map(|part| position(&text, part)).is_sorted(),
            "{text}"
        );
    }

    fn everything() -> Interception {
        let mut it = Interception::new(7);
        it.interfaces = vec!["lan0".into()];
        it.local = true;
        it.other = Other::Tunnel;
        it.dns = Some(DnsInterception::at(8));
        it.reject_http3 = true;
        it
    }

    #[test]
    fn exempts_come_before_anything_else() {
        for other in [Other::Tunnel, Other::Drop, Other::Direct] {
            let it = Interception {
                other,
                ..everything()
            };
            let prerouting = printed(prerouting(&it, &[]));
            let (_, from_lan) = prerouting.split_once("chain from_lan").unwrap();
            for chain in [from_lan, &printed(output(&it))] {
                let exempt = position(chain, "@exempt6");
                let acts = ["meta mark set", "counter drop", "jump rules", "goto carry"];
                for act in acts.into_iter().filter(|act| chain.contains(act)) {
                    assert!(exempt < position(chain, act), "{act} in {chain}");
                }
            }
        }
    }

    #[test]
    fn lookups_are_marked_tproxied_or_dropped() {
        let text = printed(lookups(&everything(), DnsInterception::at(8)));
        let order = ["meta mark set", "tproxy to :8 accept", "counter drop"];
        assert!(
            order.map(|part| position(&text, part)).is_sorted(),
            "{text}"
        );
        // Before the router's own addresses are left alone.
        let text = printed(prerouting(&everything(), &[]));
        assert!(position(&text, "goto dns_of_router") < position(&text, NEVER));
        // Without a listener they are what their protocol is.
        let text = body(
            &Interception {
                dns: None,
                ..everything()
            },
            &Lan::default(),
            &[],
            &Kept::default(),
        );
        assert!(!text.contains("dport 53"), "{text}");
    }

    #[test]
    fn nothing_goes_direct_on_failure_unless_it_may() {
        let mut it = everything();
        // What is exempt goes direct for its destination; nothing does for want of a tunnel.
        let open = |it: &Interception| {
            let text = body(it, &Lan::default(), &[], &Kept::default())
                .replace(LEFT_ALONE[0], "")
                .replace(LEFT_ALONE[1], "");
            text.contains("goto direct")
        };
        assert!(!open(&it));
        // Carrying or not is of no account then.
        it.carrying = Carrying::No;
        assert!(!open(&it));
        it.fail_open = true;
        let (from_lan, own) = (printed(prerouting(&it, &[])), printed(output(&it)));
        for (chain, rules) in [(&from_lan, "jump rules"), (&own, "jump rules_own")] {
            let places = [rules, "    goto direct", "goto carry"].map(|part| position(chain, part));
            assert!(places.is_sorted(), "{chain}");
        }
    }

    #[test]
    fn what_the_router_answers_itself_stays_with_it() {
        let mut it = everything();
        it.bypass = vec![
            "10.1.0.1/32".parse().unwrap(),
            "fd00:1::1/128".parse().unwrap(),
        ];
        let text = printed(lookups(&it, DnsInterception::at(8)));
        let order = [
            "ip daddr 10.1.0.1/32 return",
            "ip6 daddr fd00:1::1/128 return",
            "    goto dns\n",
        ];
        assert!(
            order.map(|part| position(&text, part)).is_sorted(),
            "{text}"
        );
    }

    #[test]
    fn prefixes_land_in_the_set_of_their_family() {
        let mut it = Interception::new(7);
        it.bypass = vec!["198.51.100.7/24".parse().unwrap()];
        it.server = vec!["2001:db8::5".parse().unwrap()];
        let text = exempt_sets(&exempt(&it, &["10.0.0.0/24".parse().unwrap()]));
        assert!(
            text.contains("{ 169.254.0.0/16, 10.0.0.0/24, 198.51.100.0/24 }"),
            "{text}"
        );
        assert!(text.contains("{ fe80::/10, 2001:db8::5/128 }"), "{text}");
    }
}
