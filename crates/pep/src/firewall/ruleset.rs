//! Builder of what stands between the braces of a table: sets and chains of rules, as `nft -f` reads them.
//!
//! A rule is a line of nft's own language; names, hooks, families and marks that rules have in common are written here.

use std::fmt::{self, Display, Write as _};
use std::net::IpAddr;

use ipnet::IpNet;

/// Address family of a rule or of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    pub(crate) const BOTH: [Self; 2] = [Self::V4, Self::V6];

    /// The family of `address`.
    pub(crate) fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    /// The header whose fields a rule names: `ip` or `ip6`.
    pub(crate) fn header(self) -> &'static str {
        match self {
            Self::V4 => "ip",
            Self::V6 => "ip6",
        }
    }

    /// The family's ICMP: `icmp` or `icmpv6`.
    pub(crate) fn icmp(self) -> &'static str {
        match self {
            Self::V4 => "icmp",
            Self::V6 => "icmpv6",
        }
    }

    /// The name after `meta nfproto`: `ipv4` or `ipv6`.
    pub(crate) fn protocol(self) -> &'static str {
        match self {
            Self::V4 => "ipv4",
            Self::V6 => "ipv6",
        }
    }

    /// The type of an address in a set: `ipv4_addr` or `ipv6_addr`.
    pub(crate) fn address(self) -> &'static str {
        match self {
            Self::V4 => "ipv4_addr",
            Self::V6 => "ipv6_addr",
        }
    }

    /// The end of the name of the family's set: `4` or `6`.
    pub(crate) fn digit(self) -> char {
        match self {
            Self::V4 => '4',
            Self::V6 => '6',
        }
    }

    /// The prefixes of `nets` that are of this family, as an anonymous set; `None` if there are none. A set refuses
    /// prefixes that overlap, so they are merged.
    pub(crate) fn merged<'a>(self, nets: impl IntoIterator<Item = &'a IpNet>) -> Option<String> {
        let nets = nets.into_iter().map(IpNet::trunc);
        let own = nets.filter(|net| Self::of(net.addr()) == self);
        let merged = IpNet::aggregate(&own.collect());
        (!merged.is_empty()).then(|| anonymous(merged))
    }
}

/// The anonymous set of `elements`, which are not none.
pub(crate) fn anonymous(elements: impl IntoIterator<Item: Display>) -> String {
    format!("{{ {} }}", listed(elements))
}

fn listed(elements: impl IntoIterator<Item: Display>) -> String {
    let elements = elements.into_iter().map(|element| element.to_string());
    elements.collect::<Vec<_>>().join(", ")
}

/// A mark of packets or connections: a value in those of its bits that are ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    value: u32,
    mask: u32,
}

impl Mark {
    /// The mark `value` in the bits of `mask`.
    pub(crate) const fn new(value: u32, mask: u32) -> Self {
        Self { value, mask }
    }

    /// Match of packets that bear the mark.
    pub(crate) fn borne(self) -> String {
        format!("meta mark & {:#x} == {:#x}", self.mask, self.value)
    }

    /// Match of packets that bear another mark of ours, or none.
    pub(crate) fn not_borne(self) -> String {
        format!("meta mark & {:#x} != {:#x}", self.mask, self.value)
    }

    /// Match of packets that bear no mark of ours.
    pub(crate) fn none_borne(self) -> String {
        format!("meta mark & {:#x} == 0", self.mask)
    }

    /// Match of packets that bear any mark of ours.
    pub(crate) fn any_borne(self) -> String {
        format!("meta mark & {:#x} != 0", self.mask)
    }

    /// Match of packets of a connection that bears the mark.
    pub(crate) fn borne_by_connection(self) -> String {
        format!("ct mark & {:#x} == {:#x}", self.mask, self.value)
    }

    /// Match of packets of a connection that bears another mark of ours, or none.
    pub(crate) fn not_borne_by_connection(self) -> String {
        format!("ct mark & {:#x} != {:#x}", self.mask, self.value)
    }

    /// Statement that marks a packet, and leaves the bits of others alone.
    pub(crate) fn set(self) -> String {
        format!(
            "meta mark set meta mark & {:#x} | {:#x}",
            !self.mask, self.value
        )
    }

    /// Statement that takes any mark of ours from a packet.
    pub(crate) fn unset(self) -> String {
        format!("meta mark set meta mark & {:#x}", !self.mask)
    }

