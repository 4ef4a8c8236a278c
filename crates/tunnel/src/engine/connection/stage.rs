//! How far a connection has come, from the handshake to its end.

use quinn_proto::{ConnectionError, Side};

/// Stage of a connection.
#[derive(Debug, Default)]
pub(super) struct Stage {
    established: bool,
    /// The last datagram began with an Initial packet.
    initial: bool,
    /// The client's HELLO came and is not answered yet (server).
    greeting: bool,
    /// The end was reported.
    lost: bool,
    /// The peer is told why its handshake failed, as often as it asks.
    explains: bool,
}

impl Stage {
    pub(super) fn establish(&mut self) {
        self.established = true;
    }

    /// True once the handshake is complete.
    pub(super) fn is_established(&self) -> bool {
        self.established
    }

    /// Notes a datagram, and whether it begins with an Initial packet.
    pub(super) fn on_datagram(&mut self, initial: bool) {
        self.initial = initial;
    }

    /// True if the last datagram came from the peer whose key this side has verified. Initial packets prove nothing.
    pub(super) fn trusts_last(&self) -> bool {
        self.established && !self.initial
    }

    /// Notes that a HELLO came: a server owes an answer.
    pub(super) fn on_hello(&mut self, side: Side) {
        self.greeting = side.is_server();
    }

    /// True once while a HELLO is to be answered.
    pub(super) fn take_greeting(&mut self) -> bool {
        std::mem::take(&mut self.greeting)
    }

    /// Notes the end that quinn reports.
    pub(super) fn on_lost(&mut self, reason: &ConnectionError) {
        self.lost = true;
        self.explains = matches!(reason, ConnectionError::TransportError(_));
    }

    /// Notes that this side ends the connection.
    pub(super) fn close(&mut self) {
        self.lost = true;
    }

    pub(super) fn is_lost(&self) -> bool {
        self.lost
    }

    /// True once nothing more is owed to the peer. A stranger's connection does not linger for the three PTO of RFC 9000
    /// §10.2, unless the peer is told why it was refused.
    pub(super) fn is_over(&self, side: Side, drained: bool) -> bool {
        let stranger = side.is_server() && !self.established;
        self.lost && (drained || (stranger && !self.explains))
    }
}
