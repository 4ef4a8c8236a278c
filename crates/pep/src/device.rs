//! Packets from and to the tunnel's device, at either end.

use std::io::{self, IoSlice};

use bentpipe_proto::packets::offload::{Merger, Piece, split};
use bentpipe_sys::tun::BulkTun;
use bytes::{Bytes, BytesMut};

/// Packets that are read before any is handed on, but for those that came in one piece with the last.
pub(crate) const BATCH: usize = 64;

/// Reads what waits in `tun`, a batch at most, by way of `buffer`; true if there may be more. Each packet has storage of its
/// own: what waits long must not keep that of others.
pub(crate) fn read_batch(
    tun: &BulkTun,
    buffer: &mut BytesMut,
    mut take: impl FnMut(Bytes),
) -> io::Result<bool> {
    buffer.resize(BulkTun::LARGEST, 0);
    let mut count = 0;
    while count < BATCH {
        match tun.read(buffer) {
            Ok(length) => {
                let each = |packet| {
                    count += 1;
                    take(packet);
                };
                if let Err(mismatch) = split(&buffer[..length], each) {
                    // Goes on as no packet at all, and is counted where others that are malformed are.
                    tracing::debug!("{length} bytes of the tunnel's device: {mismatch}");
                    count += 1;
                    take(Bytes::new());
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Writes the `packets` of one batch to `tun`, in as few pieces as it permits.
pub(crate) fn write_batch(tun: &BulkTun, packets: impl IntoIterator<Item = Bytes>) {
    let mut merger = Merger::new(tun.merges());
    packets.into_iter().for_each(|packet| merger.push(packet));
    for piece in merger.pieces() {
        // Where the kernel's queue is full it is dropped, as on any link.
        let _ = write(tun, piece);
    }
}

fn write(tun: &BulkTun, piece: &Piece) -> io::Result<usize> {
    let head = piece.head();
    let parts = std::iter::once(&*head).chain(piece.contents());
    let parts: Vec<_> = parts.map(IoSlice::new).collect();
    tun.write(&parts)
}

#[cfg(test)]
mod tests;
