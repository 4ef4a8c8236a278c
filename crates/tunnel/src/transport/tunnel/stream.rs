//! What is read from a flow's stream, and what was written into it.

use bentpipe_proto::relay::{CreditExceeded, Receiver};
use bytes::Bytes;
use quinn_proto::{Connection, ReadError, ReadableError, StreamId};

/// Piece that one turn wrote into a flow's stream.
#[derive(Debug)]
pub(in crate::transport) struct Piece {
    /// The peer knew nothing of the flow before.
    pub(in crate::transport) opens: bool,
    /// Place at which the bytes begin in the stream.
    pub(in crate::transport) offset: u64,
    /// The bytes, and perhaps some behind them that were not written.
    pub(in crate::transport) chunks: Vec<Bytes>,
    /// Bytes that were written.
    pub(in crate::transport) written: usize,
    /// Nothing is left that could be written now.
    pub(in crate::transport) dry: bool,
    /// The direction has ended.
    pub(in crate::transport) ends: bool,
    /// The stream has ended with FIN.
    pub(in crate::transport) fin: bool,
}

impl Piece {
    /// Bytes that the turn counts for: an end is worth a packet even if no byte went with it.
    pub(in crate::transport) fn weight(&self) -> usize {
        self.written.max(usize::from(self.ends))
    }
}

/// Moves everything that a stream has into `receiver`, and shows it to `look`. Returns the bytes taken, and whether they were its last.
pub(in crate::transport) fn drain(
    receiver: &mut Receiver,
    quic: &mut Connection,
    stream: StreamId,
    mut look: impl FnMut(u64, &Bytes),
) -> Result<(u64, bool), ReadFault> {
    let mut recv = quic.recv_stream(stream);
    let mut chunks = match recv.read(false) {
        Ok(chunks) => chunks,
        Err(ReadableError::ClosedStream | ReadableError::IllegalOrderedRead) => {
            return Ok((0, false));
        }
    };
    let mut taken = 0;
    loop {
        match chunks.next(usize::MAX) {
            Ok(Some(chunk)) => {
                taken += chunk.bytes.len() as u64;
                look(chunk.offset, &chunk.bytes);
                receiver
                    .insert(chunk.offset, chunk.bytes)
                    .map_err(ReadFault::Credit)?;
            }
            Ok(None) => {
                receiver.finish();
                return Ok((taken, true));
            }
            Err(ReadError::Reset(_)) => return Err(ReadFault::Reset),
            Err(ReadError::Blocked) => return Ok((taken, false)),
        }
    }
}

/// Reason why reading a flow's stream failed.
#[derive(Debug)]
pub(in crate::transport) enum ReadFault {
    /// RESET_STREAM: the peer threw the data away.
    Reset,
    /// The peer broke its credit.
    Credit(CreditExceeded),
}
