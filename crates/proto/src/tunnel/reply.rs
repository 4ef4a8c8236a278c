//! REPLY: the first bytes of a flow's stream, server to client (`PROTOCOL.md` §6).
//!
//! Written by the server once its connect has ended one way or the other, before any payload; read at the client,
//! whose front ends turn the code into what they can say (a SOCKS reply, an HTTP status, an nft entry, a reset).

use std::net::SocketAddr;

use super::address::{get_socket, put_socket};
use super::codes::codes;
use super::wire::{Reader, put_sized, split_sized};
use super::{DecodeError, varint};

/// Longest body of a REPLY, bytes.
pub const MAX_REPLY: usize = 256;

codes! {
    /// Outcome of the server's connect. An unknown code is read as [`ReplyCode::Internal`].
    pub enum ReplyCode, unknown = Internal {
        /// Connected; payload follows.
        Ok = 0,
        /// The destination answered with a reset (ECONNREFUSED), or the port is 0.
        Refused = 1,
        /// No route to the network (ENETUNREACH).
        NetworkUnreachable = 2,
        /// No route to the host (EHOSTUNREACH).
        HostUnreachable = 3,
        /// The destination did not answer in time.
        TimedOut = 4,
        /// The server's policy forbids the destination.
        Denied = 5,
        /// The name does not exist or has no address.
        NameNotFound = 6,
        /// The server has no connectivity in the destination's address family.
        FamilyUnsupported = 7,
        /// A limit on flows of this client or of the server is reached.
        LimitReached = 8,
        /// Anything else, on the server.
        Internal = 9,
        /// The server takes no new flows: it has sent GOAWAY.
        Draining = 10,
    }
}

/// The server's answer to an OPEN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Outcome of the connect.
    pub code: ReplyCode,
    /// The server's own address of the new connection, if it wishes to tell.
    pub bound: Option<SocketAddr>,
    /// Total payload bytes that the client may send on this flow, counted from its first: never lowers what it has.
    pub credit: u64,
}

impl Reply {
    /// Appends length and body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut body = Vec::with_capacity(32);
        varint::encode(self.code.code(), &mut body);
        put_socket(self.bound, &mut body);
        varint::encode(self.credit, &mut body);
        put_sized(&body, out);
    }

    /// Reads from the very start of the server's half of a flow's stream and says how many bytes precede the payload.
    /// `None`: need more bytes, never more than [`MAX_REPLY`] + 8 in all.
    ///
    /// # Errors
    /// [`DecodeError`]: a body above [`MAX_REPLY`] bytes or a malformed one.
    pub fn decode(buf: &[u8]) -> Result<Option<(Self, usize)>, DecodeError> {
        let Some((body, used)) = split_sized(buf, "REPLY", MAX_REPLY)? else {
            return Ok(None);
        };
        let mut reader = Reader::new(body, "REPLY");
        let reply = Self {
            code: ReplyCode::from_code(reader.varint()?),
            bound: get_socket(&mut reader)?,
            credit: reader.varint()?,
        };
        reader.skip_tail()?;
        Ok(Some((reply, used)))
    }
}
