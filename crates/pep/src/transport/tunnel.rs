//! All flows of one QUIC connection, and the control stream between the two ends.
//!
//! Events and frames come in from `engine/connection.rs`; LAN sides call [`Tunnel::push`],
//! [`Tunnel::consume`] and so on; [`Tunnel::write`] fills streams just before a datagram is built.
//! Decides nothing about time: rates and timers belong to the engine.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use bentpipe_proto::relay::{Budget, CreditExceeded, Scheduler, Sender};
use bentpipe_proto::tunnel::{
    AbortCode, CloseCode, Control, DecodeError, Destination, FlowId, Hello, Open, Reply, ReplyCode,
    VERSION,
};
use bytes::Bytes;
use quinn_proto::{Connection, Dir, Side, StreamEvent, StreamId, VarInt, WriteError};
use std::net::SocketAddr;
use thiserror::Error;

use super::control::ControlStream;
use super::flow::{Flow, FlowKey, Header, Incoming, ReadFault};
use super::meter::ReceiveMeter;

/// FLOW_ABORTs kept for flows whose OPEN is still missing (it was lost, they were not).
const MAX_EARLY_ABORTS: usize = 1024;

/// What the shell has to act on.
#[derive(Debug)]
pub enum TunnelEvent {
    /// The peer's HELLO arrived: flows may be opened.
    Ready,
    /// The peer opened a flow (server only); answer with [`Tunnel::reply`].
    Opened(FlowKey, Box<Open>),
    /// Something changed for this flow's LAN side: look at [`Tunnel::incoming`], [`Tunnel::capacity`].
    Flow(FlowKey),
    /// The peer drains: it opens no more flows, and takes none.
    Goaway,
}

/// The peer broke the protocol; the tunnel must be closed with [`Fault::code`].
#[derive(Debug, Error)]
pub enum Fault {
    /// A frame or header that cannot be decoded.
    #[error("peer sent a malformed frame: {0}")]
    Malformed(#[from] DecodeError),
    /// More data than our credit allowed.
    #[error(transparent)]
    Credit(#[from] CreditExceeded),
    /// Something that this protocol never allows at that point.
    #[error("peer broke the protocol: {0}")]
    Violation(&'static str),
    /// A version that we do not speak.
    #[error("peer speaks version {0} of the tunnel protocol, we speak {VERSION}")]
    Version(u64),
}

impl Fault {
    /// The code for CONNECTION_CLOSE.
    pub fn code(&self) -> CloseCode {
        match self {
            Self::Malformed(_) | Self::Violation(_) => CloseCode::ProtocolViolation,
            Self::Credit(_) => CloseCode::CreditExceeded,
            Self::Version(_) => CloseCode::VersionUnsupported,
        }
    }
}

/// Why a flow cannot be opened now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum OpenError {
    /// No HELLO yet, or the connection is closing.
    #[error("the tunnel is not ready")]
    NotReady,
    /// The server's limit on flows is reached.
    #[error("the server's limit on flows is reached")]
    LimitReached,
    /// The peer drains.
    #[error("the server is shutting down")]
    Draining,
}

/// Counters for `status`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct TunnelStats {
    /// Flows opened so far.
    pub opened: u64,
    /// Flows that the server could not connect.
    pub refused: u64,
    /// Payload bytes taken from the LAN side.
    pub lan_in: u64,
    /// Payload bytes given to the LAN side.
    pub lan_out: u64,
    /// Flows reset because the tunnel was at its memory ceiling.
    pub shed: u64,
}

/// The flows and the control stream of one connection.
pub struct Tunnel {
    side: Side,
    local: Hello,
    remote: Option<Hello>,
    control: Option<ControlStream>,
    flows: HashMap<FlowKey, Flow>,
    by_id: HashMap<FlowId, FlowKey>,
    early_aborts: BTreeMap<FlowId, (u64, AbortCode)>,
    next_id: u64,
    scheduler: Scheduler<FlowKey>,
    budget: Budget,
    /// Memory held in all receivers, in bytes.
    held: u64,
    meter: ReceiveMeter,
    goaway: bool,
    events: VecDeque<TunnelEvent>,
    chunks: Vec<Bytes>,
    stats: TunnelStats,
}

impl Tunnel {
    /// A tunnel that announces `local` and may hold `ceiling` bytes for its LAN sides.
    pub fn new(side: Side, local: Hello, ceiling: u64) -> Self {
        Self {
            side,
            local,
            remote: None,
            control: None,
            flows: HashMap::new(),
            by_id: HashMap::new(),
            early_aborts: BTreeMap::new(),
            next_id: 0,
            scheduler: Scheduler::default(),
            budget: Budget::new(ceiling),
            held: 0,
            meter: ReceiveMeter::default(),
            goaway: false,
            events: VecDeque::new(),
            chunks: Vec::new(),
            stats: TunnelStats::default(),
        }
    }

