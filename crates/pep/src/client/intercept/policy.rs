//! Rules of the user's: what goes direct, what is blocked, what is carried although it otherwise would not be.
//!
//! They are asked of every packet, in order; the first that matches decides. Connections that the listener has already
//! accepted are not asked for again: a packet of theirs that went another way would tell what they carry.

use ipnet::IpNet;

use super::Other;
use super::kept::{Kept, set_name};
use crate::firewall::{Chain, Family, Mark, Set, anonymous};

/// Time for which an address counts as a name's after it was last used.
const USED_FOR: &str = "24h";
/// Protocols that have ports: TCP, UDP, DCCP, SCTP, UDP-Lite.
pub const WITH_PORTS: [u8; 5] = [6, 17, 33, 132, 136];

/// A rule; what is empty matches all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Interfaces that packets come in by; they are intercepted. This machine's own come in by none.
    pub interfaces: Vec<String>,
    /// Networks that they come from.
    pub sources: Vec<IpNet>,
    /// Networks that they go to.
    pub destinations: Vec<IpNet>,
    /// True if they may also go to addresses that were learned ([`super::Installed::learn`]).
    pub learned: bool,
    /// IP protocols.
    pub protocols: Vec<u8>,
    /// Destination ports, of protocols that have them.
    pub ports: Vec<u16>,
    /// Values of the DSCP, 0 to 63.
    pub dscp: Vec<u8>,
    /// Fate of the packets.
    pub action: Action,
}

impl Rule {
    /// One without conditions.
    #[must_use]
    pub const fn for_all(action: Action) -> Self {
        Self {
            interfaces: Vec::new(),
            sources: Vec::new(),
            destinations: Vec::new(),
            learned: false,
            protocols: Vec::new(),
            ports: Vec::new(),
            dscp: Vec::new(),
            action,
        }
    }
}

/// Fate of traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Traffic goes through the tunnel: TCP and DNS to their listeners, everything else into the device.
    Tunnel,
    /// Traffic is forwarded in clear.
    Direct,
    /// Traffic is refused: a reset, or "administratively prohibited".
    Block,
}

/// A condition, and the family that it is for if not for both.
type Condition = (Option<Family>, String);

impl Rule {
    /// True if it can match anything but TCP.
    pub(super) fn is_for_packets(&self) -> bool {
        self.protocols.is_empty() || self.protocols.iter().any(|number| *number != 6)
    }

    /// The rule's conditions, a line each. `learned` are those for addresses that were learned.
    fn matches(&self, mut learned: Vec<Condition>) -> Vec<String> {
        let mut destinations = within("daddr", &self.destinations);
        destinations.append(&mut learned);
        if self.destinations.is_empty() && !self.learned {
            destinations = vec![(None, String::new())];
        }
        let sources = match self.sources.is_empty() {
            true => vec![(None, String::new())],
            false => within("saddr", &self.sources),
        };
        let mut lines = Vec::new();
        for (family, destination) in &destinations {
            for (other, source) in &sources {
                if family.is_none() || other.is_none() || family == other {
                    let family = family.or(*other);
                    let rest = format!("{source}{destination}");
                    lines.extend(self.dscp_match(family).map(|dscp| {
                        format!(
                            "{}{}{dscp}{rest}",
                            self.interface_match(),
                            self.port_match()
                        )
                    }));
                }
            }
        }
        lines
    }

    /// Conditions for addresses that were learned: whoever still talks to one does so because it is that name's.
    fn learned_conditions(&self, index: usize) -> Vec<Condition> {
        if !self.learned {
            return Vec::new();
        }
        let condition = |family: Family| {
            let (header, set) = (family.header(), set_name(index, family));
            let refresh = format!(
                "{header} daddr @{set} update @{set} {{ {header} daddr timeout {USED_FOR} }} "
            );
            (Some(family), refresh)
        };
        Family::BOTH.map(condition).into()
    }

