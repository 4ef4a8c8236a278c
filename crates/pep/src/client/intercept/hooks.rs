//! The base chains of the table `inet bentpipe_client` that say where packets come in and leave: the hooks before routing,
//! of this machine's own packets, of what is forwarded, and the last word on what leaves.

use std::fmt::Display;

use super::packets;
use super::ruleset::{DNS, EXEMPT, ICMP, LEFT_ALONE, NEIGHBOURS, NEVER, OPENING, names};
use super::{DnsInterception, Interception, Lan, Other};
use crate::firewall::{Chain, Mark, anonymous};

/// The hook before routing, and the chain for what the LAN sends.
pub(super) fn prerouting(it: &Interception, held: &[String]) -> [Chain; 2] {
    let lan =
        (!it.interfaces.is_empty()).then(|| format!("iifname {{ {} }} goto from_lan", names(it)));
    let mut chain = Chain::at("prerouting", "filter", "prerouting priority mangle")
        .rules(packets::delivered(it))
        .rules(arriving_elsewhere(it, held))
        .rules(packets::arriving(it))
        .rules(lan);
    if it.local {
        let ours = it.routing.local_intercepted().borne();
        let dns = it
            .dns
            .map(|_| format!("iifname \"lo\" {ours} {DNS} goto dns"));
        chain = chain
            .rules(dns)
            .rule(format_args!("iifname \"lo\" {ours} goto intercept"));
    }
    [chain, from_lan(it)]
}

fn from_lan(it: &Interception) -> Chain {
    // Most hosts ask the router, which is not intercepted otherwise.
    let asks_router = it.dns.filter(|_| it.carries());
    let asks_router = asks_router.map(|_| format!("{DNS} fib daddr type local goto dns_of_router"));
    // Connections that the listener has accepted, or is about to, stay with it. (Whatever goes to the listener's own
    // port number counts as such: the kernel takes the listener for its socket.)
    let changes = !it.rules.is_empty() || it.fail_open || !it.device.tcp.destinations.is_empty();
    let accepted = changes.then_some("meta l4proto tcp socket transparent 1 goto intercept");
    let in_clear = it.fail_open.then_some(match it.carries() {
        // Those that began in clear end so.
        true => "tcp flags & (syn | ack) != syn goto direct",
        false => "goto direct",
    });
    Chain::new("from_lan")
        .rules(asks_router)
        .rule(NEVER)
        .rules(LEFT_ALONE)
        // An ICMP error about one of our connections (packet too big, mostly) is sent to the destination
        // that the host believes it talks to: it must reach our socket.
        .rule(format_args!(
            "{ICMP} ct state related ct protocol tcp {} accept",
            it.routing.intercepted().set()
        ))
        .rules(accepted)
        .rule("jump rules")
        .rules(in_clear)
        .rule("goto carry")
}

/// Rule that marks what comes in by other interfaces: a check of its source (`rp_filter`) asks for the way back as if the LAN
/// sent there, and the routing rules bar what the LAN sends without one. What comes in by those of these names is `held`.
pub(super) fn arriving_elsewhere(it: &Interception, held: &[String]) -> Option<String> {
    let rule = || {
        let others = it.interfaces.iter().chain(held).map(|name| quoted(name));
        format!(
            "iifname != {} {} {}",
            anonymous(others.chain([quoted("lo")])),
            it.routing.direct().none_borne(),
            it.routing.direct().set()
        )
    };
    (!it.interfaces.is_empty()).then(rule)
}

/// Chain of what goes through the device, or was not intercepted: exempt destinations and what goes direct pass.
pub(super) fn forward(it: &Interception, lan: &Lan) -> Chain {
    let way = match it.fail_open {
        true => String::new(),
        false => format!(" oifname \"{}\"", it.device.name),
    };
    Chain::at("forward", "filter", "forward priority filter")
        .rules(packets::astray(it))
        .rules(packets::opened_for_us(it, lan))
        .rule(format_args!("iifname != {{ {} }} return", names(it)))
        .rules(EXEMPT)
        .rule(format_args!("{}{way} return", it.routing.tunnel().borne()))
        .rule(format_args!("{} return", it.routing.direct().borne()))
        .rule("counter drop")
}

/// Chain by which what comes in by one of these interfaces after it got another name, which no rule knows, goes nowhere.
pub(super) fn renamed(it: &Interception, indices: &[u32]) -> Option<Chain> {
    if indices.is_empty() {
        return None;
    }
    let known = it.interfaces.iter().chain([&it.device.name]);
    let chain = Chain::at("renamed", "filter", "forward priority filter - 10");
    Some(chain.rule(format_args!(
        "iif {} iifname != {} counter drop",
        anonymous(indices),
        anonymous(known.map(|name| format!("\"{name}\"")))
    )))
}