    /// The handshake is complete: the client opens the control stream and says HELLO.
    pub(crate) fn on_connected(&mut self, quic: &mut Connection) {
        if self.side == Side::Client
            && let Some(id) = quic.streams().open(Dir::Bi)
        {
            let mut control = ControlStream::new(quic, id, true);
            control.send(&Control::Hello(self.local.clone()));
            self.control = Some(control);
        }
    }

    /// Takes one of quinn's stream events.
    pub(crate) fn on_stream_event(
        &mut self,
        now: Instant,
        quic: &mut Connection,
        event: StreamEvent,
    ) -> Result<(), Fault> {
        match event {
            StreamEvent::Opened { dir: Dir::Bi } => {
                while let Some(id) = quic.streams().accept(Dir::Bi) {
                    self.on_accepted(now, quic, id)?;
                }
                Ok(())
            }
            StreamEvent::Readable { id } => self.on_readable(now, quic, id),
            StreamEvent::Writable { id } => {
                if let Some(flow) = self.flows.get_mut(&FlowKey::of(id)) {
                    flow.blocked = false;
                }
                self.schedule(FlowKey::of(id));
                Ok(())
            }
            StreamEvent::Stopped { id, error_code } => {
                self.on_stopped(quic, id, error_code);
                Ok(())
            }
            StreamEvent::Opened { .. }
            | StreamEvent::Finished { .. }
            | StreamEvent::Available { .. } => Ok(()),
        }
    }

    fn on_accepted(
        &mut self,
        now: Instant,
        quic: &mut Connection,
        id: StreamId,
    ) -> Result<(), Fault> {
        if self.side == Side::Client {
            return Err(Fault::Violation("server opened a stream"));
        }
        if id.index() == 0 {
            self.control = Some(ControlStream::new(quic, id, false));
        } else {
            let window = self.budget.adopt(self.local.initial_credit);
            let flow = Flow::new(
                Sender::new(Bytes::new(), 0),
                self.local.initial_credit,
                window,
            );
            self.flows.insert(FlowKey::of(id), flow);
        }
        self.on_readable(now, quic, id)
    }

    fn on_readable(
        &mut self,
        now: Instant,
        quic: &mut Connection,
        id: StreamId,
    ) -> Result<(), Fault> {
        if self
            .control
            .as_ref()
            .is_some_and(|control| control.id == id)
        {
            return self.read_control(quic);
        }
        let key = FlowKey::of(id);
        let Some(flow) = self.flows.get_mut(&key) else {
            // Data for a flow that is over here: throw it away.
            let _ = quic.recv_stream(id).stop(VarInt::from_u32(0));
            return Ok(());
        };
        let before = flow.receiver.memory();
        let outcome = flow.read(quic, id);
        self.held = (self.held + flow.receiver.memory()).saturating_sub(before);
        match outcome {
            Ok(bytes) => self.meter.on_received(now, bytes, quic.rtt()),
            Err(ReadFault::Credit(exceeded)) => return Err(exceeded.into()),
            Err(ReadFault::Reset) => {
                flow.recv_done = true;
                self.throw_away(quic, key, AbortCode::Reset);
                return Ok(());
            }
        }
        if flow.parse_header(self.side)? {
            self.on_header(quic, key)?;
        }
        self.notify(key);
        self.shed(quic);
        Ok(())
    }

