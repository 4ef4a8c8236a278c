//! Control frames of a tunnel that wait for its lane.

use bentpipe_proto::tunnel::Control;

/// Encoded control frames.
#[derive(Debug, Default)]
pub(in crate::transport) struct Outbox {
    /// There is a control stream; what is said before is said to nobody.
    open: bool,
    bytes: Vec<u8>,
    pressing: bool,
}

impl Outbox {
    /// An outbox whose frames begin with `bytes`.
    pub(in crate::transport) fn of(bytes: Vec<u8>) -> Self {
        Self {
            open: true,
            bytes,
            pressing: false,
        }
    }

    /// A control stream is there.
    pub(in crate::transport) fn open(&mut self) {
        self.open = true;
    }

    /// Queues a frame.
    pub(in crate::transport) fn send(&mut self, frame: &Control) {
        if self.open {
            frame.encode(&mut self.bytes);
            // Credit is given long before it is needed, and where ACKS matters a round trip is short.
            self.pressing |= !matches!(
                frame,
                Control::FlowCredit { .. } | Control::Keep { .. } | Control::Acks(_)
            );
        }
    }

    pub(in crate::transport) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(in crate::transport) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The first `count` bytes have left.
    pub(in crate::transport) fn advance(&mut self, count: usize) {
        self.bytes.drain(..count);
    }

    /// True if a frame was queued, since the last call, that is to come without fail.
    pub(in crate::transport) fn take_pressing(&mut self) -> bool {
        std::mem::take(&mut self.pressing)
    }

    /// Moves everything to `other`.
    pub(in crate::transport) fn drain_into(&mut self, other: &mut Self) {
        other.bytes.append(&mut self.bytes);
        other.pressing |= self.take_pressing();
    }
}
