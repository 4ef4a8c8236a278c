//! One QUIC connection with the order of its streams: those that this side opens, and those of the peer's that have not said
//! what they are. What flows and queries need of a connection is here, so neither a flow nor a tunnel knows its lane.

mod headers;
mod meter;
mod openings;
mod rtt;

use std::ops::{Deref, DerefMut};
use std::time::{Duration, Instant};

use bentpipe_congestion::Estimate;
use bentpipe_proto::relay::Product;
use bentpipe_proto::tunnel::AbortCode;
use quinn_proto::{Connection, StreamId, VarInt};

use headers::Headers;
use meter::ReceiveMeter;
use openings::Openings;
use rtt::KeptRtt;

/// QUIC connection and the order of its streams. Everything else that quinn's machine can do is reached through it.
pub struct Streams {
    quic: Connection,
    openings: Openings,
    pub(super) headers: Headers,
    meter: ReceiveMeter,
    rtt: Option<KeptRtt>,
}

impl Streams {
    /// Streams of a connection that has just begun.
    #[must_use]
    pub fn new(quic: Connection) -> Self {
        Self {
            openings: Openings::new(quic.side()),
            headers: Headers::default(),
            meter: ReceiveMeter::default(),
            rtt: None,
            quic,
        }
    }

    /// The QUIC connection below, to ask for its path, peer and counters.
    #[must_use]
    pub fn quic(&self) -> &Connection {
        &self.quic
    }

    /// Smoothed round-trip time of the path (RFC 9002 §5.3).
    #[must_use]
    pub fn rtt(&self) -> Duration {
        let rtt = self.quic.rtt();
        self.rtt.as_ref().map_or(rtt, |kept| kept.smoothed(rtt))
    }

    /// Shortest round-trip time of the path (RFC 9002 §5.2).
    #[must_use]
    pub fn min_rtt(&self) -> Duration {
        let rtt = self.quic.min_rtt();
        self.rtt.as_ref().map_or(rtt, |kept| kept.shortest(rtt))
    }

    /// Forgets what was known of the round-trip time before the peer moved.
    pub(crate) fn forget_rtt(&mut self) {
        self.rtt = None;
    }

    /// Sends datagrams of the size that every path takes from now on, and has quinn look for the largest one anew (RFC 8899
    /// §5.2). quinn forgets the round-trip time with the size; what was known of it counts until the path was measured again.
    pub(crate) fn forget_mtu(&mut self, now: Instant) {
        let (smoothed, shortest) = (self.rtt(), self.min_rtt());
        self.quic.path_changed(now);
        self.rtt = Some(KeptRtt::new(self.quic.rtt(), smoothed, shortest));
    }

    /// Uses another connection ID from now on, and says so to the peer (RFC 9000 §9.5): what comes next leaves from another address.
    pub(crate) fn change_address(&mut self) {
        self.quic.local_address_changed();
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
        let rtt = self.rtt();
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
        self.meter.product(self.rtt())
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