    fn on_header(&mut self, quic: &mut Connection, key: FlowKey) -> Result<(), Fault> {
        let Some(flow) = self.flows.get_mut(&key) else {
            return Ok(());
        };
        match flow.header.clone() {
            Header::Open(open) => {
                if self.by_id.insert(open.flow, key).is_some() {
                    return Err(Fault::Violation("a flow id was used twice"));
                }
                flow.id = Some(open.flow);
                flow.sender.raise_limit(open.credit);
                self.stats.opened += 1;
                let aborted = self.early_aborts.remove(&open.flow);
                self.events
                    .push_back(TunnelEvent::Opened(key, Box::new(open)));
                if let Some((offset, code)) = aborted {
                    self.on_abort(quic, key, offset, code);
                }
            }
            Header::Reply(reply) if reply.code == ReplyCode::Ok => {
                flow.sender.raise_limit(reply.credit);
                self.schedule(key);
            }
            Header::Reply(_) => self.stats.refused += 1,
            Header::Expected => {}
        }
        Ok(())
    }

    fn read_control(&mut self, quic: &mut Connection) -> Result<(), Fault> {
        let Some(control) = &mut self.control else {
            return Ok(());
        };
        if !control.read(quic)? && !quic.is_closed() {
            return Err(Fault::Violation("the control stream ended"));
        }
        while let Some(frame) = self
            .control
            .as_mut()
            .map_or(Ok(None), ControlStream::next_frame)?
        {
            self.on_frame(quic, frame)?;
        }
        Ok(())
    }

    fn on_frame(&mut self, quic: &mut Connection, frame: Control) -> Result<(), Fault> {
        if self.remote.is_none() && !matches!(frame, Control::Hello(_)) {
            return Err(Fault::Violation("the first control frame is not HELLO"));
        }
        match frame {
            Control::Hello(_) if self.remote.is_some() => {
                return Err(Fault::Violation("a second HELLO"));
            }
            Control::Hello(hello) if hello.version != VERSION => {
                return Err(Fault::Version(hello.version));
            }
            Control::Hello(hello) => {
                self.remote = Some(hello);
                if self.side == Side::Server {
                    let hello = Control::Hello(self.local.clone());
                    self.send_control(&hello);
                }
                self.events.push_back(TunnelEvent::Ready);
            }
            Control::FlowCredit { flow, max_offset } => {
                if let Some(&key) = self.by_id.get(&flow)
                    && let Some(flow) = self.flows.get_mut(&key)
                {
                    flow.sender.raise_limit(max_offset);
                    self.schedule(key);
                }
            }
            Control::FlowAbort {
                flow,
                final_offset,
                code,
            } => match self.by_id.get(&flow) {
                Some(&key) => self.on_abort(quic, key, final_offset, code),
                None => self.keep_early_abort(flow, final_offset, code),
            },
            Control::Goaway => {
                self.goaway = true;
                self.events.push_back(TunnelEvent::Goaway);
            }
        }
        Ok(())
    }

    fn keep_early_abort(&mut self, flow: FlowId, offset: u64, code: AbortCode) {
        if self.side == Side::Server {
            if self.early_aborts.len() >= MAX_EARLY_ABORTS {
                self.early_aborts.pop_first();
            }
            self.early_aborts.insert(flow, (offset, code));
        }
    }

    /// The peer's LAN side was reset: deliver what it sent before, then reset ours.
    fn on_abort(&mut self, quic: &mut Connection, key: FlowKey, offset: u64, code: AbortCode) {
        let Some(flow) = self.flows.get_mut(&key) else {
            return;
        };
        flow.receiver.abort(offset, code);
        if !flow.send_done {
            flow.send_done = true;
            flow.sender.discard();
            let _ = quic.send_stream(key.stream()).reset(VarInt::from_u32(0));
        }
        self.notify(key);
        self.collect(key);
    }

    /// The peer wants no more of what we send on this stream.
    fn on_stopped(&mut self, quic: &mut Connection, id: StreamId, code: VarInt) {
        let _ = quic.send_stream(id).reset(code);
        let key = FlowKey::of(id);
        if let Some(flow) = self.flows.get_mut(&key) {
            flow.send_done = true;
            flow.sender.discard();
            self.notify(key);
            self.collect(key);
        }
    }

