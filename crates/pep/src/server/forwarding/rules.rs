//! The text of the table `inet bentpipe_server`: a pure function of ports, forwarding and what the machine forwarded before.

use std::net::{IpAddr, SocketAddr};

use bentpipe_sys::device::NAME;
use ipnet::IpNet;

use super::{Forwarding, MASK};
use crate::firewall::{Chain, Family, Mark, Router};

/// The mark of clients' packets that the table has seen.
const SEEN: Mark = Mark::new(0x5000_0000, MASK);

/// Addresses that mean something to neighbours alone. Hosts in a routed prefix of these are themselves to others of these;
/// the internet could not answer them.
const PRIVATE: [(Family, &str); 2] = [
    (
        Family::V4,
        "{ 10.0.0.0/8, 100.64.0.0/10, 172.16.0.0/12, 192.168.0.0/16 }",
    ),
    (Family::V6, "{ fc00::/7 }"),
];

/// The chains, as between the braces of the table.
pub(super) fn body(ports: &[u16], forwarding: Option<&Forwarding>, router: Router) -> String {
    let mut chains = vec![quiet(ports)];
    if let Some(forwarding) = forwarding {
        let shut: Vec<_> = router.shut().collect();
        chains.extend(shut.iter().map(|family| only_ours(*family)));
        chains.push(mark_arriving());
        chains.push(mark_answers(forwarding));
        chains.push(forward(forwarding, &shut));
        chains.push(lead(&forwarding.published));
        chains.push(translate(forwarding));
        chains.push(
            keep_in(&forwarding.translated)
                .rules(to_translate(forwarding).map(|packets| format!("{packets} counter drop"))),
        );
    }
    chains.iter().map(Chain::to_string).collect()
}

/// Rest of the table that stays after a stop, if programs of this machine may still talk to clients at the prefixes `translated`.
pub(super) fn left_behind(translated: &[IpNet]) -> String {
    keep_in(translated).to_string()
}

/// Drops the kernel's ICMP errors about datagrams to `ports`. The error quotes the datagram: its destination port stands
/// behind 8 bytes of ICMP, the quoted IP header (20 or 40 bytes) and the source port.
fn quiet(ports: &[u16]) -> Chain {
    let rules = ports.iter().flat_map(|port| {
        [(Family::V4, (8 + 20 + 2) * 8), (Family::V6, (8 + 40 + 2) * 8)].map(|(family, offset)| {
            let icmp = family.icmp();
            format!(
                "{icmp} type destination-unreachable {icmp} code port-unreachable @th,{offset},16 {port} drop"
            )
        })
    });
    Chain::at("quiet", "filter", "output priority filter").rules(rules)
}

/// The name of the chain that stands for "this machine did not forward before".
fn name_of_only_ours(family: Family) -> String {
    format!("only_ours_{}", family.protocol())
}

/// Drops what is forwarded for others than us.
fn only_ours(family: Family) -> Chain {
    Chain::new(name_of_only_ours(family)).rule(format_args!(
        "meta nfproto {} iifname != \"{NAME}\" oifname != \"{NAME}\" counter drop",
        family.protocol()
    ))
}

/// Marks clients' packets: seen, and therefore translated further on. The rule of policy routing lets nothing else out of
/// the device.
fn mark_arriving() -> Chain {
    let chain = Chain::at("mark_arriving", "filter", "prerouting priority mangle");
    chain.rule(format_args!("iifname \"{NAME}\" {}", SEEN.set()))
}

/// Marks what is for clients: where the kernel checks sources strictly it looks up the way back as if from the device; that
/// must not end in the rule of policy routing.
fn mark_answers(forwarding: &Forwarding) -> Chain {
    let Forwarding {
        translated, routed, ..
    } = forwarding;
    let rules = by_family(translated.iter().chain(routed)).map(|(family, prefixes)| {
        let (header, mark) = (family.header(), SEEN.set());
        format!("iifname != \"{NAME}\" {header} daddr {prefixes} {mark}")
    });
    let place = "prerouting priority dstnat + 10";
    Chain::at("mark_answers", "filter", place).rules(rules)
}