    /// The rule's conditions while nobody knows any more which addresses are its names': it may mean any, unless it lets
    /// pass.
    fn conditions_without_process(&self) -> Vec<String> {
        if self.action == Action::Direct || !self.learned {
            return self.matches(Vec::new());
        }
        let anywhere = Self {
            destinations: Vec::new(),
            learned: false,
            ..self.clone()
        };
        anywhere.matches(Vec::new())
    }

    fn interface_match(&self) -> String {
        let names = self.interfaces.iter().map(|name| format!("\"{name}\""));
        set("iifname", names)
    }

    fn port_match(&self) -> String {
        let ports = set("th dport", self.ports.iter());
        match (self.protocols.is_empty(), self.ports.is_empty()) {
            (true, true) => String::new(),
            (true, false) => set("meta l4proto", WITH_PORTS) + &ports,
            (false, _) => set("meta l4proto", self.protocols.iter()) + &ports,
        }
    }

    fn dscp_match(&self, family: Option<Family>) -> impl Iterator<Item = String> {
        let families: Vec<_> = match (self.dscp.is_empty(), family) {
            (true, _) => vec![String::new()],
            (false, Some(family)) => vec![self.dscp_of(family)],
            (false, None) => Family::BOTH.map(|family| self.dscp_of(family)).into(),
        };
        families.into_iter()
    }

    fn dscp_of(&self, family: Family) -> String {
        set(&format!("{} dscp", family.header()), &self.dscp)
    }
}

/// A condition on a field that has one of these values; none if there are none.
fn set<T: ToString>(field: &str, values: impl IntoIterator<Item = T>) -> String {
    let values: Vec<_> = values.into_iter().map(|value| value.to_string()).collect();
    match values.is_empty() {
        true => String::new(),
        false => format!("{field} {} ", anonymous(values)),
    }
}

/// Conditions on an address, one for each family that `nets` have.
fn within(field: &str, nets: &[IpNet]) -> Vec<Condition> {
    let condition = |family: Family| {
        let text = format!("{} {field} {} ", family.header(), family.merged(nets)?);
        Some((Some(family), text))
    };
    Family::BOTH.into_iter().filter_map(condition).collect()
}

/// Counters and sets of the rules.
pub(super) fn sets(rules: &[Rule], kept: &Kept) -> String {
    let mut text = String::new();
    for (index, rule) in rules.iter().enumerate() {
        text.push_str(&kept.counter(index));
        if rule.learned {
            for family in Family::BOTH {
                let set = Set::new(set_name(index, family), family.address())
                    .with("size 65535")
                    .with("flags dynamic,timeout")
                    .elements(kept.elements(index, family));
                text.push_str(&set.to_string());
            }
        }
    }
    text
}

/// The chain `name`, which returns if no rule matches; `tunnel` is where that action leads.
pub(super) fn chain(rules: &[Rule], name: &str, tunnel: &str) -> Chain {
    let lines = rules.iter().enumerate().flat_map(|(index, rule)| {
        let target = match rule.action {
            Action::Tunnel => tunnel,
            Action::Direct => "direct",
            Action::Block => "blocked",
        };
        let conditions = rule.matches(rule.learned_conditions(index)).into_iter();
        conditions
            .map(move |conditions| format!("{conditions}counter name rule{index} goto {target}"))
    });
    Chain::new(name).rules(lines)
}

/// Chain in which blocked traffic ends.
pub(super) fn blocked(mark: Mark) -> Chain {
    Chain::new("blocked")
        .rule(mark.set_on_connection())
        .rule("meta l4proto tcp reject with tcp reset")
        .rule("reject with icmpx type admin-prohibited")
}

/// The rules as they hold without a process: what goes direct by addresses alone is accepted, all else that a rule names
/// is dropped, and so is what might be an earlier rule's whose names nobody knows any more.
pub(super) fn without_process(rules: &[Rule]) -> Chain {
    let lines = rules.iter().enumerate().flat_map(|(index, rule)| {
        let verdict = match rule.action {
            Action::Direct => "accept",
            Action::Tunnel | Action::Block => "drop",
        };
        let conditions = rule.conditions_without_process().into_iter();
        conditions.map(move |conditions| format!("{conditions}counter name rule{index} {verdict}"))
    });
    Chain::new("rules").rules(lines)
}

