//! Packets into frames, without gaps: what does not fit goes on in the next frame.

use bytes::{BufMut as _, Bytes, BytesMut};

use super::{CONTEXT, FrameKind, HEAD, PACKETS, PIECE};

/// No frame is worth making with less room, in bytes.
pub const MIN_FRAME: usize = 256;

/// With less room than this left in a frame the next packet begins in the next one, in bytes.
const WORTH_SPLITTING: usize = 64;

/// A packet that is no longer is not split: each of two datagrams that carry it may be lost. In bytes; voice is below.
const SMALL: usize = 320;

/// Storage is taken from the system in such pieces, in bytes.
const BLOCK: usize = 64 * 1024;

/// Fills frames with packets. Knows no time and drops nothing.
#[derive(Debug, Default)]
pub struct Packer {
    sequence: u16,
    left: Left,
    block: BytesMut,
}

/// Part of an earlier packet that precedes the next one.
#[derive(Debug, Default)]
enum Left {
    #[default]
    Nothing,
    /// The rest of a packet whose beginning has left.
    Rest(Bytes),
    /// A packet that was not to be split.
    Whole(Bytes),
}

impl Packer {
    /// True if a packet, or a part of one, is left over from the last frame.
    #[must_use]
    pub const fn has_left(&self) -> bool {
        !matches!(self.left, Left::Nothing)
    }

    /// The next frame, of at most `max` bytes; `next` yields packets in the order in which they are to leave, each not
    /// empty and at most [`super::MTU`] long. `None` if there is nothing to send, or `max` is below [`MIN_FRAME`].
    pub fn frame(&mut self, max: usize, mut next: impl FnMut() -> Option<Bytes>) -> Option<Bytes> {
        if max < MIN_FRAME {
            return None;
        }
        let mut packet = match std::mem::take(&mut self.left) {
            Left::Rest(rest) if PIECE + rest.len() > max - HEAD => {
                self.begin(max);
                self.left = Left::Rest(self.fill(max, FrameKind::Middle, rest));
                return Some(self.end());
            }
            Left::Rest(rest) => {
                self.begin(max);
                self.put(FrameKind::Last, &rest);
                None
            }
            Left::Whole(packet) => {
                self.begin(max);
                Some(packet)
            }
            Left::Nothing => {
                let packet = next()?;
                self.begin(max);
                Some(packet)
            }
        };
        while max.saturating_sub(self.block.len() + PIECE) >= WORTH_SPLITTING {
            let Some(packet) = packet.take().or_else(&mut next) else {
                break;
            };
            let room = max - self.block.len() - PIECE;
            if packet.len() <= room {
                self.put(FrameKind::Whole, &packet);
            } else if packet.len() <= SMALL && self.block.len() > HEAD {
                self.left = Left::Whole(packet);
                break;
            } else {
                self.left = Left::Rest(self.fill(max, FrameKind::First, packet));
                break;
            }
        }
        Some(self.end())
    }

    fn begin(&mut self, max: usize) {
        if self.block.capacity() < max {
            self.block = BytesMut::with_capacity(BLOCK.max(max));
        }
        self.block.put_slice(&[PACKETS, CONTEXT]);
        self.block.put_u16(self.sequence);
        self.sequence = self.sequence.wrapping_add(1);
    }

    fn put(&mut self, kind: FrameKind, piece: &[u8]) {
        self.block.put_slice(&kind.head(piece.len()));
        self.block.put_slice(piece);
    }

    /// Fills the frame with the beginning of `packet`; returns the rest.
    fn fill(&mut self, max: usize, kind: FrameKind, mut packet: Bytes) -> Bytes {
        let piece = packet.split_to(max - self.block.len() - PIECE);
        self.put(kind, &piece);
        packet
    }

    fn end(&mut self) -> Bytes {
        self.block.split().freeze()
    }
}
