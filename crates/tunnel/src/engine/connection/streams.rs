//! Streams that a peer may hold open at once: a handful before its key is known, then more as it uses them.
//!
//! quinn reserves about 45 bytes for each stream that the peer may open, at once. A limit as high as the flows of the
//! largest client would cost megabytes for each handshake that a stranger begins, and for each tunnel that is idle.

use quinn_proto::{Connection, Dir, VarInt};

use crate::transport::MAX_QUERIES;

/// Streams of a peer whose key is not known yet: its control stream, and some that it may open in the same round trip.
const UNPROVEN: u32 = 4;

/// Streams of a peer whose key is known, before it uses them: a page from a dozen hosts, and lookups beside; what is beyond
/// waits for one round trip. Tables of 128 entries hold them, and room is left: a table without room for one more doubles,
/// although a stream has only been taken out and put back.
const FIRST: u64 = 108;

/// Limit of the streams that the peer may hold open at once.
#[derive(Debug)]
pub(crate) struct StreamLimit {
    /// Streams that the peer may hold open now.
    granted: u64,
    /// Streams that it may ever hold open.
    most: u64,
    /// The peer has proven its key.
    known: bool,
}

/// Streams that `flows` flows and the control stream and queries beside them take.
pub(crate) fn streams_for(flows: u32) -> u32 {
    flows.saturating_add(1 + MAX_QUERIES as u32)
}

impl StreamLimit {
    /// A limit of `UNPROVEN` streams, which grows to `most` in a peer that has proven its key.
    pub(crate) fn new(most: u32) -> Self {
        Self {
            granted: u64::from(Self::at_first(most)),
            most: u64::from(most),
            known: false,
        }
    }

    /// Streams that a peer with a limit of `most` has before it has proven its key.
    pub(crate) fn at_first(most: u32) -> u32 {
        most.min(UNPROVEN)
    }

    /// Lets a peer that has proven its key open more streams.
    pub(super) fn on_known(&mut self, quic: &mut Connection) {
        self.known = true;
        self.grant(quic, FIRST);
    }

    /// Changes how many streams the peer may ever hold open. Those that are open stay.
    pub(super) fn set_most(&mut self, quic: &mut Connection, most: u32) {
        self.most = u64::from(most);
        if self.known {
            self.grant(quic, self.granted.max(FIRST));
        }
    }

    /// Raises the limit to the eightfold once more than half of it is in use, so that growth stays ahead of a burst: a
    /// thousand streams take one round trip more than a few, 50,000 take three.
    pub(super) fn on_opened(&mut self, quic: &mut Connection) {
        let open = quic.streams().remote_open_streams(Dir::Bi);
        if self.known && open > self.granted / 2 && self.granted < self.most {
            self.grant(quic, self.granted * 8);
        }
    }

    fn grant(&mut self, quic: &mut Connection, wanted: u64) {
        let granted = wanted.min(self.most);
        if granted != self.granted {
            self.granted = granted;
            let count = VarInt::from_u64(granted).unwrap_or(VarInt::MAX);
            quic.set_max_concurrent_streams(Dir::Bi, count);
        }
    }
}
