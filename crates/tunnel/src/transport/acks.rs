//! ACKS on the control stream: how each side wants to be acknowledged (`PROTOCOL.md` §5.7).

use bentpipe_proto::tunnel::{Acks, Control, capability};

use super::tunnel::Tunnel;

impl Tunnel {
    /// Whether the peer heeds ACKS.
    pub(crate) fn answers_ack_wishes(&self) -> bool {
        self.has(capability::ACKS)
    }

    /// Tells the peer when this side wants to be acknowledged.
    pub(crate) fn wish_acks(&mut self, acks: Acks) {
        self.send_control(&Control::Acks(acks));
    }

    /// When the peer wants to be acknowledged, if the peer has just said so.
    pub(crate) fn take_ack_wish(&mut self) -> Option<Acks> {
        self.ack_wish.take()
    }
}
