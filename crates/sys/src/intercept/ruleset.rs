//! The text of the table `inet bentpipe_client`: a pure function of what is to be intercepted.
//!
//! Order is the point: exempt, refuse, mark, tproxy, drop. TPROXY without a listener leaves its rule and
//! the next one drops; a mark without a route is caught on the way out. It runs nothing.
//!
//! ```text
//! LAN ──► prerouting ─► from_lan ─► intercept ─► (lo route) ─► listener
//!                           └─ exempt, or not TCP ─► forward: exempt passes, the rest is dropped
//! own ──► output: mark ─► lo ─► prerouting ─► intercept ─► listener        anything marked ─► guard
//! ```

use std::fmt::Write as _;
use std::net::IpAddr;

use ipnet::IpNet;

use super::inbound::{self, Inbound};
use super::{Interception, gate};

/// A SYN that opens a connection.
const OPENING: &str = "tcp flags & (syn | ack) == syn";
const ICMP: &str = "meta l4proto { icmp, icmpv6 }";
const EXEMPT: &str = "    ip daddr @exempt4 return\n    ip6 daddr @exempt6 return\n";
const NEVER: &str = "    fib daddr type { local, broadcast, multicast, anycast } return\n";

/// The sets and chains, as between the braces of the table.
pub(super) fn body(it: &Interception, connected: &[IpNet], inbound: &[Inbound]) -> String {
    let mut text = sets(&exempt(it, connected));
    text.push_str(&gate::sets());
    if it.local {
        text.push_str(&inbound::set(inbound));
    }
    text.push_str(&prerouting(it));
    text.push_str(&refuse(it));
    text.push_str(&gate::chains(&it.gates));
    text.push_str(&intercept(it));
    if !it.interfaces.is_empty() {
        text.push_str(&forward(it));
    }
    if it.local {
        text.push_str(&output(it));
    }
    text.push_str(&guards(it));
    text.push_str(&quiet(&it.server));
    text
}

/// A daemon that was killed leaves datagrams of its peer unclaimed, and the kernel would answer each
/// across the link with an ICMP error.
fn quiet(servers: &[IpAddr]) -> String {
    let mut text = String::from(
        "  chain quiet {\n    type filter hook output priority filter; policy accept;\n",
    );
    for server in servers {
        let (daddr, icmp) = match server {
            IpAddr::V4(_) => ("ip", "icmp"),
            IpAddr::V6(_) => ("ip6", "icmpv6"),
        };
        let _ = writeln!(
            text,
            "    {daddr} daddr {server} {icmp} type destination-unreachable {icmp} code port-unreachable drop"
        );
    }
    text.push_str("  }\n");
    text
}

/// Destinations that are left alone.
pub(super) fn exempt(it: &Interception, connected: &[IpNet]) -> Vec<IpNet> {
    let link_local = ["169.254.0.0/16", "fe80::/10"].map(|net| net.parse::<IpNet>());
    link_local
        .into_iter()
        .flatten()
        .chain(connected.iter().copied())
        .chain(it.bypass.iter().map(IpNet::trunc))
        .chain(it.server.iter().map(|address| IpNet::from(*address)))
        .collect()
}

fn sets(exempt: &[IpNet]) -> String {
    let mut text = String::new();
    for (family, kind) in [("4", "ipv4_addr"), ("6", "ipv6_addr")] {
        let of_family = |net: &&IpNet| matches!(net.addr(), IpAddr::V4(_)) == (family == "4");
        let list: Vec<String> = exempt
            .iter()
            .filter(of_family)
            .map(IpNet::to_string)
            .collect();
        let list = list.join(", ");
        // auto-merge: prefixes of the user may overlap, which nft refuses otherwise.
        let _ = writeln!(
            text,
            "  set exempt{family} {{\n    type {kind}\n    flags interval\n    auto-merge\n    elements = {{ {list} }}\n  }}"
        );
        for set in ["refused", "unreachable"] {
            let _ = writeln!(
                text,
                "  set {set}{family} {{\n    type {kind} . inet_service\n    flags timeout\n    size 65535\n  }}"
            );
        }
    }
    text
}

fn prerouting(it: &Interception) -> String {
    let mut text = String::from(
        "  chain prerouting {\n    type filter hook prerouting priority mangle; policy accept;\n",
    );
    if !it.interfaces.is_empty() {
        let _ = writeln!(text, "    iifname {{ {} }} goto from_lan", names(it));
    }
    if it.local {
        let _ = writeln!(text, "    iifname \"lo\" {} goto intercept", marked(it));
    }
    // An ICMP error about one of our connections (packet too big, mostly) is sent to the destination
    // that the host believes it talks to: it must reach our socket.
    let _ = writeln!(
        text,
        "  }}\n  chain from_lan {{\n{NEVER}{EXEMPT}    {ICMP} ct state related ct protocol tcp {} accept\n    meta l4proto != tcp return\n    goto intercept\n  }}",
        set_mark(it)
    );
    text
}

