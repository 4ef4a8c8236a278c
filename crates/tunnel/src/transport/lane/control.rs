//! The control stream: frames out, frames in, in order (`PROTOCOL.md` "Control stream").
//!
//! Low volume; what is sent is buffered here until quinn takes it. Read as it arrives, like flows: what quinn holds for a
//! missing part is bounded by nothing. What frames mean is decided in `lane/mod.rs` and by the tunnel.

use bentpipe_proto::relay::Receiver;
use bentpipe_proto::tunnel::{Control, ControlReader, DecodeError, StreamKind};
use bytes::Bytes;
use quinn_proto::{Connection, ReadError, ReadableError, StreamId};
use zeroize::Zeroize as _;

use super::super::event::Fault;
use super::super::tunnel::Outbox;

/// Bytes of the stream that may come before a part that is missing: far more than the frames of one round trip.
const MAX_AHEAD: u64 = 4 << 20;

const TOO_MUCH: Fault = Fault::Violation("too much of the control stream before a missing part");

/// Bytes that may wait for a peer that reads nothing: far more than a frame for every flow.
const MAX_WAITING: usize = 4 << 20;

/// Bytes that quinn is given at once, of which it may take less.
const PIECE: usize = 16 << 10;

/// One side of the control stream.
#[derive(Debug)]
pub(super) struct ControlStream {
    pub(super) id: StreamId,
    out: Outbox,
    received: Receiver,
    taken: u64,
    reader: ControlReader,
    /// The opener's stream kind is still to be read (server).
    kind_expected: bool,
    /// The stream was read.
    read_before: bool,
}

/// Wipes bytes of the stream, among which random bytes of a key may have been. What is still held, alone or with other frames of
/// its packet, stays.
fn wipe(bytes: Bytes) {
    if let Ok(mut own) = bytes.try_into_mut() {
        own.zeroize();
    }
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
            out: Outbox::of(&out),
            received: Receiver::new(MAX_AHEAD),
            taken: 0,
            reader: ControlReader::new(),
            kind_expected: !opened_here,
            read_before: false,
        }
    }

    /// Queues a frame of the lane's own.
    pub(super) fn send(&mut self, frame: &Control) {
        self.out.send(frame);
    }

    /// Hands the lane's frames and those of `tunnel` to quinn; returns how many bytes it took, and whether they have to come
    /// without fail.
    pub(super) fn flush(&mut self, quic: &mut Connection, tunnel: &mut Outbox) -> (usize, bool) {
        tunnel.drain_into(&mut self.out);
        let pressing = self.out.take_pressing();
        let mut written = 0;
        while !self.out.is_empty() {
            // Not as bytes that quinn would copy: what it holds until it is acknowledged is to be wiped.
            let piece = self.out.piece(PIECE);
            let offered = piece.len();
            // Blocked: the peer does not read; a closed stream is noticed on its reading side.
            let taken = quic.send_stream(self.id).write_chunks(&mut [piece]);
            let taken = taken.map_or(0, |taken| taken.bytes);
            self.out.advance(taken);
            written += taken;
            if taken < offered {
                break;
            }
        }
        (written, pressing)
    }

    /// Bytes read so far.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    pub(super) fn has_output(&self) -> bool {
        !self.out.is_empty()
    }

    /// More waits, with the frames of `tunnel`, than a peer that reads would leave.
    pub(super) fn is_stuck(&self, tunnel: &Outbox) -> bool {
        self.out.len() + tunnel.len() > MAX_WAITING
    }

    /// Reads what has arrived; `Ok(false)` means that the peer ended the stream.
    pub(super) fn read(&mut self, quic: &mut Connection) -> Result<bool, Fault> {
        // In order at first: quinn copies what it holds, a client's HELLO, when it is asked for more than that.
        let first = !std::mem::replace(&mut self.read_before, true);
        let open = !first || self.read_chunks(quic, true)?;
        Ok(open && self.read_chunks(quic, false)?)
    }

    fn read_chunks(&mut self, quic: &mut Connection, ordered: bool) -> Result<bool, Fault> {
        let mut stream = quic.recv_stream(self.id);
        let mut chunks = match stream.read(ordered) {
            Ok(chunks) => chunks,
            Err(ReadableError::ClosedStream | ReadableError::IllegalOrderedRead) => {
                return Ok(false);
            }
        };
        loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => {
                    self.insert(chunk.offset, chunk.bytes)?;
                }
                Ok(None) | Err(ReadError::Reset(_)) => return Ok(false),
                Err(ReadError::Blocked) => return Ok(true),
            }
        }
    }

    fn insert(&mut self, offset: u64, bytes: Bytes) -> Result<(), Fault> {
        let came = bytes.clone();
        let kept = self.received.insert(offset, bytes);
        kept.map_err(|_| TOO_MUCH)?;
        self.take()?;
        wipe(came);
        // Small pieces take more than their bytes.
        match self.received.memory() > 2 * MAX_AHEAD {
            true => Err(TOO_MUCH),
            false => Ok(()),
        }
    }

    /// Moves what is next in order to the reader of frames.
    fn take(&mut self) -> Result<(), DecodeError> {
        loop {
            let Some(chunk) = self.received.ready().next().cloned() else {
                break;
            };
            let mut bytes = &chunk[..];
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
            self.received.consume(chunk.len() as u64);
            self.taken += chunk.len() as u64;
            wipe(chunk);
        }
        self.received.raise_limit(self.taken + MAX_AHEAD);
        Ok(())
    }

    pub(super) fn next_frame(&mut self) -> Result<Option<Control>, DecodeError> {
        self.reader.next_frame()
    }
}

#[cfg(test)]
mod tests {
    use quinn_proto::{Dir, Side};

    use super::*;

    fn of_client() -> ControlStream {
        ControlStream {
            id: StreamId::new(Side::Client, Dir::Bi, 0),
            out: Outbox::default(),
            received: Receiver::new(MAX_AHEAD),
            taken: 0,
            reader: ControlReader::new(),
            kind_expected: true,
            read_before: false,
        }
    }

    /// Pieces with gaps between them take far more memory than their bytes.
    #[test]
    fn small_pieces_before_a_missing_part_are_bounded_as_well() {
        let mut stream = of_client();
        let mut pieces = (10..MAX_AHEAD).step_by(2);
        let refused = pieces.position(|at| stream.insert(at, Bytes::from_static(&[0])).is_err());
        assert!(
            refused.is_some_and(|count| count < 60_000),
            "after {refused:?}"
        );
    }

    #[test]
    fn what_waits_for_a_missing_part_is_bounded_and_what_is_in_order_is_not() {
        let mut stream = of_client();
        let mut frames = |from: u64, to: u64| {
            for offset in (from..to).step_by(1000) {
                stream.insert(offset, Bytes::from_static(&[0; 1000]))?;
                while stream.next_frame()?.is_some() {}
            }
            Ok::<_, Fault>(())
        };
        frames(0, 2 * MAX_AHEAD).expect("in order");
        let gap = 2 * MAX_AHEAD + 10_000;
        frames(gap, gap + MAX_AHEAD / 2).expect("a part is late");
        assert!(frames(gap + MAX_AHEAD / 2, gap + 2 * MAX_AHEAD).is_err());
    }
}
