//! What a lane does with a tunnel: brings what came for flows and packets, and takes what is to leave.

use std::time::Instant;

use bentpipe_proto::fec::Mended;
use bentpipe_proto::packets::Joiner;
use bentpipe_proto::tunnel::{
    AbortCode, Control, DecodeError, FlowId, Place, ReplyCode, StreamKind,
};
use bytes::Bytes;
use quinn_proto::{Side, VarInt};

use super::super::MAX_QUERIES;
use super::super::event::{Fault, TunnelEvent};
use super::super::key::FlowKey;
use super::flow::{Flow, Header};
use super::packets::Twice;
use super::stream::{Piece, ReadFault};
use super::turns::{Rivals, Turn};
use super::{Outbox, Streams, Tunnel};

/// For so many flows credit may precede the REPLY: the server need not remember more whose OPEN it has not seen.
const MOST_WIDENED: usize = 64;

/// Kind that a stream has turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::transport) enum Said {
    /// A flow, or not yet anything.
    Flow,
    /// A query.
    Query,
}

impl Tunnel {
    /// Takes a stream that the peer has opened; false if it has too many.
    pub(in crate::transport) fn accept(&mut self, key: FlowKey) -> bool {
        let most = self.limit.saturating_add(MAX_QUERIES as u64);
        let admitted = (self.flows.of_peer() as u64) < most;
        if admitted {
            self.flows
                .accept(key, self.agreement.local().initial_credit);
        }
        admitted
    }

    /// The stream has not said all that it has to say first.
    pub(in crate::transport) fn is_headless(&self, key: FlowKey) -> bool {
        self.flows.get(key).is_some_and(Flow::is_headless)
    }

    /// The stream has begun, and not said all that it has to say first.
    pub(in crate::transport) fn is_half_said(&self, key: FlowKey) -> bool {
        let is_half_said = |flow: &Flow| flow.is_headless() && flow.receiver.taken() > 0;
        self.flows.get(key).is_some_and(is_half_said)
    }

    /// The stream of a flow has room again, or is open.
    pub(in crate::transport) fn unblock(&mut self, key: FlowKey) {
        self.flows.edit(key, Flow::unblock);
    }

    /// What has ended before the peer heard of it is not opened; true for a flow that waits for its stream.
    pub(in crate::transport) fn start(&mut self, key: FlowKey) -> bool {
        let waits = self.flows.get(key).is_some_and(Flow::is_sending);
        if waits {
            self.unblock(key);
        }
        waits
    }

    /// Moves what the stream of a flow has brought into the flow, and shows it to `look`. True if there is something to see to.
    pub(in crate::transport) fn read(
        &mut self,
        now: Instant,
        quic: &mut Streams,
        key: FlowKey,
        look: impl FnMut(u64, &Bytes),
    ) -> Result<bool, Fault> {
        let read = self.flows.edit(key, |flow| {
            let had = flow.receiver.taken();
            let outcome = flow.read(quic, key.stream(), look);
            (outcome, flow.receiver.taken() - had)
        });
        match read {
            // Data for a flow that is over here: throw it away.
            None => {
                let _ = quic.recv_stream(key.stream()).stop(VarInt::from_u32(0));
                Ok(false)
            }
            Some((Ok(bytes), taken)) => {
                self.stats.received.flows += taken;
                quic.on_received(now, bytes);
                Ok(true)
            }
            Some((Err(ReadFault::Credit(exceeded)), _)) => Err(exceeded.into()),
            Some((Err(ReadFault::Reset), _)) => {
                self.throw_away(quic, key, AbortCode::Reset);
                Ok(false)
            }
        }
    }

    /// Gives a flow what a repair has mended, or was said again; true if the flow wants it.
    pub(in crate::transport) fn mend(
        &mut self,
        key: FlowKey,
        mended: Mended,
    ) -> Result<bool, Fault> {
        if !self.flows.get(key).is_some_and(Flow::is_receiving) {
            return Ok(false);
        }
        let outcome = self.flows.edit(key, |flow| {
            let had = flow.receiver.taken();
            match mended {
                Mended::Bytes { offset, bytes, .. } => flow.receiver.insert(offset, bytes)?,
                Mended::End { offset, .. } => flow.receiver.finish_at(offset),
            }
            Ok::<_, Fault>(flow.receiver.taken() - had)
        });
        self.stats.received.flows += outcome.unwrap_or(Ok(0))?;
        Ok(true)
    }

