//! What LAN sides do with a tunnel: open flows, push bytes in, take bytes out, end; and give it packets and take them. And what their
//! shell asks the peer for: published ports, enrolment, sealed flows, an end.

use std::net::SocketAddr;
use std::time::Instant;

use bentpipe_proto::relay::End;
use bentpipe_proto::tunnel::{
    AbortCode, Control, Destination, ENROL_KEY, EnrolCode, EpochRandom, FlowId, Inbound, LesBody,
    LesKind, Open, Publish, PublishCode, Reply, ReplyCode, Segments, capability,
};
use bytes::Bytes;
use quinn_proto::VarInt;

use super::super::event::{OpenError, TunnelEvent};
use super::super::key::FlowKey;
use super::flow::{Flow, Header, Incoming};
use super::{Streams, Tunnel};

/// Bytes that a flow may always buffer for sending: a packet and what follows it.
const MIN_SHARE: u64 = 4096;

impl Tunnel {
    /// Opens a flow (client). `first` are the bytes that travel with OPEN.
    pub fn open(
        &mut self,
        quic: &mut Streams,
        destination: Destination,
        source: Option<SocketAddr>,
        first: Bytes,
    ) -> Result<FlowKey, OpenError> {
        self.open_kind(quic, (destination, source), first, false)
    }

    /// Opens a flow for frames of a page (client); [`super::Agreement::carries_pages`] says whether the server knows them. `first` are the
    /// bytes that travel with OPEN.
    pub fn open_page(
        &mut self,
        quic: &mut Streams,
        destination: Destination,
        source: Option<SocketAddr>,
        first: Bytes,
    ) -> Result<FlowKey, OpenError> {
        self.open_kind(quic, (destination, source), first, true)
    }

    fn open_kind(
        &mut self,
        quic: &mut Streams,
        (destination, source): (Destination, Option<SocketAddr>),
        first: Bytes,
        page: bool,
    ) -> Result<FlowKey, OpenError> {
        self.begin(quic, first, |flow, credit, header| {
            let open = Open {
                flow,
                destination,
                source,
                credit,
                page,
            };
            open.encode(header);
        })
    }

    /// Opens a flow for a connection of `source` to `destination`, a port that the client knows as `entry` (server).
    pub fn open_inbound(
        &mut self,
        quic: &mut Streams,
        entry: u64,
        source: Option<SocketAddr>,
        destination: Option<SocketAddr>,
    ) -> Result<FlowKey, OpenError> {
        self.begin(quic, Bytes::new(), |flow, credit, header| {
            let inbound = Inbound {
                flow,
                entry,
                source,
                destination,
                credit,
            };
            inbound.encode(header);
        })
    }

    /// Opens a flow for the segments of a TCP connection (either side); [`super::Agreement::carries_segments`] says whether the peer knows
    /// them.
    pub fn open_segments(&mut self, quic: &mut Streams) -> Result<FlowKey, OpenError> {
        if !self.agreement.carries_segments() {
            return Err(OpenError::NotReady);
        }
        self.begin(quic, Bytes::new(), |flow, credit, header| {
            Segments { flow, credit }.encode(header);
        })
    }

    /// Opens a flow whose header says which it is and what credit its answer has.
    fn begin(
        &mut self,
        quic: &mut Streams,
        first: Bytes,
        head: impl FnOnce(FlowId, u64, &mut Vec<u8>),
    ) -> Result<FlowKey, OpenError> {
        let Some(remote) = self.agreement.remote() else {
            return Err(OpenError::NotReady);
        };
        if self.goaway {
            return Err(OpenError::Draining);
        }
        if self.flows.opened_here() as u64 >= remote.max_flows {
            return Err(OpenError::LimitReached);
        }
        let credit = remote.initial_credit;
        let (stream, opened) = quic.reserve().ok_or(OpenError::LimitReached)?;
        self.stats.opened += 1;
        self.stats.lan_in += first.len() as u64;
        let key = FlowKey::of(stream);
        self.flows
            .begin(key, opened, (quic.product(), credit), first, head);
        Ok(key)
    }

