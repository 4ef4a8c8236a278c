//! Connections that packets of the device go to.

use std::collections::HashMap;
use std::net::IpAddr;

use ipnet::IpNet;

use super::super::client_connections::{ClientConnections, Place};
use super::plan::Assigned;

/// Connections that packets go to, by the addresses and prefixes of clients.
#[derive(Debug, Default)]
pub(super) struct PacketRoutes {
    addresses: HashMap<IpAddr, Route>,
    prefixes: Vec<(IpNet, Route)>,
}

/// Connections that packets for one address or prefix go to.
#[derive(Debug)]
struct Route {
    /// Name of the client.
    client: String,
    connections: ClientConnections,
}

impl Route {
    fn new(client: &str, place: Place) -> Self {
        Self {
            client: client.to_owned(),
            connections: ClientConnections::new(place),
        }
    }

    /// Has packets go to `place` of the client with this name; connections of another client are forgotten.
    fn enter(&mut self, client: &str, place: Place) {
        if self.client != client {
            *self = Self::new(client, place);
            return;
        }
        self.connections.enter(place);
    }

    /// Forgets `place`; true if another one is left.
    fn leave(&mut self, place: Place) -> bool {
        self.connections.leave(place)
    }
}

impl PacketRoutes {
    /// Has the packets for what is `assigned` to a client go to `place`, for as long as that is its newest connection that answers.
    pub(super) fn enter(&mut self, client: &str, assigned: &Assigned, place: Place) {
        for address in &assigned.addresses {
            let route = self.addresses.entry(*address);
            route
                .and_modify(|route| route.enter(client, place))
                .or_insert_with(|| Route::new(client, place));
        }
        for prefix in &assigned.routed {
            match self.prefixes.iter_mut().find(|(known, _)| known == prefix) {
                Some((_, route)) => route.enter(client, place),
                None => self.prefixes.push((*prefix, Route::new(client, place))),
            }
        }
    }

    /// Forgets `place`: packets go to the connection that its client had before, if that lives.
    pub(super) fn leave(&mut self, place: Place) {
        self.addresses.retain(|_, route| route.leave(place));
        self.prefixes.retain_mut(|(_, route)| route.leave(place));
    }

    /// Has nothing that was assigned as `lost` go to `place` any more.
    pub(super) fn withdraw(&mut self, lost: &Assigned, place: Place) {
        let is_lost = |address: &IpAddr| lost.addresses.contains(address);
        self.addresses
            .retain(|address, route| !is_lost(address) || route.leave(place));
        self.prefixes
            .retain_mut(|(prefix, route)| !lost.routed.contains(prefix) || route.leave(place));
    }

    /// Packets to `place` are not answered (`outage`), or are again.
    pub(super) fn on_outage(&mut self, place: Place, outage: bool) {
        let prefixes = self.prefixes.iter_mut().map(|(_, route)| route);
        for route in self.addresses.values_mut().chain(prefixes) {
            route.connections.on_outage(place, outage);
        }
    }

    /// Connection that `packet` goes to.
    pub(super) fn find(&self, packet: &[u8]) -> Option<Place> {
        let destination: IpAddr = match packet.first()? >> 4 {
            4 => IpAddr::from(*packet.get(16..)?.first_chunk::<4>()?),
            6 => IpAddr::from(*packet.get(24..)?.first_chunk::<16>()?),
            _ => return None,
        };
        let routed = || {
            let holds = |(prefix, _): &&(IpNet, Route)| prefix.contains(&destination);
            let longest = self.prefixes.iter().filter(holds);
            longest.max_by_key(|(prefix, _)| prefix.prefix_len())
        };
        let route = self.addresses.get(&destination);
        let route = route.or_else(|| routed().map(|(_, route)| route))?;
        route.connections.best()
    }
}

#[cfg(test)]
mod tests {
    use bentpipe_tunnel::engine::ConnectionId;

    use super::*;

    /// An IP packet to this address, as far as it is looked at.
    fn packet(to: &str) -> Vec<u8> {
        match to.parse().expect("an address") {
            IpAddr::V4(to) => [&[0x45][..], &[0; 15], &to.octets()].concat(),
            IpAddr::V6(to) => [&[0x60][..], &[0; 23], &to.octets()].concat(),
        }
    }

