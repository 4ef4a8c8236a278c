//! Connections whose datagrams travel inside TCP connections: what the shell tells of these, and who has to wait for one.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::super::reliable::{HEADERS, WireTurn, WireUse};
use super::super::settings::headers;
use super::{Connection, ConnectionId, Engine};

/// Time after which a connection whose wire is full looks at its timers again.
const HELD: Duration = Duration::from_millis(10);

impl Engine {
    /// Permits a connection to send, unless its wire is full; then its turn comes once there is room.
    pub(super) fn permit(&mut self, now: Instant, id: ConnectionId) -> bool {
        let Some(connection) = self.connections.get_mut(id) else {
            return false;
        };
        let (remote, rate) = (connection.remote(), || connection.delivery_rate());
        let turn = self.wires.ask(id.0, remote, rate);
        if turn == WireTurn::Full {
            self.hold(now, id);
            return false;
        }
        connection.set_reliable(now, turn == WireTurn::Reliable);
        true
    }

    /// The wire of a connection is full. Its timers run on, but not in a loop: what is due cannot leave.
    fn hold(&mut self, now: Instant, id: ConnectionId) {
        self.dirty.remove(id);
        let due = self
            .connections
            .get_mut(id)
            .and_then(Connection::poll_timeout);
        self.timers.set(id, due.map(|due| due.max(now + HELD)));
    }

    /// Notes that so many bytes `waiting` for the wire to `remote`, a TCP connection, have not left yet; `None`: there is no such
    /// wire any more, and datagrams travel by themselves.
    pub fn set_waiting(&mut self, remote: SocketAddr, waiting: Option<u64>) {
        for id in self.wires.set(remote, waiting) {
            self.dirty.insert(ConnectionId(id));
        }
    }

    /// Use that connections make of the wire to `remote`; `None` if datagrams to it travel by themselves.
    pub fn wire_use(&self, remote: SocketAddr) -> Option<WireUse> {
        self.wires.usage(remote)
    }

    /// Headers of a datagram from or to `other` below QUIC, in bytes.
    pub(super) fn headers_of(&self, other: SocketAddr) -> u64 {
        match self.wires.usage(other) {
            Some(_) => HEADERS,
            None => headers(other.ip().to_canonical().is_ipv6()),
        }
    }

    /// Connection that uses the wire to `remote`, if that is a reliable one and still leads to its peer.
    pub fn wire_user(&self, remote: SocketAddr) -> Option<&Connection> {
        let user = self
            .connections
            .get(ConnectionId(self.wires.usage(remote)?.by?));
        user.filter(|connection| connection.remote() == remote)
    }
}
