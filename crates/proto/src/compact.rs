//! Slices that do not keep more memory than they account for.

use bytes::Bytes;

/// Allocation that a received slice is taken to be cut from, in bytes, unless a larger one is known: a datagram.
const DATAGRAM: usize = 1500;

/// A slice of `whole` bytes, or of a datagram, that is to be held: copied if it is less than half of its allocation, which it
/// would keep in memory.
pub(crate) fn compact(part: Bytes, whole: usize) -> Bytes {
    match part.len() < whole.max(DATAGRAM) / 2 {
        true => Bytes::copy_from_slice(&part),
        false => part,
    }
}
