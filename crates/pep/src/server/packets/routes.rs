//! Connections that packets of the device go to.

use std::collections::HashMap;
use std::net::IpAddr;

use bentpipe_tunnel::engine::ConnectionId;
use ipnet::IpNet;

/// Connections that packets go to.
#[derive(Debug, Default)]
pub(super) struct PacketRoutes {
    pub(super) addresses: HashMap<IpAddr, Place>,
    pub(super) prefixes: Vec<(IpNet, Place)>,
}

/// A shard and a connection of it.
pub(super) type Place = (u8, ConnectionId);

impl PacketRoutes {
    pub(super) fn find(&self, packet: &[u8]) -> Option<Place> {
        let destination: IpAddr = match packet.first()? >> 4 {
            4 => IpAddr::from(*packet.get(16..)?.first_chunk::<4>()?),
            6 => IpAddr::from(*packet.get(24..)?.first_chunk::<16>()?),
            _ => return None,
        };
        let routed = || {
            let holds = |(prefix, _): &&(IpNet, Place)| prefix.contains(&destination);
            let longest = self.prefixes.iter().filter(holds);
            longest.max_by_key(|(prefix, _)| prefix.prefix_len())
        };
        let place = self.addresses.get(&destination).copied();
        place.or_else(|| routed().map(|(_, place)| *place))
    }
}
