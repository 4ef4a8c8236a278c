//! A TCP connection that shares the link with the tunnels.

use std::time::{Duration, Instant};

use crate::tcp::{Config, Receiver, Sender};
use bentpipe_link::sim::next_wakeup;

use super::wire::{Packet, Towards};

/// A sender and its receiver, on either side of the link.
pub struct Competitor {
    /// End that sends data.
    pub sender: Sender,
    /// End that acknowledges them.
    pub receiver: Receiver,
    /// Data goes to the terminals.
    pub(super) down: bool,
    /// As [`super::Terminal`] has it.
    pub(super) access: Duration,
}

impl Competitor {
    pub(super) fn new(config: Config, down: bool, access: Duration) -> Self {
        Self {
            sender: Sender::new(config),
            receiver: Receiver::default(),
            down,
            access,
        }
    }

    /// Packets that leave now, as flow number `flow`, and their goal.
    pub(super) fn transmit(
        &mut self,
        now: Instant,
        flow: usize,
        mut send: impl FnMut(Towards, Packet),
    ) {
        let (data, acks) = if self.down {
            (Towards::Terminals, Towards::Server)
        } else {
            (Towards::Server, Towards::Terminals)
        };
        self.sender.handle_timeout(now);
        while let Some(segment) = self.sender.poll_transmit(now) {
            send(data, Packet::Segment(flow, segment));
        }
        while let Some(ack) = self.receiver.poll_transmit(now) {
            send(acks, Packet::Ack(flow, ack));
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        next_wakeup([self.sender.poll_timeout(), self.receiver.poll_timeout()])
    }
}
