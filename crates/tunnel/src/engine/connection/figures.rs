//! What a connection is asked: for `status`, metrics and records, and by those who decide about it. It only reads.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bentpipe_congestion::{Kind, Saved};
use bentpipe_units::BitRate;
use quinn_proto::Dir;

use super::super::ledger::Ledger;
use super::super::profile::{AckPolicy, Link};
use super::super::settings::Wishes;
use super::super::totals::Totals;
use super::Connection;
use crate::transport::Lane;

impl Connection {
    /// The QUIC connection below, to ask for its path, peer and counters.
    #[must_use]
    pub fn quic(&self) -> &quinn_proto::Connection {
        self.quic.quic()
    }

    /// The connection but for its flows and streams, to ask for its queries and repairs.
    #[must_use]
    pub fn lane(&self) -> &Lane {
        &self.lane
    }

    /// Peer's address, an IPv4 address in its own form whichever family the socket below has.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        let peer = self.quic.remote_address();
        (peer.ip().to_canonical(), peer.port()).into()
    }

    /// Peer's address as the engine knows it: of the UDP socket's form, or made by [`over_tcp`](crate::engine::over_tcp).
    #[must_use]
    pub fn remote(&self) -> SocketAddr {
        self.quic.remote_address()
    }

    /// True if the wire below delivers in order whatever it takes.
    #[must_use]
    pub fn is_on_reliable_wire(&self) -> bool {
        self.control.is_reliable()
    }

    /// Streams that the peer may hold open now.
    pub fn allowed_streams(&self) -> u64 {
        self.quic.max_concurrent_streams(Dir::Bi)
    }

    /// True if the last datagram came from the peer whose key this side has verified.
    #[must_use]
    pub fn trusts_last(&self) -> bool {
        self.stage.trusts_last()
    }

    /// The time of the last datagram from the peer; `None` before the first (client).
    pub fn heard(&self) -> Option<Instant> {
        self.validation.is_heard().then(|| self.liveness.heard())
    }

    /// True if an answer is overdue, and nothing has been heard for longer than short gaps of a link last.
    pub fn is_silent(&self, now: Instant) -> bool {
        self.liveness.is_silent(now)
    }

    /// Instant since which nothing that this side sends is answered, in an outage. The peer may be heard all the same, where the
    /// path is blocked in one direction.
    pub fn unanswered_since(&self) -> Option<Instant> {
        self.liveness.unanswered_since()
    }

    /// Knowledge of the path in this direction, for the next connection.
    pub fn saved(&self, now: Instant) -> Option<Saved> {
        self.control.gate.flight().saved(now)
    }

    /// Knowledge of the path that this controller goes by and an earlier connection's has learned.
    pub fn resumed(&self) -> Option<Saved> {
        self.control.gate.flight().resumed()
    }

    /// Settings that this side sends with now; a server knows them once the client's HELLO came.
    pub fn sends_with(&self) -> Wishes {
        self.control.current
    }

    /// The congestion controller at work.
    pub fn controller(&self) -> Kind {
        self.control.gate.flight().controller().kind()
    }

    /// Acknowledgements that the peer was asked for.
    pub fn asks(&self) -> AckPolicy {
        self.control.path.asks
    }

    /// Facts of the link that the connection was begun with.
    pub fn link(&self) -> Link {
        self.control.path.link
    }

    /// Round-trip time, smoothed and smallest.
    pub fn rtt(&self) -> (Duration, Duration) {
        (self.quic.rtt(), self.quic.min_rtt())
    }

    /// Window in bytes, pacing rate in bit/s and bytes in flight.
    pub fn congestion(&self) -> (u64, BitRate, u64) {
        let flight = self.control.gate.flight();
        (
            flight.controller().window(),
            flight.controller().pacing_rate(),
            flight.in_flight(),
        )
    }

    /// Ledger of what the bytes on the link were for.
    pub fn ledger(&self) -> Ledger {
        let path = self.quic.stats().path;
        let stats = self.tunnel.stats();
        let (mut sent, mut received) = (stats.sent, stats.received);
        [sent.trains, received.trains] = self.train.bytes();
        self.books
            .close(sent, received, path.lost_bytes, path.lost_packets)
    }

    /// Figures that are summed over connections.
    pub(in crate::engine) fn totals(&self) -> Totals {
        Totals {
            ledger: self.ledger(),
            flows: self.tunnel.stats(),
            packets: self.tunnel.packet_stats(),
        }
    }

    /// Datagrams that left a second time.
    pub fn repeated(&self) -> u64 {
        self.duplicates.repeated()
    }
}
