//! Batches that leave: connections take turns, and one whose datagrams travel inside a TCP connection waits while that is full.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::super::reliable::{HEADERS, WireTurn, WireUse};
use super::super::settings::headers;
use super::{Connection, ConnectionId, Engine, Output};

/// Time after which a connection that may not send now looks at its timers again.
const HELD: Duration = Duration::from_millis(10);

impl Engine {
    /// The next batch for the socket; its bytes are written to `buf`, which must be empty.
    pub fn poll_transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Output> {
        if !self.allowance.permits() {
            return None;
        }
        let transmit = self.next_transmit(now, buf)?;
        let segment = transmit.segment_size.unwrap_or(transmit.size).max(1);
        let datagrams = transmit.size.div_ceil(segment) as u64;
        let headers = datagrams * self.headers_of(transmit.destination);
        self.allowance.enter_sent(transmit.size as u64 + headers);
        Some(transmit)
    }

    fn next_transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Output> {
        if let Some((transmit, bytes)) = self.responses.pop_front() {
            buf.extend_from_slice(&bytes);
            return Some(transmit);
        }
        while let Some(id) = self.dirty.next() {
            self.pump(now, id);
            if self.connections.get(id).is_none() {
                self.dirty.remove(id);
                continue;
            }
            if !self.permit(now, id) {
                continue;
            }
            let Some(connection) = self.connections.get_mut(id) else {
                continue;
            };
            // The last words are those of connections that end.
            if self.allowance.is_spent() && !connection.is_lost() {
                self.hold(now, id);
                continue;
            }
            if let Some(transmit) = connection.poll_transmit(now, buf) {
                self.dirty.end_turn(id);
                return Some(transmit);
            }
            self.settle(now, id);
        }
        None
    }

    pub(super) fn respond(&mut self, transmit: Output, bytes: Vec<u8>) {
        // Stateless answers are cheap to lose and must not pile up.
        if self.responses.len() < 256 {
            self.strays
                .sent
                .enter_stray(transmit.destination, transmit.size);
            self.responses.push_back((transmit, bytes));
        }
    }

    /// Nothing to send now: note when to come back, and forget the connection if it is over.
    fn settle(&mut self, now: Instant, id: ConnectionId) {
        self.pump(now, id);
        self.dirty.remove(id);
        let Some(connection) = self.connections.get_mut(id) else {
            return;
        };
        let due = connection.poll_timeout();
        let over = connection.is_over();
        if over {
            self.forget(id);
        } else {
            self.timers.set(id, due);
        }
    }

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

    /// A connection may not send now. Its timers run on, but not in a loop: what is due cannot leave.
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