    /// Answers a flow that the peer has opened; anything but [`ReplyCode::Ok`] also ends it.
    pub fn reply(
        &mut self,
        quic: &mut Streams,
        key: FlowKey,
        code: ReplyCode,
        bound: Option<SocketAddr>,
    ) {
        let product = quic.product();
        let limit = match code {
            ReplyCode::Ok => self.flows.widen(key, product),
            _ => None,
        };
        let known = self.flows.edit(key, |flow| {
            if let Some(limit) = limit {
                flow.receiver.raise_limit(limit);
            }
            let mut header = Vec::with_capacity(32);
            Reply {
                code,
                bound,
                credit: flow.window.announced(),
            }
            .encode(&mut header);
            flow.sender.set_header(header.into());
            if code != ReplyCode::Ok {
                flow.sender.finish();
                flow.stop_reading(quic, key.stream(), VarInt::from_u32(0));
                // The peer may have given the flow up meanwhile: then nothing else ends it.
                flow.release();
            }
        });
        if known.is_some() && code != ReplyCode::Ok {
            self.stats.refused += 1;
            self.stats.refusals.count(code);
        }
    }

    /// The peer's answer, once it came.
    pub fn reply_of(&self, key: FlowKey) -> Option<&Reply> {
        match &self.flows.get(key)?.header {
            Header::Reply(reply) => Some(reply),
            Header::Open(_) | Header::Inbound(_) | Header::Segments(_) | Header::Expected => None,
        }
    }

    /// Bytes that the LAN side may push now. A quarter of the tunnel's memory is for what waits to be sent: half of that
    /// for whoever comes, the rest in equal shares. Flows that say nothing take nothing from those that do.
    pub fn capacity(&self, key: FlowKey) -> usize {
        let Some(flow) = self.flows.get(key).filter(|flow| flow.is_sending()) else {
            return 0;
        };
        let half = self.ceilings.sending() / 2;
        let share = if self.flows.held().unsent < half {
            u64::MAX
        } else {
            (half / self.flows.len() as u64).max(MIN_SHARE)
        };
        let left = share.saturating_sub(flow.sender.memory());
        flow.sender
            .capacity()
            .min(usize::try_from(left).unwrap_or(usize::MAX))
    }

    /// True if the peer takes bytes of the flow; there may be no room for them now.
    pub fn is_sending(&self, key: FlowKey) -> bool {
        self.flows.get(key).is_some_and(Flow::is_sending)
    }

    /// Credit promised to flows that are open, in bytes.
    pub fn promised(&self) -> u64 {
        self.flows.promised()
    }

    /// Takes bytes read from the LAN.
    pub fn push(&mut self, key: FlowKey, data: Bytes) {
        let bytes = data.len() as u64;
        if self
            .flows
            .edit(key, |flow| flow.sender.push(data))
            .is_some()
        {
            self.stats.lan_in += bytes;
        }
    }

    /// The LAN side sent FIN.
    pub fn finish(&mut self, key: FlowKey) {
        self.flows.edit(key, |flow| flow.sender.finish());
    }

    /// The LAN side was reset: its bytes so far still reach the other end, then the reset does.
    pub fn abort(&mut self, quic: &mut Streams, key: FlowKey, code: AbortCode) {
        let aborted = self.flows.edit(key, |flow| {
            let final_offset = flow.sender.abort(code);
            flow.stop_reading(quic, key.stream(), VarInt::from_u32(0));
            flow.release();
            (flow.id, final_offset)
        });
        if let Some((Some(flow), final_offset)) = aborted {
            self.outbox.send(&Control::FlowAbort {
                flow,
                final_offset,
                code,
            });
        }
    }

    /// Ends a flow that is relayed, as if its LAN side had been reset: the relay, which is not asked, resets that.
    pub fn revoke(&mut self, quic: &mut Streams, key: FlowKey, code: AbortCode) {
        self.abort(quic, key, code);
        // Also for a flow that is forgotten already: its relay finds that out.
        self.events.push_back(TunnelEvent::Flow(key));
    }

    /// Step that the LAN side has to take next.
    pub fn incoming(&self, key: FlowKey) -> Incoming {
        self.flows.get(key).map_or(Incoming::Gone, Flow::incoming)
    }

    /// True if the other end's LAN side was reset: it takes nothing more, and what it said before may still be to come.
    pub fn is_aborted(&self, key: FlowKey) -> bool {
        self.flows
            .get(key)
            .is_some_and(|flow| flow.receiver.is_aborted())
    }

    /// The bytes that are next in order.
    pub fn ready(&self, key: FlowKey) -> impl Iterator<Item = &Bytes> {
        self.flows
            .get(key)
            .into_iter()
            .flat_map(|flow| flow.receiver.ready())
    }

    /// The LAN side takes no more for now.
    pub fn blocked(&mut self, key: FlowKey) {
        self.flows.edit(key, |flow| flow.window.on_blocked());
    }

