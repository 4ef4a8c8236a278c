//! DNS through the tunnel: a stream for each query, the message and FIN in either direction (`PROTOCOL.md` §4.1).
//!
//! What is asked and answered is opaque here; only its length is bounded. Messages pass whatever waits of flows.

use std::collections::{HashMap, VecDeque};

use bentpipe_proto::dns::{MAX_MESSAGE, MAX_QUERY};
use bentpipe_proto::relay::Receiver;
use bentpipe_proto::tunnel::{AbortCode, StreamKind, capability};
use bytes::Bytes;
use quinn_proto::{Side, StreamId, VarInt, WriteError};

use super::super::MAX_QUERIES;
use super::super::event::{Fault, OpenError, TunnelEvent};
use super::super::key::{FlowKey, QueryKey};
use super::super::streams::Streams;
use super::super::tunnel::{ReadFault, Tunnel, drain};

/// The queries that are under way.
#[derive(Default)]
pub(super) struct Queries {
    open: HashMap<StreamId, Exchange>,
    /// Queries with something to write.
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

    /// Client: sends a query.
    pub(super) fn ask(
        &mut self,
        quic: &mut Streams,
        message: &[u8],
    ) -> Result<QueryKey, OpenError> {
        if self.open.len() >= MAX_QUERIES {
            return Err(OpenError::LimitReached);
        }
        let (stream, opened) = quic.reserve().ok_or(OpenError::LimitReached)?;
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
        self.open.insert(stream, exchange);
        if opened {
            self.start(quic, stream);
        }
        Ok(QueryKey(stream))
    }

    /// Client: the stream of a query is open. False: nobody asks on it, or no more.
    pub(super) fn start(&mut self, quic: &mut Streams, stream: StreamId) -> bool {
        let known = self.knows(stream);
        if known {
            let _ = quic.send_stream(stream).set_priority(1);
            self.waiting.push_back(stream);
        }
        known
    }

    /// Server: answers a query; without a message it is refused.
    pub(super) fn answer(&mut self, quic: &mut Streams, query: QueryKey, message: Option<Bytes>) {
        let Some(message) = message.filter(|message| message.len() <= MAX_MESSAGE) else {
            return self.end(quic, query.0);
        };
        if let Some(exchange) = self.open.get_mut(&query.0) {
            exchange.out = message;
            self.waiting.push_back(query.0);
        }
    }

    /// Server: whether one more query is taken.
    pub(super) fn have_room(&self, tunnel: &Tunnel) -> bool {
        tunnel.agreement().has(capability::DNS) && self.open.len() < MAX_QUERIES
    }

    /// Server: a stream whose flow turns out to be a query.
    pub(super) fn adopt(&mut self, tunnel: &mut Tunnel, quic: &mut Streams, key: FlowKey) {
        let Some((mut receiver, received)) = tunnel.give_up(key) else {
            return;
        };
        // All that has come of it was counted as a flow's.
        let (bytes, stats) = (receiver.held(), tunnel.stats_mut());
        stats.received.flows = stats.received.flows.saturating_sub(bytes);
        stats.received.dns += bytes;
        receiver.set_header(1);
        let stream = key.stream();
        let _ = quic.send_stream(stream).set_priority(1);
        let exchange = Exchange {
            receiver,
            received,
            out: Bytes::new(),
        };
        self.open.insert(stream, exchange);
        self.on_message(tunnel, quic, stream);
    }

    /// Something came on a query's stream.
    pub(super) fn read(
        &mut self,
        tunnel: &mut Tunnel,
        quic: &mut Streams,
        stream: StreamId,
    ) -> Result<(), Fault> {
        let Some(exchange) = self.open.get_mut(&stream) else {
            return Ok(());
        };
        if !exchange.received {
            match drain(&mut exchange.receiver, quic, stream, |_, _| {}) {
                Ok((bytes, ended)) => {
                    exchange.received = ended;
                    tunnel.stats_mut().received.dns += bytes;
                }
                Err(ReadFault::Credit(exceeded)) => return Err(exceeded.into()),
                Err(ReadFault::Reset) => {
                    self.fail(tunnel, quic, stream);
                    return Ok(());
                }
            }
            self.on_message(tunnel, quic, stream);
        }
        Ok(())
    }

