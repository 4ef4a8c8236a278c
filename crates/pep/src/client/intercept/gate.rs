//! The rules for destinations whose connections wait for an answer from the far side.
//!
//! Their opening segments are dropped until the connection is admitted. The host sends them again, within
//! a second at first; by then the far side has answered, and they pass or are refused.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;

/// Time that an admitted connection may take to come back: a host repeats its opening segment after 1, 2
/// and 4 s.
pub const ADMITTED_FOR: Duration = Duration::from_secs(10);

/// One rule; the first that matches a destination decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gate {
    /// TCP ports that it is for; empty: all.
    pub ports: Vec<u16>,
    /// Destinations that it is for; empty: all.
    pub destinations: Vec<IpNet>,
    /// True if connections wait.
    pub shut: bool,
}

/// Sets of the connections that may pass: source address and port, destination address and port.
pub(super) fn sets() -> String {
    let mut text = String::new();
    for (family, kind) in [("4", "ipv4_addr"), ("6", "ipv6_addr")] {
        let _ = writeln!(
            text,
            "  set admitted{family} {{\n    type {kind} . inet_service . {kind} . inet_service\n    flags timeout\n    size 65535\n  }}"
        );
    }
    text
}

/// The chains; `gates` is where opening segments are sent.
pub(super) fn chains(gates: &[Gate]) -> String {
    let mut text = String::from("  chain gate {\n");
    for (family, field) in [("4", "ip"), ("6", "ip6")] {
        let _ = writeln!(
            text,
            "    {field} saddr . tcp sport . {field} daddr . tcp dport @admitted{family} return"
        );
    }
    text.push_str("    counter drop\n  }\n  chain gates {\n");
    for gate in gates {
        let verdict = if gate.shut { "goto gate" } else { "return" };
        for destinations in gate.matches() {
            let _ = writeln!(text, "    {destinations}{}{verdict}", gate.port_match());
        }
    }
    text.push_str("  }\n");
    text
}

impl Gate {
    fn port_match(&self) -> String {
        if self.ports.is_empty() {
            return String::new();
        }
        let ports: Vec<String> = self.ports.iter().map(u16::to_string).collect();
        format!("tcp dport {{ {} }} ", ports.join(", "))
    }

    /// One match for each family that the destinations have; without destinations one that is empty.
    fn matches(&self) -> Vec<String> {
        if self.destinations.is_empty() {
            return vec![String::new()];
        }
        let of = |field: &str, v4: bool| {
            let family = |net: &&IpNet| matches!(net.addr(), IpAddr::V4(_)) == v4;
            let list: Vec<String> = self
                .destinations
                .iter()
                .filter(family)
                .map(IpNet::to_string)
                .collect();
            // One rule each: prefixes may overlap, which an anonymous set does not take.
            list.into_iter()
                .map(move |net| format!("{field} daddr {net} "))
                .collect::<Vec<_>>()
        };
        [of("ip", true), of("ip6", false)].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_match_decides() {
        let gate = |ports: &[u16], destinations: &[&str], shut| Gate {
            ports: ports.to_vec(),
            destinations: destinations
                .iter()
                .map(|net| net.parse().unwrap())
                .collect(),
            shut,
        };
        let text = chains(&[
            gate(&[25, 179], &[], true),
            gate(&[], &["192.0.2.0/24", "2001:db8::/32"], false),
            gate(&[], &[], true),
        ]);
        let order = [
            "tcp dport { 25, 179 } goto gate",
            "ip daddr 192.0.2.0/24 return",
            "ip6 daddr 2001:db8::/32 return",
            "    goto gate",
        ];
        let places = order.map(|part| {
            text.find(part)
                .unwrap_or_else(|| panic!("{part} in {text}"))
        });
        assert!(places.is_sorted(), "{text}");
    }
}
