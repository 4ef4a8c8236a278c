//! DNS through the tunnel: a stream for each query, the message and FIN in either direction (`PROTOCOL.md` §4.1).
//!
//! What is asked and answered is opaque here; only its length is bounded. Messages pass whatever waits of flows.

use std::collections::{HashMap, VecDeque};

use bentpipe_proto::dns::{MAX_MESSAGE, MAX_QUERY};
use bentpipe_proto::relay::Receiver;
use bentpipe_proto::tunnel::{AbortCode, StreamKind, capability};
use bytes::Bytes;
use quinn_proto::{Connection, Side, StreamId, VarInt, WriteError};

use super::event::{Fault, OpenError, TunnelEvent};
use super::flow::{FlowKey, ReadFault, drain};
use super::tunnel::Tunnel;

/// Queries of one tunnel at one time (`PROTOCOL.md` §9).
pub const MAX_QUERIES: usize = 256;

/// Names a query within its tunnel, on one side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct QueryKey(StreamId);

/// The queries that are under way.
#[derive(Default)]
pub(super) struct Queries {
    open: HashMap<StreamId, Exchange>,
    /// Those with something to write.
    waiting: VecDeque<StreamId>,
}

struct Exchange {
    receiver: Receiver,
    /// Everything has come.
    received: bool,
    out: Bytes,
}

impl Queries {
    pub(super) fn has_output(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// The end of a query that its peer sends has not come.
    pub(super) fn is_unfinished(&self, stream: StreamId) -> bool {
        let exchange = self.open.get(&stream);
        exchange.is_some_and(|exchange| !exchange.received)
    }

    pub(super) fn knows(&self, stream: StreamId) -> bool {
        self.open.contains_key(&stream)
    }

    fn send(&mut self, stream: StreamId, message: Bytes) {
        if let Some(exchange) = self.open.get_mut(&stream) {
            exchange.out = message;
            self.waiting.push_back(stream);
        }
    }
}

impl Tunnel {
    /// Client: the server answers queries.
    #[must_use]
    pub fn takes_queries(&self) -> bool {
        self.has(capability::DNS) && !self.goaway
    }

    /// Client: sends a query; its answer is a [`TunnelEvent::Answer`].
    pub fn ask(&mut self, quic: &mut Connection, message: &[u8]) -> Result<QueryKey, OpenError> {
        if !self.has(capability::DNS) {
            return Err(OpenError::NotReady);
        }
        if self.queries.open.len() >= MAX_QUERIES {
            return Err(OpenError::LimitReached);
        }
        let reserved = self.openings.reserve(quic);
        let (stream, opened) = reserved.ok_or(OpenError::LimitReached)?;
        let mut receiver = Receiver::new(MAX_MESSAGE as u64);
        receiver.set_header(0);
        let mut out = Vec::with_capacity(1 + message.len());
        StreamKind::Dns.encode(&mut out);
        out.extend_from_slice(message);
        let exchange = Exchange {
            receiver,
            received: false,
            out: out.into(),
        };
        self.queries.open.insert(stream, exchange);
        if opened {
            self.start_query(quic, stream);
        }
        Ok(QueryKey(stream))
    }

    /// Client: the stream of a query is open. False: nobody asks on it, or no more.
    pub(super) fn start_query(&mut self, quic: &mut Connection, stream: StreamId) -> bool {
        let known = self.queries.knows(stream);
        if known {
            let _ = quic.send_stream(stream).set_priority(1);
            self.queries.waiting.push_back(stream);
        }
        known
    }

    /// Client: gives up a query; there will be no event.
    pub fn forget_query(&mut self, quic: &mut Connection, query: QueryKey) {
        self.drop_query(quic, query.0);
    }

    /// Whether a query is under way.
    #[must_use]
    pub fn has_query(&self, query: QueryKey) -> bool {
        self.queries.knows(query.0)
    }

    /// Server: answers a query; without a message it is refused.
    pub fn answer(&mut self, quic: &mut Connection, query: QueryKey, message: Option<Bytes>) {
        match message.filter(|message| message.len() <= MAX_MESSAGE) {
            Some(message) => self.queries.send(query.0, message),
            None => self.drop_query(quic, query.0),
        }
    }

    /// Server: a stream whose flow turns out to be a query; true if it is taken as one.
    pub(super) fn adopt_query(&mut self, quic: &mut Connection, key: FlowKey) -> bool {
        if !self.has(capability::DNS) || self.queries.open.len() >= MAX_QUERIES {
            return false;
        }
        let due = self.headers.due(key);
        let Some(mut flow) = self.leave(key) else {
            return false;
        };
        self.held = self.held.saturating_sub(flow.receiver.memory());
        // All that has come of it was counted as a flow's.
        let bytes = flow.receiver.held();
        self.stats.received.flows = self.stats.received.flows.saturating_sub(bytes);
        self.stats.received.dns += bytes;
        flow.receiver.set_header(1);
        let stream = key.stream();
        let _ = quic.send_stream(stream).set_priority(1);
        let exchange = Exchange {
            receiver: flow.receiver,
            received: flow.recv_done,
            out: Bytes::new(),
        };
        self.queries.open.insert(stream, exchange);
        self.headers.keep(due, key);
        self.on_message(quic, stream);
        true
    }

