//! What LAN sides do with a tunnel: open flows, push bytes in, take bytes out, end.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bentpipe_proto::relay::Sender;
use bentpipe_proto::tunnel::{AbortCode, Control, Destination, FlowId, Open, Reply, ReplyCode};
use bytes::Bytes;
use quinn_proto::{Connection, Side, VarInt};

use super::event::{OpenError, TunnelEvent};
use super::flow::{Flow, FlowKey, Header, Incoming};
use super::memory::sending_share;
use super::tunnel::Tunnel;

/// What a flow may always buffer for sending, in bytes: a packet and what follows it.
const MIN_SHARE: u64 = 4096;

impl Tunnel {
    /// Opens a flow (client). `first` are the bytes that travel with OPEN.
    pub fn open(
        &mut self,
        quic: &mut Connection,
        destination: Destination,
        source: Option<SocketAddr>,
        first: Bytes,
    ) -> Result<FlowKey, OpenError> {
        self.begin(quic, first, |flow, credit, header| {
            let open = Open {
                flow,
                destination,
                source,
                credit,
            };
            open.encode(header);
        })
    }

    /// Flows that this side has opened.
    fn opened_here(&self) -> usize {
        match self.side {
            Side::Client => self.flows.len() - self.inbound,
            Side::Server => self.inbound,
        }
    }

    /// Opens a flow whose header says which it is and what credit its answer has.
    pub(super) fn begin(
        &mut self,
        quic: &mut Connection,
        first: Bytes,
        head: impl FnOnce(FlowId, u64, &mut Vec<u8>),
    ) -> Result<FlowKey, OpenError> {
        let Some(remote) = &self.remote else {
            return Err(OpenError::NotReady);
        };
        if self.goaway {
            return Err(OpenError::Draining);
        }
        if self.opened_here() as u64 >= remote.max_flows {
            return Err(OpenError::LimitReached);
        }
        let initial_credit = remote.initial_credit;
        let reserved = self.openings.reserve(quic);
        let (stream, opened) = reserved.ok_or(OpenError::LimitReached)?;
        let id = FlowId(self.next_id);
        self.next_id += 1;
        let window = self.budget.open(self.meter.product(quic.rtt()));
        let credit = window.announced();
        let mut header = Vec::with_capacity(64);
        head(id, credit, &mut header);
        let sender = Sender::new(header.into(), initial_credit);
        let mut flow = Flow::new(sender, credit, window, true);
        flow.id = Some(id);
        flow.blocked = !opened;
        self.stats.opened += 1;
        self.stats.lan_in += first.len() as u64;
        flow.sender.push(first);
        self.sending += flow.sender.memory();
        let key = FlowKey::of(stream);
        self.by_id.insert(id, key);
        self.enter(key, flow);
        self.schedule(key);
        Ok(key)
    }

    /// Answers a flow that the peer has opened; anything but [`ReplyCode::Ok`] also ends it.
    pub fn reply(
        &mut self,
        quic: &mut Connection,
        key: FlowKey,
        code: ReplyCode,
        bound: Option<SocketAddr>,
    ) {
        let product = self.meter.product(quic.rtt());
        let Some(flow) = self.flows.get_mut(&key) else {
            return;
        };
        if code == ReplyCode::Ok
            && let Some(limit) = self.budget.widen(&mut flow.window, product)
        {
            flow.receiver.raise_limit(limit);
        }
        let mut header = Vec::with_capacity(32);
        Reply {
            code,
            bound,
            credit: flow.window.announced(),
        }
        .encode(&mut header);
        self.sending += header.len() as u64;
        flow.sender.set_header(header.into());
        if code != ReplyCode::Ok {
            self.stats.refused += 1;
            self.stats.refusals.count(code);
            flow.sender.finish();
            let before = flow.receiver.memory();
            flow.stop_reading(quic, key.stream(), VarInt::from_u32(0));
            self.held = self.held.saturating_sub(before);
            flow.released = true;
        }
        self.schedule(key);
        // The peer may have given the flow up meanwhile: then nothing else ends it.
        self.collect(key);
    }

