//! All flows of one QUIC connection, and the control stream between the two ends.
//!
//! Events and frames come in from `engine/connection.rs`; LAN sides call [`Tunnel::push`],
//! [`Tunnel::consume`] and so on (`lan.rs`); `writer.rs` fills streams just before a datagram is built.
//! Decides nothing about time: rates and timers belong to the engine.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use bentpipe_proto::relay::{Budget, Scheduler, Sender};
use bentpipe_proto::tunnel::{
    AbortCode, Acks, Control, DecodeError, Families, FlowId, Forward, Hello, PacketKinds,
    ReplyCode, StreamKind, VERSION, capability,
};
use bentpipe_units::{BitRate, Seed};
use bytes::Bytes;
use ipnet::IpNet;
use quinn_proto::{Connection, Dir, Side, StreamEvent, StreamId, VarInt};

use super::again::Resumption;
use super::control::ControlStream;
use super::early::Early;
use super::event::{Carried, Fault, TunnelEvent, TunnelStats};
use super::flow::{Flow, FlowKey, Header, ReadFault};
use super::headers::Headers;
use super::memory::receiving_share;
use super::meter::ReceiveMeter;
use super::openings::Openings;
use super::packets::Packets;
use super::pool::{MemoryPool, Share};
use super::queries::{MAX_QUERIES, Queries};
use super::repair::Repairs;

/// The flows and the control stream of one connection.
pub struct Tunnel {
    pub(super) side: Side,
    local: Hello,
    pub(super) remote: Option<Hello>,
    pub(super) control: Option<ControlStream>,
    /// What waits in it is to come without fail.
    pub(super) pressing: bool,
    pub(super) flows: HashMap<FlowKey, Flow>,
    /// Keys of all flows, the oldest first: equal seeds give equal runs, whatever order a hash map has.
    pub(super) order: BTreeSet<FlowKey>,
    /// Flows that the peer may have open.
    limit: u64,
    /// Streams of the peer's that have not said what they are.
    pub(super) headers: Headers,
    /// How many of them the server has opened.
    pub(super) inbound: usize,
    pub(super) by_id: HashMap<FlowId, FlowKey>,
    early: Early,
    pub(super) openings: Openings,
    /// What the peer saw our last train of packets arrive at.
    rate_hint: Option<BitRate>,
    /// When the peer wants to be acknowledged, until the engine has taken that.
    pub(super) ack_wish: Option<Acks>,
    pub(super) next_id: u64,
    pub(super) scheduler: Scheduler<FlowKey>,
    pub(super) queries: Queries,
    pub(super) packets: Packets,
    /// Bytes by which flows have been served more than packets while both waited.
    pub(super) ahead: i64,
    /// Memory for all LAN sides together, in bytes.
    pub(super) ceiling: u64,
    pub(super) budget: Budget,
    /// Memory for all tunnels, and what this one holds of it, once the peer is known.
    pub(super) pool: Arc<MemoryPool>,
    pub(super) share: Option<Share>,
    /// Memory held in all receivers, in bytes.
    pub(super) held: u64,
    /// Memory held in all senders, in bytes.
    pub(super) sending: u64,
    pub(super) meter: ReceiveMeter,
    pub(super) repairs: Repairs,
    pub(super) resumption: Resumption,
    pub(super) goaway: bool,
    /// The server's HELLO has been said.
    greeted: bool,
    pub(super) events: VecDeque<TunnelEvent>,
    pub(super) chunks: Vec<Bytes>,
    pub(super) stats: TunnelStats,
}

