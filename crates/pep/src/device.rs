//! Packets from the tunnel's device, at either end.

use std::io;

use bentpipe_proto::packets::MTU;
use bentpipe_sys::tun::Tun;
use bytes::{Bytes, BytesMut};

/// Packets that are read before any is handed on.
pub(crate) const BATCH: usize = 64;

/// Reads what waits in `tun`, a batch at most, by way of `buffer`; true if there may be more. Each packet has storage of its
/// own: what waits long must not keep that of others.
pub(crate) fn read_batch(
    tun: &Tun,
    buffer: &mut BytesMut,
    mut take: impl FnMut(Bytes),
) -> io::Result<bool> {
    buffer.resize(MTU, 0);
    for _ in 0..BATCH {
        match tun.read(buffer) {
            Ok(length) => take(Bytes::copy_from_slice(&buffer[..length])),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}
