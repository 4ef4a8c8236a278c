//! Streams that this side opens. A peer allows some at first and more as they are used (`PROTOCOL.md` §4): a flow or query
//! beyond that has its stream's number at once and is written when the stream may be opened, a round trip later at most.

use quinn_proto::{Connection, Dir, Side, StreamId};

/// Order of the streams that this side opens.
#[derive(Debug)]
pub(super) struct Openings {
    side: Side,
    /// Index of the next stream that is opened.
    next: u64,
    /// Streams that flows and queries have and the peer has not allowed yet.
    waiting: u64,
}

impl Openings {
    pub(super) fn new(side: Side) -> Self {
        Self {
            side,
            next: 0,
            waiting: 0,
        }
    }

    /// Opens a stream, if the peer allows one now and nothing waits for it.
    pub(super) fn open(&mut self, quic: &mut Connection) -> Option<StreamId> {
        if self.waiting > 0 {
            return None;
        }
        let stream = quic.streams().open(Dir::Bi)?;
        self.next = stream.index() + 1;
        Some(stream)
    }

    /// The next stream, and whether it is open yet; `None` if the peer has not allowed a single one.
    pub(super) fn reserve(&mut self, quic: &mut Connection) -> Option<(StreamId, bool)> {
        if let Some(stream) = self.open(quic) {
            return Some((stream, true));
        }
        if self.next == 0 {
            return None;
        }
        let stream = StreamId::new(self.side, Dir::Bi, self.next + self.waiting);
        self.waiting += 1;
        Some((stream, false))
    }

    /// Opens the next stream that something waits for, if the peer allows it now.
    pub(super) fn open_waiting(&mut self, quic: &mut Connection) -> Option<StreamId> {
        self.waiting.checked_sub(1)?;
        let stream = quic.streams().open(Dir::Bi)?;
        self.waiting -= 1;
        self.next = stream.index() + 1;
        Some(stream)
    }
}
