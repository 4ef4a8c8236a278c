//! The ceiling of what a tunnel holds for its LAN sides: three quarters to receive, a quarter to send.

use std::time::Duration;

use bentpipe_proto::congestion::Estimate;
use bentpipe_proto::tunnel::{AbortCode, Control};
use quinn_proto::Connection;

use super::flow::{FlowKey, Header};
use super::tunnel::Tunnel;

/// For so many flows credit may precede the REPLY: the server need not remember more whose OPEN it has not seen.
const MOST_WIDENED: usize = 64;

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
        for key in self.in_order().into_iter().take(MOST_WIDENED) {
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

    /// Last resort of the memory ceiling: the flow that holds most is reset.
    pub(super) fn shed(&mut self, quic: &mut Connection) {
        while self.held > self.budget.ceiling() {
            let Some((&key, flow)) = self
                .flows
                .iter()
                .filter(|(_, flow)| flow.receiver.memory() > 0)
                .max_by_key(|(key, f)| (f.receiver.memory(), **key))
            else {
                return;
            };
            if let Some(flow) = flow.id {
                let frame = Control::FlowAbort {
                    flow,
                    final_offset: 0,
                    code: AbortCode::MemoryLimit,
                };
                self.send_control(&frame);
            }
            self.stats.shed += 1;
            self.throw_away(quic, key, AbortCode::MemoryLimit);
        }
    }
}
