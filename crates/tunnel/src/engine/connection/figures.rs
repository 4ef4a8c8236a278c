//! What a connection is asked for `status`, metrics and records: it only reads.

use std::time::Duration;

use bentpipe_congestion::Kind;
use bentpipe_units::BitRate;

use super::super::ledger::Ledger;
use super::super::profile::{AckPolicy, Link};
use super::super::settings::Wishes;
use super::super::totals::Totals;
use super::Connection;

impl Connection {
    /// What this side sends with now; a server knows that once the client's HELLO came.
    pub fn sends_with(&self) -> Wishes {
        self.control.current
    }

    /// The congestion controller at work.
    pub fn controller(&self) -> Kind {
        self.control.gate.flight().controller().kind()
    }

    /// When the peer was asked to acknowledge.
    pub fn asks(&self) -> AckPolicy {
        self.control.path.asks
    }

    /// What the connection was begun with.
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

    /// What the bytes on the link were for.
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
        self.repeater.repeated()
    }
}
