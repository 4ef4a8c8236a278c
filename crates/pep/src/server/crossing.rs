//! How one client's packets cross: through the device that all share, through sockets of its own, or not at all.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use super::clients::Client;
use super::packets::{Filter, Rule, Translator};
use super::worker::Shared;
use crate::shard::Shard;
use crate::status;
use bentpipe_tunnel::engine::{Connection, ConnectionId};

/// Way of one client's packets.
pub(super) struct Crossing {
    /// Judge of each packet, where they are carried.
    filter: Option<Filter>,
    /// Way out of the packets where there is no device.
    translator: Option<Translator>,
}

impl Crossing {
    /// The way of the packets of `client`, which has connected as `id`.
    pub(super) fn new(
        shared: &Shared,
        rule: &Rule,
        shard: &Rc<Shard>,
        (id, client): (ConnectionId, &Arc<Client>),
    ) -> Self {
        let (device, sockets) = (shared.packets.as_ref(), shared.sockets.as_ref());
        let filter = device.map(|packets| packets.filter(client, rule));
        let filter = filter.or_else(|| Some(sockets?.filter(client, rule)));
        let places = || (shared.places.clone(), client.name.clone());
        let translator = |filter| Some(sockets?.translator(filter, (shard, id), places()));
        let translator = filter.as_ref().and_then(translator);
        Self { filter, translator }
    }

    /// Tells the client how its packets cross.
    pub(super) fn announce(&self, connection: &mut Connection) {
        if let Some(filter) = &self.filter {
            filter.announce(connection);
        }
    }

    /// Has the device's packets for this client come to the connection `id` of the shard `index`.
    pub(super) fn enter(&self, shared: &Shared, (index, id): (u8, ConnectionId)) {
        if let (Some(packets), Some(filter)) = (&shared.packets, &self.filter) {
            packets.enter(filter, (index, id));
        }
    }

    /// Takes from the client what is no longer its own; true if there was any.
    pub(super) fn withdraw(&mut self, shared: &Shared, place: (u8, ConnectionId)) -> bool {
        match (&shared.packets, &mut self.filter) {
            (Some(packets), Some(filter)) => packets.withdraw(filter, place),
            // Without a device each tunnel has sockets of its own: nothing comes to another client.
            _ => false,
        }
    }

    /// Takes packets that have come through the tunnel.
    pub(super) fn take(&mut self, shared: &Shared, now: Instant, connection: &mut Connection) {
        let (translator, filter) = (self.translator.as_mut(), self.filter.as_mut());
        match (&shared.packets, translator, filter) {
            (Some(packets), _, Some(filter)) => packets.take(filter, now, connection),
            (None, Some(translator), Some(filter)) => translator.take(filter, now, connection),
            _ => {}
        }
    }

    /// Takes packets that have come beside the tunnel, which a server without a device does not offer.
    pub(super) fn take_layered(
        &mut self,
        shared: &Shared,
        now: Instant,
        connection: &mut Connection,
        packets: Vec<Bytes>,
    ) {
        if let (Some(device), Some(filter)) = (&shared.packets, &mut self.filter) {
            device.take_layered(filter, now, connection, packets);
        }
    }

    /// False if the device's `packet` may not reach this client.
    pub(super) fn admits(&mut self, now: Instant, packet: &[u8]) -> bool {
        let filter = self.filter.as_mut();
        filter.is_none_or(|filter| filter.admits(now, packet))
    }

    /// Judges by the rights of `client` from now on.
    pub(super) fn set_client(&mut self, now: Instant, client: Arc<Client>) {
        if let Some(filter) = &mut self.filter {
            filter.set_client(client);
            if let Some(translator) = &mut self.translator {
                translator.recheck(filter, now);
            }
        }
    }

    /// The client's addresses in the tunnel.
    pub(super) fn addresses(&self) -> Vec<IpAddr> {
        let filter = self.filter.as_ref();
        filter.map(Filter::addresses).unwrap_or_default()
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if let Some(translator) = &mut self.translator {
            translator.handle_timeout(now);
        }
    }

    /// Adds the figures of `status`.
    pub(super) fn count(&self, session: &mut status::Session) {
        if let Some(filter) = &self.filter {
            filter.count(session);
        }
        if let Some(translator) = &self.translator {
            translator.count(session);
        }
    }
}
