//! Replays of payloads, at the receiving end (`PROTOCOL.md` §20.4).
//!
//! What opens a flow, and what belongs to none, counts once. Payload of a TCP flow may come again,
//! for a PEP sends again when an acknowledgement was lost, and to discard the copy would keep the
//! receiver from acknowledging; but never payload of an earlier connection of the same ports.

use std::collections::HashMap;

use super::FlowId;

/// TCP payloads below the newest of their flow that still pass; TCP tells them apart.
pub const FLOW_REACH: u32 = 65_536;

/// Flows that are remembered; of more, those that have been silent for longest are forgotten.
pub const MAX_FLOWS: usize = 16_384;

/// Place of a payload in all that an end has sent: its association's count, and its number there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) association: u32,
    pub(super) psn: u32,
}

/// Payloads of one flow that have come.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    /// The last SYN; older payload belongs to an earlier connection.
    syn: Place,
    newest: Place,
}

/// Flows of one direction, over all associations of a tunnel. Forgets no replay: payload of a flow
/// that was forgotten passes only if it is newer than all that flows had sent that were.
#[derive(Debug, Default)]
pub struct Flows {
    /// Flows that have been heard of since the last change of generations.
    recent: Generation,
    /// Flows that were heard of in the generation before.
    older: Generation,
    /// Newest payload of all flows that have been forgotten.
    floor: Place,
}

/// Flows that are forgotten together.
#[derive(Debug, Default)]
struct Generation {
    flows: HashMap<FlowId, Span>,
    newest: Place,
}

impl Flows {
    /// Notes the SYN of `flow`, whose copies have been sorted out.
    pub(super) fn on_syn(&mut self, flow: FlowId, at: Place) {
        let mut span = self.get(&flow);
        span.syn = span.syn.max(at);
        self.put(flow, span, at);
    }

    /// Says whether payload of `flow` may pass, and notes it.
    pub(super) fn on_payload(&mut self, flow: FlowId, at: Place) -> bool {
        let span = self.get(&flow);
        // Associations end soon after the next has begun: theirs is reach enough.
        let reaches = at.association != span.newest.association
            || at.psn.saturating_add(FLOW_REACH) > span.newest.psn;
        let passes = at > span.syn && reaches;
        if passes {
            self.put(flow, span, at);
        }
        passes
    }

    /// Flows that are remembered.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.recent.flows.len() + self.older.flows.len()
    }

    /// Span of `flow`; that of one that is unknown begins where memory does.
    fn get(&self, flow: &FlowId) -> Span {
        let known = [&self.recent, &self.older].map(|generation| generation.flows.get(flow));
        let span = known.into_iter().flatten().next().copied();
        span.unwrap_or(Span {
            syn: self.floor,
            newest: self.floor,
        })
    }

    fn put(&mut self, flow: FlowId, mut span: Span, at: Place) {
        let full = self.recent.flows.len() >= MAX_FLOWS / 2;
        if full && !self.recent.flows.contains_key(&flow) {
            self.floor = self.floor.max(self.older.newest);
            self.older = std::mem::take(&mut self.recent);
        }
        span.newest = span.newest.max(at);
        self.recent.newest = self.recent.newest.max(span.newest);
        self.recent.flows.insert(flow, span);
    }
}