impl Tunnel {
    /// A tunnel that announces `local` and may hold `ceiling` bytes for its LAN sides.
    pub fn new(side: Side, mut local: Hello, ceiling: u64, seed: Seed) -> Self {
        local.capabilities |= capability::ACKS;
        Self {
            side,
            limit: local.max_flows,
            local,
            remote: None,
            control: None,
            pressing: false,
            flows: HashMap::new(),
            order: BTreeSet::new(),
            headers: Headers::default(),
            inbound: 0,
            by_id: HashMap::new(),
            early: Early::default(),
            openings: Openings::new(side),
            rate_hint: None,
            ack_wish: None,
            next_id: match side {
                Side::Client => 0,
                Side::Server => FlowId::OF_SERVER.0,
            },
            scheduler: Scheduler::default(),
            queries: Queries::default(),
            packets: Packets::new(ceiling, seed),
            ahead: 0,
            ceiling,
            budget: Budget::new(receiving_share(ceiling)),
            pool: Arc::default(),
            share: None,
            held: 0,
            sending: 0,
            meter: ReceiveMeter::default(),
            repairs: Repairs::default(),
            resumption: Resumption::default(),
            goaway: false,
            greeted: false,
            events: VecDeque::new(),
            chunks: Vec::new(),
            stats: TunnelStats::default(),
        }
    }

    /// The handshake is complete: the client opens the control stream and says HELLO.
    pub(crate) fn on_connected(&mut self, quic: &mut Connection) {
        self.share = Some(Share::of(self.pool.clone()));
        if self.side == Side::Client
            && let Some(id) = self.openings.open(quic)
        {
            let mut control = ControlStream::new(quic, id, true);
            let mut hello = self.local.clone();
            self.announce_repairs(&mut hello);
            control.send(&Control::Hello(hello));
            self.control = Some(control);
        }
    }

    /// Server: answers the client's HELLO; `forward` is what it is granted.
    pub(crate) fn greet(&mut self, forward: Forward) {
        let mut hello = self.local.clone();
        hello.forward = forward;
        self.greeted = true;
        self.announce_repairs(&mut hello);
        self.send_control(&Control::Hello(hello));
    }

