//! Rules of other programs that are asked before ours, and the kernel's word on where a packet would go.

use std::fmt;
use std::io;
use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::{RouteAttribute, RouteFlags, RouteMessage, RouteType};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleFlags, RuleHeader, RuleMessage};

use super::table_route::Leading;
use super::{Family, PolicyRule, dump};
use crate::netlink::{ask, list};

/// Rules that are read: nobody has more before ours.
const MAX_RULES: usize = 256;

/// Fate of packets that a rule of another program matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RuleFate {
    /// A routing table is asked, by its number.
    Table(u32),
    /// Packets are dropped, with a word to the sender or without.
    Dropped,
    /// The rules from this priority on are asked next.
    Goto(u32),
}

/// A rule of another program, with the conditions that decide which packets it takes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PrecedingRule {
    /// The family that the rule is for.
    pub family: Family,
    /// The priority: rules are asked in the order of it.
    pub priority: u32,
    /// The interface that packets come in by.
    pub iif: Option<String>,
    /// The mark and which of its bits count.
    pub mark: Option<(u32, u32)>,
    /// Network that packets come from.
    pub from: Option<IpNet>,
    /// Network that packets go to.
    pub to: Option<IpNet>,
    /// The number of the protocol above IP.
    pub protocol: Option<u8>,
    /// First of the ports that packets go to.
    pub port: Option<u16>,
    /// First of the ports that packets come from.
    pub source_port: Option<u16>,
    /// Fate of the packets.
    pub fate: RuleFate,
    /// True if the rule says no more than that. An inverted rule (`not`) stands here without its conditions.
    pub is_whole: bool,
}

impl PrecedingRule {
    /// Rules of `family` with priorities from 1 to `last`, without those that are `ours`. Those that take no packet that is forwarded
    /// are none: rules for an interface that packets leave by, for users, for a TOS, and those that do nothing.
    ///
    /// # Errors
    /// The kernel gave no answer.
    pub fn list(family: Family, last: u32, ours: &[PolicyRule]) -> io::Result<Vec<Self>> {
        let foreign = |rule: &Self| {
            let own = PolicyRule::of(rule).is_some_and(|own| ours.contains(&own));
            !own && (1..=last).contains(&rule.priority)
        };
        let rules = dump(family)?.into_iter();
        let rules = rules.filter_map(|rule| Self::read(family, &rule));
        Ok(rules.filter(foreign).take(MAX_RULES).collect())
    }

    /// A rule without conditions.
    fn of_all(family: Family, fate: RuleFate) -> Self {
        Self {
            family,
            priority: 0,
            iif: None,
            mark: None,
            from: None,
            to: None,
            protocol: None,
            port: None,
            source_port: None,
            fate,
            is_whole: true,
        }
    }

    /// Rule as the kernel tells of it; `None` if it takes no packet that is forwarded.
    pub(super) fn read(family: Family, message: &RuleMessage) -> Option<Self> {
        let header = &message.header;
        if header.tos != 0 {
            return None;
        }
        let fate = match header.action {
            RuleAction::ToTable => RuleFate::Table(header.table.into()),
            RuleAction::Goto => RuleFate::Goto(0),
            RuleAction::Blackhole | RuleAction::Unreachable | RuleAction::Prohibit => {
                RuleFate::Dropped
            }
            _ => return None,
        };
        let mut rule = Self::of_all(family, fate);
        rule.is_whole = ![RuleAction::Unreachable, RuleAction::Prohibit].contains(&header.action);
        for attribute in &message.attributes {
            rule.take(attribute, header)?;
        }
        if header.flags.contains(RuleFlags::Invert) {
            // Few packets are not taken by it.
            rule = Self {
                priority: rule.priority,
                is_whole: false,
                ..Self::of_all(family, rule.fate)
            };
        }
        Some(rule)
    }

