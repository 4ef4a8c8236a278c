//! Control frames of a tunnel that wait for its lane.

use bentpipe_proto::tunnel::{Control, WipedBytes};
use bytes::Bytes;
use zeroize::Zeroizing;

/// Encoded control frames.
#[derive(Debug, Default)]
pub(in crate::transport) struct Outbox {
    /// True once the control stream is open; frames from before are dropped.
    open: bool,
    bytes: WipedBytes,
    pressing: bool,
}

impl Outbox {
    /// An outbox whose frames stand behind `bytes`.
    pub(in crate::transport) fn of(bytes: &[u8]) -> Self {
        let mut outbox = Self {
            open: true,
            ..Self::default()
        };
        outbox.bytes.push(bytes);
        outbox
    }

    /// A control stream is there.
    pub(in crate::transport) fn open(&mut self) {
        self.open = true;
    }

    /// Queues a frame.
    pub(in crate::transport) fn send(&mut self, frame: &Control) {
        if self.open {
            self.bytes.push(&frame.encode());
            // Credit is given long before it is needed, and where ACKS matters a round trip is short.
            self.pressing |= !matches!(
                frame,
                Control::FlowCredit { .. } | Control::Keep { .. } | Control::Acks(_)
            );
        }
    }

    /// Bytes that wait.
    pub(in crate::transport) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The first bytes, at most `most`, as a piece that is wiped once nobody holds it.
    pub(in crate::transport) fn piece(&self, most: usize) -> Bytes {
        let piece = &self.bytes[..self.len().min(most)];
        Bytes::from_owner(Zeroizing::new(piece.to_vec()))
    }

    pub(in crate::transport) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The first `count` bytes have left.
    pub(in crate::transport) fn advance(&mut self, count: usize) {
        self.bytes.consume(count);
    }

    /// True if a frame was queued, since the last call, that is to come without fail.
    pub(in crate::transport) fn take_pressing(&mut self) -> bool {
        std::mem::take(&mut self.pressing)
    }

    /// Moves everything to `other`.
    pub(in crate::transport) fn drain_into(&mut self, other: &mut Self) {
        other.bytes.push(&self.bytes);
        self.bytes.consume(self.len());
        other.pressing |= self.take_pressing();
    }
}
