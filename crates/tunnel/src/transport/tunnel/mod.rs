//! Everything that one peer and this side have with each other: flows, packets, published ports, enrolment.
//!
//! A tunnel knows no stream but those of its flows, which it reaches through [`Streams`]; control frames wait in its outbox
//! until the lane takes them. LAN sides call what is in `lan.rs`, the lane what is in `carriage.rs`. Nothing here decides
//! about time: rates and timers belong to the engine.

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
use std::net::IpAddr;
use std::sync::Arc;

use bentpipe_proto::tunnel::{
    AbortCode, Control, ENROL_KEY, EnrolCode, Families, FlowId, Forward, Hello, MAX_PUBLISHED,
    PacketKinds, Publish, PublishCode, VERSION, capability,
};
use bentpipe_units::Seed;
use ipnet::IpNet;
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

pub(super) use carriage::{Rivals, Said};
pub use flow::Incoming;
pub(super) use outbox::Outbox;
pub use packets::PacketStats;
pub(super) use packets::Twice;
pub use pool::MemoryPool;
pub(super) use stream::{Piece, ReadFault, drain};
pub(super) use turns::Turn;

/// A search for the flows that hold most frees this for each flow that it looks at, in bytes.
const SEARCHED: u64 = 64;

/// Tunnel between this side and one peer.
pub struct Tunnel {
    side: Side,
    local: Hello,
    remote: Option<Hello>,
    /// The server's HELLO has been said.
    greeted: bool,
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
    pub fn new(
        side: Side,
        mut local: Hello,
        ceiling: u64,
        pool: Arc<MemoryPool>,
        seed: Seed,
    ) -> Self {
        local.capabilities |= capability::ACKS;
        let ceilings = Ceilings::new(ceiling, pool);
        Self {
            side,
            limit: local.max_flows,
            local,
            remote: None,
            greeted: false,
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

    /// HELLO of this side.
    pub fn local(&self) -> &Hello {
        &self.local
    }

    /// The peer's HELLO, once it came.
    pub fn remote(&self) -> Option<&Hello> {
        self.remote.as_ref()
    }

    /// Both sides understand what this bit of the capabilities stands for.
    pub(super) fn has(&self, bit: u64) -> bool {
        let theirs = self.remote.as_ref().map_or(0, |hello| hello.capabilities);
        self.local.capabilities & theirs & bit != 0
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
        self.greeted = true;
        Hello {
            forward,
            ..self.local.clone()
        }
    }

    /// The peer's first frame.
    fn on_hello(&mut self, hello: Hello) -> Result<(), Fault> {
        if self.remote.is_some() {
            return Err(Fault::Violation("a second HELLO"));
        }
        // A client names the highest version it speaks, a server the one it has chosen.
        if hello.version < VERSION || (self.side == Side::Client && hello.version > VERSION) {
            return Err(Fault::Version(hello.version));
        }
        self.remote = Some(hello);
        self.events.push_back(TunnelEvent::Ready);
        Ok(())
    }

    /// Takes a control frame that concerns more than the lane on which it came.
    pub(super) fn on_frame(&mut self, quic: &mut Streams, frame: Control) -> Result<(), Fault> {
        match frame {
            Control::Hello(hello) => return self.on_hello(hello),
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
                None if self.opens(flow) => self.early.on_abort(flow, final_offset, code),
                None => {}
            },
            Control::Publish(publish) => return self.on_publish(publish),
            Control::Published { entry, code } => return self.on_published(entry, code),
            Control::Enrol { key } => return self.on_enrol(key),
            Control::Enrolled { code, at } => return self.on_enrolled(code, at),
            Control::SleEpoch { epoch, random } => return self.on_sle_epoch(epoch, random),
            Control::Les(kind, body) => return self.on_les(kind, body),
            Control::Goaway => {
                self.goaway = true;
                self.events.push_back(TunnelEvent::Goaway);
            }
            Control::Families(families) => self.on_families(families),
            // Of the lane.
            Control::Keep { .. } | Control::Acks(_) | Control::RateHint { .. } => {}
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

    /// The peer may have so many flows open; streams beyond that are refused whatever they bring.
    pub fn set_max_flows(&mut self, limit: u64) {
        self.limit = limit;
    }

    /// Holds at most `ceiling` bytes from now on: known only once the peer is.
    pub fn set_memory(&mut self, ceiling: u64) {
        self.ceilings.set_own(ceiling);
        self.flows.set_ceiling(self.ceilings.receiving());
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
            self.outbox.send(&Control::Families(families));
        }
    }

    /// True if the peer heeds ACKS (`PROTOCOL.md` §5.7).
    pub(crate) fn answers_ack_wishes(&self) -> bool {
        self.has(capability::ACKS)
    }

    /// Both sides know of published ports (`PROTOCOL.md` §15).
    pub fn publishes(&self) -> bool {
        self.has(capability::PUBLISH)
    }

    /// The peer may open streams of segments here (`PROTOCOL.md` §20.9). Its HELLO may come behind them.
    pub(super) fn accepts_segments(&self) -> bool {
        let known = |hello: &Hello| hello.capabilities & capability::SEGMENTS != 0;
        known(&self.local) && self.remote.as_ref().is_none_or(known)
    }

    fn on_publish(&mut self, publish: Publish) -> Result<(), Fault> {
        if self.side == Side::Client || !self.publishes() || publish.entry >= MAX_PUBLISHED {
            return Err(Fault::Violation("a port that cannot be asked for"));
        }
        self.events.push_back(TunnelEvent::Publish(publish));
        Ok(())
    }

    fn on_published(&mut self, entry: u64, code: PublishCode) -> Result<(), Fault> {
        if self.side == Side::Server || !self.publishes() {
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

    /// The connection is over: every LAN side is to be reset.
    pub(in crate::transport) fn on_lost(&mut self) {
        for key in self.flows.keys().clone() {
            let notice = self.flows.edit(key, |flow| {
                flow.lose();
                flow.notify()
            });
            if notice == Some(true) {
                self.events.push_back(TunnelEvent::Flow(key));
            }
        }
        self.ceilings.leave();
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
