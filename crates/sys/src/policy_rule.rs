//! Rules of policy routing and the routes of one table, by netlink: listed, added, deleted one by one.
//!
//! Both families have rules of their own. A rule that names an interface exists without it, and applies again when an
//! interface of that name comes. It decides nothing, and touches no rule or route but the one it is told.

mod preceding;
mod site_route;
mod stray;
mod table_route;

use std::io;

use ipnet::IpNet;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::netlink::{change, list};
pub use preceding::{PacketWay, PrecedingRule, ProbePacket, RuleFate, some_destinations};
pub use site_route::networks_behind;
pub use stray::StrayRoute;
pub use table_route::{MAIN, TableRoute, Way};

/// An IP version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// IPv4 and, where this kernel has it, IPv6.
    #[must_use]
    pub fn usable() -> Vec<Self> {
        // The directory is absent with `ipv6.disable=1`; with `disable_ipv6` rules and routes stay possible.
        match std::fs::exists("/proc/sys/net/ipv6") {
            Ok(true) => vec![Self::V4, Self::V6],
            _ => vec![Self::V4],
        }
    }

    /// The prefix of all its addresses.
    #[must_use]
    pub fn everything(self) -> IpNet {
        match self {
            Self::V4 => IpNet::V4(ipnet::Ipv4Net::default()),
            Self::V6 => IpNet::V6(ipnet::Ipv6Net::default()),
        }
    }

    fn netlink(self) -> AddressFamily {
        match self {
            Self::V4 => AddressFamily::Inet,
            Self::V6 => AddressFamily::Inet6,
        }
    }
}

/// Fate of packets that a rule matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// A routing table is asked, by its number.
    Table(u32),
    /// Packets are dropped without a word.
    Blackhole,
}

/// A rule of one family; what is empty matches all.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PolicyRule {
    /// The family that it is for.
    pub family: Family,
    /// Rules are asked in the order of this; before 32766, where the table `main` is consulted.
    pub priority: u32,
    /// The interface that packets come in by.
    pub iif: Option<String>,
    /// The mark and which of its bits count.
    pub mark: Option<(u32, u32)>,
    /// Network that packets come from.
    pub from: Option<IpNet>,
    /// Fate of the packets.
    pub action: Action,
}

/// Rules of `family` as the kernel lists them, whoever made them.
fn dump(family: Family) -> io::Result<Vec<RuleMessage>> {
    let mut message = RuleMessage::default();
    message.header.family = family.netlink();
    let listed = list(RouteNetlinkMessage::GetRule(message))?.into_iter();
    let rules = listed.filter_map(|message| match message {
        RouteNetlinkMessage::NewRule(rule) => Some(rule),
        _ => None,
    });
    Ok(rules.collect())
}

impl PolicyRule {
    /// All rules of `family` that have only conditions and actions as this type does.
    ///
    /// # Errors
    /// The kernel gave no answer.
    pub fn list(family: Family) -> io::Result<Vec<Self>> {
        let rules = dump(family)?.into_iter();
        Ok(rules.filter_map(|rule| Self::read(family, &rule)).collect())
    }

    /// Adds the rule; one that is there already is no error.
    ///
    /// # Errors
    /// The privilege is missing.
    pub fn add(&self) -> io::Result<()> {
        let flags = NLM_F_CREATE | NLM_F_EXCL;
        match change(RouteNetlinkMessage::NewRule(self.message()), flags) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            outcome => explained(outcome, "add a routing rule"),
        }
    }

    /// Deletes the rule, however often it is there; none is no error.
    ///
    /// # Errors
    /// The privilege is missing.
    pub fn delete(&self) -> io::Result<()> {
        loop {
            match change(RouteNetlinkMessage::DelRule(self.message()), 0) {
                Ok(()) => {}
                Err(error) if is_absent(&error) => return Ok(()),
                Err(error) => return explained(Err(error), "delete a routing rule"),
            }
        }
    }

    fn message(&self) -> RuleMessage {
        let mut message = RuleMessage::default();
        message.header.family = self.family.netlink();
        message.header.action = match self.action {
            Action::Table(_) => RuleAction::ToTable,
            Action::Blackhole => RuleAction::Blackhole,
        };
        let attributes = &mut message.attributes;
        attributes.push(RuleAttribute::Priority(self.priority));
        if let Action::Table(table) = self.action {
            // Its number may have more bits than the header has room for.
            attributes.push(RuleAttribute::Table(table));
        }
        if let Some(name) = &self.iif {
            attributes.push(RuleAttribute::Iifname(name.clone()));
        }
        if let Some((mark, mask)) = self.mark {
            attributes.push(RuleAttribute::FwMark(mark));
            attributes.push(RuleAttribute::FwMask(mask));
        }
        if let Some(from) = &self.from {
            attributes.push(RuleAttribute::Source(from.network()));
            message.header.src_len = from.prefix_len();
        }
        message
    }

    /// Rule as the kernel tells of it; `None` if it has other conditions.
    fn read(family: Family, message: &RuleMessage) -> Option<Self> {
        Self::of(&PrecedingRule::read(family, message)?)
    }

    /// `rule` without the conditions that none of ours has; `None` if it has one of them.
    fn of(rule: &PrecedingRule) -> Option<Self> {
        let ports = rule.port.is_some() || rule.source_port.is_some();
        if !rule.is_whole || rule.to.is_some() || rule.protocol.is_some() || ports {
            return None;
        }
        Some(Self {
            family: rule.family,
            priority: rule.priority,
            iif: rule.iif.clone(),
            mark: rule.mark,
            from: rule.from,
            action: match rule.fate {
                RuleFate::Table(table) => Action::Table(table),
                RuleFate::Dropped => Action::Blackhole,
                RuleFate::Goto(_) => return None,
            },
        })
    }
}

/// True if the kernel says that there is no such thing.
fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENOENT | libc::ESRCH | libc::EAFNOSUPPORT | libc::EOPNOTSUPP | libc::ENODEV)
    )
}

fn explained(outcome: io::Result<()>, what: &str) -> io::Result<()> {
    outcome.map_err(|error| {
        let mend = match error.raw_os_error() {
            Some(libc::EPERM) => "; needs CAP_NET_ADMIN (run as root or in a user namespace)",
            Some(libc::ENETDOWN) => "; the device is down: `ip link set DEVICE up`",
            _ => "",
        };
        io::Error::new(error.kind(), format!("cannot {what}: {error}{mend}"))
    })
}