    /// Takes what one attribute says; `None` if the rule takes no packet that is forwarded.
    fn take(&mut self, attribute: &RuleAttribute, header: &RuleHeader) -> Option<()> {
        match attribute {
            RuleAttribute::Priority(priority) => self.priority = *priority,
            RuleAttribute::Table(table) => {
                if let RuleFate::Table(number) = &mut self.fate {
                    *number = *table;
                }
            }
            RuleAttribute::Goto(target) => self.fate = RuleFate::Goto(*target),
            RuleAttribute::Iifname(name) => self.iif = Some(name.clone()),
            // The kernel tells a mark of zero by its mask alone.
            RuleAttribute::FwMark(value) => {
                let mask = self.mark.map_or(u32::MAX, |(_, mask)| mask);
                self.mark = Some((*value, mask));
            }
            RuleAttribute::FwMask(mask) => {
                self.mark = Some((self.mark.map_or(0, |(mark, _)| mark), *mask));
            }
            RuleAttribute::Source(from) => self.from = IpNet::new(*from, header.src_len).ok(),
            RuleAttribute::Destination(to) => self.to = IpNet::new(*to, header.dst_len).ok(),
            RuleAttribute::IpProtocol(number) => self.protocol = Some(i32::from(*number) as u8),
            RuleAttribute::DestinationPortRange(range) => {
                self.port = Some(range.start);
                self.is_whole &= range.start == range.end;
            }
            RuleAttribute::SourcePortRange(range) => {
                self.source_port = Some(range.start);
                self.is_whole &= range.start == range.end;
            }
            // The kernel lists them with all bits set where a rule has none.
            RuleAttribute::SuppressPrefixLen(value) | RuleAttribute::SuppressIfGroup(value) => {
                self.is_whole &= *value == u32::MAX;
            }
            RuleAttribute::TunId(_) | RuleAttribute::Realm(_) => self.is_whole = false,
            RuleAttribute::Oifname(_) | RuleAttribute::UidRange(_) => return None,
            RuleAttribute::L3MDev(true) => return None,
            _ => {}
        }
        Some(())
    }
}

impl fmt::Display for PrecedingRule {
    /// Writes the rule as `ip rule add` takes it, without its priority; of one that is not whole, what is known.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.from {
            Some(from) => write!(f, "from {from}")?,
            None => f.write_str("from all")?,
        }
        if let Some(to) = &self.to {
            write!(f, " to {to}")?;
        }
        if let Some((mark, mask)) = self.mark {
            write!(f, " fwmark {mark:#x}/{mask:#x}")?;
        }
        if let Some(iif) = &self.iif {
            write!(f, " iif {iif}")?;
        }
        if let Some(protocol) = self.protocol {
            write!(f, " ipproto {protocol}")?;
        }
        if let Some(port) = self.source_port {
            write!(f, " sport {port}")?;
        }
        if let Some(port) = self.port {
            write!(f, " dport {port}")?;
        }
        match self.fate {
            RuleFate::Table(table) => write!(f, " lookup {table}"),
            RuleFate::Dropped => f.write_str(" blackhole"),
            RuleFate::Goto(target) => write!(f, " goto {target}"),
        }
    }
}

/// A packet whose way is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProbePacket {
    /// Address that the packet comes from; `None` for this machine itself.
    pub from: Option<IpAddr>,
    /// Address that the packet goes to, of the same family.
    pub to: IpAddr,
    /// Number of the interface that the packet comes in by; `None` for this machine itself.
    pub iif: Option<u32>,
    /// Mark of the packet.
    pub mark: u32,
    /// The number of the protocol above IP.
    pub protocol: Option<u8>,
    /// Port that the packet goes to.
    pub port: Option<u16>,
    /// Port that the packet comes from.
    pub source_port: Option<u16>,
}

/// Place in the routing tables at which a packet's way was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketWay {
    /// Number of the routing table.
    pub table: u32,
    /// Number of the interface that the packet would leave by.
    pub device: Option<u32>,
}

