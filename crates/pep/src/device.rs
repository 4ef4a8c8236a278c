//! Packets from the tunnel's device, at either end.

use std::io;

use bentpipe_proto::packets::MTU;
use bentpipe_sys::tun::Tun;
use bytes::{Bytes, BytesMut};

/// Packets that are read before any is handed on.
pub(crate) const BATCH: usize = 64;

/// Storage is taken from the system in such pieces, in bytes.
const BLOCK: usize = 64 * 1024;

/// Reads what waits in `tun`, a batch at most, in storage that many packets share; true if there may be more.
pub(crate) fn read_batch(
    tun: &Tun,
    block: &mut BytesMut,
    mut take: impl FnMut(Bytes),
) -> io::Result<bool> {
    for _ in 0..BATCH {
        if block.capacity() < MTU {
            *block = BytesMut::with_capacity(BLOCK);
        }
        block.resize(MTU, 0);
        let read = tun.read(block);
        if let Ok(length) = read {
            take(block.split_to(length).freeze());
        }
        block.clear();
        match read {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}
