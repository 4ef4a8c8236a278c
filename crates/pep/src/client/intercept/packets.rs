//! The chains for all traffic but TCP and DNS: into our device, direct, or nowhere.
//!
//! Into the device leads a mark; behind the device the packets are the tunnel's. They leave with an address of
//! the device, which the other end has assigned: LANs overlap from one client to the next. Hosts in a prefix that the other
//! end routes here keep their own.

use std::net::IpAddr;

use super::ruleset::{ICMP, names};
use super::{Interception, Lan, Other, draining};
use crate::firewall::{Chain, Family};

/// The chains `other`, `tunnelled` and `direct`, and the hooks that belong to the device; `own` are this machine's addresses
/// in its LANs.
pub(super) fn chains(it: &Interception, own: &[IpAddr]) -> String {
    let direct = it.routing.direct().set();
    let mut chains = vec![Chain::new("direct").rule(direct + " accept")];
    let sources = [
        Some(PacketSource::Lan),
        it.local.then_some(PacketSource::Own),
    ];
    let sources = sources.into_iter().flatten();
    if it.needs_device() {
        chains.extend(sources.clone().map(|source| tunnelled(it, source)));
        chains.push(answers(it, own));
        if !it.device.published.is_empty() {
            chains.extend(published(it));
        }
        chains.push(assigned(it));
    }
    chains.extend(sources.map(|source| other(it, source)));
    chains.iter().map(Chain::to_string).collect()
}

/// Source of packets that are taken in; the packets of each have chains of their own.
#[derive(Debug, Clone, Copy)]
pub(super) enum PacketSource {
    /// Hosts of the LAN.
    Lan,
    /// This machine.
    Own,
}

impl PacketSource {
    /// End of the names of the source's chains.
    pub(super) const fn suffix(self) -> &'static str {
        match self {
            Self::Lan => "",
            Self::Own => "_own",
        }
    }
}

/// Chain of what is neither TCP nor DNS, or not carried as such.
fn other(it: &Interception, source: PacketSource) -> Chain {
    let suffix = source.suffix();
    // A browser then tries TCP, which is accelerated.
    let http3 = "udp dport 443 counter reject with icmpx type port-unreachable";
    Chain::new(format!("other{suffix}"))
        .rules(
            it.reject_http3
                .then(|| it.routing.intercepted().set_on_connection()),
        )
        .rules(it.reject_http3.then_some(http3))
        .rule(match it.other {
            Other::Tunnel => format!("goto tunnelled{suffix}"),
            Other::Direct => "goto direct".to_owned(),
            Other::Drop => "counter drop".to_owned(),
        })
}

/// Rules by which what goes into the device gets an address of it, but for hosts that the other end knows by their own.
fn assigned(it: &Interception) -> Chain {
    let device = &it.device.name;
    let routed =
        routed(it).map(|(family, prefixes)| format!("{} saddr {prefixes} return", family.header()));
    // Without a range the kernel would take any free port from 1024 on. What it has below stays there.
    let narrow = it.device.udp_ports_below.map(|below| {
        let last = below.saturating_sub(1);
        format!("udp sport 1024-65535 masquerade to :1024-{last}")
    });
    Chain::at("assigned", "nat", "postrouting priority srcnat")
        .rule(format_args!("oifname != \"{device}\" return"))
        .rules(routed)
        .rules(narrow)
        .rule("masquerade")
}

/// Rule that marks what the device delivers, so that a check of its source (`rp_filter`) finds a way back to it in any case.
pub(super) fn delivered(it: &Interception) -> Option<String> {
    let delivered = it.routing.delivered();
    it.needs_device().then(|| {
        format!(
            "iifname \"{}\" {} {}",
            it.device.name,
            delivered.none_borne(),
            delivered.set()
        )
    })
}

/// Rules on what the device delivers: answers, and what is for published ports and routed prefixes. The other end is no neighbour
/// that may connect to anything else of this machine or its LANs. Whatever comes back on such a connection goes back the
/// way it came.
pub(super) fn arriving(it: &Interception) -> Vec<String> {
    if !it.needs_device() {
        return Vec::new();
    }
    let device = &it.device.name;
    let tunnel = it.routing.tunnel();
    let (ours, mark) = (tunnel.borne_by_connection(), tunnel.set());
    let back = format!("iifname != \"{device}\" ct direction reply {ours}");
    let mut rules = Vec::new();
    if !it.device.published.is_empty() {
        rules.push(format!("iifname \"{device}\" ct state new jump published"));
        rules.push(format!("{back} ct status dnat {mark} accept"));
    }
    for (family, prefixes) in routed(it) {
        let (header, icmp) = (family.header(), family.icmp());
        let begun = format!("iifname \"{device}\" ct state new {header} daddr {prefixes}");
        let mark_ct = tunnel.set_on_connection();
        rules.push(format!("{begun} fib daddr type unicast {mark_ct} accept"));
        // This machine is no host of the LAN: it answers a ping, and no more.
        rules.push(format!(
            "{begun} {icmp} type echo-request fib daddr type local {mark_ct} accept"
        ));
        rules.push(format!(
            "{back} ct original {header} daddr {prefixes} {mark} accept"
        ));
    }
    rules.push(format!(
        "iifname \"{device}\" ct state new,invalid,untracked counter drop"
    ));
    rules
}

