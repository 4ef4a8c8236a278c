//! One QUIC connection with the order of its streams: those that this side opens, and those of the peer's that have not said
//! what they are. What flows and queries need of a connection is here, so neither a flow nor a tunnel knows its lane.

mod headers;
mod meter;
mod openings;

use std::ops::{Deref, DerefMut};
use std::time::Instant;

use bentpipe_congestion::Estimate;
use bentpipe_proto::relay::Product;
use bentpipe_proto::tunnel::AbortCode;
use quinn_proto::{Connection, StreamId, VarInt};

use headers::Headers;
use meter::ReceiveMeter;
use openings::Openings;

/// QUIC connection and the order of its streams. Everything else that quinn's machine can do is reached through it.
pub struct Streams {
    quic: Connection,
    openings: Openings,
    pub(super) headers: Headers,
    meter: ReceiveMeter,
}

impl Streams {
    /// Streams of a connection that has just begun.
    #[must_use]
    pub fn new(quic: Connection) -> Self {
        Self {
            openings: Openings::new(quic.side()),
            headers: Headers::default(),
            meter: ReceiveMeter::default(),
            quic,
        }
    }

    /// The QUIC connection below, to ask for its path, peer and counters.
    #[must_use]
    pub fn quic(&self) -> &Connection {
        &self.quic
    }

    /// Opens a stream, if the peer allows one now and nothing waits for it.
    pub(super) fn open(&mut self) -> Option<StreamId> {
        self.openings.open(&mut self.quic)
    }

    /// The next stream, and whether it is open yet; `None` if the peer has not allowed a single one.
    pub(super) fn reserve(&mut self) -> Option<(StreamId, bool)> {
        self.openings.reserve(&mut self.quic)
    }

    /// Opens the next stream that something waits for, if the peer allows it now.
    pub(super) fn open_waiting(&mut self) -> Option<StreamId> {
        self.openings.open_waiting(&mut self.quic)
    }

    /// Ends a stream of which nothing is kept.
    pub(super) fn refuse(&mut self, id: StreamId, code: AbortCode) {
        let code = VarInt::from_u64(code.code()).unwrap_or_default();
        let _ = self.quic.send_stream(id).reset(code);
        let _ = self.quic.recv_stream(id).stop(code);
    }

    /// Counts `bytes` of flows that came.
    pub(super) fn on_received(&mut self, now: Instant, bytes: u64) {
        let rtt = self.quic.rtt();
        self.meter.on_received(now, bytes, rtt);
    }

    /// Earliest deadline of a stream that has not said what it is.
    pub(crate) fn header_timeout(&self) -> Option<Instant> {
        self.headers.first()
    }

    /// Notes how fast the peer's train came.
    pub(super) fn on_train(&mut self, train: Estimate) {
        self.meter.on_train(train.rate.as_u64() / 8);
    }

    /// Bytes that the path holds in one round trip, in the direction to this side.
    pub(super) fn product(&self) -> Product {
        self.meter.product(self.quic.rtt())
    }

    /// Forgets what streams still have to say: the connection is over.
    pub(super) fn on_lost(&mut self) {
        self.headers = Headers::default();
    }
}

impl Deref for Streams {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.quic
    }
}

impl DerefMut for Streams {
    fn deref_mut(&mut self) -> &mut Connection {
        &mut self.quic
    }
}