    /// Ends the receiving direction of a flow that was mended, if all of it has come.
    pub(in crate::transport) fn stop_if_whole(&mut self, quic: &mut Streams, key: FlowKey) {
        self.flows
            .edit(key, |flow| flow.stop_if_whole(quic, key.stream()));
    }

    /// A flow has brought something.
    pub(in crate::transport) fn on_bytes(
        &mut self,
        now: Instant,
        quic: &mut Streams,
        key: FlowKey,
    ) -> Result<Said, Fault> {
        let side = self.side;
        let Some(parsed) = self.flows.edit(key, |flow| flow.parse_header(side)) else {
            return Ok(Said::Flow);
        };
        match parsed {
            Err(DecodeError::StreamKind(kind))
                if kind == StreamKind::Dns.code() && side == Side::Server =>
            {
                return Ok(Said::Query);
            }
            Err(DecodeError::StreamKind(kind)) if kind != StreamKind::Control.code() => {
                self.throw_away(quic, key, AbortCode::Unsupported);
                return Ok(Said::Flow);
            }
            parsed => {
                if parsed? {
                    quic.headers.forget(key.stream());
                    self.on_header(quic, key)?;
                }
            }
        }
        if self.flows.get(key).is_some_and(Flow::is_cut_off) {
            return Err(Fault::Violation("a flow ended inside its header"));
        }
        let (rtt, product) = (quic.rtt(), quic.product());
        let limit = self.flows.on_arrived(key, now, rtt, product);
        self.grant(key, limit);
        self.notify(key);
        Ok(Said::Flow)
    }

