//! Connections to origins that have answered and wait for another request, so that a page's objects need no new ones.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use tokio::net::TcpStream;

use crate::asked::is_quiet;
use crate::process;
use crate::relay::over_tcp::OverTcp;
use crate::server::shares::HeldPlaces;
use bentpipe_tunnel::engine::ConnectionId;

/// Time for which a connection waits: less than origins do, which end theirs after five seconds and more.
const IDLE: Duration = Duration::from_secs(4);

/// Connections that wait, of all clients of a shard.
const MAX_IDLE: usize = 256;

/// Name of an origin that TLS is spoken with; `None`: what is said is in clear.
pub(super) type TlsName = Option<ServerName<'static>>;

/// A connection to an origin.
pub(super) struct OriginSocket {
    pub(super) stream: Box<dyn OverTcp>,
    pub(super) to: SocketAddr,
    pub(super) name: TlsName,
    /// True if the connection has answered before: that it ends now may only mean that it is old.
    pub(super) used: bool,
    /// Place among the client's descriptors, of one that no flow has a place for.
    pub(super) _place: Option<HeldPlaces>,
}

/// Connection to where a page is.
pub(super) enum ReachedOrigin {
    /// New one, on which nothing was said.
    Fresh(TcpStream, SocketAddr),
    /// One that has answered before, perhaps by another name.
    Waiting(OriginSocket),
}

impl ReachedOrigin {
    /// TCP connection, and its other end.
    pub(super) fn tcp(&self) -> (&TcpStream, SocketAddr) {
        match self {
            Self::Fresh(tcp, to) => (tcp, *to),
            Self::Waiting(origin) => (origin.stream.tcp(), origin.to),
        }
    }
}

struct Waiting {
    client: ConnectionId,
    since: Instant,
    origin: OriginSocket,
}

/// Connections that wait, the longest first.
#[derive(Default)]
pub(super) struct Origins(RefCell<Vec<Waiting>>);

impl Origins {
    /// One to `to` that this client has used, if there is one.
    pub(super) fn take(&self, client: ConnectionId, to: SocketAddr) -> Option<OriginSocket> {
        self.take_if(client, |origin| origin.to == to)
    }

    /// One to `to` that this client has used by `name`, if there is one.
    pub(super) fn take_named(
        &self,
        client: ConnectionId,
        to: SocketAddr,
        name: &TlsName,
    ) -> Option<OriginSocket> {
        self.take_if(client, |origin| origin.to == to && origin.name == *name)
    }

    /// Number of those to `to` that wait for this client, by `name`.
    pub(super) fn count(&self, client: ConnectionId, to: SocketAddr, name: &TlsName) -> usize {
        let waiting = self.0.borrow();
        let fits = |one: &&Waiting| {
            one.client == client && one.origin.to == to && one.origin.name == *name
        };
        waiting.iter().filter(fits).count()
    }

    fn take_if(
        &self,
        client: ConnectionId,
        fits: impl Fn(&OriginSocket) -> bool,
    ) -> Option<OriginSocket> {
        self.sweep();
        let mut waiting = self.0.borrow_mut();
        let is_it = |one: &mut Waiting| {
            one.client == client && fits(&one.origin) && is_quiet(&mut one.origin.stream)
        };
        let found = waiting.iter_mut().rposition(is_it)?;
        Some(waiting.remove(found).origin)
    }

    /// Keeps an origin's connection that has answered, for the client's next request.
    pub(super) fn put(&self, client: ConnectionId, origin: OriginSocket) {
        let mut waiting = self.0.borrow_mut();
        if waiting.len() >= MAX_IDLE {
            waiting.remove(0).origin.stream.close_in_order();
        }
        let used = true;
        waiting.push(Waiting {
            client,
            since: process::now(),
            origin: OriginSocket { used, ..origin },
        });
    }

    /// Ends those that have waited long enough.
    pub(super) fn sweep(&self) {
        let now = process::now();
        self.end_unless(|one| now.saturating_duration_since(one.since) < IDLE);
    }

    /// The client of these has gone.
    pub(super) fn forget(&self, client: ConnectionId) {
        self.end_unless(|one| one.client != client);
    }

    fn end_unless(&self, stays: impl Fn(&Waiting) -> bool) {
        self.0.borrow_mut().retain(|one| {
            let stays = stays(one);
            if !stays {
                one.origin.stream.close_in_order();
            }
            stays
        });
    }
}
