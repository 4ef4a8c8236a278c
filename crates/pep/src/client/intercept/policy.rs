//! Rules of the user's: what goes direct, what is blocked, what is carried although it otherwise would not be.
//!
//! They are asked of every packet, in order; the first that matches decides. Connections that the listener has already
//! accepted are not asked for again: a packet of theirs that went another way would tell what they carry.

use std::fmt::Write as _;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use bentpipe_sys::command::run;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::firewall::CLIENT_TABLE;

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

/// An address that counts as a rule's name's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lesson {
    /// The rule's number; it has [`Rule::learned`].
    pub rule: usize,
    /// The address.
    pub address: IpAddr,
    /// For how long it counts, and for a day after it was last used.
    pub time: Duration,
}

/// Count of what a rule has decided on since it was installed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// Packets, of the direction that the rule names.
    pub packets: u64,
    /// Their bytes, from the IP header on.
    pub bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

impl Family {
    const BOTH: [Self; 2] = [Self::V4, Self::V6];

    fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    fn field(self) -> &'static str {
        match self {
            Self::V4 => "ip",
            Self::V6 => "ip6",
        }
    }

    fn digit(self) -> char {
        match self {
            Self::V4 => '4',
            Self::V6 => '6',
        }
    }
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
        set(&format!("{} dscp", family.field()), self.dscp.iter())
    }
}

/// A condition on a field that has one of these values; none if there are none.
fn set<T: ToString>(field: &str, values: impl IntoIterator<Item = T>) -> String {
    let values: Vec<_> = values.into_iter().map(|value| value.to_string()).collect();
    match values.is_empty() {
        true => String::new(),
        false => format!("{field} {{ {} }} ", values.join(", ")),
    }
}

/// An anonymous set takes no prefixes that overlap, so they are merged.
fn within(field: &str, nets: &[IpNet]) -> Vec<Condition> {
    let (mut v4, mut v6) = (Vec::<Ipv4Net>::new(), Vec::<Ipv6Net>::new());
    for net in nets {
        match net {
            IpNet::V4(net) => v4.push(*net),
            IpNet::V6(net) => v6.push(*net),
        }
    }
    let v4 = set(&format!("ip {field}"), Ipv4Net::aggregate(&v4));
    let v6 = set(&format!("ip6 {field}"), Ipv6Net::aggregate(&v6));
    let both = [(Some(Family::V4), v4), (Some(Family::V6), v6)];
    both.into_iter()
        .filter(|(_, text)| !text.is_empty())
        .collect()
}

fn set_name(rule: usize, family: Family) -> String {
    format!("learned{rule}_{}", family.digit())
}

/// Part that goes on from one table to the next.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Kept {
    /// By rule.
    pub(super) counts: Vec<Count>,
    /// For as long as it still counts.
    pub(super) learned: Vec<Lesson>,
}

impl Kept {
    /// The elements of one rule's set.
    fn elements(&self, rule: usize, family: Family) -> String {
        let elements: Vec<_> = self
            .learned
            .iter()
            .filter(|one| one.rule == rule && family == Family::of(one.address))
            .map(Lesson::element)
            .collect();
        match elements.is_empty() {
            true => String::new(),
            false => format!("    elements = {{ {} }}\n", elements.join(", ")),
        }
    }
}

/// Counters and sets of the rules.
pub(super) fn sets(rules: &[Rule], kept: &Kept) -> String {
    let mut text = String::new();
    for (index, rule) in rules.iter().enumerate() {
        let Count { packets, bytes } = kept.counts.get(index).copied().unwrap_or_default();
        let _ = writeln!(
            text,
            "  counter rule{index} {{\n    packets {packets} bytes {bytes}\n  }}"
        );
        if rule.learned {
            for family in Family::BOTH {
                let (name, digit) = (set_name(index, family), family.digit());
                let elements = kept.elements(index, family);
                let _ = writeln!(
                    text,
                    "  set {name} {{\n    type ipv{digit}_addr\n    size 65535\n    flags dynamic,timeout\n{elements}  }}"
                );
            }
        }
    }
    text
}