/// Rule by which what comes in by these names goes nowhere: hosts of the LAN are behind, and no rule takes in what they send.
pub(super) fn holding(held: &[String]) -> Option<String> {
    let names = || anonymous(held.iter().map(|name| quoted(name)));
    (!held.is_empty()).then(|| format!("iifname {} counter drop", names()))
}

/// Chain of [`holding`].
pub(super) fn held(held: &[String]) -> Option<Chain> {
    let rule = holding(held)?;
    Some(Chain::at("held", "filter", "forward priority filter - 10").rule(rule))
}

fn quoted(name: &str) -> String {
    format!("\"{name}\"")
}

/// The hook of this machine's own packets, and the mark for what it lets pass.
pub(super) fn output(it: &Interception) -> [Chain; 2] {
    let group = "fib daddr type { broadcast, multicast, anycast }";
    let near =
        (!it.interfaces.is_empty()).then(|| format!("{group} oifname {{ {} }} return", names(it)));
    // A group's members are neighbours: what announces itself to them does so in clear.
    let verdict = match it.other {
        Other::Direct => "return",
        Other::Tunnel | Other::Drop => "counter drop",
    };
    let output = Chain::at("output", "route", "output priority mangle")
        .rule("oifname \"lo\" return")
        .rule(format_args!("{} return", it.routing.own().borne()))
        .rule("ct direction reply return")
        // Answers on connections that were there before this table; see `inbound`.
        .rule("ip daddr . tcp dport . tcp sport @inbound4 return")
        .rule("ip6 daddr . tcp dport . tcp sport @inbound6 return")
        .rules(EXEMPT)
        .rules(NEIGHBOURS)
        .rule(format_args!("{ICMP} ct state related return"))
        .rules(near)
        .rule(format_args!("{group} {verdict}"))
        .rule("jump rules_own")
        .rules((!it.carries()).then_some("goto direct"))
        .rule("goto carry_own");
    // What that chain has let pass without a mark may leave: the second line drops what has none.
    let passed = Chain::at("passed", "filter", "output priority mangle + 1").rule(format_args!(
        "{} {}",
        it.routing.direct().none_borne(),
        it.routing.direct().set()
    ));
    [output, passed]
}

/// The last word: nothing marked leaves the machine by the wrong device (a rule was flushed, a socket is bound to an
/// interface), and no answer on a connection that is carried (a route covers the LAN's prefix).
pub(super) fn guard_out(it: &Interception) -> Chain {
    let wrong_way =
        |mark: String, device: &dyn Display| format!("{mark} oifname != \"{device}\" counter drop");
    let (tunnel, device) = (it.routing.of_tunnel(), &it.device.name);
    let tunnel = tunnel.map(|mark| wrong_way(mark.borne(), device));
    let intercepted = it.routing.of_listeners();
    Chain::at("guard_out", "filter", "postrouting priority mangle")
        .rules(intercepted.map(|mark| wrong_way(mark.borne(), &"lo")))
        .rules((!it.fail_open).then_some(tunnel).into_iter().flatten())
        .rules(answers_astray(it))
}

/// Rules by which answers on connections that are carried leave by the LAN's interfaces, into the device, to this machine, or not at all.
fn answers_astray(it: &Interception) -> [String; 3] {
    let lan = it.interfaces.iter().map(|name| quoted(name));
    let near = anonymous(lan.chain([quoted("lo"), quoted(&it.device.name)]));
    let astray = |which: String| format!("{which} oifname != {near} counter drop");
    let of = |mark: Mark| astray(format!("ct direction reply {}", mark.borne_by_connection()));
    // A listener's sockets bear the addresses of others, and the kernel may have forgotten the connection.
    let in_the_name_of_others = format!("{} fib saddr type != local", it.routing.own().borne());
    [
        of(it.routing.intercepted()),
        of(it.routing.tunnel()),
        astray(in_the_name_of_others),
    ]
}

/// Chain by which nobody reaches the listeners' own ports except through TPROXY.
pub(super) fn guard_in(it: &Interception) -> Chain {
    let foreign = it.routing.intercepted().not_borne();
    let ports = std::iter::once(it.port).chain(it.dns.map(|dns| dns.port));
    let tcp = ports
        .map(|port| format!("tcp dport {port} {OPENING} {foreign} counter reject with tcp reset"));
    let udp = it.dns.map(|DnsInterception { port, .. }| {
        format!("udp dport {port} {foreign} counter reject with icmpx type port-unreachable")
    });
    Chain::at("guard_in", "filter", "input priority filter")
        .rules(tcp)
        .rules(udp)
}
