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

use std::fmt::Write as _;
use std::net::IpAddr;

use bentpipe_sys::connections::Inbound;
use ipnet::IpNet;

use super::inbound;
use super::policy::{self, Kept};
use super::{Interception, Lan, Other, RouterDns, gate, packets};

/// A SYN that opens a connection.
const OPENING: &str = "tcp flags & (syn | ack) == syn";
pub(super) const ICMP: &str = "meta l4proto { icmp, icmpv6 }";
/// Name lookups.
const DNS: &str = "meta l4proto { tcp, udp } th dport 53";
pub(super) const EXEMPT: &str = "    ip daddr @exempt4 return\n    ip6 daddr @exempt6 return\n";
/// Exemption for what the LAN forwards: it bears the mark of what may leave in clear, because a routing rule bars what has none
/// ([`super::barrier`]).
pub(super) const LEFT_ALONE: &str =
    "    ip daddr @exempt4 goto direct\n    ip6 daddr @exempt6 goto direct\n";
const NEVER: &str = "    fib daddr type { local, broadcast, multicast, anycast } return\n";
/// Packets of this machine to its neighbours on a link that the link needs to work: addresses, routers, groups.
pub(super) const NEIGHBOURS: &str = "    icmpv6 type { nd-router-solicit, nd-router-advert, nd-neighbor-solicit, nd-neighbor-advert, mld-listener-query, mld-listener-report, mld-listener-done, mld2-listener-report } ip6 hoplimit { 1, 255 } return
    ip protocol igmp ip ttl 1 return
    udp sport . udp dport { 68 . 67, 67 . 68, 546 . 547, 547 . 546 } return
";

/// The sets and chains, as between the braces of the table.
pub(super) fn body(it: &Interception, lan: &Lan, inbound: &[Inbound], kept: &Kept) -> String {
    let mut text = sets(&exempt(it, lan.prefixes()));
    text.push_str(&policy::sets(&it.rules, kept));
    text.push_str(&gate::sets());
    if it.local {
        text.push_str(&inbound::set(inbound));
    }
    text.push_str(&refuse(it));
    text.push_str(&gate::chains(&it.gates));
    text.push_str(&intercept(it));
    text.push_str(&dns(it));
    text.push_str(&packets::chains(it, lan.addresses()));
    text.push_str(&rules(it));
    text.push_str(&prerouting(it));
    if !it.interfaces.is_empty() {
        text.push_str(&forward(it));
    }
    text.push_str(&renamed(it, lan.indices()));
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
    }
    text
}