/// The chain `name`, which returns if no rule matches; `tunnel` is where that action leads.
pub(super) fn chain(rules: &[Rule], name: &str, tunnel: &str) -> String {
    let mut text = format!("  chain {name} {{\n");
    for (index, rule) in rules.iter().enumerate() {
        let learned = Family::BOTH.map(|family| {
            let (field, set) = (family.field(), set_name(index, family));
            // Whoever still talks to an address does so because it is that name's.
            let refresh = format!(
                "{field} daddr @{set} update @{set} {{ {field} daddr timeout {USED_FOR} }} "
            );
            (Some(family), refresh)
        });
        let learned = if rule.learned {
            learned.into()
        } else {
            Vec::new()
        };
        let target = match rule.action {
            Action::Tunnel => tunnel,
            Action::Direct => "direct",
            Action::Block => "blocked",
        };
        for conditions in rule.matches(learned) {
            let _ = writeln!(
                text,
                "    {conditions}counter name rule{index} goto {target}"
            );
        }
    }
    text.push_str("  }\n");
    text
}

/// Chain in which blocked traffic ends.
pub(super) const BLOCKED: &str = "  chain blocked {\n    meta l4proto tcp reject with tcp reset\n    reject with icmpx type admin-prohibited\n  }\n";

/// The rules as they hold without a process: what goes direct by addresses alone is accepted, all else that a rule names
/// is dropped, and so is what might be an earlier rule's whose names nobody knows any more.
pub(super) fn without_process(rules: &[Rule]) -> String {
    let mut text = String::from("  chain rules {\n");
    for (index, rule) in rules.iter().enumerate() {
        let (rule, verdict) = match (rule.action, rule.learned) {
            (Action::Direct, _) => (rule.clone(), "accept"),
            (_, false) => (rule.clone(), "drop"),
            (_, true) => {
                let anywhere = Rule {
                    destinations: Vec::new(),
                    learned: false,
                    ..rule.clone()
                };
                (anywhere, "drop")
            }
        };
        for conditions in rule.matches(Vec::new()) {
            let _ = writeln!(text, "    {conditions}counter name rule{index} {verdict}");
        }
    }
    text.push_str("  }\n");
    text
}

/// The chain that marks, for the guard, what [`without_process`] accepts.
pub(super) fn passing(rules: &[Rule], other: &super::Other) -> String {
    let mut text = String::from("  chain passing {\n");
    for (index, rule) in rules.iter().enumerate() {
        let (rule, verdict) = match (rule.action, rule.learned) {
            (Action::Direct, _) => (rule.clone(), format!("counter name rule{index} goto pass")),
            (_, false) => (rule.clone(), "return".to_owned()),
            // Whose names nobody knows any more.
            (_, true) => {
                let anywhere = Rule {
                    destinations: Vec::new(),
                    learned: false,
                    ..rule.clone()
                };
                (anywhere, "return".to_owned())
            }
        };
        for conditions in rule.matches(Vec::new()) {
            let _ = writeln!(text, "    {conditions}{verdict}");
        }
    }
    if *other == super::Other::Direct {
        text.push_str("    meta l4proto != tcp goto pass\n");
    }
    text.push_str("  }\n");
    text
}

impl Lesson {
    fn element(&self) -> String {
        format!("{} timeout {}s", self.address, self.time.as_secs().max(1))
    }
}

/// Text that teaches the table `name` all of it in one step.
pub(super) fn teaching(name: &str, lessons: &[Lesson]) -> String {
    let mut text = String::new();
    for lesson in lessons {
        let set = set_name(lesson.rule, Family::of(lesson.address));
        // What is there already would keep its time, and only what is there can be deleted.
        for (verb, element) in [
            ("add", lesson.element()),
            ("delete", lesson.address.to_string()),
            ("add", lesson.element()),
        ] {
            let _ = writeln!(text, "{verb} element inet {name} {set} {{ {element} }}");
        }
    }
    text
}

