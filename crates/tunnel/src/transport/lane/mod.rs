//! One QUIC connection of a tunnel: its control stream, its queries, what is kept to mend its losses.
//!
//! Events and frames come in from `engine/connection.rs`, are sorted here and go on to the tunnel; `writer.rs` fills streams
//! just before a datagram is built, `signals.rs` is what both ends of a lane say to each other about the path.

mod again;
mod control;
mod queries;
mod repair;
mod signals;
mod writer;

use std::collections::BTreeSet;
use std::time::Instant;

use bentpipe_proto::fec::Mended;
use bentpipe_proto::tunnel::{AbortCode, Acks, Control, capability};
use bentpipe_units::BitRate;
use bytes::Bytes;
use quinn_proto::{Dir, Side, StreamEvent, StreamId};

use super::event::{Fault, OpenError, TunnelEvent};
use super::key::{FlowKey, QueryKey};
use super::streams::Streams;
use super::tunnel::{Said, Tunnel};
use again::Resumption;
use control::ControlStream;
use queries::Queries;
use repair::Repairs;

pub use repair::FecStats;
pub(crate) use writer::{Batch, Written};

/// Lane of a tunnel: one QUIC connection, but for its streams.
#[derive(Default)]
pub struct Lane {
    control: Option<ControlStream>,
    queries: Queries,
    repairs: Repairs,
    resumption: Resumption,
    /// Rate at which the peer saw our last train of packets arrive.
    rate_hint: Option<BitRate>,
    /// Acknowledgements that the peer wants, until the engine has taken that.
    ack_wish: Option<Acks>,
}

impl Lane {
    /// The handshake is complete: the client opens the control stream and says HELLO.
    pub(crate) fn on_connected(&mut self, tunnel: &mut Tunnel, quic: &mut Streams) {
        tunnel.on_connected();
        if quic.side() == Side::Client
            && let Some(id) = quic.open()
        {
            let mut control = ControlStream::new(quic, id, true);
            let mut hello = tunnel.agreement().local().clone();
            Repairs::announce(&mut hello, tunnel.ceiling());
            control.send(&Control::Hello(hello));
            self.control = Some(control);
            tunnel.outbox().open();
        }
    }

    /// Takes one of quinn's stream events.
    pub(crate) fn on_stream_event(
        &mut self,
        now: Instant,
        tunnel: &mut Tunnel,
        quic: &mut Streams,
        event: StreamEvent,
    ) -> Result<(), Fault> {
        match event {
            StreamEvent::Opened { dir: Dir::Bi } => {
                while let Some(id) = quic.streams().accept(Dir::Bi) {
                    self.on_accepted(now, tunnel, quic, id)?;
                }
            }
            StreamEvent::Readable { id } => self.on_readable(now, tunnel, quic, id)?,
            StreamEvent::Writable { id } => {
                tunnel.unblock(FlowKey::of(id));
                self.queries.on_writable(id);
            }
            StreamEvent::Stopped { id, error_code } => {
                if self.queries.knows(id) {
                    self.queries.fail(tunnel, quic, id);
                } else {
                    let _ = quic.send_stream(id).reset(error_code);
                    let key = FlowKey::of(id);
                    self.repairs.outgoing.on_reset(key.0);
                    tunnel.on_stopped(key, error_code);
                }
            }
            StreamEvent::Available { dir: Dir::Bi } => self.open_waiting(tunnel, quic),
            StreamEvent::Finished { id } => tunnel.on_acknowledged(FlowKey::of(id)),
            StreamEvent::Opened { .. } | StreamEvent::Available { .. } => {}
        }
        // What a peer does makes us answer; one that takes no answers must not fill our memory with them.
        match &self.control {
            Some(control) if control.is_stuck(tunnel.outbox()) => {
                Err(Fault::Violation("the control stream is not read"))
            }
            _ => Ok(()),
        }
    }