    /// Ends a flow without regard for its bytes; the relay will see [`Incoming::Gone`].
    fn throw_away(&mut self, quic: &mut Connection, key: FlowKey, code: AbortCode) {
        let Some(flow) = self.flows.get_mut(&key) else {
            return;
        };
        let before = flow.receiver.memory();
        flow.tear_down(quic, key.stream(), code);
        self.held = self.held.saturating_sub(before);
        flow.gone = true;
        self.notify(key);
        self.collect(key);
    }

    /// Last resort of the memory ceiling: the flow that holds most is reset.
    fn shed(&mut self, quic: &mut Connection) {
        while self.held > self.budget.ceiling() {
            let Some((&key, flow)) = self
                .flows
                .iter()
                .max_by_key(|(key, f)| (f.receiver.memory(), **key))
            else {
                return;
            };
            if let Some(flow) = flow.id {
                let frame = Control::FlowAbort {
                    flow,
                    final_offset: 0,
                    code: AbortCode::MemoryLimit,
                };
                self.send_control(&frame);
            }
            self.stats.shed += 1;
            self.throw_away(quic, key, AbortCode::MemoryLimit);
        }
    }

    // ---- LAN side -------------------------------------------------------------------------------

    /// Opens a flow (client). `first` are the bytes that travel with OPEN.
    pub fn open(
        &mut self,
        quic: &mut Connection,
        destination: Destination,
        source: Option<SocketAddr>,
        first: Bytes,
    ) -> Result<FlowKey, OpenError> {
        let Some(remote) = &self.remote else {
            return Err(OpenError::NotReady);
        };
        if self.goaway {
            return Err(OpenError::Draining);
        }
        if self.flows.len() as u64 >= remote.max_flows {
            return Err(OpenError::LimitReached);
        }
        let initial_credit = remote.initial_credit;
        let stream = quic
            .streams()
            .open(Dir::Bi)
            .ok_or(OpenError::LimitReached)?;
        let id = FlowId(self.next_id);
        self.next_id += 1;
        let window = self.budget.open(self.meter.bdp(quic.rtt()));
        let credit = window.announced();
        let mut header = Vec::with_capacity(64);
        Open {
            flow: id,
            destination,
            source,
            credit,
        }
        .encode(&mut header);
        let mut flow = Flow::new(Sender::new(header.into(), initial_credit), credit, window);
        flow.id = Some(id);
        self.stats.opened += 1;
        self.stats.lan_in += first.len() as u64;
        flow.sender.push(first);
        let key = FlowKey::of(stream);
        self.by_id.insert(id, key);
        self.flows.insert(key, flow);
        self.schedule(key);
        Ok(key)
    }

    /// Answers a flow (server); anything but [`ReplyCode::Ok`] also ends it.
    pub fn reply(
        &mut self,
        quic: &mut Connection,
        key: FlowKey,
        code: ReplyCode,
        bound: Option<SocketAddr>,
    ) {
        let Some(flow) = self.flows.get_mut(&key) else {
            return;
        };
        let mut header = Vec::with_capacity(32);
        Reply {
            code,
            bound,
            credit: flow.window.announced(),
        }
        .encode(&mut header);
        flow.sender.set_header(header.into());
        if code != ReplyCode::Ok {
            self.stats.refused += 1;
            flow.sender.finish();
            let before = flow.receiver.memory();
            flow.stop_reading(quic, key.stream(), VarInt::from_u32(0));
            self.held = self.held.saturating_sub(before);
            flow.released = true;
        }
        self.schedule(key);
    }

    /// The server's answer, once it came.
    pub fn reply_of(&self, key: FlowKey) -> Option<&Reply> {
        match &self.flows.get(&key)?.header {
            Header::Reply(reply) => Some(reply),
            Header::Open(_) | Header::Expected => None,
        }
    }

    /// Bytes that the LAN side may push now.
    pub fn capacity(&self, key: FlowKey) -> usize {
        self.flows.get(&key).map_or(0, |flow| {
            if flow.send_done {
                0
            } else {
                flow.sender.capacity()
            }
        })
    }

