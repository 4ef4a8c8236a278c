//! Routes of others that lead addresses of a prefix elsewhere than into the interface that has it.

use std::io;
use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_core::NlasIterator;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::{RouteMessage, RouteProtocol, RouteType};

use super::table_route::Leading;
use super::{Family, MAIN, ProbePacket};
use crate::link;
use crate::netlink::list_some;

/// Longest prefix of a default route: some programs set two halves instead.
pub(super) const HALF: u8 = 1;

/// Length of what precedes the attributes of a route, and place of its destination's length in that, bytes.
const HEADER: usize = 12;
const LENGTH_AT: usize = 1;

/// Kind of the attribute that is the destination (RTA_DST in linux/rtnetlink.h).
const DESTINATION: u16 = 1;

/// Addresses of a prefix whose way the kernel is asked for: the first may be this machine's own.
const ASKED: usize = 4;

/// A route that leads addresses of a prefix elsewhere than into the interface that has it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct StrayRoute {
    /// The destinations.
    pub to: IpNet,
    /// Name of the interface that the route leads to.
    pub device: String,
    /// Number of the routing table.
    pub table: u32,
}

impl StrayRoute {
    /// Routes that cover all or some of `prefixes`, and lead over an uplink, whose number is none of `own`: an interface that a default
    /// route of any table leads by, or that has the route from DHCP, from a router's advertisement or from a redirect. An operator's own
    /// route to a host elsewhere, such as a dialled-in one with an address of the LAN, is none, nor is a route to nowhere. Of tables
    /// other than the main one those count that some rule has packets of this machine with `mark` led by.
    ///
    /// # Errors
    /// The kernel gave no answer.
    pub fn list(prefixes: &[IpNet], own: &[u32], mark: u32) -> io::Result<Vec<Self>> {
        let names = link::names()?;
        let mut strays = Vec::new();
        for family in Family::usable() {
            let of_family = |net: &&IpNet| net.addr().is_ipv6() == (family == Family::V6);
            let prefixes: Vec<_> = prefixes.iter().filter(of_family).copied().collect();
            if prefixes.is_empty() {
                continue;
            }
            let leading = UnicastRoute::list(family, &prefixes)?;
            let defaults = leading.iter().filter(|route| route.to.prefix_len() <= HALF);
            let uplinks: Vec<u32> = defaults.map(|route| route.device).collect();
            let astray = leading.iter().filter(|one| {
                !own.contains(&one.device)
                    && (one.is_told || uplinks.contains(&one.device))
                    && one.takes_some(&prefixes, mark)
                    // Of two to the same prefix, the one with the lower metric counts.
                    && !leading.iter().any(|other| {
                        own.contains(&other.device) && other.is_before(one)
                    })
            });
            strays.extend(astray.filter_map(|one| {
                let (_, device) = names.iter().find(|(index, _)| *index == one.device)?;
                Some(Self {
                    to: one.to,
                    device: device.clone(),
                    table: one.table,
                })
            }));
        }
        strays.sort_unstable();
        strays.dedup();
        Ok(strays)
    }
}

/// Unicast route that leads to addresses of a family by an interface.
struct UnicastRoute {
    table: u32,
    to: IpNet,
    metric: u32,
    /// True if somebody on the network has told this machine of the route.
    is_told: bool,
    /// Number of the interface.
    device: u32,
}

impl UnicastRoute {
    /// Default routes of all tables, and those that have to do with `prefixes`.
    fn list(family: Family, prefixes: &[IpNet]) -> io::Result<Vec<Self>> {
        let mut message = RouteMessage::default();
        message.header.address_family = family.netlink();
        message.header.kind = RouteType::Unicast;
        let is_wanted = |body: &[u8]| concerns(body, prefixes);
        let listed = list_some(RouteNetlinkMessage::GetRoute(message), is_wanted)?;
        let routes = listed.iter();
        Ok(routes
            .filter_map(|message| Self::read(family, message))
            .collect())
    }

    fn read(family: Family, message: &RouteNetlinkMessage) -> Option<Self> {
        let RouteNetlinkMessage::NewRoute(route) = message else {
            return None;
        };
        let leading = Leading::read(route)?;
        (route.header.kind == RouteType::Unicast).then_some(())?;
        Some(Self {
            table: leading.table,
            to: leading.to.unwrap_or_else(|| family.everything()),
            metric: leading.metric,
            is_told: matches!(
                route.header.protocol,
                RouteProtocol::Dhcp | RouteProtocol::Ra | RouteProtocol::IcmpRedirect
            ),
            device: leading.device?,
        })
    }

    /// True if the kernel asks for this route before `other`, to the same destinations.
    fn is_before(&self, other: &Self) -> bool {
        (self.table, self.to) == (other.table, other.to) && self.metric < other.metric
    }

    /// True if addresses of `prefixes` go by this route.
    fn takes_some(&self, prefixes: &[IpNet], mark: u32) -> bool {
        let mut prefixes = prefixes.iter();
        if self.table == MAIN {
            // A wider one is asked after the connected one.
            return prefixes.any(|prefix| prefix.contains(&self.to));
        }
        prefixes.any(|prefix| {
            let common = match prefix.contains(&self.to) {
                true => self.to,
                false if self.to.contains(prefix) => *prefix,
                false => return false,
            };
            common.hosts().take(ASKED).any(|to| self.leads(to, mark))
        })
    }

    /// True if the kernel has packets of this machine to `to`, with `mark`, led by this route.
    fn leads(&self, to: IpAddr, mark: u32) -> bool {
        let packet = ProbePacket {
            from: None,
            to,
            iif: None,
            mark,
            protocol: None,
            port: None,
            source_port: None,
        };
        let way = packet.way();
        way.is_ok_and(|way| way.table == self.table && way.device == Some(self.device))
    }
}

/// True if a route, as the kernel lists it, is a default one, or covers addresses of `prefixes`. Read in place: of a full table nearly
/// nothing is left.
fn concerns(body: &[u8], prefixes: &[IpNet]) -> bool {
    let Some((header, attributes)) = body.split_at_checked(HEADER) else {
        return false;
    };
    let length = header[LENGTH_AT];
    if length <= HALF {
        return true;
    }
    let mut attributes = NlasIterator::new(attributes).flatten();
    let to = attributes.find(|attribute| attribute.kind() == DESTINATION);
    let to = to.and_then(|to| address(to.value()));
    let to = to.and_then(|to| IpNet::new(to, length).ok());
    to.is_some_and(|to| {
        let mut prefixes = prefixes.iter();
        prefixes.any(|prefix| prefix.contains(&to) || to.contains(prefix))
    })
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    let v6 = || <[u8; 16]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| v6()).ok()
}
