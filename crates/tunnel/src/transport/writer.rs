//! From flows to streams and from packets to DATAGRAM frames: fills quinn just before a datagram is built, and keeps the lists of who waits.

use std::time::Instant;

use bentpipe_proto::relay::End;
use bentpipe_proto::tunnel::Control;
use bytes::Bytes;
use quinn_proto::{Connection, WriteError};

use super::control::ControlStream;
use super::event::TunnelEvent;
use super::flow::{Flow, FlowKey};
use super::packets::Twice;
use super::tunnel::Tunnel;

/// What one of packets and flows may owe the other, in bytes.
const MOST_AHEAD: i64 = 64_000;

/// Pieces of a stream that are smaller, on average, are joined: quinn searches those that are not acknowledged one by one for
/// each packet, and a far and fast link has ten thousand packets under way.
const PIECE: usize = 16 << 10;

/// Among others that have been served much, a flow takes one part in so many of a batch that is written ahead.
const BULK_TURNS: usize = 4;

/// How much is to be written into quinn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Batch {
    /// Bytes, about.
    pub(crate) max: usize,
    /// As many, if that is more, while nothing but bulk waits, which is then in fewer pieces.
    pub(crate) bulk: usize,
    /// Payload of a packet.
    pub(crate) mtu: usize,
}

/// What was handed to quinn, in bytes.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Written {
    /// In streams.
    pub(crate) streams: usize,
    /// In DATAGRAM frames.
    pub(crate) datagrams: usize,
    /// Of those in streams, the bytes that no repair can bring back (`engine/repeat.rs`).
    pub(crate) alone: usize,
}

impl Written {
    pub(crate) fn total(self) -> usize {
        self.streams + self.datagrams
    }
}

/// Who is served next.
enum Turn {
    Packets,
    Flows,
}

impl Tunnel {
    /// Hands quinn a batch: control frames, repairs that are due, then packets and flows in turn.
    pub(crate) fn write(&mut self, now: Instant, quic: &mut Connection, batch: Batch) -> Written {
        let max = batch.max;
        let control = self.control.as_mut();
        let mut written = Written {
            streams: control.map_or(0, |control| control.flush(quic)),
            ..Written::default()
        };
        self.stats.sent.control += written.streams as u64;
        if std::mem::take(&mut self.pressing) {
            written.alone += written.streams;
        }
        let queries = self.write_queries(quic, max.saturating_sub(written.total()));
        written.alone += queries;
        written.streams += queries;
        let repairs = self.write_repairs(now, quic, max.saturating_sub(written.total()));
        self.stats.sent.repairs += repairs as u64;
        written.datagrams += repairs;
        let twice = Twice {
            voice: self.wants_copies(),
            ends: self.wants_ends(),
        };
        while written.total() < max
            && let Some(turn) = self.turn()
        {
            match turn {
                Turn::Packets => {
                    let bytes = self.packets.fill(now, quic, twice);
                    self.ahead -= bytes as i64;
                    self.stats.sent.packets += bytes as u64;
                    written.datagrams += bytes;
                }
                Turn::Flows => {
                    let done = written.total();
                    let rest = Batch {
                        max: max - done,
                        bulk: batch.bulk.saturating_sub(done),
                        ..batch
                    };
                    let bytes = self.write_flow(now, quic, rest, &mut written.alone);
                    self.ahead += bytes as i64;
                    self.packets.on_others(bytes);
                    written.streams += bytes;
                }
            }
        }
        written
    }

    /// While packets and flows both wait, each gets half of the bytes; but voice that does not take more than its share
    /// goes first.
    fn turn(&mut self) -> Option<Turn> {
        let (packets, flows) = (self.packets.has_output(), !self.scheduler.is_empty());
        if !(packets && flows) {
            self.ahead = 0;
        }
        self.ahead = self.ahead.clamp(-MOST_AHEAD, MOST_AHEAD);
        match (packets, flows) {
            (true, true) if self.packets.is_urgent() || self.ahead >= 0 => Some(Turn::Packets),
            (_, true) => Some(Turn::Flows),
            (true, false) => Some(Turn::Packets),
            (false, false) => None,
        }
    }