/// The chain that marks, for the guard, what [`without_process`] accepts.
pub(super) fn passing(rules: &[Rule], other: Other) -> Chain {
    let lines = rules.iter().enumerate().flat_map(|(index, rule)| {
        let verdict = match rule.action {
            Action::Direct => format!("counter name rule{index} goto pass"),
            Action::Tunnel | Action::Block => "return".to_owned(),
        };
        let conditions = rule.conditions_without_process().into_iter();
        conditions.map(move |conditions| conditions + &verdict)
    });
    let rest = (other == Other::Direct).then_some("meta l4proto != tcp goto pass");
    Chain::new("passing").rules(lines).rules(rest)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::time::Duration;

    use super::super::kept::{Count, LearnedAddress, counts};
    use super::*;

    fn nets(nets: &[&str]) -> Vec<IpNet> {
        nets.iter().map(|net| net.parse().unwrap()).collect()
    }

    #[test]
    fn conditions_meet_only_within_a_family() {
        let rule = Rule {
            interfaces: vec!["lan0".into()],
            sources: nets(&["10.1.0.0/24"]),
            destinations: nets(&["192.0.2.0/24", "192.0.2.128/25", "2001:db8::/32"]),
            protocols: vec![17],
            ports: vec![53, 123],
            dscp: vec![46],
            ..Rule::for_all(Action::Direct)
        };
        assert_eq!(
            rule.matches(Vec::new()),
            [
                "iifname { \"lan0\" } meta l4proto { 17 } th dport { 53, 123 } ip dscp { 46 } ip saddr { 10.1.0.0/24 } ip daddr { 192.0.2.0/24 } "
            ]
        );
    }

    #[test]
    fn a_rule_for_everything_has_no_conditions_and_one_for_nothing_no_lines() {
        assert_eq!(Rule::for_all(Action::Block).matches(Vec::new()), [""]);
        let unknown = Rule {
            learned: true,
            ..Rule::for_all(Action::Direct)
        };
        assert!(unknown.matches(Vec::new()).is_empty());
    }

    #[test]
    fn without_a_process_names_that_nobody_knows_are_not_taken_for_others() {
        let named = Rule {
            learned: true,
            ports: vec![443],
            ..Rule::for_all(Action::Block)
        };
        let direct = Rule {
            destinations: nets(&["192.0.2.0/24"]),
            ..Rule::for_all(Action::Direct)
        };
        let text = without_process(&[named, direct]).to_string();
        let order = [
            "th dport { 443 } counter name rule0 drop",
            "ip daddr { 192.0.2.0/24 } counter name rule1 accept",
        ];
        let places = order.map(|part| text.find(part).unwrap_or_else(|| panic!("{text}")));
        assert!(places.is_sorted(), "{text}");
    }

    #[test]
    fn counters_are_read_back() {
        let rules = [Rule::for_all(Action::Direct), Rule::for_all(Action::Block)];
        let kept = Kept {
            counts: [(5, 600), (7, 8)]
                .map(|(packets, bytes)| Count { packets, bytes })
                .into(),
            ..Kept::default()
        };
        assert_eq!(counts(&sets(&rules, &kept), 2), kept.counts);
    }

    #[test]
    fn what_was_learned_is_in_the_set_of_its_rule_and_family() {
        let named = Rule {
            learned: true,
            ..Rule::for_all(Action::Direct)
        };
        let address: IpAddr = "2001:db8::1".parse().unwrap();
        let kept = Kept {
            learned: vec![LearnedAddress {
                rule: 1,
                address,
                time: Duration::from_secs(60),
            }],
            ..Kept::default()
        };
        let text = sets(&[Rule::for_all(Action::Block), named], &kept);
        assert_eq!(text.matches("elements").count(), 1);
        let (_, set) = text.split_once("set learned1_6").unwrap();
        assert!(set.contains("{ 2001:db8::1 timeout 60s }"), "{text}");
    }
}
