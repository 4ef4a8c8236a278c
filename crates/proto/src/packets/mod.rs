//! IP packets in DATAGRAM frames: all that is not TCP (`PROTOCOL.md` §9).
//!
//! ```text
//!   TUN ─► Sender: Queue (classes, flows, CoDel, age) ─► Packer ─► DATAGRAM ══► Joiner ─► TUN
//! ```
//!
//! Nothing is sent again: a packet is worth less with every round trip, and whoever sent it knows best what to do about its
//! loss. Packets of any size up to the device's fill datagrams without gaps, as GSE fills BBFRAMEs. What a client may reach,
//! and whose packets may pass, is decided by the server; this only reads and writes bytes.

pub(crate) mod build;
pub(crate) mod icmp;
pub(crate) mod ip;
mod join;
pub mod offload;
mod pack;
mod queue;
mod syn;

pub use build::{is_true_tcp, write_checksums};
pub use icmp::{Prohibited, prohibited};
pub use ip::{Class, Header, set_congestion_experienced};
pub use join::{Joiner, Malformed};
pub use pack::{MIN_FRAME, Packer};
pub use queue::{Dropped, Queue, QueueConfig};
pub use syn::tidy_syn;

/// The tunnel's devices have this MTU: no packet is larger.
pub const MTU: usize = 1500;

/// Kind of DATAGRAM frames that carry packets.
const PACKETS: u8 = 2;

/// The only context there is yet.
const CONTEXT: u8 = 0;

/// Length of the head of a frame: kind, context, number.
const HEAD: usize = 4;

/// Length of the head of a piece.
const PIECE: usize = 2;

/// Part that a piece is of its packet: the two upper bits of its head; the others are its length in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FrameKind {
    Whole = 0,
    First = 1,
    Middle = 2,
    Last = 3,
}

impl FrameKind {
    /// The head of a piece of this kind.
    const fn head(self, len: usize) -> [u8; PIECE] {
        ((self as u16) << 14 | len as u16 & LENGTH).to_be_bytes()
    }

    const fn split(head: [u8; PIECE]) -> (Self, usize) {
        let head = u16::from_be_bytes(head);
        let kind = match head >> 14 {
            0 => Self::Whole,
            1 => Self::First,
            2 => Self::Middle,
            _ => Self::Last,
        };
        (kind, (head & LENGTH) as usize)
    }
}

/// Bits of a piece's head that are its length.
const LENGTH: u16 = 0x3fff;

#[cfg(test)]
mod tests;