    /// A DATAGRAM frame came, in an IP packet that was `marked` "congestion experienced" or not. Each kind has one taker.
    pub(crate) fn on_datagram(&mut self, now: Instant, content: &Bytes, marked: bool) {
        self.on_repair(content);
        self.on_resumption(content);
        self.on_packets(now, content, marked);
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
            }
            StreamEvent::Readable { id } => self.on_readable(now, quic, id)?,
            StreamEvent::Writable { id } => {
                if let Some(flow) = self.flows.get_mut(&FlowKey::of(id)) {
                    flow.blocked = false;
                }
                self.schedule(FlowKey::of(id));
                self.on_query_writable(id);
            }
            StreamEvent::Stopped { id, error_code } => self.on_stopped(quic, id, error_code),
            StreamEvent::Available { dir: Dir::Bi } => self.open_waiting(quic),
            StreamEvent::Opened { .. }
            | StreamEvent::Finished { .. }
            | StreamEvent::Available { .. } => {}
        }
        // What a peer does makes us answer; one that takes no answers must not fill our memory with them.
        match &self.control {
            Some(control) if control.is_stuck() => {
                Err(Fault::Violation("the control stream is not read"))
            }
            _ => Ok(()),
        }
    }

    fn on_accepted(
        &mut self,
        now: Instant,
        quic: &mut Connection,
        id: StreamId,
    ) -> Result<(), Fault> {
        // Before HELLO nothing is agreed either.
        if self.side == Side::Client && !self.publishes() {
            return Err(Fault::Violation("server opened a stream"));
        }
        if self.side == Side::Server && id.index() == 0 {
            self.control = Some(ControlStream::new(quic, id, false));
            return self.on_readable(now, quic, id);
        }
        if self.of_peer() as u64 >= self.limit.saturating_add(MAX_QUERIES as u64) {
            refuse(quic, id);
            return Ok(());
        }
        let window = self.budget.adopt(self.local.initial_credit);
        let flow = Flow::new(
            Sender::new(Bytes::new(), 0),
            self.local.initial_credit,
            window,
            false,
        );
        let key = FlowKey::of(id);
        self.enter(key, flow);
        self.on_readable(now, quic, id)?;
        // Most have said what they are in their first packet.
        if self.is_headless(key) {
            self.headers.expect(now, key);
        }
        Ok(())
    }

    /// Flows that the peer has opened, whatever has come of them.
    fn of_peer(&self) -> usize {
        match self.side {
            Side::Client => self.inbound,
            Side::Server => self.flows.len() - self.inbound,
        }
    }

    /// The peer may have so many flows open; streams beyond that are refused whatever they bring.
    pub fn set_max_flows(&mut self, limit: u64) {
        self.limit = limit;
    }

    /// A flow that is new.
    pub(super) fn enter(&mut self, key: FlowKey, flow: Flow) {
        self.inbound += usize::from(key.is_inbound());
        self.order.insert(key);
        self.flows.insert(key, flow);
    }

    /// Takes a flow out.
    pub(super) fn leave(&mut self, key: FlowKey) -> Option<Flow> {
        let flow = self.flows.remove(&key)?;
        self.inbound = self.inbound.saturating_sub(usize::from(key.is_inbound()));
        self.order.remove(&key);
        self.headers.forget(key);
        self.budget.close(&flow.window);
        if let Some(ticket) = flow.ticket {
            self.scheduler.remove(ticket);
        }
        if let Some(id) = flow.id {
            self.by_id.remove(&id);
        }
        Some(flow)
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
        if self.queries.knows(id) {
            return self.read_query(quic, id);
        }
        let key = FlowKey::of(id);
        let Some(flow) = self.flows.get_mut(&key) else {
            // Data for a flow that is over here: throw it away.
            let _ = quic.recv_stream(id).stop(VarInt::from_u32(0));
            return Ok(());
        };
        let (before, had) = (flow.receiver.memory(), flow.receiver.taken());
        let outcome = flow.read(quic, id, &mut self.repairs.incoming);
        self.held = (self.held + flow.receiver.memory()).saturating_sub(before);
        match outcome {
            Ok(bytes) => {
                self.stats.received.flows += flow.receiver.taken() - had;
                self.meter.on_received(now, bytes, quic.rtt());
            }
            Err(ReadFault::Credit(exceeded)) => return Err(exceeded.into()),
            Err(ReadFault::Reset) => {
                flow.recv_done = true;
                self.throw_away(quic, key, AbortCode::Reset);
                return Ok(());
            }
        }
        self.on_bytes(now, quic, key)
    }

    /// A flow has brought something.
    pub(super) fn on_bytes(
        &mut self,
        now: Instant,
        quic: &mut Connection,
        key: FlowKey,
    ) -> Result<(), Fault> {
        let Some(flow) = self.flows.get_mut(&key) else {
            return Ok(());
        };
        let before = flow.receiver.memory();
        let parsed = flow.parse_header(self.side);
        self.held = (self.held + flow.receiver.memory()).saturating_sub(before);
        match parsed {
            Err(DecodeError::StreamKind(kind))
                if kind == StreamKind::Dns.code() && self.side == Side::Server =>
            {
                if !self.adopt_query(quic, key) {
                    self.throw_away(quic, key, AbortCode::Unsupported);
                }
                return Ok(());
            }
            Err(DecodeError::StreamKind(kind)) if kind != StreamKind::Control.code() => {
                self.throw_away(quic, key, AbortCode::Unsupported);
                return Ok(());
            }
            parsed => {
                if parsed? {
                    self.headers.forget(key);
                    self.on_header(quic, key)?;
                }
            }
        }
        let flow = self.flows.get(&key);
        let headless = |flow: &Flow| flow.receiver.is_whole() && flow.header == Header::Expected;
        if flow.is_some_and(|flow| flow.recv_done && headless(flow)) {
            return Err(Fault::Violation("a flow ended inside its header"));
        }
        self.on_arrived(now, quic.rtt(), key);
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
                let (id, credit) = (open.flow, open.credit);
                let event = TunnelEvent::Opened(key, Box::new(open));
                self.on_opened(quic, key, (id, credit), event)?;
            }
            Header::Inbound(inbound) => {
                let (id, credit) = (inbound.flow, inbound.credit);
                let event = TunnelEvent::Inbound(key, Box::new(inbound));
                self.on_opened(quic, key, (id, credit), event)?;
            }
            Header::Reply(reply) if reply.code == ReplyCode::Ok => {
                flow.sender.raise_limit(reply.credit);
                self.schedule(key);
            }
            Header::Reply(reply) => {
                self.stats.refused += 1;
                self.stats.refusals.count(reply.code);
            }
            Header::Expected => {}
        }
        Ok(())
    }

    /// The peer has opened the flow `id`, of which `event` tells, and gives `credit`.
    fn on_opened(
        &mut self,
        quic: &mut Connection,
        key: FlowKey,
        (id, credit): (FlowId, u64),
        event: TunnelEvent,
    ) -> Result<(), Fault> {
        if id.is_inbound() != key.is_inbound() {
            return Err(Fault::Violation("a flow id of the other side's"));
        }
        if self.by_id.insert(id, key).is_some() {
            return Err(Fault::Violation("a flow id was used twice"));
        }
        let said = self.early.take(id);
        if let Some(flow) = self.flows.get_mut(&key) {
            flow.id = Some(id);
            let credit = credit.max(said.credit.unwrap_or(0));
            flow.sender.raise_limit(credit);
        }
        self.stats.opened += 1;
        self.events.push_back(event);
        if let Some((offset, code)) = said.abort {
            self.on_abort(quic, key, offset, code);
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
            // A client names the highest version it speaks, a server the one it has chosen.
            Control::Hello(hello)
                if hello.version < VERSION
                    || (self.side == Side::Client && hello.version > VERSION) =>
            {
                return Err(Fault::Version(hello.version));
            }
            Control::Hello(hello) => {
                self.remote = Some(hello);
                self.events.push_back(TunnelEvent::Ready);
            }
            Control::FlowCredit { flow, max_offset } => {
                if let Some(&key) = self.by_id.get(&flow)
                    && let Some(flow) = self.flows.get_mut(&key)
                {
                    flow.sender.raise_limit(max_offset);
                    self.schedule(key);
                } else if self.opens(flow) {
                    self.early.on_credit(flow, max_offset);
                }
            }
            Control::FlowAbort {
                flow,
                final_offset,
                code,
            } => match self.by_id.get(&flow) {
                Some(&key) => self.on_abort(quic, key, final_offset, code),
                None if self.opens(flow) => {
                    self.early.on_abort(flow, final_offset, code);
                }
                None => {}
            },
            Control::Publish(publish) => self.on_publish(publish)?,
            Control::Published { entry, code } => self.on_published(entry, code)?,
            Control::Enrol { key } => self.on_enrol(key)?,
            Control::Enrolled { code, at } => self.on_enrolled(code, at)?,
            Control::Keep { bytes } => self.on_keep(bytes),
            Control::Acks(acks) => self.ack_wish = Some(acks),
            Control::Goaway => {
                self.goaway = true;
                self.events.push_back(TunnelEvent::Goaway);
            }
            Control::Families(families) => self.on_families(families),
            Control::RateHint { rate, packets } => {
                if packets > 1 {
                    self.rate_hint = Some(rate);
                }
            }
        }
        Ok(())
    }

    /// The server reaches other address families than its HELLO has said.
    fn on_families(&mut self, families: Families) {
        if self.side == Side::Client
            && let Some(remote) = &mut self.remote
            && std::mem::replace(&mut remote.families, families) != families
        {
            self.events.push_back(TunnelEvent::Families);
        }
    }

    /// `flow` is one that the peer opens.
    fn opens(&self, flow: FlowId) -> bool {
        flow.is_inbound() == (self.side == Side::Client)
    }

    /// The peer's LAN side was reset: deliver what it sent before, then reset ours.
    fn on_abort(&mut self, quic: &mut Connection, key: FlowKey, offset: u64, code: AbortCode) {
        let Some(flow) = self.flows.get_mut(&key) else {
            return;
        };
        flow.receiver.abort(offset, code);
        if !flow.send_done {
            flow.send_done = true;
            self.sending = self.sending.saturating_sub(flow.sender.memory());
            flow.sender.discard();
            let _ = quic.send_stream(key.stream()).reset(VarInt::from_u32(0));
        }
        self.notify(key);
        self.collect(key);
    }

    /// The peer wants no more of what we send on this stream. Why, and how the flow ends, REPLY or FLOW_ABORT says: either
    /// may come later, and bytes before that end still count.
    fn on_stopped(&mut self, quic: &mut Connection, id: StreamId, code: VarInt) {
        if self.queries.knows(id) {
            return self.on_query_stopped(quic, id);
        }
        let _ = quic.send_stream(id).reset(code);
        let key = FlowKey::of(id);
        self.repairs.outgoing.on_reset(key.0);
        if let Some(flow) = self.flows.get_mut(&key) {
            flow.send_done = true;
            self.sending = self.sending.saturating_sub(flow.sender.memory());
            flow.sender.discard();
            self.notify(key);
            self.collect(key);
        }
    }

    /// Tells the peer that no more flows are opened or taken here.
    pub fn send_goaway(&mut self) {
        self.goaway = true;
        self.send_control(&Control::Goaway);
    }

    /// What happened since the last call.
    pub fn poll_event(&mut self) -> Option<TunnelEvent> {
        self.events.pop_front()
    }

    /// True if [`Self::poll_event`] has something.
    pub(crate) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// What the peer saw our train arrive at (IP layer), if it has just said so.
    pub(crate) fn take_rate_hint(&mut self) -> Option<BitRate> {
        self.rate_hint.take()
    }

    /// This side's HELLO.
    pub fn local(&self) -> &Hello {
        &self.local
    }

    /// Server, before it greets: how packets cross for this client. Without addresses they do not.
    pub fn set_packets(&mut self, assigned: Vec<IpAddr>, routed: Vec<IpNet>, carried: PacketKinds) {
        self.local.capabilities &= !capability::PACKETS;
        if !assigned.is_empty() {
            self.local.capabilities |= capability::PACKETS;
        }
        (self.local.assigned, self.local.routed) = (assigned, routed);
        self.local.carried = carried;
    }

    /// Server: which address families it reaches from now on. The client is told, in HELLO or after it.
    pub fn set_families(&mut self, families: Families) {
        let before = std::mem::replace(&mut self.local.families, families);
        if self.greeted && before != families {
            self.send_control(&Control::Families(families));
        }
    }

    /// The peer's HELLO, once it came.
    pub fn remote(&self) -> Option<&Hello> {
        self.remote.as_ref()
    }

    /// The connection is over: every LAN side is to be reset.
    pub(crate) fn on_lost(&mut self) {
        for key in self.order.clone() {
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
        (self.held, self.sending) = (0, 0);
        self.lose_queries();
        self.headers = Headers::default();
        self.share = None;
    }

    /// Both sides understand what this bit of the capabilities stands for.
    pub(super) fn has(&self, bit: u64) -> bool {
        let theirs = self.remote.as_ref().map_or(0, |hello| hello.capabilities);
        self.local.capabilities & theirs & bit != 0
    }

    /// True once either side drains.
    pub fn is_draining(&self) -> bool {
        self.goaway
    }

    /// Flows that exist now.
    pub fn flow_count(&self) -> usize {
        self.flows.len()
    }

    /// Bytes that came in streams.
    pub(crate) fn received(&self) -> Carried {
        Carried {
            control: self.control.as_ref().map_or(0, ControlStream::taken),
            ..self.stats.received
        }
    }

    /// Counters.
    pub fn stats(&self) -> TunnelStats {
        self.stats
    }
}

/// Ends a stream of the peer's of which nothing is kept.
pub(super) fn refuse(quic: &mut Connection, id: StreamId) {
    let code = VarInt::from_u64(AbortCode::MemoryLimit.code()).unwrap_or_default();
    let _ = quic.send_stream(id).reset(code);
    let _ = quic.recv_stream(id).stop(code);
}