    /// Takes bytes read from the LAN.
    pub fn push(&mut self, key: FlowKey, data: Bytes) {
        if let Some(flow) = self.flows.get_mut(&key) {
            self.stats.lan_in += data.len() as u64;
            flow.sender.push(data);
            self.schedule(key);
        }
    }

    /// The LAN side sent FIN.
    pub fn finish(&mut self, key: FlowKey) {
        if let Some(flow) = self.flows.get_mut(&key) {
            flow.sender.finish();
            self.schedule(key);
        }
    }

    /// The LAN side was reset: its bytes so far still reach the other end, then the reset does.
    pub fn abort(&mut self, quic: &mut Connection, key: FlowKey, code: AbortCode) {
        let Some(flow) = self.flows.get_mut(&key) else {
            return;
        };
        let final_offset = flow.sender.abort(code);
        let before = flow.receiver.memory();
        flow.stop_reading(quic, key.stream(), VarInt::from_u32(0));
        self.held = self.held.saturating_sub(before);
        flow.released = true;
        if let Some(flow) = flow.id {
            self.send_control(&Control::FlowAbort {
                flow,
                final_offset,
                code,
            });
        }
        self.schedule(key);
        self.collect(key);
    }

    /// What the LAN side has to do next.
    pub fn incoming(&self, key: FlowKey) -> Incoming {
        self.flows.get(&key).map_or(Incoming::Gone, Flow::incoming)
    }

    /// The bytes that are next in order.
    pub fn ready(&self, key: FlowKey) -> impl Iterator<Item = &Bytes> {
        self.flows
            .get(&key)
            .into_iter()
            .flat_map(|flow| flow.receiver.ready())
    }

    /// The LAN side took `n` bytes; the peer gets credit for them.
    pub fn consume(&mut self, now: Instant, rtt: Duration, key: FlowKey, n: u64) {
        let Some(flow) = self.flows.get_mut(&key) else {
            return;
        };
        let before = flow.receiver.memory();
        flow.receiver.consume(n);
        self.held = (self.held + flow.receiver.memory()).saturating_sub(before);
        self.stats.lan_out += n;
        let bdp = self.meter.bdp(rtt).unwrap_or(0);
        if let Some(max_offset) = flow.window.on_consumed(now, n, rtt, bdp, &mut self.budget)
            && !flow.recv_done
        {
            flow.receiver.raise_limit(max_offset);
            if let Some(flow) = flow.id {
                self.send_control(&Control::FlowCredit { flow, max_offset });
            }
        }
    }

    /// The relay has taken this flow's event and will look at it.
    pub fn take_notice(&mut self, key: FlowKey) {
        if let Some(flow) = self.flows.get_mut(&key) {
            flow.notified = false;
        }
    }

    /// The relay is done with a flow whose both directions ended in order.
    pub fn release(&mut self, quic: &mut Connection, key: FlowKey) {
        if let Some(flow) = self.flows.get_mut(&key) {
            flow.released = true;
            if !flow.recv_done || flow.sender.end().is_none() {
                self.throw_away(quic, key, AbortCode::Internal);
            }
            self.collect(key);
        }
    }

    // ---- Sending --------------------------------------------------------------------------------

    /// Writes up to about `max` bytes into streams: control frames, then flows in turn. Returns how
    /// many were written.
    pub(crate) fn write(&mut self, quic: &mut Connection, max: usize, mtu: usize) -> usize {
        let mut written = self
            .control
            .as_mut()
            .map_or(0, |control| control.flush(quic));
        while written < max
            && let Some(key) = self.scheduler.pop()
        {
            // Alone, a flow fills the batch; among others it fills one packet.
            let share = if self.scheduler.is_empty() {
                max - written
            } else {
                mtu.min(max - written)
            };
            written += self.serve(quic, key, share);
        }
        written
    }