    fn on_message(&mut self, tunnel: &mut Tunnel, quic: &mut Streams, stream: StreamId) {
        let Some(exchange) = self.open.get_mut(&stream) else {
            return;
        };
        let longest = match quic.side() {
            Side::Server => MAX_QUERY,
            Side::Client => MAX_MESSAGE,
        };
        if exchange.receiver.reached() > longest as u64 {
            return self.fail(tunnel, quic, stream);
        }
        if !exchange.received {
            return;
        }
        quic.headers.forget(stream);
        let mut message = Vec::new();
        for chunk in exchange.receiver.ready() {
            message.extend_from_slice(chunk);
        }
        exchange.receiver.discard();
        let (key, message) = (QueryKey(stream), Bytes::from(message));
        tunnel.report(match quic.side() {
            Side::Server => TunnelEvent::Query(key, message),
            Side::Client => {
                self.open.remove(&stream);
                TunnelEvent::Answer(key, Some(message))
            }
        });
    }

    /// Ends a query of which no more comes, or that nobody wants: the peer wants no answer, takes no query, or says too much.
    /// An asker hears that there will be no answer.
    pub(super) fn fail(&mut self, tunnel: &mut Tunnel, quic: &mut Streams, stream: StreamId) {
        if quic.side() == Side::Client && self.knows(stream) {
            tunnel.report(TunnelEvent::Answer(QueryKey(stream), None));
        }
        self.end(quic, stream);
    }

    /// Ends a query; nobody is told.
    pub(super) fn end(&mut self, quic: &mut Streams, stream: StreamId) {
        if let Some(exchange) = self.open.remove(&stream) {
            quic.headers.forget(stream);
            let code = VarInt::from_u64(AbortCode::Internal.code()).unwrap_or_default();
            let _ = quic.send_stream(stream).reset(code);
            if !exchange.received {
                let _ = quic.recv_stream(stream).stop(code);
            }
        }
    }

    /// The connection is over: the queries that were under way, the oldest first.
    pub(super) fn lose(&mut self) -> Vec<QueryKey> {
        let mut lost: Vec<_> = self.open.keys().copied().collect();
        lost.sort_unstable();
        *self = Self::default();
        lost.into_iter().map(QueryKey).collect()
    }

    /// Writes messages into their streams, about `max` bytes of them.
    pub(super) fn write(&mut self, quic: &mut Streams, max: usize) -> Messages {
        let (mut bytes, mut weight) = (0, 0);
        while weight < max
            && let Some(stream) = self.waiting.pop_front()
        {
            let Some(exchange) = self.open.get_mut(&stream) else {
                continue;
            };
            let share = exchange.out.len().min(max - weight);
            match quic.send_stream(stream).write(&exchange.out[..share]) {
                Ok(n) => {
                    let _ = exchange.out.split_to(n);
                    bytes += n;
                    weight += n;
                }
                // quinn's Writable brings it back.
                Err(WriteError::Blocked) => continue,
                Err(WriteError::Stopped(_) | WriteError::ClosedStream) => exchange.out.clear(),
            }
            if !exchange.out.is_empty() {
                self.waiting.push_front(stream);
                continue;
            }
            let _ = quic.send_stream(stream).finish();
            // An end is worth a packet even if no byte went with it.
            weight = weight.max(1);
            if quic.side() == Side::Server {
                self.open.remove(&stream);
            }
        }
        Messages { bytes, weight }
    }

    /// quinn has room for a stream again.
    pub(super) fn on_writable(&mut self, stream: StreamId) {
        let exchange = self.open.get(&stream);
        let unsent = exchange.is_some_and(|exchange| !exchange.out.is_empty());
        if unsent && !self.waiting.contains(&stream) {
            self.waiting.push_back(stream);
        }
    }
}

/// Messages with what was written of them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Messages {
    pub(super) bytes: usize,
    /// Bytes that the turn counts for, with what an end is worth.
    pub(super) weight: usize,
}