    /// Something came on a query's stream.
    pub(super) fn read_query(
        &mut self,
        quic: &mut Connection,
        stream: StreamId,
    ) -> Result<(), Fault> {
        let Some(exchange) = self.queries.open.get_mut(&stream) else {
            return Ok(());
        };
        if !exchange.received {
            match drain(&mut exchange.receiver, quic, stream, |_, _| {}) {
                Ok((bytes, ended)) => {
                    exchange.received = ended;
                    self.stats.received.dns += bytes;
                }
                Err(ReadFault::Credit(exceeded)) => return Err(exceeded.into()),
                Err(ReadFault::Reset) => {
                    self.lose_query(stream);
                    self.drop_query(quic, stream);
                    return Ok(());
                }
            }
            self.on_message(quic, stream);
        }
        Ok(())
    }

    fn on_message(&mut self, quic: &mut Connection, stream: StreamId) {
        let Some(exchange) = self.queries.open.get_mut(&stream) else {
            return;
        };
        let longest = match self.side {
            Side::Server => MAX_QUERY,
            Side::Client => MAX_MESSAGE,
        };
        if exchange.receiver.reached() > longest as u64 {
            self.lose_query(stream);
            self.drop_query(quic, stream);
            return;
        }
        if !exchange.received {
            return;
        }
        self.headers.forget(FlowKey::of(stream));
        let mut message = Vec::new();
        for chunk in exchange.receiver.ready() {
            message.extend_from_slice(chunk);
        }
        exchange.receiver.discard();
        let (key, message) = (QueryKey(stream), Bytes::from(message));
        self.events.push_back(match self.side {
            Side::Server => TunnelEvent::Query(key, message),
            Side::Client => {
                self.queries.open.remove(&stream);
                TunnelEvent::Answer(key, Some(message))
            }
        });
    }

    /// The peer wants no answer, or takes no query.
    pub(super) fn on_query_stopped(&mut self, quic: &mut Connection, stream: StreamId) {
        self.lose_query(stream);
        self.drop_query(quic, stream);
    }

    /// The asker hears that there will be no answer.
    fn lose_query(&mut self, stream: StreamId) {
        if self.side == Side::Client && self.queries.knows(stream) {
            let event = TunnelEvent::Answer(QueryKey(stream), None);
            self.events.push_back(event);
        }
    }

    pub(super) fn drop_query(&mut self, quic: &mut Connection, stream: StreamId) {
        if let Some(exchange) = self.queries.open.remove(&stream) {
            self.headers.forget(FlowKey::of(stream));
            let code = VarInt::from_u64(AbortCode::Internal.code()).unwrap_or_default();
            let _ = quic.send_stream(stream).reset(code);
            if !exchange.received {
                let _ = quic.recv_stream(stream).stop(code);
            }
        }
    }

    /// The connection is over.
    pub(super) fn lose_queries(&mut self) {
        let mut lost: Vec<_> = self.queries.open.keys().copied().collect();
        lost.sort_unstable();
        lost.into_iter().for_each(|stream| self.lose_query(stream));
        self.queries = Queries::default();
    }

    /// Writes messages into their streams, about `max` bytes of them.
    pub(super) fn write_queries(&mut self, quic: &mut Connection, max: usize) -> usize {
        let mut written = 0;
        while written < max
            && let Some(stream) = self.queries.waiting.pop_front()
        {
            let Some(exchange) = self.queries.open.get_mut(&stream) else {
                continue;
            };
            let share = exchange.out.len().min(max - written);
            match quic.send_stream(stream).write(&exchange.out[..share]) {
                Ok(n) => {
                    let _ = exchange.out.split_to(n);
                    self.stats.sent.dns += n as u64;
                    written += n;
                }
                // quinn's Writable brings it back.
                Err(WriteError::Blocked) => continue,
                Err(WriteError::Stopped(_) | WriteError::ClosedStream) => exchange.out.clear(),
            }
            if !exchange.out.is_empty() {
                self.queries.waiting.push_front(stream);
                continue;
            }
            let _ = quic.send_stream(stream).finish();
            // An end is worth a packet even if no byte went with it.
            written = written.max(1);
            if self.side == Side::Server {
                self.queries.open.remove(&stream);
            }
        }
        written
    }

    /// quinn has room for a stream again.
    pub(super) fn on_query_writable(&mut self, stream: StreamId) {
        let queries = &mut self.queries;
        let unsent = queries
            .open
            .get(&stream)
            .is_some_and(|exchange| !exchange.out.is_empty());
        if unsent && !queries.waiting.contains(&stream) {
            queries.waiting.push_back(stream);
        }
    }

    /// Queries are under way.
    pub(crate) fn has_queries(&self) -> bool {
        !self.queries.is_empty()
    }
}