    fn assigned(addresses: &[&str], routed: &[&str]) -> Assigned {
        Assigned {
            addresses: addresses.iter().flat_map(|it| it.parse()).collect(),
            routed: routed.iter().flat_map(|it| it.parse()).collect(),
        }
    }

    const FIRST: Place = (0, ConnectionId(1));
    const SECOND: Place = (1, ConnectionId(1));

    #[test]
    fn a_connection_that_ends_leaves_packets_to_the_one_before() {
        let mut routes = PacketRoutes::default();
        let own = assigned(
            &["100.96.0.2", "fd62::2"],
            &["192.0.2.0/24", "192.0.2.64/26"],
        );
        let all = ["100.96.0.2", "fd62::2", "192.0.2.1", "192.0.2.65"].map(packet);
        let found = |routes: &PacketRoutes| all.each_ref().map(|packet| routes.find(packet));
        routes.enter("ship", &own, FIRST);
        routes.enter("ship", &own, SECOND);
        assert_eq!(found(&routes), [Some(SECOND); 4]);
        routes.leave(SECOND);
        assert_eq!(found(&routes), [Some(FIRST); 4]);
        // The older one ends first where the newer one has taken over.
        routes.enter("ship", &own, SECOND);
        routes.leave(FIRST);
        assert_eq!(found(&routes), [Some(SECOND); 4]);
        routes.leave(SECOND);
        assert_eq!(found(&routes), [None; 4]);
        assert!(routes.addresses.is_empty() && routes.prefixes.is_empty());
    }

    #[test]
    fn packets_leave_a_connection_that_answers_nothing_for_one_that_does() {
        let mut routes = PacketRoutes::default();
        let own = assigned(&["100.96.0.2"], &["192.0.2.0/24"]);
        let all = ["100.96.0.2", "192.0.2.1"].map(packet);
        let found = |routes: &PacketRoutes| all.each_ref().map(|packet| routes.find(packet));
        routes.enter("ship", &own, FIRST);
        routes.enter("ship", &own, SECOND);
        routes.on_outage(SECOND, true);
        assert_eq!(found(&routes), [Some(FIRST); 2]);
        routes.on_outage(SECOND, false);
        assert_eq!(found(&routes), [Some(SECOND); 2]);
    }

    #[test]
    fn what_was_given_to_another_client_does_not_come_back_to_the_first() {
        let mut routes = PacketRoutes::default();
        let own = assigned(&["100.96.0.2"], &["192.0.2.0/24"]);
        routes.enter("ship", &own, FIRST);
        routes.enter("train", &own, SECOND);
        routes.leave(SECOND);
        let found = ["100.96.0.2", "192.0.2.1"].map(|to| routes.find(&packet(to)));
        assert_eq!(found, [None; 2]);
    }

    #[test]
    fn what_is_withdrawn_leads_nowhere_and_the_rest_as_before() {
        let mut routes = PacketRoutes::default();
        let own = assigned(
            &["100.96.0.2", "fd62::2"],
            &["192.0.2.0/24", "198.51.100.0/24"],
        );
        let lost = assigned(&["100.96.0.2"], &["192.0.2.0/24"]);
        routes.enter("ship", &own, FIRST);
        routes.withdraw(&lost, FIRST);
        let all = ["100.96.0.2", "192.0.2.1", "fd62::2", "198.51.100.1"].map(packet);
        let found = all.each_ref().map(|packet| routes.find(packet));
        assert_eq!(found, [None, None, Some(FIRST), Some(FIRST)]);
        // Whoever has it by now keeps it.
        routes.enter("train", &lost, SECOND);
        routes.withdraw(&lost, FIRST);
        let found = all.each_ref().map(|packet| routes.find(packet));
        assert_eq!(
            found,
            [Some(SECOND), Some(SECOND), Some(FIRST), Some(FIRST)]
        );
    }

    #[test]
    fn the_longest_prefix_counts_and_an_address_before_it() {
        let mut routes = PacketRoutes::default();
        routes.enter("ship", &assigned(&[], &["192.0.2.0/24"]), FIRST);
        let second = assigned(&["192.0.2.1"], &["192.0.2.64/26"]);
        routes.enter("train", &second, SECOND);
        let found = ["192.0.2.1", "192.0.2.2", "192.0.2.65", "192.0.3.1"];
        let found = found.map(|to| routes.find(&packet(to)));
        assert_eq!(found, [Some(SECOND), Some(FIRST), Some(SECOND), None]);
    }
}