fn sets(exempt: &[IpNet]) -> String {
    let mut text = exempt_sets(exempt);
    for (family, kind) in [("4", "ipv4_addr"), ("6", "ipv6_addr")] {
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
    text.push_str(&arriving_elsewhere(it));
    text.push_str(&packets::arriving(it));
    if !it.interfaces.is_empty() {
        let _ = writeln!(text, "    iifname {{ {} }} goto from_lan", names(it));
    }
    if it.local {
        let ours = marked(it, it.mark);
        if it.dns_port.is_some() {
            let _ = writeln!(text, "    iifname \"lo\" {ours} {DNS} goto dns");
        }
        let _ = writeln!(text, "    iifname \"lo\" {ours} goto intercept");
    }
    text.push_str("  }\n  chain from_lan {\n");
    // Most hosts ask the router, which is not intercepted otherwise.
    if it.dns_port.is_some() && it.carries() {
        let _ = writeln!(text, "    {DNS} fib daddr type local goto dns_of_router");
    }
    // An ICMP error about one of our connections (packet too big, mostly) is sent to the destination
    // that the host believes it talks to: it must reach our socket.
    let _ = writeln!(
        text,
        "{NEVER}{LEFT_ALONE}    {ICMP} ct state related ct protocol tcp {} accept",
        set_mark(it, it.mark)
    );
    if !it.rules.is_empty() || it.fail_open {
        // Connections that the listener has accepted, or is about to, stay with it. (Whatever goes to the listener's own
        // port number counts as such: the kernel takes the listener for its socket.)
        text.push_str("    meta l4proto tcp socket transparent 1 goto intercept\n");
    }
    text.push_str("    jump rules\n");
    if it.fail_open {
        text.push_str(if it.carries() {
            // Those that began in clear end so.
            "    tcp flags & (syn | ack) != syn goto direct\n"
        } else {
            "    goto direct\n"
        });
    }
    text.push_str("    goto carry\n  }\n");
    text
}

/// Rules that mark what comes in by other interfaces: a check of its source (`rp_filter`) asks for the way back as if the LAN
/// sent there, and the routing rules bar what the LAN sends without one.
pub(super) fn arriving_elsewhere(it: &Interception) -> String {
    if it.interfaces.is_empty() {
        return String::new();
    }
    format!(
        "    iifname != {{ {}, \"lo\" }} meta mark & {:#x} == 0 {}\n",
        names(it),
        it.mark_mask,
        set_mark(it, it.direct_mark)
    )
}

/// The rules, asked in both ways in, and where each leads what is to be carried.
fn rules(it: &Interception) -> String {
    let mut text = policy::BLOCKED.to_owned();
    let dns = match it.dns_port {
        Some(_) => format!("    {DNS} goto dns\n"),
        None => String::new(),
    };
    let packets = if it.needs_device() {
        "tunnelled"
    } else {
        "other"
    };
    for (name, end) in [("carry", "other"), ("carry_always", packets)] {
        let _ = writeln!(
            text,
            "  chain {name} {{\n{dns}    meta l4proto tcp goto intercept\n    goto {end}\n  }}"
        );
    }
    text.push_str(&policy::chain(&it.rules, "rules", "carry_always"));
    if !it.local {
        return text;
    }
    // The changed mark makes the output hook route again, to loopback; the rest happens in prerouting there.
    let mark = set_mark(it, it.mark);
    let dns = match it.dns_port {
        Some(_) => format!("    {DNS} {mark} accept\n"),
        None => String::new(),
    };
    let _ = writeln!(
        text,
        "  chain intercept_own {{\n    jump refuse\n    {mark} accept\n  }}"
    );
    for (name, end) in [("carry_own", "other"), ("carry_own_always", packets)] {
        let _ = writeln!(
            text,
            "  chain {name} {{\n{dns}    meta l4proto tcp goto intercept_own\n    goto {end}\n  }}"
        );
    }
    text.push_str(&policy::chain(&it.rules, "rules_own", "carry_own_always"));
    text
}

/// Name lookups, to our own listener. What a host asks of the router's addresses as well, unless they are in `bypass` or
/// another name server is to have them.
fn dns(it: &Interception) -> String {
    let Some(port) = it.dns_port else {
        return String::new();
    };
    let mut text = format!(
        "  chain dns {{\n    {}\n    {DNS} tproxy to :{port} accept\n    {}\n  }}\n",
        set_mark(it, it.mark),
        unheard(it)
    );
    text.push_str("  chain dns_of_router {\n");
    for net in &it.bypass {
        let _ = writeln!(text, "    {} daddr {} return", field(net), net.trunc());
    }
    // The kernel looks for the socket that would get the packet, each time: a name server that starts or ends later counts.
    let wildcards: &[u8] = match it.router_dns {
        RouterDns::Auto => &[0],
        RouterDns::Leave => &[0, 1],
        RouterDns::Answer => &[],
    };
    for wildcard in wildcards {
        let _ = writeln!(text, "    socket wildcard {wildcard} return");
    }
    if !wildcards.is_empty() {
        // The rest of a TCP connection is for whom its first packet was for. `socket wildcard` does not see a connection whose
        // handshake is under way.
        text.push_str("    tcp flags & (syn | ack) != syn socket transparent 0 return\n");
    }
    text.push_str("    goto dns\n  }\n");
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
        "  chain intercept {{\n    jump refuse\n    {OPENING} jump gates\n    {}\n    meta l4proto tcp tproxy to :{} accept\n    {}\n  }}\n",
        set_mark(it, it.mark),
        it.port,
        unheard(it)
    )
}

/// Fate of packets for a listener that is not there.
fn unheard(it: &Interception) -> &'static str {
    // What this machine sent comes from loopback, with no other way to go.
    if it.fail_open {
        "iifname != \"lo\" goto direct\n    counter drop"
    } else {
        "counter drop"
    }
}

/// Chain of what goes through the device, or was not intercepted: exempt destinations and what goes direct pass.
fn forward(it: &Interception) -> String {
    format!(
        "  chain forward {{\n    type filter hook forward priority filter; policy accept;\n{}    iifname != {{ {} }} return\n{EXEMPT}    {}{} return\n    {} return\n    counter drop\n  }}\n",
        packets::astray(it),
        names(it),
        marked(it, it.tunnel_mark),
        match it.fail_open {
            true => String::new(),
            false => format!(" oifname \"{}\"", it.device),
        },
        marked(it, it.direct_mark),
    )
}

/// Rules by which what comes in by one of these interfaces after it got another name, which no rule knows, goes nowhere.
fn renamed(it: &Interception, indices: &[u32]) -> String {
    if indices.is_empty() {
        return String::new();
    }
    let numbers: Vec<String> = indices.iter().map(u32::to_string).collect();
    format!(
        "  chain renamed {{\n    type filter hook forward priority filter - 10; policy accept;\n    iif {{ {} }} iifname != {{ {} }} counter drop\n  }}\n",
        numbers.join(", "),
        quoted(it.interfaces.iter().chain([&it.device]))
    )
}

