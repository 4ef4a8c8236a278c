//! Everything that one peer and this side have with each other: flows, packets, published ports, enrolment.
//!
//! A tunnel knows no stream but those of its flows, which it reaches through [`Streams`]; control frames wait in its outbox
//! until the lane takes them. LAN sides call what is in `lan.rs`, the lane what is in `carriage.rs`. Nothing here decides
//! about time: rates and timers belong to the engine.

mod agreement;
mod carriage;
mod early;
mod flow;
mod flows;
mod lan;
mod memory;
mod outbox;
mod packets;
mod pool;
mod stream;
mod turns;

use std::collections::VecDeque;
use std::sync::Arc;

use bentpipe_proto::tunnel::{
    AbortCode, Control, ENROL_KEY, EnrolCode, Families, FlowId, Forward, Hello, MAX_PUBLISHED,
    Publish, PublishCode,
};
use bentpipe_units::Seed;
use quinn_proto::Side;

use super::event::{Fault, TunnelEvent, TunnelStats};
use super::key::FlowKey;
use super::streams::Streams;
use early::Early;
use flow::Flow;
use flows::Flows;
use memory::Ceilings;
use packets::Packets;
use turns::Turns;

pub use agreement::{Agreement, LesAccord};
pub(super) use carriage::Said;
pub use flow::Incoming;
pub(super) use outbox::Outbox;
pub use packets::PacketStats;
pub(super) use packets::Twice;
pub use pool::MemoryPool;
pub(super) use stream::{Piece, ReadFault, drain};
pub(super) use turns::{Rivals, Turn};

/// A search for the flows that hold most frees this for each flow that it looks at, in bytes.
const SEARCHED: u64 = 64;

/// Tunnel between this side and one peer.
pub struct Tunnel {
    side: Side,
    agreement: Agreement,
    goaway: bool,
    /// Flows that the peer may have open.
    limit: u64,
    flows: Flows,
    early: Early,
    packets: Packets,
    turns: Turns,
    ceilings: Ceilings,
    outbox: Outbox,
    events: VecDeque<TunnelEvent>,
    stats: TunnelStats,
}

impl Tunnel {
    /// A tunnel that announces `local` and may hold `ceiling` bytes for its LAN sides, of the memory of `pool`.
    pub fn new(side: Side, local: Hello, ceiling: u64, pool: Arc<MemoryPool>, seed: Seed) -> Self {
        let ceilings = Ceilings::new(ceiling, pool);
        Self {
            side,
            limit: local.max_flows,
            agreement: Agreement::new(side, local),
            goaway: false,
            flows: Flows::new(side, ceilings.receiving()),
            early: Early::default(),
            packets: Packets::new(ceiling, seed),
            turns: Turns::default(),
            ceilings,
            outbox: Outbox::default(),
            events: VecDeque::new(),
            stats: TunnelStats::default(),
        }
    }

    /// Abilities that both ends have named.
    pub fn agreement(&self) -> &Agreement {
        &self.agreement
    }

    /// Abilities of this end, for the shell to add to before they are named.
    pub fn agreement_mut(&mut self) -> &mut Agreement {
        &mut self.agreement
    }

    /// Memory for all LAN sides together, in bytes.
    pub(super) fn ceiling(&self) -> u64 {
        self.ceilings.own()
    }

    /// The handshake is complete.
    pub(super) fn on_connected(&mut self) {
        self.ceilings.join();
    }

    /// Server: its HELLO, which grants the client `forward`.
    pub(super) fn greet(&mut self, forward: Forward) -> Hello {
        self.agreement.greet(forward)
    }

