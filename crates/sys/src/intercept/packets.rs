//! The chains for all traffic but TCP and DNS: into our device, direct, or nowhere.
//!
//! Into the device leads a mark; behind the device the packets are the tunnel's. They leave with an address of
//! the device, which the other end has assigned: LANs overlap from one client to the next.

use std::fmt::Write as _;
use std::net::SocketAddr;

use super::ruleset::{ICMP, set_mark};
use super::{Interception, Other};

/// The chains `other`, `tunnelled` and `direct`, and the hooks that belong to the device.
pub(super) fn chains(it: &Interception) -> String {
    let mut text = format!(
        "  chain direct {{\n    {} accept\n  }}\n",
        set_mark(it, it.direct_mark)
    );
    if it.needs_device() {
        text.push_str(&tunnelled(it));
        text.push_str(&answers(it));
        text.push_str(&published(it));
        let _ = writeln!(
            text,
            "  chain assigned {{\n    type nat hook postrouting priority srcnat; policy accept;\n    oifname \"{}\" masquerade\n  }}",
            it.device
        );
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

/// What the device delivers: answers, and what is for published ports. The other end is no neighbour that may connect to
/// anything else of this machine or its LANs. Whatever comes back on such a connection goes back the way it came.
pub(super) fn arriving(it: &Interception) -> String {
    if !it.needs_device() {
        return String::new();
    }
    let mut text = String::new();
    if !it.published.is_empty() {
        let _ = writeln!(
            text,
            "    iifname \"{}\" ct state new jump published\n    iifname != \"{}\" ct direction reply ct status dnat ct mark & {:#x} == {:#x} {} accept",
            it.device,
            it.device,
            it.mark_mask,
            it.tunnel_mark,
            set_mark(it, it.tunnel_mark)
        );
    }
    let _ = writeln!(
        text,
        "    iifname \"{}\" ct state new,invalid,untracked counter drop",
        it.device
    );
    text
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
        let _ = writeln!(
            admit,
            "    {meant} ct mark set ct mark & {:#x} | {:#x} accept",
            !it.mark_mask, it.tunnel_mark
        );
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
        "    ct state new ct mark set ct mark & {:#x} | {:#x}\n    {} accept\n  }}",
        !it.mark_mask,
        it.tunnel_mark,
        set_mark(it, it.tunnel_mark)
    );
    text
}

/// The kernel's own ICMP errors about packets that the device delivered (nobody listens, too big, no such host) quote
/// these, and must go back the way they came. Those about the LAN's packets (too many hops) go to the LAN.
fn answers(it: &Interception) -> String {
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
            let text = chains(&it);
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
        assert!(!unpublished.contains("published") && !chains(&it).contains("dnat"));
        it.published = vec![
            (5060, ([10, 1, 0, 20], 5061).into()),
            (5060, ([0xfd00, 0, 0, 0, 0, 0, 0, 1], 5062).into()),
        ];
        let (first, rest) = (arriving(&it), chains(&it));
        let (admitted, dropped) = (first.find("jump published"), first.find("counter drop"));
        assert!(admitted.unwrap() < dropped.unwrap(), "{first}");
        assert!(rest.contains("dnat ip to 10.1.0.20:5061"), "{rest}");
        assert!(rest.contains("dnat ip6 to [fd00::1]:5062"), "{rest}");
        // Of a device that is not there, nothing is said.
        it.other = Other::Direct;
        assert!(arriving(&it).is_empty() && !chains(&it).contains("dnat"));
    }

    #[test]
    fn without_packets_in_the_tunnel_nothing_is_said_of_a_device() {
        let mut it = Interception::new(7);
        it.other = Other::Direct;
        assert!(!chains(&it).contains("bentpipe0") && arriving(&it).is_empty());
    }
}
