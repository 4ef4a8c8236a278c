//! OPEN: the first bytes of the stream of a flow or a page, client to server (`PROTOCOL.md` §6).
//!
//! Written by the client's relay in front of the flow's first payload, read by the server before it dials.
//! Whether the destination may be dialled is not decided here.

use std::net::SocketAddr;

use super::address::{get_socket, put_socket};
use super::wire::{Reader, put_sized, split_sized};
use super::{DecodeError, Destination, FlowId, StreamKind, varint};

/// Longest body of an OPEN, bytes.
pub const MAX_OPEN: usize = 1024;

/// A request to connect a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    /// The flow's name in control frames.
    pub flow: FlowId,
    /// Destination to connect to.
    pub destination: Destination,
    /// Address that asked, at the client's side: for the server's log, never for its policy.
    pub source: Option<SocketAddr>,
    /// Payload bytes that the server may send on this flow before the first FLOW_CREDIT.
    pub credit: u64,
    /// The payload is frames of a page (`PROTOCOL.md` §19), not bytes for the destination.
    pub page: bool,
}

impl Open {
    /// Request of a flow that has a TCP connection to itself, and so neither a name nor credit.
    pub fn alone(destination: Destination, source: Option<SocketAddr>) -> Self {
        Self {
            flow: FlowId(0),
            destination,
            source,
            credit: 0,
            page: false,
        }
    }

    /// Appends stream kind, length and body: everything that precedes the payload of a flow's stream.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut body = Vec::with_capacity(64);
        varint::encode(self.flow.0, &mut body);
        self.destination.encode(&mut body);
        put_socket(self.source, &mut body);
        varint::encode(self.credit, &mut body);
        let kind = if self.page {
            StreamKind::Page
        } else {
            StreamKind::Flow
        };
        kind.encode(out);
        put_sized(&body, out);
    }

    /// Reads from the very start of a flow's stream, stream kind included, and says how many bytes precede the payload.
    /// `None`: need more bytes, never more than [`MAX_OPEN`] + 16 in all.
    ///
    /// # Errors
    /// [`DecodeError`]: another stream kind, a body above [`MAX_OPEN`] bytes or a malformed one.
    pub fn decode(buf: &[u8]) -> Result<Option<(Self, usize)>, DecodeError> {
        let Some((kind, start)) = StreamKind::decode(buf)? else {
            return Ok(None);
        };
        let page = match kind {
            StreamKind::Flow => false,
            StreamKind::Page => true,
            other => return Err(DecodeError::StreamKind(other.code())),
        };
        let rest = buf.get(start..).unwrap_or_default();
        let Some((body, used)) = split_sized(rest, "OPEN", MAX_OPEN)? else {
            return Ok(None);
        };
        let mut reader = Reader::new(body, "OPEN");
        let open = Self {
            flow: FlowId(reader.varint()?),
            destination: Destination::decode(&mut reader)?,
            source: get_socket(&mut reader)?,
            credit: reader.varint()?,
            page,
        };
        reader.skip_tail()?;
        Ok(Some((open, start + used)))
    }
}
