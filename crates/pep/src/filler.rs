//! Bytes for measuring: a body of any length, from one block that no link compresses.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

/// Bytes of the block: more than a compressor of packets or streams looks back.
const BLOCK: usize = 256 << 10;

/// Bytes that are handed to the socket at once.
const PIECE: u64 = 64 << 10;

/// A block of random bytes.
pub(crate) fn block() -> Bytes {
    let mut block = vec![0; BLOCK];
    bentpipe_tunnel::engine::random(&mut block);
    block.into()
}

/// The body of an answer.
#[derive(Debug)]
pub(crate) struct Filler {
    block: Bytes,
    sent: u64,
    length: u64,
}

impl Filler {
    /// Sends `length` bytes, from `block` over and over.
    pub(crate) fn new(block: Bytes, length: u64) -> Self {
        Self {
            block,
            sent: 0,
            length,
        }
    }

    fn piece(&mut self) -> Option<Bytes> {
        let size = self.block.len() as u64;
        let start = self.sent % size;
        let end = (start + PIECE.min(self.length - self.sent)).min(size);
        self.sent += end - start;
        let at = |place| usize::try_from(place).ok();
        (start < end).then(|| Some(self.block.slice(at(start)?..at(end)?)))?
    }
}

impl Body for Filler {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.piece().map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.sent == self.length
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.length - self.sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_has_the_length_that_was_asked_for() {
        for length in [0, 1, PIECE, PIECE + 1, BLOCK as u64 + 7, 3 * BLOCK as u64] {
            let mut filler = Filler::new(block(), length);
            assert_eq!(filler.size_hint().exact(), Some(length));
            let mut sent = 0;
            while let Some(piece) = filler.piece() {
                assert!(!piece.is_empty() && piece.len() as u64 <= PIECE);
                sent += piece.len() as u64;
            }
            assert_eq!(sent, length);
            assert!(filler.is_end_stream());
        }
    }
}