/// What may be forwarded; nothing of others in the families that are `shut`.
fn forward(forwarding: &Forwarding, shut: &[Family]) -> Chain {
    let names = shut.iter().map(|family| name_of_only_ours(*family));
    // Not "established": what others begin passes only for as long as its port is published.
    let published = forwarding.published.iter().map(|(port, to)| {
        let header = Family::of(*to).header();
        format!(
            "oifname \"{NAME}\" ct direction original meta l4proto udp ct original proto-dst {port} {header} daddr {to} udp dport {port} accept"
        )
    });
    let led = by_family(&forwarding.translated).map(|(family, prefixes)| {
        let header = family.header();
        format!(
            "oifname \"{NAME}\" ct direction original ct status dnat {header} daddr {prefixes} counter drop"
        )
    });
    let routed = by_family(&forwarding.routed).map(|(family, prefixes)| {
        let header = family.header();
        format!("oifname \"{NAME}\" {header} daddr {prefixes} accept")
    });
    Chain::at("forward", "filter", "forward priority filter")
        .rules(names.map(|name| format!("jump {name}")))
        .rule(format_args!(
            "iifname \"{NAME}\" oifname \"{NAME}\" counter drop"
        ))
        .rules(astray(&forwarding.translated))
        .rules(published)
        .rules(led)
        .rule(format_args!(
            "oifname \"{NAME}\" ct state established,related accept"
        ))
        .rules(routed)
        .rule(format_args!("oifname \"{NAME}\" counter drop"))
}

/// Published ports, on every address of this machine and for everybody but clients.
fn lead(published: &[(u16, IpAddr)]) -> Chain {
    let rules = published.iter().map(|(port, to)| {
        let family = Family::of(*to);
        format!(
            "iifname != \"{NAME}\" meta nfproto {} udp dport {port} fib daddr type local dnat {} to {}",
            family.protocol(),
            family.header(),
            SocketAddr::new(*to, *port)
        )
    });
    Chain::at("prerouting", "nat", "prerouting priority dstnat").rules(rules)
}

/// Gives what leaves an address of this machine.
fn translate(forwarding: &Forwarding) -> Chain {
    Chain::at("postrouting", "nat", "postrouting priority srcnat")
        .rules(to_translate(forwarding).map(|packets| format!("{packets} masquerade")))
}

/// Drops what is for clients and would go another way: the table outlives a killed server, and its device does not; then other
/// routes would lead it out in clear. The hook before, `output`, does not know the way yet of what the kernel says about a
/// packet that it has translated, such as that its destination is unreachable.
///
/// A server that forwards adds what the chain before has to translate and has not. The kernel translates no packet that it
/// cannot assign to a connection (an ICMP error about a connection that the gateway has forgotten, a segment out of its window,
/// all that another program exempts from connection tracking): such a packet would leave with a client's inner address.
fn keep_in(translated: &[IpNet]) -> Chain {
    Chain::at("keep_in", "filter", "postrouting priority srcnat + 10").rules(astray(translated))
}

/// Drops what is for clients and would leave by another device than the tunnel's. Forwarded packets meet this rule in `forward`
/// already: another table may put their flow on a fast path there, past all later hooks.
fn astray(translated: &[IpNet]) -> impl Iterator<Item = String> {
    by_family(translated).map(|(family, prefixes)| {
        let header = family.header();
        format!("oifname != \"{NAME}\" {header} daddr {prefixes} counter drop")
    })
}

/// Matches of the packets that may leave with an address of this machine alone.
fn to_translate(forwarding: &Forwarding) -> impl Iterator<Item = String> {
    let translated = by_family(&forwarding.translated).map(|(family, prefixes)| {
        let header = family.header();
        format!("oifname != \"{NAME}\" {header} saddr {prefixes}")
    });
    let routed = PRIVATE.into_iter().filter_map(|(family, private)| {
        let (header, prefixes) = (family.header(), family.merged(&forwarding.routed)?);
        Some(format!(
            "oifname != \"{NAME}\" {header} saddr {prefixes} {header} saddr {private} {header} daddr != {private}"
        ))
    });
    translated.chain(routed)
}