fn output(it: &Interception) -> String {
    let mut text = String::from(
        "  chain output {\n    type route hook output priority mangle; policy accept;\n    oifname \"lo\" return\n",
    );
    let _ = writeln!(
        text,
        "    {} return\n    ct direction reply return",
        marked(it, it.own_mark)
    );
    // Answers on connections that were there before this table; see `inbound`.
    text.push_str("    ip daddr . tcp dport . tcp sport @inbound4 return\n");
    text.push_str("    ip6 daddr . tcp dport . tcp sport @inbound6 return\n");
    text.push_str(EXEMPT);
    text.push_str(NEIGHBOURS);
    let _ = writeln!(text, "    {ICMP} ct state related return");
    let group = "fib daddr type { broadcast, multicast, anycast }";
    if !it.interfaces.is_empty() {
        let _ = writeln!(text, "    {group} oifname {{ {} }} return", names(it));
    }
    // A group's members are neighbours: what announces itself to them does so in clear.
    let verdict = match it.other {
        Other::Direct => "return",
        Other::Tunnel | Other::Drop => "counter drop",
    };
    let _ = writeln!(text, "    {group} {verdict}");
    text.push_str("    jump rules_own\n");
    if !it.carries() {
        text.push_str("    goto direct\n");
    }
    text.push_str("    goto carry_own\n  }\n");
    // What that chain has let pass without a mark may leave: the second line drops what has none.
    let _ = writeln!(
        text,
        "  chain passed {{\n    type filter hook output priority mangle + 1; policy accept;\n    meta mark & {:#x} == 0 {}\n  }}",
        it.mark_mask,
        set_mark(it, it.direct_mark)
    );
    text
}

/// The last word: nothing marked leaves the machine by the wrong device (a rule was flushed, a socket is bound to an
/// interface).
pub(super) fn guard_out(it: &Interception) -> String {
    let mut text = format!(
        "  chain guard_out {{\n    type filter hook postrouting priority mangle; policy accept;\n    {} oifname != \"lo\" counter drop\n",
        marked(it, it.mark),
    );
    if !it.fail_open {
        let _ = writeln!(
            text,
            "    {} oifname != \"{}\" counter drop",
            marked(it, it.tunnel_mark),
            it.device
        );
    }
    text.push_str("  }\n");
    text
}

/// And nobody reaches the listeners' own ports except through TPROXY.
fn guards(it: &Interception) -> String {
    let mut text = guard_out(it);
    let foreign = format!("meta mark & {:#x} != {:#x}", it.mark_mask, it.mark);
    text.push_str(
        "  chain guard_in {\n    type filter hook input priority filter; policy accept;\n",
    );
    for port in std::iter::once(it.port).chain(it.dns_port) {
        let _ = writeln!(
            text,
            "    tcp dport {port} {OPENING} {foreign} counter reject with tcp reset"
        );
    }
    if let Some(port) = it.dns_port {
        let _ = writeln!(
            text,
            "    udp dport {port} {foreign} counter reject with icmpx type port-unreachable"
        );
    }
    text.push_str("  }\n");
    text
}

pub(super) fn names(it: &Interception) -> String {
    quoted(&it.interfaces)
}

fn quoted<'a>(names: impl IntoIterator<Item = &'a String>) -> String {
    let quoted = names.into_iter().map(|name| format!("\"{name}\""));
    quoted.collect::<Vec<_>>().join(", ")
}

/// Matches what has `mark`.
pub(super) fn marked(it: &Interception, mark: u32) -> String {
    format!("meta mark & {:#x} == {mark:#x}", it.mark_mask)
}

/// Gives `mark`, and leaves the bits of others alone.
pub(super) fn set_mark(it: &Interception, mark: u32) -> String {
    format!("meta mark set meta mark & {:#x} | {mark:#x}", !it.mark_mask)
}

fn field(net: &IpNet) -> &'static str {
    match net {
        IpNet::V4(_) => "ip",
        IpNet::V6(_) => "ip6",
    }
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

    fn everything() -> Interception {
        let mut it = Interception::new(7);
        it.interfaces = vec!["lan0".into()];
        it.local = true;
        it.other = Other::Tunnel;
        it.dns_port = Some(8);
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
            let prerouting = prerouting(&it);
            let (_, from_lan) = prerouting.split_once("chain from_lan").unwrap();
            for chain in [from_lan, &output(&it)] {
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
        let text = dns(&everything());
        let order = ["meta mark set", "tproxy to :8 accept", "counter drop"];
        assert!(
            order.map(|part| position(&text, part)).is_sorted(),
            "{text}"
        );
        // Before the router's own addresses are left alone.
        let text = prerouting(&everything());
        assert!(position(&text, "goto dns_of_router") < position(&text, NEVER));
        // Without a listener they are what their protocol is.
        let text = body(
            &Interception {
                dns_port: None,
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
            let text = body(it, &Lan::default(), &[], &Kept::default()).replace(LEFT_ALONE, "");
            text.contains("goto direct")
        };
        assert!(!open(&it));
        // Carrying or not is of no account then.
        it.carrying = false;
        assert!(!open(&it));
        it.fail_open = true;
        let (from_lan, own) = (prerouting(&it), output(&it));
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
        let text = dns(&it);
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