/// Answers new connections to what cannot be had. Own connections come here from the output hook: in
/// prerouting the destination has already become local, so that the kernel would send its ICMP error
/// from an address it does not have, and drops it instead.
fn refuse(it: &Interception) -> String {
    let mut text = String::from("  chain refuse {\n");
    for (wanted, family) in [(it.ipv4, "ipv4"), (it.ipv6, "ipv6")] {
        if !wanted {
            // Not an ICMP error: those are rate-limited per host, and a browser makes dozens of attempts.
            let _ = writeln!(
                text,
                "    meta nfproto {family} {OPENING} reject with tcp reset\n    meta nfproto {family} counter drop"
            );
        }
    }
    for (set, answer) in [
        ("refused", "tcp reset"),
        ("unreachable", "icmpx type host-unreachable"),
    ] {
        for (family, field) in [("4", "ip daddr"), ("6", "ip6 daddr")] {
            let _ = writeln!(
                text,
                "    {OPENING} {field} . tcp dport @{set}{family} reject with {answer}"
            );
        }
    }
    text.push_str("  }\n");
    text
}

fn intercept(it: &Interception) -> String {
    format!(
        "  chain intercept {{\n    jump refuse\n    {OPENING} jump gates\n    {}\n    meta l4proto tcp tproxy to :{} accept\n    counter drop\n  }}\n",
        set_mark(it),
        it.port
    )
}

/// What reaches this hook was not intercepted: exempt destinations pass.
fn forward(it: &Interception) -> String {
    let direct = if it.other_direct {
        "    meta l4proto != tcp return\n"
    } else {
        ""
    };
    format!(
        "  chain forward {{\n    type filter hook forward priority filter; policy accept;\n    iifname != {{ {} }} return\n{EXEMPT}{direct}    counter drop\n  }}\n",
        names(it)
    )
}

fn output(it: &Interception) -> String {
    let mut text = String::from(
        "  chain output {\n    type route hook output priority mangle; policy accept;\n    oifname \"lo\" return\n",
    );
    let _ = writeln!(
        text,
        "    meta mark & {:#x} == {:#x} return\n    ct direction reply return",
        it.mark_mask, it.own_mark
    );
    // Answers on connections that were there before this table; see `inbound`.
    text.push_str("    ip daddr . tcp dport . tcp sport @inbound4 return\n");
    text.push_str("    ip6 daddr . tcp dport . tcp sport @inbound6 return\n");
    text.push_str(NEVER);
    text.push_str(EXEMPT);
    if it.other_direct {
        text.push_str("    meta l4proto != tcp return\n");
    } else {
        let _ = writeln!(text, "    {ICMP} ct state related return");
        text.push_str("    icmpv6 type { nd-router-solicit, nd-router-advert, nd-neighbor-solicit, nd-neighbor-advert } return\n");
        text.push_str(
            "    udp sport . udp dport { 68 . 67, 67 . 68, 546 . 547, 547 . 546 } return\n",
        );
        text.push_str("    meta l4proto != tcp counter drop\n");
    }
    // The changed mark makes this hook route again, to loopback; the rest happens in prerouting there.
    let _ = writeln!(text, "    jump refuse\n    {}\n  }}", set_mark(it));
    text
}

/// The last word: nothing marked leaves the machine (a rule was flushed, a socket is bound to an
/// interface), and nobody reaches the listener's own port except through TPROXY.
fn guards(it: &Interception) -> String {
    format!(
        "  chain guard_out {{\n    type filter hook postrouting priority mangle; policy accept;\n    {} oifname != \"lo\" counter drop\n  }}\n  chain guard_in {{\n    type filter hook input priority filter; policy accept;\n    tcp dport {} {OPENING} meta mark & {:#x} != {:#x} counter reject with tcp reset\n  }}\n",
        marked(it),
        it.port,
        it.mark_mask,
        it.mark
    )
}

fn names(it: &Interception) -> String {
    let quoted: Vec<String> = it
        .interfaces
        .iter()
        .map(|name| format!("\"{name}\""))
        .collect();
    quoted.join(", ")
}

fn marked(it: &Interception) -> String {
    format!("meta mark & {:#x} == {:#x}", it.mark_mask, it.mark)
}

fn set_mark(it: &Interception) -> String {
    format!(
        "meta mark set meta mark & {:#x} | {:#x}",
        !it.mark_mask, it.mark
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(text: &str, part: &str) -> usize {
        text.find(part)
            .unwrap_or_else(|| panic!("no `{part}` in\n{text}"))
    }

    #[test]
    fn marks_then_tproxies_then_drops() {
        let text = intercept(&Interception::new(7));
        let order = [
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

    #[test]
    fn exempts_come_before_anything_else() {
        let mut it = Interception::new(7);
        it.interfaces = vec!["lan0".into()];
        it.local = true;
        for text in [prerouting(&it), output(&it)] {
            let exempt = position(&text, "@exempt6");
            let acts = ["meta mark set", "counter drop", "l4proto != tcp"];
            for act in acts.into_iter().filter(|act| text.contains(act)) {
                assert!(exempt < position(&text, act), "{act} in {text}");
            }
        }
    }

    #[test]
    fn prefixes_land_in_the_set_of_their_family() {
        let mut it = Interception::new(7);
        it.bypass = vec!["198.51.100.7/24".parse().unwrap()];
        it.server = vec!["2001:db8::5".parse().unwrap()];
        let text = sets(&exempt(&it, &["10.0.0.0/24".parse().unwrap()]));
        assert!(
            text.contains("{ 169.254.0.0/16, 10.0.0.0/24, 198.51.100.0/24 }"),
            "{text}"
        );
        assert!(text.contains("{ fe80::/10, 2001:db8::5/128 }"), "{text}");
    }
}
