//! The control stream: frames out, frames in, in order (`PROTOCOL.md` "Control stream").
//!
//! Low volume, so it is read in order and buffered here until quinn takes it. What frames mean is
//! decided in `tunnel.rs`.

use bentpipe_proto::tunnel::{Control, ControlReader, DecodeError, StreamKind};
use quinn_proto::{Connection, ReadError, ReadableError, StreamId, WriteError};

/// One side of the control stream.
#[derive(Debug)]
pub(super) struct ControlStream {
    pub(super) id: StreamId,
    out: Vec<u8>,
    reader: ControlReader,
    /// The opener's stream kind is still to be read (server).
    kind_expected: bool,
}

impl ControlStream {
    /// `opened_here`: this side opened the stream and announces its kind.
    pub(super) fn new(quic: &mut Connection, id: StreamId, opened_here: bool) -> Self {
        // Control frames pass whatever quinn has buffered: credit must not wait behind the data it
        // is to unblock.
        let _ = quic.send_stream(id).set_priority(1);
        let mut out = Vec::new();
        if opened_here {
            StreamKind::Control.encode(&mut out);
        }
        Self {
            id,
            out,
            reader: ControlReader::new(),
            kind_expected: !opened_here,
        }
    }

    pub(super) fn send(&mut self, frame: &Control) {
        frame.encode(&mut self.out);
    }

    /// Hands buffered frames to quinn; returns how many bytes it took.
    pub(super) fn flush(&mut self, quic: &mut Connection) -> usize {
        if self.out.is_empty() {
            return 0;
        }
        match quic.send_stream(self.id).write(&self.out) {
            Ok(written) => {
                self.out.drain(..written);
                written
            }
            // Blocked: the peer does not read; a closed stream is noticed on its reading side.
            Err(WriteError::Blocked | WriteError::Stopped(_) | WriteError::ClosedStream) => 0,
        }
    }

    pub(super) fn has_output(&self) -> bool {
        !self.out.is_empty()
    }

    /// Reads what has arrived; `Ok(false)` means that the peer ended the stream.
    pub(super) fn read(&mut self, quic: &mut Connection) -> Result<bool, DecodeError> {
        let mut stream = quic.recv_stream(self.id);
        let mut chunks = match stream.read(true) {
            Ok(chunks) => chunks,
            Err(ReadableError::ClosedStream | ReadableError::IllegalOrderedRead) => {
                return Ok(false);
            }
        };
        loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => {
                    let mut bytes = &chunk.bytes[..];
                    // The kind is one byte long, so it cannot be split.
                    if self.kind_expected
                        && let Some((kind, used)) = StreamKind::decode(bytes)?
                    {
                        if kind != StreamKind::Control {
                            return Err(DecodeError::StreamKind(kind.code()));
                        }
                        self.kind_expected = false;
                        bytes = &bytes[used..];
                    }
                    self.reader.push(bytes);
                }
                Ok(None) | Err(ReadError::Reset(_)) => return Ok(false),
                Err(ReadError::Blocked) => return Ok(true),
            }
        }
    }

    pub(super) fn next_frame(&mut self) -> Result<Option<Control>, DecodeError> {
        self.reader.next_frame()
    }
}
