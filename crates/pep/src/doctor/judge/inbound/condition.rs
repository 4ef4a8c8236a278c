//! Conditions of rules, and whether a packet meets them: yes, no, or that cannot be told from here.

use std::net::IpAddr;

use ipnet::IpNet;

use super::listing::{Effect, Sets, verdict, words};
use crate::doctor::facts::ListenProtocol;

/// Degree to which something holds, from the least to the most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Truth {
    No,
    Perhaps,
    Yes,
}

impl From<bool> for Truth {
    fn from(holds: bool) -> Self {
        if holds { Self::Yes } else { Self::No }
    }
}

/// Packet that comes in for this machine, or that it sends: the first one of something new, or an answer.
#[derive(Debug, Clone)]
pub(super) struct FilteredPacket {
    pub(super) protocol: ListenProtocol,
    /// Destination; without a port it may be any.
    pub(super) to: IpAddr,
    pub(super) port: Option<u16>,
    /// Port of the service that answers; `None`: the packet begins something.
    pub(super) answer_from: Option<u16>,
    /// Interface that it comes in by, or leaves by; `None`: any but loopback.
    pub(super) device: Option<String>,
    /// Mark; `None`: it is not known, for some rule of this machine sets one.
    pub(super) mark: Option<u32>,
    /// Some rule of this machine changes destinations, so its own may have been another.
    pub(super) may_be_translated: bool,
    /// The packet is this machine's own and leaves by the device.
    pub(super) leaves: bool,
}

/// A condition of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Condition {
    /// Field as `nft` names it; empty if it is none of [`KEYS`].
    key: &'static str,
    /// The values are those that do not meet it.
    negated: bool,
    /// Values of which one has to be met; `None` if they cannot be read.
    values: Option<Vec<String>>,
}

/// Fields that are known.
const KEYS: [&str; 32] = [
    "fib daddr type",
    "meta l4proto",
    "meta nfproto",
    "meta protocol",
    "meta mark",
    "meta pkttype",
    "meta iifname",
    "meta iif",
    "meta oifname",
    "meta oif",
    "ip protocol",
    "ip saddr",
    "ip daddr",
    "ip6 nexthdr",
    "ip6 saddr",
    "ip6 daddr",
    "udp dport",
    "udp sport",
    "tcp dport",
    "tcp sport",
    "th dport",
    "th sport",
    "ct state",
    "ct status",
    "ct direction",
    "ether type",
    "iifname",
    "iif",
    "oifname",
    "oif",
    "udp length",
    "tcp flags",
];

/// Words that begin conditions on what is neither TCP nor UDP.
const OTHERS: [&str; 13] = [
    "icmp", "icmpv6", "igmp", "sctp", "dccp", "udplite", "esp", "ah", "comp", "gre", "vrrp", "arp",
    "mh",
];

impl Condition {
    /// A condition on what cannot be told from here.
    const UNKNOWN: Self = Self {
        key: "",
        negated: false,
        values: None,
    };

    /// A condition that no packet meets which is asked about.
    const NEVER: Self = Self {
        key: "",
        negated: false,
        values: Some(Vec::new()),
    };

