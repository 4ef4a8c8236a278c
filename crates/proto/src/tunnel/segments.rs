//! SEGMENTS: the first bytes of the stream of a flow that two PEPs relay, from the one that opens it (`PROTOCOL.md` §20.9).
//!
//! The messages of the relay follow as payload; what they say is the business of crate `segments`.

use super::wire::{Reader, put_sized, split_sized};
use super::{DecodeError, FlowId, MAX_OPEN, StreamKind, varint};

/// Beginning of a stream that carries the segments of one TCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segments {
    /// The flow's name in control frames.
    pub flow: FlowId,
    /// Payload bytes that the other PEP may send on this flow before the first FLOW_CREDIT.
    pub credit: u64,
}

impl Segments {
    /// Appends stream kind, length and body: everything that precedes the payload.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut body = Vec::with_capacity(16);
        varint::encode(self.flow.0, &mut body);
        varint::encode(self.credit, &mut body);
        StreamKind::Segments.encode(out);
        put_sized(&body, out);
    }

    /// Reads from the very start of a stream, its kind included, and says how many bytes precede the payload. `None`: need
    /// more bytes, never more than [`MAX_OPEN`] + 16 in all.
    ///
    /// # Errors
    /// [`DecodeError`]: another stream kind, a body above [`MAX_OPEN`] bytes or a malformed one.
    pub fn decode(buf: &[u8]) -> Result<Option<(Self, usize)>, DecodeError> {
        let Some((kind, start)) = StreamKind::decode(buf)? else {
            return Ok(None);
        };
        if kind != StreamKind::Segments {
            return Err(DecodeError::StreamKind(kind.code()));
        }
        let rest = buf.get(start..).unwrap_or_default();
        let Some((body, used)) = split_sized(rest, "SEGMENTS", MAX_OPEN)? else {
            return Ok(None);
        };
        let mut reader = Reader::new(body, "SEGMENTS");
        let segments = Self {
            flow: FlowId(reader.varint()?),
            credit: reader.varint()?,
        };
        reader.skip_tail()?;
        Ok(Some((segments, start + used)))
    }
}
