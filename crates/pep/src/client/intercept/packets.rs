//! The chains for all traffic but TCP and DNS: into our device, direct, or nowhere.
//!
//! Into the device leads a mark; behind the device the packets are the tunnel's. They leave with an address of
//! the device, which the other end has assigned: LANs overlap from one client to the next. Hosts in a prefix that the other
//! end routes here keep their own.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

use super::ruleset::{ICMP, names, set_mark};
use super::{Interception, Other};

/// The chains `other`, `tunnelled` and `direct`, and the hooks that belong to the device; `own` are this machine's addresses
/// in its LANs.
pub(super) fn chains(it: &Interception, own: &[IpAddr]) -> String {
    let mut text = format!(
        "  chain direct {{\n    {} accept\n  }}\n",
        set_mark(it, it.direct_mark)
    );
    if it.needs_device() {
        text.push_str(&tunnelled(it));
        text.push_str(&answers(it, own));
        text.push_str(&published(it));
        text.push_str(&assigned(it));
    }
    text.push_str("  chain other {\n");
    if it.reject_http3 {
        // A browser then tries TCP, which is accelerated.
        text.push_str("    udp dport 443 counter reject with icmpx type port-unreachable\n");
    }
    text.push_str(match it.other {
        Other::Tunnel => "    goto tunnelled\n  }\n",
        Other::Direct => "    goto direct\n  }\n",
        Other::Drop => "    counter drop\n  }\n",
    });
    text
}

/// Rules by which what goes into the device gets an address of it, but for hosts that the other end knows by their own.
fn assigned(it: &Interception) -> String {
    let mut text = format!(
        "  chain assigned {{\n    type nat hook postrouting priority srcnat; policy accept;\n    oifname != \"{}\" return\n",
        it.device
    );
    for (family, _, prefixes) in routed(it) {
        let _ = writeln!(text, "    {family} saddr {prefixes} return");
    }
    if let Some(below) = it.udp_ports_below {
        // Without a range the kernel would take any free port from 1024 on. What it has below stays there.
        let _ = writeln!(
            text,
            "    udp sport 1024-65535 masquerade to :1024-{}",
            below.saturating_sub(1)
        );
    }
    text + "    masquerade\n  }\n"
}

/// Rules on what the device delivers: answers, and what is for published ports and routed prefixes. The other end is no neighbour
/// that may connect to anything else of this machine or its LANs. Whatever comes back on such a connection goes back the
/// way it came.
pub(super) fn arriving(it: &Interception) -> String {
    if !it.needs_device() {
        return String::new();
    }
    let mut text = String::new();
    let (device, mark) = (&it.device, set_mark(it, it.tunnel_mark));
    let back = format!(
        "iifname != \"{device}\" ct direction reply ct mark & {:#x} == {:#x}",
        it.mark_mask, it.tunnel_mark
    );
    if !it.published.is_empty() {
        let _ = writeln!(
            text,
            "    iifname \"{device}\" ct state new jump published\n    {back} ct status dnat {mark} accept"
        );
    }
    for (family, icmp, prefixes) in routed(it) {
        let mark_ct = mark_connection(it);
        // This machine is no host of the LAN: it answers a ping, and no more.
        let _ = writeln!(
            text,
            "    iifname \"{device}\" ct state new {family} daddr {prefixes} fib daddr type unicast {mark_ct} accept\n    \
             iifname \"{device}\" ct state new {family} daddr {prefixes} {icmp} type echo-request fib daddr type local {mark_ct} accept\n    \
             {back} ct original {family} daddr {prefixes} {mark} accept"
        );
    }
    let _ = writeln!(
        text,
        "    iifname \"{device}\" ct state new,invalid,untracked counter drop",
    );
    text
}

/// Rules by which what is for routed prefixes leaves by the LAN's interfaces or not at all: while one is down, other routes lead
/// over the link.
pub(super) fn astray(it: &Interception) -> String {
    let mut text = String::new();
    if it.needs_device() {
        for (family, _, prefixes) in routed(it) {
            let _ = writeln!(
                text,
                "    iifname \"{}\" {family} daddr {prefixes} oifname != {{ {} }} counter drop",
                it.device,
                names(it)
            );
        }
    }
    text
}

/// The routed prefixes of each family that has any, as an anonymous set, with the names of the family and of its ICMP.
fn routed(it: &Interception) -> impl Iterator<Item = (&'static str, &'static str, String)> {
    let families = [("ip", "icmp", false), ("ip6", "icmpv6", true)];
    families.into_iter().filter_map(|(family, icmp, ipv6)| {
        let of_family = it.routed.iter().map(IpNet::trunc);
        let of_family = of_family.filter(|prefix| prefix.addr().is_ipv6() == ipv6);
        // Overlapping ones are refused in a set.
        let joined = IpNet::aggregate(&of_family.collect());
        let list: Vec<_> = joined.iter().map(ToString::to_string).collect();
        (!list.is_empty()).then(|| (family, icmp, format!("{{ {} }}", list.join(", "))))
    })
}

fn family_of(address: IpAddr) -> &'static str {
    match address {
        IpAddr::V4(_) => "ip",
        IpAddr::V6(_) => "ip6",
    }
}