/// The prefixes of each family that has any, as an anonymous set.
fn by_family<'a>(
    prefixes: impl IntoIterator<Item = &'a IpNet> + Clone,
) -> impl Iterator<Item = (Family, String)> {
    let of = move |family: Family| Some((family, family.merged(prefixes.clone())?));
    Family::BOTH.into_iter().filter_map(of)
}

#[cfg(test)]
mod tests {
    use bentpipe_sys::nft::Table;

    use super::*;
    use crate::firewall::{SERVER_TABLE, Settings};

    fn text(published: Vec<(u16, IpAddr)>) -> String {
        let forwarding = Forwarding {
            translated: vec!["100.96.0.2/32".parse().unwrap()],
            routed: Vec::new(),
            published,
        };
        body(&[4433], Some(&forwarding), Router::default())
    }

    #[test]
    fn tables_are_those_of_the_snapshots() {
        let full = Forwarding {
            translated: vec![
                "100.96.0.2/32".parse().unwrap(),
                "fd00:96::2/128".parse().unwrap(),
            ],
            routed: vec![
                "10.1.0.0/24".parse().unwrap(),
                "2001:db8:1::/64".parse().unwrap(),
            ],
            published: vec![
                (5060, "100.96.0.2".parse().unwrap()),
                (5061, "fd00:96::2".parse().unwrap()),
            ],
        };
        let router = Router::BOTH;
        let settings = Settings::sample();
        let script = |name, forwarding, router| {
            let body = body(&[4433, 443], forwarding, router);
            let body = format!("{}{body}", settings.sets());
            (name, Table::new(SERVER_TABLE).replacement(&body))
        };
        let all = [
            script("server", None, Router::default()),
            script(
                "server-without-clients",
                Some(&Forwarding::default()),
                Router::default(),
            ),
            script("server-forwarding", Some(&full), Router::default()),
            script("server-on-a-router", Some(&full), router),
        ];
        let directory = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/src/server/forwarding/snapshots"
        );
        crate::firewall::snapshot::compare(directory, &all);
    }

    #[test]
    fn routed_prefixes_are_translated_towards_the_internet_alone_and_if_private() {
        let forwarding = Forwarding {
            routed: vec![
                "10.1.0.0/24".parse().unwrap(),
                "2001:db8:1::/64".parse().unwrap(),
            ],
            ..Forwarding::default()
        };
        let text = body(&[], Some(&forwarding), Router::default());
        for prefix in ["ip daddr { 10.1.0.0/24 }", "ip6 daddr { 2001:db8:1::/64 }"] {
            assert!(text.contains(&format!("oifname \"bentpipe0\" {prefix} accept")));
        }
        let (_, nat) = text.split_once("chain postrouting").unwrap();
        assert!(
            nat.contains("ip saddr { 10.1.0.0/24 } ip saddr { 10.0.0.0/8"),
            "{nat}"
        );
        assert_eq!(nat.matches("masquerade").count(), 2, "{nat}");
    }

    #[test]
    fn what_others_begin_passes_for_published_ports_alone() {
        let address: IpAddr = "100.96.0.2".parse().unwrap();
        let (open, shut) = (text(vec![(5060, address)]), text(Vec::new()));
        let lead = "udp dport 5060 fib daddr type local dnat ip to 100.96.0.2:5060";
        let pass = "ct original proto-dst 5060 ip daddr 100.96.0.2 udp dport 5060 accept";
        let drop = "ct status dnat ip daddr { 100.96.0.2/32 } counter drop";
        let answers = "ct state established,related accept";
        assert!(
            open.contains(lead) && !shut.contains("dnat ip to"),
            "{open}"
        );
        for text in [open.as_str(), shut.as_str()] {
            // In this order: what was led before its port was closed counts as established.
            assert!(
                text.find(drop).unwrap() < text.find(answers).unwrap(),
                "{text}"
            );
        }
        assert!(
            open.find(pass).unwrap() < open.find(drop).unwrap(),
            "{open}"
        );
        assert!(!shut.contains("proto-dst"), "{shut}");
    }
}