    fn on_accepted(
        &mut self,
        now: Instant,
        tunnel: &mut Tunnel,
        quic: &mut Streams,
        id: StreamId,
    ) -> Result<(), Fault> {
        // Before HELLO nothing is agreed either.
        if quic.side() == Side::Client
            && !tunnel.agreement().publishes()
            && !tunnel.agreement().accepts_segments()
        {
            return Err(Fault::Violation("server opened a stream"));
        }
        if quic.side() == Side::Server && id.index() == 0 {
            self.control = Some(ControlStream::new(quic, id, false));
            tunnel.outbox().open();
            return self.on_readable(now, tunnel, quic, id);
        }
        let key = FlowKey::of(id);
        if !tunnel.accept(key) {
            quic.refuse(id, AbortCode::MemoryLimit);
            return Ok(());
        }
        self.on_readable(now, tunnel, quic, id)
    }

    fn on_readable(
        &mut self,
        now: Instant,
        tunnel: &mut Tunnel,
        quic: &mut Streams,
        id: StreamId,
    ) -> Result<(), Fault> {
        let control = self.control.as_ref();
        if control.is_some_and(|control| control.id == id) {
            return self.read_control(tunnel, quic);
        }
        if self.queries.knows(id) {
            return self.queries.read(tunnel, quic, id);
        }
        let key = FlowKey::of(id);
        let incoming = &mut self.repairs.incoming;
        let look = |offset, bytes: &Bytes| incoming.on_received(key.0, offset, bytes);
        if tunnel.read(now, quic, key, look)? {
            self.on_bytes(now, tunnel, quic, key)?;
        }
        Ok(())
    }

    /// A flow has brought something; it may turn out to be a query.
    fn on_bytes(
        &mut self,
        now: Instant,
        tunnel: &mut Tunnel,
        quic: &mut Streams,
        key: FlowKey,
    ) -> Result<(), Fault> {
        match tunnel.on_bytes(now, quic, key)? {
            Said::Flow => {
                // Most have said what they are in their first packet. A stream with a lower number than one that has come is open as
                // well, and has all the time that its first byte waits in the peer's queues.
                if tunnel.is_half_said(key) {
                    quic.headers.expect(now, key.stream());
                }
                self.shed(tunnel, quic);
            }
            Said::Query if self.queries.have_room(tunnel) => {
                self.queries.adopt(tunnel, quic, key);
                if self.queries.is_unfinished(key.stream()) {
                    quic.headers.expect(now, key.stream());
                }
            }
            Said::Query => tunnel.throw_away(quic, key, AbortCode::Unsupported),
        }
        Ok(())
    }

    /// The peer allows more streams.
    fn open_waiting(&mut self, tunnel: &mut Tunnel, quic: &mut Streams) {
        while let Some(stream) = quic.open_waiting() {
            if !self.queries.start(quic, stream) && !tunnel.start(FlowKey::of(stream)) {
                quic.refuse(stream, AbortCode::Reset);
            }
        }
    }

    /// Refuses the streams that are out of time; if the peer is `excused`, by an outage of the link, they get more of it.
    pub(crate) fn expire_headers(
        &mut self,
        now: Instant,
        tunnel: &mut Tunnel,
        quic: &mut Streams,
        excused: bool,
    ) {
        while let Some(id) = quic.headers.pop_due(now) {
            if excused {
                quic.headers.expect(now, id);
            } else if self.queries.knows(id) {
                self.queries.end(quic, id);
            } else if tunnel.is_headless(FlowKey::of(id)) {
                tunnel.throw_away(quic, FlowKey::of(id), AbortCode::MemoryLimit);
            } else {
                quic.refuse(id, AbortCode::MemoryLimit);
            }
        }
    }

    /// A DATAGRAM frame came, in an IP packet that was `marked` "congestion experienced" or not. Each kind has one taker. What
    /// streams brought before it has to be read before [`Self::mend`].
    pub(crate) fn on_datagram(
        &mut self,
        now: Instant,
        tunnel: &mut Tunnel,
        content: &Bytes,
        marked: bool,
    ) {
        if self.repairs.incoming.on_datagram(content) || self.resumption.on_datagram(content) {
            tunnel.stats_mut().received.repairs += content.len() as u64;
        }
        tunnel.on_packets(now, content, marked);
    }