/// Rule that marks a connection, so that what comes back on it is known.
fn mark_connection(it: &Interception) -> String {
    format!(
        "ct mark set ct mark & {:#x} | {:#x}",
        !it.mark_mask, it.tunnel_mark
    )
}

/// Published ports: what comes for one is led to its host, and no further.
fn published(it: &Interception) -> String {
    if it.published.is_empty() {
        return String::new();
    }
    let mut admit = String::from("  chain published {\n");
    let mut lead = format!(
        "  chain lead {{\n    type nat hook prerouting priority dstnat; policy accept;\n    iifname != \"{}\" return\n",
        it.device
    );
    for (port, to) in &it.published {
        let (nfproto, family) = match to {
            SocketAddr::V4(_) => ("ipv4", "ip"),
            SocketAddr::V6(_) => ("ipv6", "ip6"),
        };
        let meant = format!("meta nfproto {nfproto} udp dport {port} fib daddr type local");
        let _ = writeln!(admit, "    {meant} {} accept", mark_connection(it));
        let _ = writeln!(lead, "    {meant} dnat {family} to {to}");
    }
    format!("{admit}  }}\n{lead}  }}\n")
}

/// The connection is marked as well, for [`answers`].
fn tunnelled(it: &Interception) -> String {
    let mut text = String::from("  chain tunnelled {\n");
    for (wanted, family) in [(it.ipv4, "ipv4"), (it.ipv6, "ipv6")] {
        if !wanted {
            let _ = writeln!(
                text,
                "    meta nfproto {family} counter reject with icmpx type no-route"
            );
        }
    }
    let _ = writeln!(
        text,
        "    ct state new {}\n    {} accept\n  }}",
        mark_connection(it),
        set_mark(it, it.tunnel_mark)
    );
    text
}

/// The kernel's own ICMP errors about packets that the device delivered (nobody listens, too big, no such host) quote
/// these, and must go back the way they came. Those about the LAN's packets (too many hops) go to the LAN.
fn answers(it: &Interception, own: &[IpAddr]) -> String {
    let (ours, mark) = (
        format!("ct mark & {:#x} == {:#x}", it.mark_mask, it.tunnel_mark),
        set_mark(it, it.tunnel_mark),
    );
    let mut text = format!(
        "  chain answers {{\n    type route hook output priority mangle - 1; policy accept;\n    {ICMP} ct state related ct direction original {ours} {mark}\n"
    );
    if !it.published.is_empty() {
        // A published port's host may be this machine.
        let _ = writeln!(
            text,
            "    ct direction reply ct status dnat {ours} {mark} accept"
        );
    }
    for (family, icmp, prefixes) in routed(it) {
        let known = format!("ct direction reply ct original {family} daddr {prefixes} {ours}");
        // The kernel speaks from where its own route to the other end leads: an address that is nobody's there.
        let within = |address: &&IpAddr| it.routed.iter().any(|prefix| prefix.contains(*address));
        let mut own = own.iter().filter(|address| family_of(**address) == family);
        if let Some(address) = own.find(within) {
            let _ = writeln!(
                text,
                "    meta l4proto {icmp} ct state related {known} {family} saddr set {address} {mark} accept"
            );
        }
        // And so may one of a routed prefix.
        let _ = writeln!(text, "    {known} {mark} accept");
    }
    text + "  }\n"
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
            let first = chain.lines().nth(1).unwrap();
            assert!(first.contains("udp dport 443 counter reject"), "{chain}");
        }
    }

    #[test]
    fn published_ports_are_admitted_and_all_else_is_dropped() {
        let mut it = Interception::new(7);
        it.other = Other::Tunnel;
        let unpublished = arriving(&it);
        assert!(unpublished.contains("ct state new,invalid,untracked counter drop"));
        assert!(!unpublished.contains("published") && !chains(&it, &[]).contains("dnat"));
        it.published = vec![
            (5060, ([10, 1, 0, 20], 5061).into()),
            (5060, ([0xfd00, 0, 0, 0, 0, 0, 0, 1], 5062).into()),
        ];
        let (first, rest) = (arriving(&it), chains(&it, &[]));
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
        assert!(astray(&it).is_empty() && !chains(&it, &[]).contains("saddr"));
        // The host's bits of a prefix do not count, and one inside another is that.
        let prefixes = ["10.1.0.1/24", "10.1.0.128/25", "fd00:1::/64"];
        it.routed = prefixes.map(|prefix| prefix.parse().unwrap()).into();
        let (first, rest, astray) = (arriving(&it), chains(&it, &[]), astray(&it));
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
            let astray_line =
                format!("{family} daddr {set} oifname != {{ \"lan0\" }} counter drop");
            assert!(astray.contains(&astray_line), "{astray}");
        }
        it.other = Other::Direct;
        assert!(arriving(&it).is_empty() && super::astray(&it).is_empty());
    }

    #[test]
    fn ports_of_others_are_given_to_nobody() {
        let mut it = Interception::new(7);
        it.other = Other::Tunnel;
        assert!(!chains(&it, &[]).contains("masquerade to"));
        it.udp_ports_below = Some(64_512);
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
}