    fn write_flow(
        &mut self,
        now: Instant,
        quic: &mut Connection,
        batch: Batch,
        alone: &mut usize,
    ) -> usize {
        let Some(key) = self.scheduler.pop() else {
            return 0;
        };
        let flow = self.flows.get(&key);
        let opens = flow.is_some_and(|flow| flow.opened_here && flow.sent == 0);
        let bulky = flow.is_some_and(|flow| self.scheduler.is_bulk(flow.sender.written()));
        let Batch { max, bulk, mtu } = batch;
        // Alone, a flow fills the batch; among others it fills one packet, or some among bulk.
        let packet = mtu.min(max);
        let share = if self.packets.has_output() {
            packet
        } else if self.scheduler.is_empty() {
            max.max(bulk)
        } else if bulky {
            packet.max(bulk / BULK_TURNS)
        } else {
            packet
        };
        let written = self.fill(now, quic, key, share, opens);
        if opens {
            *alone += written.min(mtu);
        }
        if written > 0 {
            self.notify(key);
        }
        self.schedule(key);
        self.collect(key);
        written
    }

    /// `opens`: the peer knows nothing of the flow yet.
    fn fill(
        &mut self,
        now: Instant,
        quic: &mut Connection,
        key: FlowKey,
        share: usize,
        opens: bool,
    ) -> usize {
        let Some(flow) = self.flows.get_mut(&key) else {
            return 0;
        };
        flow.ticket = None;
        self.chunks.clear();
        let before = flow.sender.memory();
        let taken = flow.sender.take(share, &mut self.chunks);
        if self.chunks.len() > 1 && taken / self.chunks.len() < PIECE {
            let whole = Bytes::from(self.chunks.concat());
            self.chunks.clear();
            self.chunks.push(whole);
        }
        let copies = self.chunks.clone();
        let mut stream = quic.send_stream(key.stream());
        let (mut written, behind) = (0, flow.sent);
        if taken > 0 {
            match stream.write_chunks(&mut self.chunks) {
                Ok(done) => {
                    written = done.bytes;
                    self.stats.sent.flows += done.bytes as u64;
                }
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
        flow.sent += written as u64;
        let (sent, dry) = (flow.sent, flow.sender.sendable() == 0);
        let ends = flow.sender.is_drained() && flow.sender.end().is_some() && !flow.send_done;
        let fin = ends && flow.sender.end() == Some(End::Fin);
        if ends {
            // After an abort the stream stays open until the peer stops it: a FIN could overtake
            // FLOW_ABORT and pass for a clean end.
            flow.send_done = true;
            if fin {
                let _ = stream.finish();
            }
        }
        self.sending = (self.sending + flow.sender.memory()).saturating_sub(before);
        // A request that leaves twice needs no repair.
        let copied = opens && dry && !fin && self.repairs.outgoing.wants_copies();
        self.remember(now, key, (behind, written), copies, !copied);
        if dry && !copied {
            self.repairs.outgoing.on_dry(now, key.0, sent, fin);
        }
        // An end is worth a packet even if no byte went with it.
        written.max(usize::from(ends))
    }

    /// True if [`Self::write`] would write something.
    pub(crate) fn has_output(&self) -> bool {
        !self.scheduler.is_empty()
            || self.queries.has_output()
            || self.packets.has_output()
            || self.control.as_ref().is_some_and(ControlStream::has_output)
    }

    pub(super) fn send_control(&mut self, frame: &Control) {
        // Credit is given long before it is needed, and where ACKS matters a round trip is short.
        self.pressing |= !matches!(
            frame,
            Control::FlowCredit { .. } | Control::Keep { .. } | Control::Acks(_)
        );
        if let Some(control) = &mut self.control {
            control.send(frame);
        }
    }

    pub(super) fn schedule(&mut self, key: FlowKey) {
        if let Some(flow) = self.flows.get_mut(&key)
            && flow.ticket.is_none()
            && flow.wants_service()
        {
            flow.ticket = Some(self.scheduler.add(key, flow.sender.written()));
        }
    }

    pub(super) fn notify(&mut self, key: FlowKey) {
        if let Some(flow) = self.flows.get_mut(&key)
            && !flow.notified
            && !flow.released
        {
            flow.notified = true;
            self.events.push_back(TunnelEvent::Flow(key));
        }
    }

    /// Forgets a flow that is over.
    pub(super) fn collect(&mut self, key: FlowKey) {
        if self.flows.get(&key).is_some_and(Flow::is_over)
            && let Some(flow) = self.leave(key)
        {
            self.held = self.held.saturating_sub(flow.receiver.memory());
            self.sending = self.sending.saturating_sub(flow.sender.memory());
        }
    }
}