    /// Statement that marks a packet's connection, and leaves the bits of others alone.
    pub(crate) fn set_on_connection(self) -> String {
        format!(
            "ct mark set ct mark & {:#x} | {:#x}",
            !self.mask, self.value
        )
    }
}

/// A chain of rules, in their order.
#[derive(Debug, Clone)]
pub(crate) struct Chain {
    name: String,
    rules: String,
}

impl Chain {
    /// A chain that others jump to.
    pub(crate) fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            rules: String::new(),
        }
    }

    /// A base chain: the kernel calls it at `place` (a hook and a priority, such as `output priority filter`) with packets
    /// of `kind` (`filter`, `nat`, `route`); what it says nothing of passes.
    pub(crate) fn at(name: &str, kind: &str, place: &str) -> Self {
        Self::new(name).rule(format_args!("type {kind} hook {place}; policy accept;"))
    }

    /// The chain with one more rule at its end.
    pub(crate) fn rule(mut self, rule: impl Display) -> Self {
        // Writing into a String cannot fail.
        let _ = writeln!(self.rules, "    {rule}");
        self
    }

    /// The chain with more rules at its end.
    pub(crate) fn rules(self, rules: impl IntoIterator<Item: Display>) -> Self {
        rules.into_iter().fold(self, Self::rule)
    }
}

impl Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  chain {} {{\n{}  }}\n", self.name, self.rules)
    }
}

/// A named set.
#[derive(Debug, Clone)]
pub(crate) struct Set {
    name: String,
    lines: String,
}

impl Set {
    /// A set whose elements are of type `kind`.
    pub(crate) fn new(name: impl Into<String>, kind: impl Display) -> Self {
        let set = Self {
            name: name.into(),
            lines: String::new(),
        };
        set.with(format_args!("type {kind}"))
    }

    /// The set with one more property, such as `flags timeout` or `size 65535`.
    pub(crate) fn with(mut self, property: impl Display) -> Self {
        let _ = writeln!(self.lines, "    {property}");
        self
    }

    /// The set with these elements, which may be none.
    pub(crate) fn elements(self, elements: impl IntoIterator<Item: Display>) -> Self {
        let list = listed(elements);
        match list.is_empty() {
            true => self,
            false => self.with(format_args!("elements = {{ {list} }}")),
        }
    }
}

impl Display for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  set {} {{\n{}  }}\n", self.name, self.lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_print_their_hook_and_their_rules_in_order() {
        let plain = Chain::new("direct").rule("accept");
        assert_eq!(plain.to_string(), "  chain direct {\n    accept\n  }\n");
        let hooked = Chain::at("quiet", "filter", "output priority filter").rules(["a", "b"]);
        assert_eq!(
            hooked.to_string(),
            "  chain quiet {\n    type filter hook output priority filter; policy accept;\n    a\n    b\n  }\n"
        );
    }

    #[test]
    fn sets_print_their_properties_and_only_what_elements_there_are() {
        let set = Set::new("refused4", "ipv4_addr . inet_service").with("flags timeout");
        let text = "  set refused4 {\n    type ipv4_addr . inet_service\n    flags timeout\n";
        assert_eq!(
            set.clone().elements([0; 0]).to_string(),
            format!("{text}  }}\n")
        );
        assert_eq!(
            set.elements([1, 2]).to_string(),
            format!("{text}    elements = {{ 1, 2 }}\n  }}\n")
        );
    }

    #[test]
    fn prefixes_of_a_family_are_merged() {
        let nets = ["10.1.0.1/24", "10.1.0.128/25", "fd00:1::/64"];
        let nets = nets.map(|net| net.parse().unwrap());
        assert_eq!(Family::V4.merged(&nets).unwrap(), "{ 10.1.0.0/24 }");
        assert_eq!(Family::V6.merged(&nets).unwrap(), "{ fd00:1::/64 }");
        assert_eq!(Family::V6.merged(&nets[..2]), None);
    }

    #[test]
    fn marks_leave_the_bits_of_others_alone() {
        let mark = Mark::new(0x5000_0000, 0xf000_0000);
        assert_eq!(mark.borne(), "meta mark & 0xf0000000 == 0x50000000");
        assert_eq!(
            mark.set(),
            "meta mark set meta mark & 0xfffffff | 0x50000000"
        );
    }
}