/// Reads the elements of one set from what `nft list set` prints of it.
pub(super) fn elements(listing: &str, rule: usize) -> Vec<Lesson> {
    let Some((_, elements)) = listing.split_once("elements = {") else {
        return Vec::new();
    };
    let element = |text: &str| {
        let mut words = text.split_whitespace();
        let address = words.next()?.parse().ok()?;
        let time = time(words.skip_while(|word| *word != "expires").nth(1)?)?;
        Some(Lesson {
            rule,
            address,
            time,
        })
    };
    let list = elements.split('}').next().unwrap_or_default();
    list.split(',').filter_map(element).collect()
}

/// A time as nft prints it: `1d2h3m4s5ms`.
fn time(text: &str) -> Option<Duration> {
    let mut left = text;
    let mut sum = Duration::ZERO;
    while let Some(end) = left.find(|c: char| !c.is_ascii_digit()) {
        let number: u32 = left[..end].parse().ok()?;
        let unit = &left[end..];
        let unit = &unit[..unit
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(unit.len())];
        let one = match unit {
            "d" => Duration::from_secs(24 * 3600),
            "h" => Duration::from_secs(3600),
            "m" => Duration::from_secs(60),
            "s" => Duration::from_secs(1),
            "ms" => Duration::from_millis(1),
            _ => return None,
        };
        sum += one * number;
        left = &left[end + unit.len()..];
    }
    left.is_empty().then_some(sum)
}

/// Content of the sets of `rules` now.
pub(super) fn learned(rules: &[bool]) -> io::Result<Vec<Lesson>> {
    let mut all = Vec::new();
    for (rule, _) in rules.iter().enumerate().filter(|(_, learned)| **learned) {
        for family in Family::BOTH {
            let name = set_name(rule, family);
            let listing = run("nft", &["list", "set", "inet", CLIENT_TABLE, &name])?;
            all.extend(elements(&listing, rule));
        }
    }
    Ok(all)
}

/// Reads what `nft list counters` prints of rules `0..number`.
pub(super) fn counts(listing: &str, number: usize) -> Vec<Count> {
    let mut counts = vec![Count::default(); number];
    for part in listing.split("counter rule").skip(1) {
        let mut words = part.split_whitespace();
        let index = words.next().and_then(|word| word.parse::<usize>().ok());
        let mut figure = |name| {
            words.by_ref().find(|word| *word == name)?;
            words.next()?.parse().ok()
        };
        let count = Count {
            packets: figure("packets").unwrap_or_default(),
            bytes: figure("bytes").unwrap_or_default(),
        };
        if let Some(slot) = index.and_then(|index| counts.get_mut(index)) {
            *slot = count;
        }
    }
    counts
}

#[cfg(test)]
mod tests {
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
        let text = without_process(&[named, direct]);
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
            learned: vec![Lesson {
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

    #[test]
    fn elements_are_read_back_with_the_time_that_is_left() {
        let listing = "table inet t {\n\tset learned2_4 {\n\t\ttype ipv4_addr\n\t\tsize 65535\n\t\tflags dynamic,timeout\n\t\t\
             elements = { 192.0.2.1 timeout 1h expires 59m58s312ms, 192.0.2.2 timeout 1d expires 23h,\n\t\t\t     \
             192.0.2.3 timeout 5s expires 17ms }\n\t}\n}\n";
        let read: Vec<_> = elements(listing, 2).iter().map(Lesson::element).collect();
        assert_eq!(
            read,
            [
                "192.0.2.1 timeout 3598s",
                "192.0.2.2 timeout 82800s",
                "192.0.2.3 timeout 1s"
            ]
        );
        assert_eq!(elements("set learned2_4 {\n}\n", 2), []);
    }
}