    /// Reads the condition that `rest` begins with: the condition, the effect of a verdict map, and what follows.
    pub(super) fn read<'a, 'b>(
        rest: &'a [&'b str],
        sets: &Sets<'_>,
    ) -> (Option<Self>, Option<Effect>, &'a [&'b str]) {
        let known = KEYS.into_iter().find_map(|key| {
            let mut tail = rest;
            for word in key.split(' ') {
                tail = tail.strip_prefix(&[word])?;
            }
            Some((key, tail))
        });
        let Some((key, tail)) = known else {
            let (condition, tail) = Self::other(rest);
            return (Some(condition), None, tail);
        };
        let of = |negated, value: &str| Self {
            key,
            negated,
            values: values(value, sets),
        };
        match tail {
            ["vmap", map, tail @ ..] => (None, Some(mapped(key, map)), tail),
            // Several fields together: what they have to be is not taken apart.
            [".", tail @ ..] => {
                let ends = |word: &&str| word.starts_with(['{', '@']) || **word == *"vmap";
                let end = tail.iter().position(ends).unwrap_or(0);
                let (is_map, tail) = (tail.get(end) == Some(&"vmap"), &tail[end..]);
                let tail = tail.get(1 + usize::from(is_map)..).unwrap_or_default();
                (Some(Self::UNKNOWN), is_map.then_some(Effect::Unknown), tail)
            }
            ["&", mask, "==", value, tail @ ..] => {
                let masked = format!("{value}&{mask}");
                (Some(of(false, &masked)), None, tail)
            }
            ["!=", value, tail @ ..] => (Some(of(true, value)), None, tail),
            ["==", value, tail @ ..] => (Some(of(false, value)), None, tail),
            ["<" | ">" | "<=" | ">=" | "&", _, tail @ ..] => (Some(Self::UNKNOWN), None, tail),
            [value, tail @ ..] => (Some(of(false, value)), None, tail),
            [] => (Some(Self::UNKNOWN), None, &[]),
        }
    }

    /// Condition that `rest` begins with if that names no known field, and what follows.
    fn other<'a, 'b>(rest: &'a [&'b str]) -> (Self, &'a [&'b str]) {
        match rest {
            [other, _, tail @ ..] if OTHERS.contains(other) => (Self::NEVER, tail),
            ["limit", "rate", "over", _, "burst", _, _, tail @ ..]
            | ["limit", "rate", _, "burst", _, _, tail @ ..]
            | ["limit", "rate", "over", _, tail @ ..]
            | ["limit", "rate", _, tail @ ..]
            | ["xt", "match", _, tail @ ..]
            | ["ether", "saddr" | "daddr", _, tail @ ..]
            | ["update" | "add" | "delete", _, _, tail @ ..] => (Self::UNKNOWN, tail),
            _ => {
                let all = 0..rest.len();
                let end = all.into_iter().find(|at| verdict(&rest[*at..]).is_some());
                (Self::UNKNOWN, &rest[end.unwrap_or(rest.len())..])
            }
        }
    }

    /// True if it is about the destination's port.
    pub(super) fn is_about_port(&self) -> bool {
        self.key.ends_with(" dport")
    }

    /// Degree to which `packet` meets the condition.
    pub(super) fn holds_for(&self, packet: &FilteredPacket) -> Truth {
        // A field that a packet has not is neither this nor that.
        let has_field = match self.key.split(' ').next() {
            Some("udp") => packet.protocol == ListenProtocol::Udp,
            Some("tcp") => packet.protocol == ListenProtocol::Tcp,
            Some("ip") => packet.to.is_ipv4(),
            Some("ip6") => packet.to.is_ipv6(),
            _ => true,
        };
        if !has_field {
            return Truth::No;
        }
        let Some(values) = &self.values else {
            return Truth::Perhaps;
        };
        let met = values.iter().map(|value| packet.has(self.key, value));
        match (met.max().unwrap_or(Truth::No), self.negated) {
            (Truth::Yes, true) => Truth::No,
            (Truth::No, true) => Truth::Yes,
            (met, _) => met,
        }
    }
}

/// Values of a condition, as written or as elements of a set.
fn values(written: &str, sets: &Sets<'_>) -> Option<Vec<String>> {
    let listed = match written.strip_prefix('@') {
        Some(set) => sets.get(set)?,
        None => written,
    };
    let listed = listed.trim_start_matches('{').trim_end_matches('}');
    let values = listed.split(',').map(str::trim);
    // Behind an element may stand when it expires.
    let values = values.filter_map(|value| words(value).first().copied());
    Some(values.map(|value| unquoted(value).to_owned()).collect())
}

/// Effect of a verdict map over the field `key`.
fn mapped(key: &'static str, map: &str) -> Effect {
    if !map.starts_with('{') {
        return Effect::Unknown;
    }
    let map = map.trim_start_matches('{').trim_end_matches('}');
    let elements = map.split(',').map(|element| {
        let (value, fate) = element.trim().rsplit_once(" : ")?;
        let condition = Condition {
            key,
            negated: false,
            values: Some(vec![unquoted(value.trim()).to_owned()]),
        };
        Some((condition, verdict(&words(fate))?))
    });
    elements
        .collect::<Option<_>>()
        .map_or(Effect::Unknown, Effect::Map)
}

/// A word without its quotes.
pub(super) fn unquoted(word: &str) -> &str {
    word.trim_matches('"')
}

