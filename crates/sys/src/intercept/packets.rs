//! The chains for all traffic but TCP and DNS: into our device, direct, or nowhere.
//!
//! Into the device leads a mark; behind the device the packets are the tunnel's. They leave with an address of
//! the device, which the other end has assigned: LANs overlap from one client to the next.

use std::fmt::Write as _;

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

/// What the device delivers: answers. The other end is no neighbour that may connect to this machine or its LANs.
pub(super) fn arriving(it: &Interception) -> String {
    if !it.needs_device() {
        return String::new();
    }
    format!(
        "    iifname \"{}\" ct state new,invalid,untracked counter drop\n",
        it.device
    )
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
    format!(
        "  chain answers {{\n    type route hook output priority mangle - 1; policy accept;\n    {ICMP} ct state related ct direction original ct mark & {:#x} == {:#x} {}\n  }}\n",
        it.mark_mask,
        it.tunnel_mark,
        set_mark(it, it.tunnel_mark)
    )
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
    fn without_packets_in_the_tunnel_nothing_is_said_of_a_device() {
        let mut it = Interception::new(7);
        it.other = Other::Direct;
        assert!(!chains(&it).contains("bentpipe0") && arriving(&it).is_empty());
    }
}
