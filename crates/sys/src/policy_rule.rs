//! Rules of policy routing and the routes of one table, by netlink: listed, added, deleted one by one.
//!
//! Both families have rules of their own. A rule that names an interface exists without it, and applies again when an
//! interface of that name comes. It decides nothing, and touches no rule or route but the one it is told.

use std::io;

use ipnet::IpNet;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::link;
use crate::netlink::{change, list};

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

impl PolicyRule {
    /// All rules of `family` that have only conditions and actions as this type does.
    ///
    /// # Errors
    /// The kernel gave no answer.
    pub fn list(family: Family) -> io::Result<Vec<Self>> {
        let mut message = RuleMessage::default();
        message.header.family = family.netlink();
        let listed = list(RouteNetlinkMessage::GetRule(message))?;
        Ok(listed
            .into_iter()
            .filter_map(|message| match message {
                RouteNetlinkMessage::NewRule(rule) => Self::read(family, &rule),
                _ => None,
            })
            .collect())
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
        let header = &message.header;
        if header.dst_len != 0 || header.tos != 0 {
            return None;
        }
        let mut rule = Self {
            family,
            priority: 0,
            iif: None,
            mark: None,
            from: None,
            action: match header.action {
                RuleAction::ToTable => Action::Table(header.table.into()),
                RuleAction::Blackhole => Action::Blackhole,
                _ => return None,
            },
        };
        let (mut mark, mut mask) = (0, None);
        for attribute in &message.attributes {
            match attribute {
                RuleAttribute::Priority(priority) => rule.priority = *priority,
                RuleAttribute::Table(table) => {
                    if let Action::Table(number) = &mut rule.action {
                        *number = *table;
                    }
                }
                RuleAttribute::Iifname(name) => rule.iif = Some(name.clone()),
                RuleAttribute::FwMark(value) => mark = *value,
                RuleAttribute::FwMask(value) => mask = Some(*value),
                RuleAttribute::Source(from) => {
                    rule.from = IpNet::new(*from, header.src_len).ok();
                }
                RuleAttribute::Oifname(_)
                | RuleAttribute::Destination(_)
                | RuleAttribute::IpProtocol(_)
                | RuleAttribute::UidRange(_)
                | RuleAttribute::SourcePortRange(_)
                | RuleAttribute::DestinationPortRange(_)
                | RuleAttribute::L3MDev(true) => return None,
                _ => {}
            }
        }
        // The kernel tells a mark of zero by its mask alone.
        rule.mark = mask.map(|mask| (mark, mask));
        Some(rule)
    }
}

/// Use that a route makes of packets.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Way {
    /// Packets are this machine's own.
    Local,
    /// Packets are dropped without a word.
    Blackhole,
    /// Packets leave by a device of this name.
    Device(String),
}

/// The number of the table `main`.
pub const MAIN: u32 = 254;

/// A route of one table.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TableRoute {
    /// The table's number.
    pub table: u32,
    /// The destinations; those of all of a family have the length 0.
    pub to: IpNet,
    /// Of several to the same destination the lowest counts.
    pub metric: u32,
    /// Use that the route makes of packets.
    pub way: Way,
}

/// The metric that IPv6 gives a route that has none.
const DEFAULT_METRIC_V6: u32 = 1024;

impl TableRoute {
    /// The family of its destinations.
    #[must_use]
    pub fn family(&self) -> Family {
        match self.to {
            IpNet::V4(_) => Family::V4,
            IpNet::V6(_) => Family::V6,
        }
    }

    /// True if the route leads to the device of this name.
    #[must_use]
    pub fn is_by(&self, device: &str) -> bool {
        matches!(&self.way, Way::Device(name) if name == device)
    }

    /// The routes of `table` in one family, as far as this type can say them.
    ///
    /// # Errors
    /// The kernel gave no answer.
    pub fn list(family: Family, table: u32) -> io::Result<Vec<Self>> {
        Self::listed(family, table, |_| ())
    }

    /// The routes of `table` that drop: the kernel leaves out the others, which may be a million.
    ///
    /// # Errors
    /// The kernel gave no answer.
    pub fn list_blackholes(family: Family, table: u32) -> io::Result<Vec<Self>> {
        Self::listed(family, table, |asked| {
            asked.header.kind = RouteType::BlackHole;
        })
    }

    /// The routes of `table` that lead into the interface with this number: the kernel leaves out the others, which may be
    /// a million.
    ///
    /// # Errors
    /// The kernel gave no answer.
    pub fn list_of_device(family: Family, table: u32, device: u32) -> io::Result<Vec<Self>> {
        Self::listed(family, table, |asked| {
            asked.attributes.push(RouteAttribute::Oif(device));
        })
    }