    /// Takes a control frame that concerns more than the lane on which it came.
    pub(super) fn on_frame(&mut self, quic: &mut Streams, frame: Control) -> Result<(), Fault> {
        match frame {
            Control::Hello(hello) => {
                self.agreement.on_hello(hello)?;
                self.events.push_back(TunnelEvent::Ready);
            }
            Control::FlowCredit { flow, max_offset } => match self.flows.find(flow) {
                Some(key) => {
                    self.flows
                        .edit(key, |flow| flow.sender.raise_limit(max_offset));
                }
                None if self.opens(flow) => self.early.on_credit(flow, max_offset),
                None => {}
            },
            Control::FlowAbort {
                flow,
                final_offset,
                code,
            } => match self.flows.find(flow) {
                Some(key) => self.on_abort(quic, key, final_offset, code),
                None if self.opens(flow) => {
                    self.early.on_abort(self.limit, flow, (final_offset, code));
                }
                None => {}
            },
            Control::Publish(publish) => return self.on_publish(publish),
            Control::Published { entry, code } => return self.on_published(entry, code),
            Control::Enrol { key } => return self.on_enrol(key),
            Control::Enrolled { code, at } => return self.on_enrolled(code, at),
            Control::SleEpoch { epoch, random } => {
                self.agreement.on_sle_epoch(epoch, random.is_some())?;
                self.events.push_back(TunnelEvent::SleEpoch(epoch, random));
            }
            Control::Les(kind, body) => {
                self.agreement.on_les(kind)?;
                self.events.push_back(TunnelEvent::Les(kind, body));
            }
            Control::Goaway => {
                self.goaway = true;
                self.events.push_back(TunnelEvent::Goaway);
            }
            Control::Families(families) => {
                if self.agreement.on_families(families) {
                    self.events.push_back(TunnelEvent::Families);
                }
            }
            // Of the lane.
            Control::Keep { .. } | Control::Acks(_) | Control::RateHint { .. } => {}
        }
        Ok(())
    }

    /// `flow` is one that the peer opens.
    fn opens(&self, flow: FlowId) -> bool {
        flow.is_inbound() == (self.side == Side::Client)
    }

    /// The peer may have so many flows open; streams beyond that are refused whatever they bring.
    pub fn set_max_flows(&mut self, limit: u64) {
        self.limit = limit;
    }

    /// Holds at most `ceiling` bytes from now on: known only once the peer is.
    pub fn set_memory(&mut self, ceiling: u64) {
        self.ceilings.set_own(ceiling);
        self.flows.set_ceiling(self.ceilings.receiving());
    }

    /// Server: reaches these address families from now on. The client is told, in HELLO or after it.
    pub fn set_families(&mut self, families: Families) {
        if self.agreement.set_families(families) {
            self.outbox.send(&Control::Families(families));
        }
    }

    fn on_publish(&mut self, publish: Publish) -> Result<(), Fault> {
        if self.side == Side::Client
            || !self.agreement.publishes()
            || publish.entry >= MAX_PUBLISHED
        {
            return Err(Fault::Violation("a port that cannot be asked for"));
        }
        self.events.push_back(TunnelEvent::Publish(publish));
        Ok(())
    }

    fn on_published(&mut self, entry: u64, code: PublishCode) -> Result<(), Fault> {
        if self.side == Side::Server || !self.agreement.publishes() {
            return Err(Fault::Violation(
                "an answer about a port that nobody asked for",
            ));
        }
        self.events.push_back(TunnelEvent::Published(entry, code));
        Ok(())
    }

    fn on_enrol(&mut self, key: [u8; ENROL_KEY]) -> Result<(), Fault> {
        if self.side == Side::Client {
            return Err(Fault::Violation("a server that wants to enrol"));
        }
        self.events.push_back(TunnelEvent::Enrol(key));
        Ok(())
    }

    fn on_enrolled(&mut self, code: EnrolCode, at: u64) -> Result<(), Fault> {
        if self.side == Side::Server {
            return Err(Fault::Violation("a client that enrols its server"));
        }
        self.events.push_back(TunnelEvent::Enrolled(code, at));
        Ok(())
    }

    /// Next event since the last call.
    pub fn poll_event(&mut self) -> Option<TunnelEvent> {
        self.events.pop_front()
    }

    /// True if [`Self::poll_event`] has something.
    pub(crate) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Something happened on a lane that the shell has to act on.
    pub(super) fn report(&mut self, event: TunnelEvent) {
        self.events.push_back(event);
    }

    /// Flows that exist now.
    pub fn flow_count(&self) -> usize {
        self.flows.len()
    }

    /// Memory held for LAN sides and its ceiling, in bytes.
    pub fn memory(&self) -> (u64, u64) {
        debug_assert_eq!(self.flows.held(), self.flows.recount());
        (self.flows.held().total(), self.ceilings.own())
    }

    /// Counters.
    pub fn stats(&self) -> TunnelStats {
        self.stats
    }

    /// Counters, to add what a lane has carried.
    pub(super) fn stats_mut(&mut self) -> &mut TunnelStats {
        &mut self.stats
    }

    /// Counters of packets.
    pub fn packet_stats(&self) -> PacketStats {
        self.packets.stats()
    }