    fn serve(&mut self, quic: &mut Connection, key: FlowKey, share: usize) -> usize {
        let Some(flow) = self.flows.get_mut(&key) else {
            return 0;
        };
        flow.ticket = None;
        self.chunks.clear();
        let taken = flow.sender.take(share, &mut self.chunks);
        let mut stream = quic.send_stream(key.stream());
        let mut written = 0;
        if taken > 0 {
            match stream.write_chunks(&mut self.chunks) {
                Ok(done) => written = done.bytes,
                Err(WriteError::Blocked) => {}
                Err(WriteError::Stopped(_) | WriteError::ClosedStream) => {
                    flow.send_done = true;
                    flow.sender.discard();
                }
            }
            if written < taken && !flow.send_done {
                let rest = self.chunks.drain(..).filter(|chunk| !chunk.is_empty());
                flow.sender.put_back(rest.collect());
                flow.blocked = true;
            }
        }
        if flow.sender.is_drained() && flow.sender.end().is_some() && !flow.send_done {
            // After an abort the stream stays open until the peer stops it: a FIN could overtake
            // FLOW_ABORT and pass for a clean end.
            flow.send_done = true;
            if flow.sender.end() == Some(bentpipe_proto::relay::End::Fin) {
                let _ = stream.finish();
            }
            // An end is worth a packet even if no byte went with it.
            written = written.max(1);
        }
        if written > 0 {
            self.notify(key);
        }
        self.schedule(key);
        self.collect(key);
        written
    }

    /// True if [`Self::write`] would write something.
    pub(crate) fn has_output(&self) -> bool {
        !self.scheduler.is_empty() || self.control.as_ref().is_some_and(ControlStream::has_output)
    }

    fn send_control(&mut self, frame: &Control) {
        if let Some(control) = &mut self.control {
            control.send(frame);
        }
    }

    fn schedule(&mut self, key: FlowKey) {
        if let Some(flow) = self.flows.get_mut(&key)
            && flow.ticket.is_none()
            && flow.wants_service()
        {
            flow.ticket = Some(self.scheduler.add(key, flow.sender.written()));
        }
    }

    fn notify(&mut self, key: FlowKey) {
        if let Some(flow) = self.flows.get_mut(&key)
            && !flow.notified
            && !flow.released
        {
            flow.notified = true;
            self.events.push_back(TunnelEvent::Flow(key));
        }
    }

    /// Forgets a flow that is over.
    fn collect(&mut self, key: FlowKey) {
        if self.flows.get(&key).is_some_and(Flow::is_over)
            && let Some(flow) = self.flows.remove(&key)
        {
            self.held = self.held.saturating_sub(flow.receiver.memory());
            self.budget.close(&flow.window);
            if let Some(ticket) = flow.ticket {
                self.scheduler.remove(ticket);
            }
            if let Some(id) = flow.id {
                self.by_id.remove(&id);
            }
        }
    }

    // ---- Session --------------------------------------------------------------------------------

    /// Tells the peer that no more flows are opened or taken here.
    pub fn send_goaway(&mut self) {
        self.goaway = true;
        self.send_control(&Control::Goaway);
    }

    /// What happened since the last call.
    pub fn poll_event(&mut self) -> Option<TunnelEvent> {
        self.events.pop_front()
    }

    /// The peer's HELLO, once it came.
    pub fn remote(&self) -> Option<&Hello> {
        self.remote.as_ref()
    }

    /// The connection is over: every LAN side is to be reset.
    pub(crate) fn on_lost(&mut self) {
        let keys: Vec<_> = self.flows.keys().copied().collect();
        for key in keys {
            if let Some(flow) = self.flows.get_mut(&key) {
                flow.gone = true;
                flow.send_done = true;
                flow.recv_done = true;
                flow.sender.discard();
                flow.receiver.discard();
            }
            self.notify(key);
            self.collect(key);
        }
        self.held = 0;
    }

    /// True once either side drains.
    pub fn is_draining(&self) -> bool {
        self.goaway
    }

    /// Flows that exist now.
    pub fn flow_count(&self) -> usize {
        self.flows.len()
    }

    /// Counters.
    pub fn stats(&self) -> TunnelStats {
        self.stats
    }

    /// Memory held for LAN sides and its ceiling, in bytes.
    pub fn memory(&self) -> (u64, u64) {
        let sending: u64 = self.flows.values().map(|flow| flow.sender.memory()).sum();
        (self.held + sending, self.budget.ceiling())
    }
}
