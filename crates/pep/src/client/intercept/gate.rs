//! The rules for destinations whose connections wait for an answer from the far side.
//!
//! Their opening segments are dropped until the connection is admitted. The host sends them again, within
//! a second at first; by then the far side has answered, and they pass or are refused.

use std::fmt::Write as _;
use std::time::Duration;

use ipnet::IpNet;

use crate::firewall::{Chain, Family, Set, anonymous};

/// Time that an admitted connection may take to come back: a host repeats its opening segment after 1, 2
/// and 4 s.
pub const ADMITTED_FOR: Duration = Duration::from_secs(10);

/// Chain of the gates' rules.
const GATES: &str = "gates";

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
    let set = |family: Family| {
        let end = format!("{} . inet_service", family.address());
        Set::new(
            format!("admitted{}", family.digit()),
            format_args!("{end} . {end}"),
        )
        .with("flags timeout")
        .with("size 65535")
        .to_string()
    };
    Family::BOTH.map(set).concat()
}

/// The chains; `gates` is where opening segments are sent.
pub(super) fn chains(gates: &[Gate]) -> String {
    let gate = Chain::new("gate").rules(admitted()).rule("counter drop");
    let gates = Chain::new(GATES).rules(gates.iter().flat_map(Gate::rules));
    format!("{gate}{gates}")
}

/// Rules by which connections that are admitted go on.
pub(super) fn admitted() -> [String; 2] {
    Family::BOTH.map(|family| {
        let (header, digit) = (family.header(), family.digit());
        format!("{header} saddr . tcp sport . {header} daddr . tcp dport @admitted{digit} return")
    })
}

/// Script that puts `gates` in the place of those of the `table`, and leaves the rest of it as it is.
pub(super) fn exchange(table: &str, gates: &[Gate]) -> String {
    let mut script = format!("flush chain inet {table} {GATES}\n");
    for rule in gates.iter().flat_map(Gate::rules) {
        let _ = writeln!(script, "add rule inet {table} {GATES} {rule}");
    }
    script
}

impl Gate {
    /// The gate's rules: one for each destination, because prefixes may overlap, which an anonymous set does not take;
    /// IPv4 first.
    fn rules(&self) -> Vec<String> {
        let ports = match self.ports.is_empty() {
            true => String::new(),
            false => format!("tcp dport {} ", anonymous(&self.ports)),
        };
        let rest = ports + if self.shut { "goto gate" } else { "return" };
        if self.destinations.is_empty() {
            return vec![rest];
        }
        let rules = Family::BOTH.into_iter().flat_map(|family| {
            let nets = self.destinations.iter();
            let nets = nets.filter(move |net| Family::of(net.addr()) == family);
            nets.map(move |net| format!("{} daddr {net} ", family.header()))
        });
        rules.map(|destination| destination + &rest).collect()
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
