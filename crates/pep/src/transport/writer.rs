//! From flows to streams: fills quinn just before a datagram is built, and keeps the lists of who waits.

use bentpipe_proto::relay::End;
use bentpipe_proto::tunnel::Control;
use quinn_proto::{Connection, WriteError};

use super::control::ControlStream;
use super::event::TunnelEvent;
use super::flow::{Flow, FlowKey};
use super::tunnel::Tunnel;

impl Tunnel {
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
        let before = flow.sender.memory();
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
            if flow.sender.end() == Some(End::Fin) {
                let _ = stream.finish();
            }
            // An end is worth a packet even if no byte went with it.
            written = written.max(1);
        }
        self.sending = (self.sending + flow.sender.memory()).saturating_sub(before);
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

    pub(super) fn send_control(&mut self, frame: &Control) {
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
            && let Some(flow) = self.flows.remove(&key)
        {
            self.held = self.held.saturating_sub(flow.receiver.memory());
            self.sending = self.sending.saturating_sub(flow.sender.memory());
            self.budget.close(&flow.window);
            if let Some(ticket) = flow.ticket {
                self.scheduler.remove(ticket);
            }
            if let Some(id) = flow.id {
                self.by_id.remove(&id);
            }
        }
    }
}
