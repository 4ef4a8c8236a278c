//! Routes of one table, listed, put in place and deleted one by one.

use std::io;

use ipnet::IpNet;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteProtocol, RouteScope, RouteType,
};

use super::{Family, explained, is_absent};
use crate::link;
use crate::netlink::{change, list};

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

/// Parts of a route that say what it is for and where it leads.
pub(super) struct Leading {
    pub(super) table: u32,
    /// `None`: all of its family.
    pub(super) to: Option<IpNet>,
    pub(super) metric: u32,
    /// Number of the interface; of several the first.
    pub(super) device: Option<u32>,
    /// True if the route leads to the neighbours of an interface, and to no gateway.
    is_direct: bool,
}

impl Leading {
    pub(super) fn read(route: &RouteMessage) -> Option<Self> {
        let mut leading = Self {
            table: u32::from(route.header.table),
            to: None,
            metric: 0,
            device: None,
            is_direct: true,
        };
        let to = |address| IpNet::new(address, route.header.destination_prefix_length).ok();
        for attribute in &route.attributes {
            match attribute {
                RouteAttribute::Table(number) => leading.table = *number,
                RouteAttribute::Priority(value) => leading.metric = *value,
                RouteAttribute::Destination(RouteAddress::Inet(address)) => {
                    leading.to = Some(to((*address).into())?);
                }
                RouteAttribute::Destination(RouteAddress::Inet6(address)) => {
                    leading.to = Some(to((*address).into())?);
                }
                RouteAttribute::Oif(index) => leading.device = Some(*index),
                RouteAttribute::Gateway(_) => leading.is_direct = false,
                RouteAttribute::MultiPath(hops) => {
                    leading.is_direct = false;
                    leading.device = hops.first().map(|hop| hop.interface_index);
                }
                _ => {}
            }
        }
        Some(leading)
    }
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

    pub(super) fn message(&self) -> io::Result<RouteMessage> {
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

    pub(super) fn read(
        family: Family,
        message: &RouteMessage,
        names: &[(u32, String)],
    ) -> Option<Self> {
        let Leading {
            table,
            to,
            mut metric,
            device,
            is_direct,
        } = Leading::read(message)?;
        // This type cannot say the others.
        is_direct.then_some(())?;
        if family == Family::V6 && metric == DEFAULT_METRIC_V6 {
            metric = 0;
        }
        let way = match message.header.kind {
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
            to: to.unwrap_or_else(|| family.everything()),
            metric,
            way,
        })
    }
}