    /// Ends a flow without regard for its bytes; the relay will see [`super::Incoming::Gone`].
    pub(in crate::transport) fn throw_away(
        &mut self,
        quic: &mut Streams,
        key: FlowKey,
        code: AbortCode,
    ) {
        let stream = key.stream();
        let headless = self.is_headless(key);
        if headless {
            quic.headers.forget(stream);
        }
        // Of a flow that is forgotten with this its relay is not told: it has let go, or never knew.
        let notice = self.flows.edit(key, |flow| {
            flow.throw_away(quic, stream, code);
            flow.notify()
        });
        if notice == Some(true) {
            self.events.push_back(TunnelEvent::Flow(key));
        }
    }

    /// This side ends the connection: every LAN side is to be reset.
    pub(in crate::transport) fn on_closed(&mut self) {
        self.lose(self.flows.keys().iter().copied().collect());
    }

    /// The connection is over: LAN sides are to be reset, but those whose flow has crossed whole. What came of these is
    /// delivered as if the tunnel still stood.
    pub(in crate::transport) fn on_lost(&mut self) {
        self.lose(self.flows.cut_off());
    }

    fn lose(&mut self, flows: Vec<FlowKey>) {
        for key in flows {
            let notice = self.flows.edit(key, |flow| {
                flow.lose();
                flow.notify()
            });
            if notice == Some(true) {
                self.events.push_back(TunnelEvent::Flow(key));
            }
        }
        self.flows.forget_unacknowledged();
        if !self.flows.are_delivered() {
            self.ceilings.leave();
        }
    }

    /// True while a LAN side takes what has come, after the connection is over as well.
    pub(crate) fn delivers(&self) -> bool {
        self.flows.are_delivered()
    }

    /// True once no flow is open, and the peer has acknowledged the end of each.
    pub fn is_idle(&self) -> bool {
        self.flows.len() == 0 && self.flows.is_acknowledged()
    }

    /// Resets the flows that hold most if receivers hold more than they may together: the last resort.
    pub(in crate::transport) fn shed(&mut self, quic: &mut Streams) {
        let (held, most) = (self.flows.held().received, self.ceilings.receiving());
        if held > most {
            self.reset_largest(quic, held - most, |flow| flow.receiver.memory());
        }
    }

    /// Promises new flows no more than other tunnels leave.
    pub(in crate::transport) fn promise_less(&mut self) {
        self.flows.set_ceiling(self.ceilings.promised());
    }

    /// Tells the others of the process what the tunnel holds, with `kept` bytes of its lane. Returns the bytes above what it may
    /// hold. What is in flight does not count: congestion control bounds it.
    pub(in crate::transport) fn excess(&mut self, kept: u64) -> u64 {
        let footprint = self.flows.held().total() + kept;
        self.ceilings.tell(footprint + self.packets.memory() as u64);
        footprint.saturating_sub(self.ceilings.allowance())
    }

    /// Bytes that the tunnel may hold beside what it holds, with `kept` bytes of its lane.
    pub(in crate::transport) fn room(&self, kept: u64) -> u64 {
        let footprint = self.flows.held().total() + kept;
        self.ceilings.allowance().saturating_sub(footprint)
    }

    /// Resets the flows that hold most until `excess` bytes are free, for other tunnels.
    pub(in crate::transport) fn give_way(&mut self, quic: &mut Streams, excess: u64) {
        self.reset_largest(quic, excess, |flow| {
            flow.receiver.memory() + flow.sender.memory()
        });
    }

    /// Resets the flows of which `memory` is most, until `excess` bytes are free, and some more if there are many flows: to
    /// look at all of them for each chunk that is too much would cost more than the chunk.
    fn reset_largest(&mut self, quic: &mut Streams, excess: u64, memory: impl Fn(&Flow) -> u64) {
        let mut left = excess + SEARCHED * self.flows.len() as u64;
        let mut largest = self.flows.by_size(memory);
        while left > 0
            && let Some((held, key)) = largest.pop()
        {
            if let Some(flow) = self.flows.get(key).and_then(|flow| flow.id) {
                self.outbox.send(&Control::FlowAbort {
                    flow,
                    final_offset: 0,
                    code: AbortCode::MemoryLimit,
                });
            }
            self.stats.shed += 1;
            self.throw_away(quic, key, AbortCode::MemoryLimit);
            left = left.saturating_sub(held);
        }
    }
}
