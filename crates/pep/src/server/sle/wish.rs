//! The first record of a sealed flow: what its client wants.

use std::net::SocketAddr;
use std::sync::Arc;

use bentpipe_proto::tunnel::{Destination, Host, Open, StreamKind};

use super::super::clients::Client;
use bentpipe_tunnel::engine::identity::PublicKey;

/// A client's wish for a flow.
pub(super) struct Wish {
    pub(super) key: PublicKey,
    pub(super) client: Arc<Client>,
    pub(super) open: Open,
}

/// True if `place` is the address and port of `destination`.
pub(super) fn leads_to(place: SocketAddr, destination: &Destination) -> bool {
    let host = match destination.host {
        Host::Ip(address) => address.to_canonical() == place.ip(),
        Host::Name(_) => false,
    };
    host && destination.port == place.port()
}

/// Request in the `body` of a record, where it is read to its end.
pub(super) fn request(body: &[u8]) -> Option<Open> {
    let mut bytes = Vec::with_capacity(body.len() + 1);
    // Left out on the way, for there is no other.
    StreamKind::Flow.encode(&mut bytes);
    bytes.extend_from_slice(body);
    let (open, used) = Open::decode(&bytes).ok().flatten()?;
    (used == bytes.len()).then_some(open)
}
