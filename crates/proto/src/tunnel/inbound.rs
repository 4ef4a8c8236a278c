//! Ports of the server that deliver to hosts behind the client: what is asked for, what comes of it, and the first bytes
//! of a connection that came (`PROTOCOL.md` §15).
//!
//! Who may have which port, and who gets its connections, is decided elsewhere.

use std::net::SocketAddr;

use super::address::{get_socket, put_socket};
use super::codes::codes;
use super::wire::{Reader, put_sized, split_sized};
use super::{DecodeError, Families, FlowId, MAX_OPEN, StreamKind, varint};

/// Ports that one client may ask for, numbered from 0.
pub const MAX_PUBLISHED: u64 = 64;

codes! {
    /// Outcome of a port that was asked for. An unknown code is read as [`PublishCode::Internal`].
    pub enum PublishCode, unknown = Internal {
        /// The port is open.
        Ok = 0,
        /// The server's configuration does not give it to this client.
        NotPermitted = 1,
        /// Another client or program has the port.
        InUse = 2,
        /// The server's process may not open it.
        NoPrivilege = 3,
        /// Packets do not cross, and it is one of UDP.
        NoPackets = 4,
        /// The server does not publish ports of this protocol.
        Unsupported = 5,
        /// Anything else.
        Internal = 6,
    }
}

/// A port of the server that a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publish {
    /// The client's number for it, below [`MAX_PUBLISHED`].
    pub entry: u64,
    /// IP's number of the protocol: 6 is TCP, 17 is UDP.
    pub protocol: u8,
    /// For which families of the server's addresses.
    pub families: Families,
    /// The port.
    pub port: u16,
}

impl Publish {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        varint::encode(self.entry, out);
        out.push(self.protocol);
        varint::encode(self.families.bits(), out);
        out.extend_from_slice(&self.port.to_be_bytes());
    }

    pub(super) fn decode(value: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(value, "PUBLISH");
        let entry = reader.varint()?;
        let [protocol] = reader.array()?;
        let families = Families::from_bits(reader.varint()?);
        let port = u16::from_be_bytes(reader.array()?);
        reader.end()?;
        Ok(Self {
            entry,
            protocol,
            families,
            port,
        })
    }
}

/// The first bytes of a stream that the server opens: somebody has connected to a published port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inbound {
    /// The flow's name in control frames.
    pub flow: FlowId,
    /// The port, by the client's number.
    pub entry: u64,
    /// Address that has connected.
    pub source: Option<SocketAddr>,
    /// To which address of the server.
    pub destination: Option<SocketAddr>,
    /// Payload bytes that the client may send on this flow before the first FLOW_CREDIT.
    pub credit: u64,
}

impl Inbound {
    /// Appends stream kind, length and body: everything that precedes the payload.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut body = Vec::with_capacity(64);
        varint::encode(self.flow.0, &mut body);
        varint::encode(self.entry, &mut body);
        put_socket(self.source, &mut body);
        put_socket(self.destination, &mut body);
        varint::encode(self.credit, &mut body);
        StreamKind::Inbound.encode(out);
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
        if kind != StreamKind::Inbound {
            return Err(DecodeError::StreamKind(kind.code()));
        }
        let rest = buf.get(start..).unwrap_or_default();
        let Some((body, used)) = split_sized(rest, "INBOUND", MAX_OPEN)? else {
            return Ok(None);
        };
        let mut reader = Reader::new(body, "INBOUND");
        let inbound = Self {
            flow: FlowId(reader.varint()?),
            entry: reader.varint()?,
            source: get_socket(&mut reader)?,
            destination: get_socket(&mut reader)?,
            credit: reader.varint()?,
        };
        reader.skip_tail()?;
        Ok(Some((inbound, start + used)))
    }
}