    /// Gives flows what repairs have mended, or was said again.
    pub(crate) fn mend(
        &mut self,
        now: Instant,
        tunnel: &mut Tunnel,
        quic: &mut Streams,
    ) -> Result<(), Fault> {
        let mut flows = BTreeSet::new();
        while let Some(mended) = self.next_mended() {
            let (Mended::Bytes { stream, .. } | Mended::End { stream, .. }) = mended;
            if tunnel.mend(FlowKey(stream), mended)? {
                flows.insert(FlowKey(stream));
            }
        }
        for key in flows {
            tunnel.stop_if_whole(quic, key);
            self.on_bytes(now, tunnel, quic, key)?;
        }
        Ok(())
    }

    fn next_mended(&mut self) -> Option<Mended> {
        let again = self.resumption.poll();
        again.or_else(|| self.repairs.incoming.poll())
    }

    /// Client: sends a query; its answer is a [`TunnelEvent::Answer`].
    pub fn ask(
        &mut self,
        tunnel: &Tunnel,
        quic: &mut Streams,
        message: &[u8],
    ) -> Result<QueryKey, OpenError> {
        if !tunnel.agreement().has(capability::DNS) {
            return Err(OpenError::NotReady);
        }
        self.queries.ask(quic, message)
    }

    /// Client: gives up a query; there will be no event.
    pub fn forget_query(&mut self, quic: &mut Streams, query: QueryKey) {
        self.queries.end(quic, query.stream());
    }

    /// True if a query is under way.
    #[must_use]
    pub fn has_query(&self, query: QueryKey) -> bool {
        self.queries.knows(query.stream())
    }

    /// Queries are under way.
    pub(crate) fn has_queries(&self) -> bool {
        !self.queries.is_empty()
    }

    /// Server: answers a query; without a message it is refused.
    pub fn answer(&mut self, quic: &mut Streams, query: QueryKey, message: Option<Bytes>) {
        self.queries.answer(quic, query, message);
    }

    /// Gives memory back: flows that hold most are reset at the tunnel's own ceiling, and at that of all tunnels.
    fn shed(&mut self, tunnel: &mut Tunnel, quic: &mut Streams) {
        tunnel.shed(quic);
        self.give_way(tunnel, quic);
    }

    /// Gives way to other tunnels; true if there was need to.
    pub(crate) fn share_memory(&mut self, tunnel: &mut Tunnel, quic: &mut Streams) -> bool {
        tunnel.excess(self.kept());
        // New flows are promised less before any has to be reset.
        tunnel.promise_less();
        let gave_way = self.give_way(tunnel, quic);
        if !gave_way {
            // As what is kept grows, what the tunnel may hold shrinks by as much.
            let kept = self.kept();
            self.repairs.keep_more(kept + tunnel.room(kept) / 2);
        }
        gave_way
    }

    /// Gives back half of what the tunnel holds more than it may of the memory for all: what it gives back is free, and as much
    /// as is free it may hold. Repairs go first, then flows.
    fn give_way(&mut self, tunnel: &mut Tunnel, quic: &mut Streams) -> bool {
        let before = self.kept();
        let excess = tunnel.excess(before);
        if excess == 0 {
            return false;
        }
        let half = excess.div_ceil(2);
        self.repairs.keep_less(before.saturating_sub(half));
        let left = half.saturating_sub(before.saturating_sub(self.kept()));
        if left > 0 {
            tunnel.give_way(quic, left);
        }
        tunnel.excess(self.kept());
        true
    }

    /// Bytes kept of what streams brought, and of the peer's repairs.
    pub fn kept(&self) -> u64 {
        self.repairs.incoming.memory()
    }

    /// This side ends the connection.
    pub(crate) fn on_closed(&mut self, tunnel: &mut Tunnel, quic: &mut Streams) {
        tunnel.on_closed();
        self.end(tunnel, quic);
    }

    /// The connection is over: the peer has ended it, or was not heard for too long.
    pub(crate) fn on_lost(&mut self, tunnel: &mut Tunnel, quic: &mut Streams) {
        tunnel.on_lost();
        self.end(tunnel, quic);
    }

    fn end(&mut self, tunnel: &mut Tunnel, quic: &mut Streams) {
        for query in self.queries.lose() {
            if quic.side() == Side::Client {
                tunnel.report(TunnelEvent::Answer(query, None));
            }
        }
        quic.on_lost();
    }
}
