//! Streams of the flows of a table: what each brings from the other PEP, and what it is to carry.

use std::time::Instant;

use bytes::BytesMut;

use super::Table;
use crate::fault::PeerFault;
use crate::words::FlowId;

impl Table {
    /// Says whether the flow's stream may be read.
    #[must_use]
    pub fn has_room(&self, id: FlowId) -> bool {
        self.flows
            .get(&id)
            .is_none_or(|entry| entry.flow.has_room())
    }

    /// Takes bytes of the flow's stream from `input`, as many as there is room for.
    ///
    /// # Errors
    /// [`PeerFault`]: the flow has been reset.
    pub fn on_stream(
        &mut self,
        now: Instant,
        id: FlowId,
        input: &mut &[u8],
    ) -> Result<(), PeerFault> {
        let Some(entry) = self.flows.get_mut(&id) else {
            *input = &[];
            return Ok(());
        };
        let taken = entry.flow.on_stream(now, self.form, input);
        self.touch(id);
        taken
    }

    /// The flow's stream broke off, or ended.
    pub fn on_stream_lost(&mut self, now: Instant, id: FlowId) {
        if let Some(entry) = self.flows.get_mut(&id) {
            entry.flow.on_stream_lost(now);
            self.touch(id);
        }
    }

    /// The flow is given up: both its ends are reset, and what is on its way to them is lost.
    pub fn give_up(&mut self, now: Instant, id: FlowId) {
        if let Some(entry) = self.flows.get_mut(&id) {
            entry.flow.give_up(now);
            self.touch(id);
        }
    }

    /// No stream can be had for a flow that was to be offered: it passes untouched. Who knows why counts it.
    pub fn on_no_stream(&mut self, id: FlowId) {
        if let Some(entry) = self.flows.get_mut(&id) {
            // An invitation may have been accepted a moment ago, and nothing relayed by it.
            if std::mem::take(&mut entry.counted.0) {
                self.counts.relayed -= 1;
            }
            entry.flow.leave_alone();
            self.touch(id);
        }
    }

    /// Appends what the flow's stream is to carry to `out`, until that has `most` bytes.
    pub fn poll_stream(&mut self, now: Instant, id: FlowId, out: &mut BytesMut, most: usize) {
        let before = out.len();
        if let Some(entry) = self.flows.get_mut(&id) {
            entry.flow.poll_stream(now, out, most);
        }
        if out.len() > before {
            // There is room again, of which the LAN end may have to hear.
            self.touch(id);
        }
    }

    /// Says whether the flow's stream has carried all that it will.
    #[must_use]
    pub fn is_stream_done(&self, id: FlowId) -> bool {
        self.flows
            .get(&id)
            .is_none_or(|entry| entry.flow.is_stream_done())
    }
}