/// Rule by which what the device delivers leaves by the LAN's interfaces or not at all: while one is down, or another route covers its
/// prefix, routes lead over the link.
pub(super) fn astray(it: &Interception) -> Option<String> {
    let rule = || {
        format!(
            "iifname \"{}\" oifname != {{ {} }} counter drop",
            it.device.name,
            names(it)
        )
    };
    it.needs_device().then(rule)
}

/// Rules by which nothing goes from one LAN to another, or past the tunnel, where this machine forwards for us alone: forwarding was opened
/// for what the device carries.
pub(super) fn opened_for_us(it: &Interception, lan: &Lan) -> impl Iterator<Item = String> {
    let device = &it.device.name;
    let needed = it.needs_device();
    let whole = lan.has_opened_machine();
    lan.shut().filter(move |_| needed).map(move |family| {
        let (protocol, digit) = (family.protocol(), family.digit());
        let by = match family {
            Family::V6 if whole => String::new(),
            _ => format!("iifname @forwarding{digit} "),
        };
        format!(
            "meta nfproto {protocol} {by}iifname != \"{device}\" oifname != \"{device}\" counter drop"
        )
    })
}

/// The routed prefixes of each family that has any, as an anonymous set.
fn routed(it: &Interception) -> impl Iterator<Item = (Family, String)> {
    let of = |family: Family| Some((family, family.merged(&it.device.routed)?));
    Family::BOTH.into_iter().filter_map(of)
}

/// Rules by which TCP of some destinations goes into the device.
pub(super) fn tcp(it: &Interception, source: PacketSource) -> impl Iterator<Item = String> {
    let suffix = source.suffix();
    let of = move |family: Family| {
        let destinations = family.merged(&it.device.tcp.destinations)?;
        let header = family.header();
        Some(format!(
            "meta l4proto tcp {header} daddr {destinations} goto tunnelled{suffix}"
        ))
    };
    let leads = it.device.tcp.leads.then_some(Family::BOTH);
    leads.into_iter().flatten().filter_map(of)
}

/// Published ports: what comes for one is led to its host, and no further.
fn published(it: &Interception) -> [Chain; 2] {
    let mut admit = Chain::new("published");
    let mut lead = Chain::at("lead", "nat", "prerouting priority dstnat")
        .rule(format_args!("iifname != \"{}\" return", it.device.name));
    let mark = it.routing.tunnel().set_on_connection();
    for (port, to) in &it.device.published {
        let family = Family::of(to.ip());
        let (protocol, header) = (family.protocol(), family.header());
        let meant = format!("meta nfproto {protocol} udp dport {port} fib daddr type local");
        admit = admit.rule(format_args!("{meant} {mark} accept"));
        lead = lead.rule(format_args!("{meant} dnat {header} to {to}"));
    }
    [admit, lead]
}

/// The connection is marked as well, for [`answers`].
fn tunnelled(it: &Interception, source: PacketSource) -> Chain {
    let mark = match source {
        PacketSource::Lan => it.routing.tunnel(),
        PacketSource::Own => it.routing.local_tunnel(),
    };
    let refused = it.out_of_reach().map(|family| {
        let protocol = family.protocol();
        format!("meta nfproto {protocol} counter reject with icmpx type no-route")
    });
    let of_connection = it.routing.tunnel().set_on_connection();
    // A program of this machine would be told of an error, and not send again.
    let waits = matches!(source, PacketSource::Lan);
    let draining = waits.then(|| draining::of_flows(it.routing.tunnel()));
    Chain::new(format!("tunnelled{}", source.suffix()))
        .rules(refused)
        .rules(draining)
        .rule(format_args!("ct state new {of_connection}"))
        .rule(format_args!("{} accept", mark.set()))
}