    /// The LAN side took `n` bytes; the peer gets credit for them.
    pub fn consume(&mut self, key: FlowKey, n: u64) {
        let consumed = self.flows.edit(key, |flow| {
            flow.receiver.consume(n);
            flow.window.on_consumed(n)
        });
        if let Some(limit) = consumed {
            self.stats.lan_out += n;
            self.grant(key, limit);
        }
    }

    /// The relay has taken this flow's event and will look at it.
    pub fn take_notice(&mut self, key: FlowKey) {
        self.flows.edit(key, Flow::take_notice);
    }

    /// The relay is done with a flow whose both directions ended in order.
    pub fn release(&mut self, quic: &mut Streams, key: FlowKey) {
        let Some(flow) = self.flows.get(key) else {
            return;
        };
        let ended = !flow.is_receiving() && flow.sender.end().is_some();
        // A stream whose FIN has left cannot be reset: the peer would hear only that nothing more is read.
        let finished = !flow.is_sending() && flow.sender.end() == Some(End::Fin);
        let (named, final_offset) = (flow.id.filter(|_| finished), flow.sender.written());
        self.flows.edit(key, Flow::release);
        if ended {
            return;
        }
        if let Some(flow) = named {
            self.outbox.send(&Control::FlowAbort {
                flow,
                final_offset,
                code: AbortCode::Internal,
            });
        }
        self.throw_away(quic, key, AbortCode::Internal);
    }

    /// A packet is to cross; what is no IP packet is counted and dropped.
    pub fn send_packet(&mut self, now: Instant, packet: Bytes) {
        if self.agreement.carries_packets() {
            self.packets.push(now, packet);
        }
    }

    /// True if a packet has come.
    pub fn has_packet(&self) -> bool {
        self.packets.has_received()
    }

    /// The next packet that has come; after [`TunnelEvent::Packets`], until there is none left.
    pub fn take_packet(&mut self) -> Option<Bytes> {
        self.packets.pop_received()
    }

    /// Client: the server answers queries.
    #[must_use]
    pub fn takes_queries(&self) -> bool {
        self.agreement.has(capability::DNS) && !self.goaway
    }

    /// Tells the peer that no more flows are opened or taken here.
    pub fn send_goaway(&mut self) {
        self.goaway = true;
        self.outbox.send(&Control::Goaway);
    }

    /// True once either side drains.
    pub fn is_draining(&self) -> bool {
        self.goaway
    }

    /// Client: asks for a port; what comes of it are [`TunnelEvent::Published`]s.
    pub fn publish(&mut self, publish: Publish) {
        self.outbox.send(&Control::Publish(publish));
    }

    /// Server: tells the client what came of the port that it knows as `entry`.
    pub fn published(&mut self, entry: u64, code: PublishCode) {
        self.outbox.send(&Control::Published { entry, code });
    }

    /// Client: names the key that it will connect with; the answer is [`TunnelEvent::Enrolled`] (`PROTOCOL.md` §16). Who may
    /// enrol is the shell's business.
    pub fn enrol(&mut self, key: [u8; ENROL_KEY]) {
        self.outbox.send(&Control::Enrol { key });
    }

    /// Server: tells the client what came of its key; `at` are seconds since 1970.
    pub fn enrolled(&mut self, code: EnrolCode, at: u64) {
        self.outbox.send(&Control::Enrolled { code, at });
    }

    /// Client: asks for the next epoch; the server's answer is a [`TunnelEvent::SleEpoch`].
    pub fn begin_sle_epoch(&mut self, epoch: u16, random: EpochRandom) {
        self.outbox.send(&Control::SleEpoch {
            epoch,
            random: Some(random),
        });
    }

    /// Server: the epoch has begun here.
    pub fn confirm_sle_epoch(&mut self, epoch: u16) {
        self.outbox.send(&Control::SleEpoch {
            epoch,
            random: None,
        });
    }

    /// Server: nothing more is to be sealed with this tunnel. A client that has not agreed on it hears nothing.
    pub fn withdraw_sle(&mut self) {
        if self.agreement.seals_flows() {
            self.confirm_sle_epoch(u16::MAX);
        }
    }

    /// Sends a message of LES: Q1 and Q3 from a client, Q2 from a server, once both have offered it.
    pub fn send_les(&mut self, kind: LesKind, body: LesBody) {
        self.outbox.send(&Control::Les(kind, body));
    }
}