impl ProbePacket {
    /// Way that the packet would go.
    ///
    /// # Errors
    /// None leads there, the packet would be dropped, or the kernel gave no answer.
    pub fn way(&self) -> io::Result<PacketWay> {
        let mut message = RouteMessage::default();
        let (family, length) = match self.to {
            IpAddr::V4(_) => (Family::V4, 32),
            IpAddr::V6(_) => (Family::V6, 128),
        };
        message.header.address_family = family.netlink();
        message.header.destination_prefix_length = length;
        if family == Family::V4 {
            // For IPv6 the kernel always names the table, and refuses the wish.
            message.header.flags = RouteFlags::LookupTable;
        }
        let attributes = &mut message.attributes;
        attributes.push(RouteAttribute::Destination(self.to.into()));
        if let Some(from) = self.from {
            message.header.source_prefix_length = length;
            attributes.push(RouteAttribute::Source(from.into()));
        }
        attributes.extend(self.iif.map(RouteAttribute::Iif));
        attributes.push(RouteAttribute::Mark(self.mark));
        attributes.extend(self.protocol.map(RouteAttribute::IpProto));
        attributes.extend(self.port.map(RouteAttribute::Dport));
        attributes.extend(self.source_port.map(RouteAttribute::Sport));
        let answers = ask(RouteNetlinkMessage::GetRoute(message))?;
        let way = answers.iter().find_map(|answer| match answer {
            RouteNetlinkMessage::NewRoute(route) => way_of(route),
            _ => None,
        });
        way.ok_or_else(|| io::ErrorKind::HostUnreachable.into())
    }
}

/// Way that a route leads; `None` if it drops.
fn way_of(route: &RouteMessage) -> Option<PacketWay> {
    let leading = Leading::read(route)?;
    let leads = matches!(route.header.kind, RouteType::Unicast | RouteType::Local);
    leads.then_some(PacketWay {
        table: leading.table,
        device: leading.device,
    })
}

/// Some of the destinations, at most `most`, that routing table `table` has routes to; the default route is none.
///
/// # Errors
/// The kernel gave no answer.
pub fn some_destinations(family: Family, table: u32, most: usize) -> io::Result<Vec<IpNet>> {
    let mut message = RouteMessage::default();
    message.header.address_family = family.netlink();
    message.attributes.push(RouteAttribute::Table(table));
    let listed = match list(RouteNetlinkMessage::GetRoute(message)) {
        // Nobody has made the table yet.
        Err(error) if super::is_absent(&error) => return Ok(Vec::new()),
        listed => listed?,
    };
    let routes = listed.iter().filter_map(|message| match message {
        RouteNetlinkMessage::NewRoute(route) => Leading::read(route),
        _ => None,
    });
    let of_table = routes.filter(|route| route.table == table);
    Ok(of_table.filter_map(|route| route.to).take(most).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::run;
    use crate::netns::NetNs;

    #[test]
    fn a_rule_before_ours_is_read_and_the_kernel_says_where_it_leads() {
        let Ok(place) = NetNs::temporary(&format!("bpp-{}", std::process::id())) else {
            let required = std::env::var_os("BENTPIPE_REQUIRE_ROOT").is_some();
            assert!(!required, "no namespace can be made here");
            eprintln!("skipped: needs root, to make a namespace");
            return;
        };
        let found = place.enter(|| {
            for line in [
                "link set lo up",
                "route add local default dev lo table 77",
                "rule add pref 99 fwmark 0x10000000/0xf0000000 lookup 77",
                "route add local 198.51.100.0/24 dev lo table 50",
                "rule add pref 40 to 198.51.0.0/16 ipproto tcp dport 25 lookup 50",
                "rule add pref 41 oif lo lookup 50",
                "rule add pref 42 fwmark 0x1 blackhole",
            ] {
                run("ip", &line.split(' ').collect::<Vec<_>>()).expect(line);
            }
            let rules = PrecedingRule::list(Family::V4, 98, &[]).expect("rules");
            let texts: Vec<_> = rules.iter().map(ToString::to_string).collect();
            let packet = |port| ProbePacket {
                from: None,
                to: "198.51.100.7".parse().expect("an address"),
                iif: None,
                mark: 0x1000_0000,
                protocol: Some(6),
                port: Some(port),
                source_port: None,
            };
            let tables = [25, 80].map(|port| packet(port).way().expect("a way").table);
            let some = some_destinations(Family::V4, 50, 9).expect("routes");
            (texts, tables, some)
        });
        let (texts, tables, some) = found.expect("the place");
        let wanted = [
            "from all to 198.51.0.0/16 ipproto 6 dport 25 lookup 50",
            "from all fwmark 0x1/0xffffffff blackhole",
        ];
        assert_eq!(texts, wanted);
        assert_eq!(tables, [50, 77]);
        assert_eq!(some, ["198.51.100.0/24".parse().expect("a prefix")]);
    }
}