/// The kernel's own ICMP errors about packets that the device delivered (nobody listens, too big, no such host) quote
/// these, and must go back the way they came. Those about the LAN's packets (too many hops) go to the LAN.
fn answers(it: &Interception, own: &[IpAddr]) -> Chain {
    let ours = it.routing.tunnel().borne_by_connection();
    let mark = it.routing.local_tunnel().set();
    let mut chain = Chain::at("answers", "route", "output priority mangle - 1").rule(format_args!(
        "{ICMP} ct state related ct direction original {ours} {mark}"
    ));
    if !it.device.published.is_empty() {
        // A published port's host may be this machine.
        chain = chain.rule(format_args!(
            "ct direction reply ct status dnat {ours} {mark} accept"
        ));
    }
    let within = |address: &&IpAddr| it.device.routed.iter().any(|net| net.contains(*address));
    for (family, prefixes) in routed(it) {
        let (header, icmp) = (family.header(), family.icmp());
        let known = format!("ct direction reply ct original {header} daddr {prefixes} {ours}");
        // The kernel speaks from where its own route to the other end leads: an address that is nobody's there.
        let mut own = own.iter().filter(|address| Family::of(**address) == family);
        if let Some(address) = own.find(within) {
            chain = chain.rule(format_args!(
                "meta l4proto {icmp} ct state related {known} {header} saddr set {address} {mark} accept"
            ));
        }
        // And so may one of a routed prefix.
        chain = chain.rule(format_args!("{known} {mark} accept"));
    }
    chain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http3_is_refused_before_anything_is_marked() {
        let mut it = Interception::new(7);
        it.reject_http3 = true;
        for other in [Other::Tunnel, Other::Direct, Other::Drop] {
            it.other = other;
            let text = chains(&it, &[]);
            let (_, chain) = text.split_once("chain other").unwrap();
            let first = chain.lines().nth(2).unwrap();
            assert!(first.contains("udp dport 443 counter reject"), "{chain}");
        }
    }

    #[test]
    fn published_ports_are_admitted_and_all_else_is_dropped() {
        let mut it = Interception::new(7);
        it.other = Other::Tunnel;
        let unpublished = arriving(&it).concat();
        assert!(unpublished.contains("ct state new,invalid,untracked counter drop"));
        assert!(!unpublished.contains("published") && !chains(&it, &[]).contains("dnat"));
        it.device.published = vec![
            (5060, ([10, 1, 0, 20], 5061).into()),
            (5060, ([0xfd00, 0, 0, 0, 0, 0, 0, 1], 5062).into()),
        ];
        let (first, rest) = (arriving(&it).concat(), chains(&it, &[]));
        let (admitted, dropped) = (first.find("jump published"), first.find("counter drop"));
        assert!(admitted.unwrap() < dropped.unwrap(), "{first}");
        assert!(rest.contains("dnat ip to 10.1.0.20:5061"), "{rest}");
        assert!(rest.contains("dnat ip6 to [fd00::1]:5062"), "{rest}");
        // Of a device that is not there, nothing is said.
        it.other = Other::Direct;
        assert!(arriving(&it).is_empty() && !chains(&it, &[]).contains("dnat"));
    }

    #[test]
    fn routed_prefixes_are_admitted_and_keep_their_addresses() {
        let mut it = Interception::new(7);
        it.interfaces = vec!["lan0".into()];
        it.other = Other::Tunnel;
        assert!(!chains(&it, &[]).contains("saddr"));
        let rule = "iifname \"bentpipe0\" oifname != { \"lan0\" } counter drop";
        assert_eq!(astray(&it).as_deref(), Some(rule));
        // The host's bits of a prefix do not count, and one inside another is that.
        let prefixes = ["10.1.0.1/24", "10.1.0.128/25", "fd00:1::/64"];
        it.device.routed = prefixes.map(|prefix| prefix.parse().unwrap()).into();
        let (first, rest) = (arriving(&it).concat(), chains(&it, &[]));
        for (family, set) in [("ip", "{ 10.1.0.0/24 }"), ("ip6", "{ fd00:1::/64 }")] {
            let admit = format!(
                "iifname \"bentpipe0\" ct state new {family} daddr {set} fib daddr type unicast"
            );
            let drop = first.find("untracked counter drop").unwrap();
            assert!(first.find(&admit).unwrap() < drop, "{first}");
            let keep = rest.find(&format!("{family} saddr {set} return"));
            assert!(
                keep.unwrap() < rest.find("    masquerade").unwrap(),
                "{rest}"
            );
        }
        it.other = Other::Direct;
        assert!(arriving(&it).is_empty() && astray(&it).is_none());
    }

    #[test]
    fn ports_of_others_are_given_to_nobody() {
        let mut it = Interception::new(7);
        it.other = Other::Tunnel;
        assert!(!chains(&it, &[]).contains("masquerade to"));
        it.device.udp_ports_below = Some(64_512);
        let text = chains(&it, &[]);
        let narrow = text.find("udp sport 1024-65535 masquerade to :1024-64511\n");
        assert!(
            narrow.unwrap() < text.find("    masquerade\n").unwrap(),
            "{text}"
        );
    }

    #[test]
    fn without_packets_in_the_tunnel_nothing_is_said_of_a_device() {
        let mut it = Interception::new(7);
        it.other = Other::Direct;
        assert!(!chains(&it, &[]).contains("bentpipe0") && arriving(&it).is_empty());
    }

    #[test]
    fn where_ipv6_is_opened_for_the_whole_machine_nothing_else_is_forwarded() {
        let mut it = Interception::new(7);
        it.other = Other::Tunnel;
        let mut lan = Lan::default();
        let of_ipv6 = |lan: &Lan| opened_for_us(&it, lan).last().unwrap();
        assert!(of_ipv6(&lan).contains("iifname @forwarding6"));
        lan.note_opened_machine();
        let rule =
            "meta nfproto ipv6 iifname != \"bentpipe0\" oifname != \"bentpipe0\" counter drop";
        assert_eq!(of_ipv6(&lan), rule);
    }
}
