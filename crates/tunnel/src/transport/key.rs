//! Names of flows and queries within their tunnel.

use bentpipe_proto::tunnel::FlowId;
use quinn_proto::{Dir, Side, StreamId};

/// Name of a flow within its tunnel, on one side: the index of its stream, with a bit of its own if the server opened it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowKey(pub(crate) u64);

impl FlowKey {
    /// The lowest key that a flow can have.
    pub const MIN: Self = Self(0);
    /// The highest key that a flow can have.
    pub const MAX: Self = Self(u64::MAX);

    /// Above every index that a stream can have.
    const OF_SERVER: u64 = FlowId::OF_SERVER.0;

    pub(super) fn stream(self) -> StreamId {
        match self.is_inbound() {
            false => StreamId::new(Side::Client, Dir::Bi, self.0),
            true => StreamId::new(Side::Server, Dir::Bi, self.0 - Self::OF_SERVER),
        }
    }

    pub(super) fn of(stream: StreamId) -> Self {
        Self(match stream.initiator() {
            Side::Client => stream.index(),
            Side::Server => stream.index() + Self::OF_SERVER,
        })
    }

    /// True for a flow that the server has opened.
    pub(super) fn is_inbound(self) -> bool {
        self.0 >= Self::OF_SERVER
    }
}

/// Name of a query within its tunnel, on one side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct QueryKey(pub(super) StreamId);

impl QueryKey {
    pub(super) fn stream(self) -> StreamId {
        self.0
    }
}