    /// The peer's answer, once it came.
    pub fn reply_of(&self, key: FlowKey) -> Option<&Reply> {
        match &self.flows.get(&key)?.header {
            Header::Reply(reply) => Some(reply),
            Header::Open(_) | Header::Inbound(_) | Header::Expected => None,
        }
    }

    /// Bytes that the LAN side may push now. A quarter of the tunnel's memory is for what waits to be sent: half of that
    /// for whoever comes, the rest in equal shares. Flows that say nothing take nothing from those that do.
    pub fn capacity(&self, key: FlowKey) -> usize {
        let Some(flow) = self.flows.get(&key).filter(|flow| !flow.send_done) else {
            return 0;
        };
        let half = sending_share(self.ceiling.min(self.allowance())) / 2;
        let share = if self.sending < half {
            u64::MAX
        } else {
            (half / self.flows.len() as u64).max(MIN_SHARE)
        };
        let left = share.saturating_sub(flow.sender.memory());
        flow.sender
            .capacity()
            .min(usize::try_from(left).unwrap_or(usize::MAX))
    }

    /// Takes bytes read from the LAN.
    pub fn push(&mut self, key: FlowKey, data: Bytes) {
        if let Some(flow) = self.flows.get_mut(&key) {
            self.stats.lan_in += data.len() as u64;
            let before = flow.sender.memory();
            flow.sender.push(data);
            self.sending += flow.sender.memory() - before;
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

    /// Ends a flow that is relayed, as if its LAN side had been reset: the relay, which is not asked, resets that.
    pub fn revoke(&mut self, quic: &mut Connection, key: FlowKey, code: AbortCode) {
        self.abort(quic, key, code);
        if let Some(flow) = self.flows.get_mut(&key) {
            flow.gone = true;
        }
        // Also for a flow that is forgotten already: its relay finds that out.
        self.events.push_back(TunnelEvent::Flow(key));
    }

    /// What the LAN side has to do next.
    pub fn incoming(&self, key: FlowKey) -> Incoming {
        self.flows.get(&key).map_or(Incoming::Gone, Flow::incoming)
    }

    /// Whether the other end's LAN side was reset: it takes nothing more, and what it said before may still be to come.
    pub fn is_aborted(&self, key: FlowKey) -> bool {
        self.flows
            .get(&key)
            .is_some_and(|flow| flow.receiver.is_aborted())
    }

    /// The bytes that are next in order.
    pub fn ready(&self, key: FlowKey) -> impl Iterator<Item = &Bytes> {
        self.flows
            .get(&key)
            .into_iter()
            .flat_map(|flow| flow.receiver.ready())
    }

    /// The LAN side takes no more for now.
    pub fn blocked(&mut self, key: FlowKey) {
        if let Some(flow) = self.flows.get_mut(&key) {
            flow.window.on_blocked();
        }
    }

    /// The LAN side took `n` bytes; the peer gets credit for them.
    pub fn consume(&mut self, key: FlowKey, n: u64) {
        let Some(flow) = self.flows.get_mut(&key) else {
            return;
        };
        let before = flow.receiver.memory();
        flow.receiver.consume(n);
        self.held = (self.held + flow.receiver.memory()).saturating_sub(before);
        self.stats.lan_out += n;
        let limit = flow.window.on_consumed(n);
        self.grant(key, limit);
    }

    /// Data came: its flow may be worth more credit.
    pub(super) fn on_arrived(&mut self, now: Instant, rtt: Duration, key: FlowKey) {
        let Some(flow) = self.flows.get_mut(&key) else {
            return;
        };
        let (reached, bdp) = (
            flow.receiver.reached(),
            self.meter.product(rtt).measured.unwrap_or(0),
        );
        let limit = flow
            .window
            .on_arrived(now, reached, rtt, bdp, &mut self.budget);
        self.grant(key, limit);
    }

    pub(super) fn grant(&mut self, key: FlowKey, limit: Option<u64>) {
        let Some((flow, max_offset)) = self.flows.get_mut(&key).zip(limit) else {
            return;
        };
        if flow.recv_done {
            return;
        }
        flow.receiver.raise_limit(max_offset);
        if let Some(flow) = flow.id {
            self.send_control(&Control::FlowCredit { flow, max_offset });
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
}