impl FilteredPacket {
    /// Degree to which the packet's field `key` has this value.
    fn has(&self, key: &str, value: &str) -> Truth {
        match key {
            "meta l4proto" | "ip protocol" | "ip6 nexthdr" => {
                let (name, number) = self.protocol.known_as();
                (value == name || value == number).into()
            }
            "meta nfproto" => {
                let name = if self.to.is_ipv4() { "ipv4" } else { "ipv6" };
                (value == name).into()
            }
            "meta protocol" | "ether type" => {
                let name = if self.to.is_ipv4() { "ip" } else { "ip6" };
                (value == name).into()
            }
            "meta mark" => self.has_mark(value),
            "meta pkttype" => ["host", "unicast"].contains(&value).into(),
            "fib daddr type" => {
                let own = if self.leaves { "unicast" } else { "local" };
                (value == own).into()
            }
            "ct state" => match (value, self.answer_from) {
                ("untracked", _) => Truth::Perhaps,
                (other, None) => (other == "new").into(),
                (other, Some(_)) => (other == "established").into(),
            },
            "ct direction" => match self.answer_from {
                None => (value == "original").into(),
                Some(_) => (value == "reply").into(),
            },
            "ct status" if value == "dnat" && !self.may_be_translated => Truth::No,
            "udp dport" | "tcp dport" | "th dport" => within(value, self.port),
            "udp sport" | "tcp sport" | "th sport" if self.answer_from.is_some() => {
                within(value, self.answer_from)
            }
            // Whoever begins something does so from a port above those of services.
            "udp sport" | "tcp sport" | "th sport" => match value.parse::<u16>() {
                Ok(..1024) => Truth::No,
                _ => Truth::Perhaps,
            },
            "ip saddr" | "ip6 saddr" => of_address(value, None),
            "ip daddr" | "ip6 daddr" => {
                of_address(value, Some(self.to).filter(|to| !to.is_unspecified()))
            }
            "iif" | "iifname" | "meta iif" | "meta iifname" => self.goes_by(value, !self.leaves),
            "oif" | "oifname" | "meta oif" | "meta oifname" => self.goes_by(value, self.leaves),
            _ => Truth::Perhaps,
        }
    }

    /// Degree to which the interface `name` is that of the packet, which `has` one in this direction.
    fn goes_by(&self, name: &str, has: bool) -> Truth {
        match (&self.device, name.strip_suffix('*')) {
            _ if !has => Truth::No,
            (Some(device), Some(prefix)) => device.starts_with(prefix).into(),
            (Some(device), None) => (device == name).into(),
            (None, None) if name == "lo" => Truth::No,
            (None, _) => Truth::Perhaps,
        }
    }

    /// Degree to which the packet's mark is `wanted`, written with a mask or with the number of its leading bits.
    fn has_mark(&self, wanted: &str) -> Truth {
        let (value, mask) = match (wanted.split_once('&'), wanted.split_once('/')) {
            (Some((value, mask)), _) => (value, number(mask)),
            (_, Some((value, bits))) => {
                let bits = bits
                    .parse()
                    .ok()
                    .and_then(|bits: u32| 32_u32.checked_sub(bits));
                (value, bits.and_then(|shift| u32::MAX.checked_shl(shift)))
            }
            _ => (wanted, Some(u32::MAX)),
        };
        match (self.mark, number(value), mask) {
            (Some(mark), Some(value), Some(mask)) => (mark & mask == value & mask).into(),
            _ => Truth::Perhaps,
        }
    }
}

fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Degree to which `port` is one of `ports`, which is one or a range.
fn within(ports: &str, port: Option<u16>) -> Truth {
    let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
    match (first.parse::<u16>(), last.parse::<u16>(), port) {
        (Ok(first), Ok(last), Some(port)) => (first..=last).contains(&port).into(),
        _ => Truth::Perhaps,
    }
}

/// Degree to which an address is in `prefix`: `own`, or that of somebody elsewhere.
fn of_address(prefix: &str, own: Option<IpAddr>) -> Truth {
    let alone = prefix.parse::<IpAddr>().map(IpNet::from);
    let Ok(prefix) = prefix.parse::<IpNet>().or(alone) else {
        return Truth::Perhaps;
    };
    let first = prefix.network();
    match own {
        _ if prefix.prefix_len() == 0 => Truth::Yes,
        Some(own) => prefix.contains(&own).into(),
        // Neither end of what comes from elsewhere is one of these.
        None if first.is_loopback() || first.is_multicast() => Truth::No,
        None => Truth::Perhaps,
    }
}