    fn on_header(&mut self, quic: &mut Streams, key: FlowKey) -> Result<(), Fault> {
        let Some(flow) = self.flows.get(key) else {
            return Ok(());
        };
        match flow.header.clone() {
            Header::Open(open)
                if open.page
                    && !self.agreement.carries_pages()
                    && !self.agreement.carries_dssl() =>
            {
                self.throw_away(quic, key, AbortCode::Unsupported);
            }
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
            Header::Segments(_) if !self.agreement.accepts_segments() => {
                self.throw_away(quic, key, AbortCode::Unsupported);
            }
            Header::Segments(head) => {
                let event = TunnelEvent::Segments(key);
                self.on_opened(quic, key, (head.flow, head.credit), event)?;
            }
            Header::Reply(reply) if reply.code == ReplyCode::Ok => {
                self.flows
                    .edit(key, |flow| flow.sender.raise_limit(reply.credit));
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
        quic: &mut Streams,
        key: FlowKey,
        (id, credit): (FlowId, u64),
        event: TunnelEvent,
    ) -> Result<(), Fault> {
        if id.is_inbound() != key.is_inbound() {
            return Err(Fault::Violation("a flow id of the other side's"));
        }
        if !self.flows.name(key, id) {
            return Err(Fault::Violation("a flow id was used twice"));
        }
        let said = self.early.take(id);
        let credit = credit.max(said.credit.unwrap_or(0));
        self.flows.edit(key, |flow| flow.sender.raise_limit(credit));
        self.stats.opened += 1;
        self.events.push_back(event);
        if let Some((offset, code)) = said.abort {
            self.on_abort(quic, key, offset, code);
        }
        Ok(())
    }

    /// The peer's LAN side was reset: deliver what it sent before, then reset ours.
    pub(super) fn on_abort(
        &mut self,
        quic: &mut Streams,
        key: FlowKey,
        offset: u64,
        code: AbortCode,
    ) {
        self.notify(key);
        self.flows.edit(key, |flow| {
            flow.receiver.abort(offset, code);
            flow.reset(quic, key.stream(), VarInt::from_u32(0));
        });
    }

    /// The peer wants no more of what we send on this stream, for this reason. How the flow ends, REPLY or FLOW_ABORT says:
    /// either may come later, and bytes before that end still count.
    pub(in crate::transport) fn on_stopped(&mut self, key: FlowKey, code: VarInt) {
        self.notify(key);
        self.flows.edit(key, |flow| flow.on_stopped(code));
        self.flows.on_acknowledged(key);
    }

    /// The peer has acknowledged all of what we sent on this stream, FIN included.
    pub(in crate::transport) fn on_acknowledged(&mut self, key: FlowKey) {
        self.flows.on_acknowledged(key);
    }

    /// Takes out a flow of which the peer has said that it is none: its receiver, and whether all has come.
    pub(in crate::transport) fn give_up(
        &mut self,
        key: FlowKey,
    ) -> Option<(bentpipe_proto::relay::Receiver, bool)> {
        let flow = self.flows.take(key)?;
        let ended = !flow.is_receiving();
        Some((flow.receiver, ended))
    }

    /// The content of a DATAGRAM frame came, in an IP packet that was `marked` "congestion experienced" or not.
    pub(in crate::transport) fn on_packets(&mut self, now: Instant, content: &Bytes, marked: bool) {
        if !Joiner::is_for_packets(content) || !self.agreement.carries_packets() {
            return;
        }
        let arrival = self.packets.on_frame(now, content, marked);
        let account = match arrival.copy {
            false => &mut self.stats.received.packets,
            true => &mut self.stats.received.repairs,
        };
        *account += content.len() as u64;
        if arrival.news {
            self.events.push_back(TunnelEvent::Packets);
        }
    }

    /// The path is known better than when the oldest flows were opened: they get the credit that they would have got now.
    pub(in crate::transport) fn widen(&mut self, quic: &Streams) {
        let keys = self.flows.keys().iter();
        let oldest: Vec<_> = keys.take(MOST_WIDENED).copied().collect();
        for key in oldest {
            let limit = self.flows.widen(key, quic.product());
            self.grant(key, limit);
        }
    }

    pub(super) fn grant(&mut self, key: FlowKey, limit: Option<u64>) {
        let Some((flow, max_offset)) = self.flows.get(key).zip(limit) else {
            return;
        };
        if !flow.is_receiving() {
            return;
        }
        let id = flow.id;
        self.flows
            .edit(key, |flow| flow.receiver.raise_limit(max_offset));
        if let Some(flow) = id {
            self.outbox.send(&Control::FlowCredit { flow, max_offset });
        }
    }

    pub(super) fn notify(&mut self, key: FlowKey) {
        if self.flows.edit(key, Flow::notify) == Some(true) {
            self.events.push_back(TunnelEvent::Flow(key));
        }
    }

    /// Places at which flows wait, at most `most`; of many flows some, and others in the list that begins behind `last`.
    pub(in crate::transport) fn places(
        &self,
        last: &mut Option<FlowKey>,
        most: usize,
    ) -> Vec<Place> {
        self.flows.places(last, most)
    }

    /// Control frames that wait for the lane.
    pub(in crate::transport) fn outbox(&mut self) -> &mut Outbox {
        &mut self.outbox
    }

    /// True if flows, packets or control frames wait to be written.
    pub(in crate::transport) fn has_output(&self) -> bool {
        self.flows.has_output() || self.packets.has_output() || !self.outbox.is_empty()
    }

    /// Flow or packets whose turn it is.
    pub(in crate::transport) fn turn(&mut self) -> Option<Turn> {
        let packets = &self.packets;
        self.turns.next(
            packets.has_output(),
            packets.is_urgent(),
            self.flows.has_output(),
        )
    }

    /// Hands quinn the next frame of packets; returns its bytes.
    pub(in crate::transport) fn write_packets(
        &mut self,
        now: Instant,
        quic: &mut Streams,
        twice: Twice,
    ) -> usize {
        let bytes = self.packets.fill(now, quic, twice);
        self.turns.on_packets(bytes);
        self.stats.sent.packets += bytes as u64;
        bytes
    }

    /// Hands quinn the copies of packets that are due; returns their bytes.
    pub(in crate::transport) fn write_copies(&mut self, now: Instant, quic: &mut Streams) -> usize {
        self.packets.write_copies(now, quic)
    }

    /// Instant at which [`Self::write_copies`] has something to write.
    pub(in crate::transport) fn copy_timeout(&self) -> Option<Instant> {
        self.packets.copy_timeout()
    }

    /// The flow whose turn it is writes into its stream as many bytes as `share` gives it; that is told whether others wait,
    /// and whether the flow is bulk.
    pub(in crate::transport) fn write_flow(
        &mut self,
        quic: &mut Streams,
        share: impl FnOnce(Rivals) -> usize,
    ) -> Option<(FlowKey, Piece)> {
        let key = self.flows.pop()?;
        let share = share(Rivals {
            packets: self.packets.has_output(),
            flows: self.flows.has_output(),
            bulk: self.flows.is_bulk(key),
        });
        let piece = self
            .flows
            .edit(key, |flow| flow.write(quic, key.stream(), share))?;
        self.stats.sent.flows += piece.written as u64;
        if piece.ends {
            self.flows.on_ended(key);
        }
        if piece.weight() > 0 {
            self.notify(key);
        }
        self.turns.on_flows(piece.weight());
        self.packets.on_others(piece.weight());
        Some((key, piece))
    }

    /// Until when somebody is taken to wait for packets.
    pub(crate) fn packets_until(&self) -> Option<Instant> {
        self.packets.active_until()
    }
}
