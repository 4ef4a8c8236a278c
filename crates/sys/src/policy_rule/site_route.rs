//! Networks behind other routers of a site, by the routes that its operator has set.

use std::io;

use ipnet::IpNet;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::{RouteAttribute, RouteMessage, RouteProtocol, RouteType};

use super::stray::HALF;
use super::table_route::Leading;
use super::{Family, MAIN};
use crate::netlink::list;

/// Networks that the operator's own routes of the main table lead to by the interface with the number `device`, most often by
/// another router. None where a default route of any table leads by that interface: then it is an uplink as well. Routes that others on the
/// network have told of (DHCP, router advertisements, redirects) and those of routing daemons do not count.
///
/// # Errors
/// The kernel gave no answer.
pub fn networks_behind(device: u32) -> io::Result<Vec<IpNet>> {
    let mut networks = Vec::new();
    for family in Family::usable() {
        let mut message = RouteMessage::default();
        message.header.address_family = family.netlink();
        message.header.kind = RouteType::Unicast;
        // The kernel leaves out the others, which may be a million.
        message.attributes.push(RouteAttribute::Oif(device));
        for message in list(RouteNetlinkMessage::GetRoute(message))? {
            let RouteNetlinkMessage::NewRoute(route) = message else {
                continue;
            };
            let Some(leading) = Leading::read(&route) else {
                continue;
            };
            let to = leading.to.unwrap_or_else(|| family.everything());
            if leading.device != Some(device) || route.header.kind != RouteType::Unicast {
                continue;
            }
            if to.prefix_len() <= HALF {
                return Ok(Vec::new());
            }
            let protocol = route.header.protocol;
            let is_set = matches!(protocol, RouteProtocol::Boot | RouteProtocol::Static);
            if leading.table == MAIN && is_set {
                networks.push(to.trunc());
            }
        }
    }
    Ok(networks)
}
