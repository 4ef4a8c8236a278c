//! The ceiling of what a tunnel holds for its LAN sides: three quarters to receive, a quarter to send.

use std::sync::Arc;
use std::time::Duration;

use bentpipe_congestion::Estimate;
use bentpipe_proto::tunnel::{AbortCode, Control};
use quinn_proto::Connection;

use super::flow::{Flow, FlowKey, Header};
use super::pool::{MemoryPool, Share};
use super::tunnel::Tunnel;

/// For so many flows credit may precede the REPLY: the server need not remember more whose OPEN it has not seen.
const MOST_WIDENED: usize = 64;

/// A search for the flows that hold most frees this for each flow that it looks at, in bytes.
const SEARCHED: u64 = 64;

/// What receivers may hold together.
pub(super) fn receiving_share(ceiling: u64) -> u64 {
    ceiling / 4 * 3
}

/// What senders may hold together.
pub(super) fn sending_share(ceiling: u64) -> u64 {
    ceiling / 4
}

impl Tunnel {
    /// Holds at most `ceiling` bytes from now on: known only once the peer is.
    pub fn set_memory(&mut self, ceiling: u64) {
        self.ceiling = ceiling;
        self.budget.set_ceiling(receiving_share(ceiling));
    }

    /// The peer's train has come: the peer is told, and what the path brings is known before anything else came. Flows
    /// that were opened meanwhile get the credit that they would have got now.
    pub(crate) fn on_train(&mut self, rtt: Duration, train: Estimate) {
        self.send_control(&Control::RateHint {
            rate: train.rate,
            packets: train.packets,
        });
        self.meter.on_train(train.rate.as_u64() / 8);
        let oldest: Vec<_> = self.order.iter().take(MOST_WIDENED).copied().collect();
        for key in oldest {
            self.widen(rtt, key);
        }
    }

    /// The first credit of a flow that nothing has come of yet is what is now known to be right.
    pub(super) fn widen(&mut self, rtt: Duration, key: FlowKey) {
        let product = self.meter.product(rtt);
        let Some(flow) = self.flows.get_mut(&key) else {
            return;
        };
        let limit = self.budget.widen(&mut flow.window, product);
        self.grant(key, limit);
    }

    /// Memory held for LAN sides and its ceiling, in bytes.
    pub fn memory(&self) -> (u64, u64) {
        let senders = || self.flows.values().map(|flow| flow.sender.memory());
        debug_assert_eq!(self.sending, senders().sum::<u64>());
        (self.held + self.sending, self.ceiling)
    }

    /// Ends a flow without regard for its bytes; the relay will see [`super::Incoming::Gone`].
    pub(super) fn throw_away(&mut self, quic: &mut Connection, key: FlowKey, code: AbortCode) {
        let Some(flow) = self.flows.get_mut(&key) else {
            return;
        };
        let before = (flow.receiver.memory(), flow.sender.memory());
        flow.tear_down(quic, key.stream(), code);
        self.held = self.held.saturating_sub(before.0);
        self.sending = (self.sending + flow.sender.memory()).saturating_sub(before.1);
        flow.gone = true;
        // Nobody was told of a flow whose OPEN never came, so nobody will let go of it.
        flow.released |= !flow.opened_here && flow.header == Header::Expected;
        self.notify(key);
        self.collect(key);
    }

    /// Shares `pool` with the tunnels of all engines, from the moment that the peer is known.
    pub(crate) fn set_pool(&mut self, pool: Arc<MemoryPool>) {
        self.pool = pool;
    }

    /// Memory that the tunnel can give back, in bytes: what it holds for its LAN sides and keeps to mend losses. What is in
    /// flight is bounded by congestion control.
    fn footprint(&self) -> u64 {
        self.held + self.sending + self.kept()
    }

    /// Bytes that the tunnel may hold now of the memory for all tunnels.
    pub(super) fn allowance(&self) -> u64 {
        self.share.as_ref().map_or(u64::MAX, Share::allowance)
    }

    /// Says what the tunnel holds to the others of the process.
    pub(super) fn tell_memory(&mut self) {
        let footprint = self.footprint() + self.packets.memory() as u64;
        if let Some(share) = &mut self.share {
            share.hold(footprint);
        }
    }

    /// Last resort of the memory ceilings, the tunnel's own and that of all: the flows that hold most are reset.
    pub(super) fn shed(&mut self, quic: &mut Connection) {
        let most = receiving_share(self.ceiling);
        if self.held > most {
            self.reset_largest(quic, self.held - most, |flow| flow.receiver.memory());
        }
        self.tell_memory();
        let excess = self.footprint().saturating_sub(self.allowance());
        if excess > 0 {
            self.give_way(quic, excess);
        }
    }

    /// Gives way to other tunnels; true if there was need to.
    pub(crate) fn share_memory(&mut self, quic: &mut Connection) -> bool {
        self.tell_memory();
        let allowance = self.allowance();
        // New flows are promised less before any has to be reset.
        let ceiling = self.ceiling.min(allowance);
        self.budget.set_ceiling(receiving_share(ceiling));
        let excess = self.footprint().saturating_sub(allowance);
        if excess > 0 {
            self.give_way(quic, excess);
        }
        excess > 0
    }

    /// The tunnel holds `excess` bytes more than it may of the memory for all. Half of that, for what it gives back is free,
    /// and as much as is free it may hold.
    fn give_way(&mut self, quic: &mut Connection, excess: u64) {
        let before = self.footprint();
        let kept = self.kept().saturating_sub(excess.div_ceil(2));
        self.repairs.incoming.keep(kept);
        let freed = before - self.footprint().min(before);
        let left = excess.div_ceil(2).saturating_sub(freed);
        if left > 0 {
            self.reset_largest(quic, left, |flow| {
                flow.receiver.memory() + flow.sender.memory()
            });
        }
        self.tell_memory();
    }

    /// Resets the flows of which `memory` is most, until `excess` bytes are free, and some more if there are many flows: to
    /// look at all of them for each chunk that is too much would cost more than the chunk.
    fn reset_largest(&mut self, quic: &mut Connection, excess: u64, memory: impl Fn(&Flow) -> u64) {
        let mut left = excess + SEARCHED * self.flows.len() as u64;
        let all = self.flows.iter().map(|(key, flow)| (memory(flow), *key));
        let mut largest: Vec<_> = all.filter(|(held, _)| *held > 0).collect();
        largest.sort_unstable();
        while left > 0
            && let Some((held, key)) = largest.pop()
        {
            if let Some(flow) = self.flows.get(&key).and_then(|flow| flow.id) {
                let frame = Control::FlowAbort {
                    flow,
                    final_offset: 0,
                    code: AbortCode::MemoryLimit,
                };
                self.send_control(&frame);
            }
            self.stats.shed += 1;
            self.throw_away(quic, key, AbortCode::MemoryLimit);
            left = left.saturating_sub(held);
        }
    }
}