    fn listed(
        family: Family,
        table: u32,
        narrow: impl FnOnce(&mut RouteMessage),
    ) -> io::Result<Vec<Self>> {
        let mut message = RouteMessage::default();
        message.header.address_family = family.netlink();
        message.attributes.push(RouteAttribute::Table(table));
        narrow(&mut message);
        let listed = match list(RouteNetlinkMessage::GetRoute(message)) {
            // Nobody has made the table yet.
            Err(error) if is_absent(&error) => return Ok(Vec::new()),
            listed => listed?,
        };
        let names = link::names()?;
        let routes = listed.into_iter().filter_map(|message| match message {
            RouteNetlinkMessage::NewRoute(route) => Self::read(family, &route, &names),
            _ => None,
        });
        Ok(routes.filter(|route| route.table == table).collect())
    }

    /// Puts the route in place of one with the same destination and metric.
    ///
    /// # Errors
    /// The privilege or the device is missing, or the device is down.
    pub fn replace(&self) -> io::Result<()> {
        let message = RouteNetlinkMessage::NewRoute(self.message()?);
        explained(change(message, NLM_F_CREATE | NLM_F_REPLACE), "set a route")
    }

    /// Deletes the route; none is no error.
    ///
    /// # Errors
    /// The privilege is missing.
    pub fn delete(&self) -> io::Result<()> {
        let Ok(message) = self.message() else {
            // Its device is gone, and it with that.
            return Ok(());
        };
        match change(RouteNetlinkMessage::DelRoute(message), 0) {
            Err(error) if is_absent(&error) => Ok(()),
            outcome => explained(outcome, "delete a route"),
        }
    }

    fn message(&self) -> io::Result<RouteMessage> {
        let mut message = RouteMessage::default();
        let header = &mut message.header;
        header.address_family = self.family().netlink();
        header.destination_prefix_length = self.to.prefix_len();
        header.protocol = RouteProtocol::Boot;
        (header.kind, header.scope) = match self.way {
            Way::Local => (RouteType::Local, RouteScope::Host),
            Way::Blackhole => (RouteType::BlackHole, RouteScope::Universe),
            Way::Device(_) => (RouteType::Unicast, RouteScope::Link),
        };
        if self.family() == Family::V6 {
            header.scope = RouteScope::Universe;
        }
        let attributes = &mut message.attributes;
        attributes.push(RouteAttribute::Table(self.table));
        if self.to.prefix_len() > 0 {
            attributes.push(RouteAttribute::Destination(self.to.network().into()));
        }
        if self.metric > 0 {
            attributes.push(RouteAttribute::Priority(self.metric));
        }
        let device = match &self.way {
            Way::Local => Some("lo"),
            Way::Device(name) => Some(name.as_str()),
            Way::Blackhole => None,
        };
        if let Some(name) = device {
            attributes.push(RouteAttribute::Oif(link::index(name)?));
        }
        Ok(message)
    }

    fn read(family: Family, message: &RouteMessage, names: &[(u32, String)]) -> Option<Self> {
        let header = &message.header;
        let (mut table, mut metric) = (u32::from(header.table), 0);
        let (mut to, mut device) = (None, None);
        for attribute in &message.attributes {
            match attribute {
                RouteAttribute::Table(number) => table = *number,
                RouteAttribute::Priority(value) => metric = *value,
                RouteAttribute::Destination(RouteAddress::Inet(address)) => {
                    to = Some((*address).into());
                }
                RouteAttribute::Destination(RouteAddress::Inet6(address)) => {
                    to = Some((*address).into());
                }
                RouteAttribute::Oif(index) => device = Some(*index),
                RouteAttribute::Gateway(_) | RouteAttribute::MultiPath(_) => return None,
                _ => {}
            }
        }
        if family == Family::V6 && metric == DEFAULT_METRIC_V6 {
            metric = 0;
        }
        let any = || family.everything().addr();
        let way = match header.kind {
            RouteType::Local => Way::Local,
            RouteType::BlackHole => Way::Blackhole,
            RouteType::Unicast => {
                let named = names.iter().find(|(index, _)| Some(*index) == device)?;
                Way::Device(named.1.clone())
            }
            _ => return None,
        };
        Some(Self {
            table,
            to: IpNet::new(to.unwrap_or_else(any), header.destination_prefix_length).ok()?,
            metric,
            way,
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
