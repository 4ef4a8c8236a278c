//! The tunnel protocol's headers: control frames, OPEN and REPLY, and the codes in them (`PROTOCOL.md` is normative).
//!
//! Between the relays and the QUIC streams: turns values into bytes and hostile bytes into values or a named error.
//! Keeps no state but the unfinished frame in [`ControlReader`]; order, credit and the ends of flows are the relay's
//! business, closing the tunnel is the engine's.
//!
//! Encoders never write what a decoder refuses; integers above 2^62 − 1 are clamped ([`varint`]).

mod address;
mod again;
mod codes;
mod control;
mod enrol;
mod hello;
mod inbound;
mod les;
mod open;
mod reply;
mod segments;
mod sle;
mod train;
pub mod varint;
mod wiped;
mod wire;

pub use address::{Destination, Host, HostName, MAX_NAME, NameError};
pub use again::{AGAIN_HEAD, Again, Awaited, MAX_AWAITED, Place};
pub use codes::{AbortCode, CloseCode};
pub use control::{Control, ControlReader, MAX_FRAME};
pub use enrol::{ENROL_KEY, EnrolCode};
pub use hello::{
    Acks, Families, Forward, Hello, MAX_AGENT, MAX_ASSIGNED, MAX_CONTROLLER, MAX_ROUTED,
    MAX_SLE_PREFIXES, PacketKinds,
};
pub use inbound::{Inbound, MAX_PUBLISHED, Publish, PublishCode};
pub use les::{LesBody, LesKind};
pub use open::{MAX_OPEN, Open};
pub use reply::{MAX_REPLY, Reply, ReplyCode};
pub use segments::Segments;
pub use sle::{EpochRandom, SleHello};
pub use train::{MAX_TRAIN, TrainPacket};
pub use wiped::WipedBytes;

/// The application protocol in the TLS handshake (RFC 7301; `PROTOCOL.md` §2).
pub const ALPN: &[u8] = b"bentpipe/1";

/// The application protocol between a client and a PEP of LES (`PROTOCOL.md` §20.1).
pub const LES_ALPN: &[u8] = b"bentpipe-les/1";

/// Version of the protocol spoken here, as in HELLO (`PROTOCOL.md` §11).
pub const VERSION: u64 = 1;

/// Bits of HELLO's `capabilities` (`PROTOCOL.md` §11).
pub mod capability {
    /// IP packets in DATAGRAM frames.
    pub const PACKETS: u64 = 1 << 0;
    /// Repairs (`PROTOCOL.md` §5.5).
    pub const REPAIR: u64 = 1 << 1;
    /// DNS queries as streams of their own.
    pub const DNS: u64 = 1 << 2;
    /// Ports of the server that deliver to hosts behind the client (`PROTOCOL.md` §15).
    pub const PUBLISH: u64 = 1 << 3;
    /// Acknowledgements as the control frame ACKS asks for them (`PROTOCOL.md` §5.7).
    pub const ACKS: u64 = 1 << 4;
    /// Flows beside the tunnel, each sealed in a TCP connection of its own (`PROTOCOL.md` §18).
    pub const SLE: u64 = 1 << 5;
    /// Pages whose objects the server fetches ahead (`PROTOCOL.md` §19).
    pub const PAGES: u64 = 1 << 6;
    /// Pages over TLS that the client has ended (`PROTOCOL.md` §19.5).
    pub const TRUSTED: u64 = 1 << 7;
    /// IP packets beside the tunnel, in two zones under two keys (`PROTOCOL.md` §20).
    pub const LES: u64 = 1 << 8;
    /// Segments of TCP connections that two PEPs relay (`PROTOCOL.md` §20.9).
    pub const SEGMENTS: u64 = 1 << 9;
    /// Pages over TLS whose objects come ahead and stay sealed (`PROTOCOL.md` §21).
    pub const DSSL: u64 = 1 << 10;
    /// Keys of LES that both ends had beforehand, in a laboratory, and no others (`PROTOCOL.md` §20.1).
    pub const LES_PRE_SHARED: u64 = 1 << 11;
}

/// A flow's name in control frames: given by who opens it, increasing within a tunnel, never used twice. Not the QUIC
/// stream id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowId(pub u64);

impl FlowId {
    /// The first of the server's; the client's are below.
    pub const OF_SERVER: Self = Self(1 << 61);

    /// The server has opened it.
    #[must_use]
    pub fn is_inbound(self) -> bool {
        self >= Self::OF_SERVER
    }
}

impl std::fmt::Display for FlowId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Use of a stream: the first integer of every bidirectional stream, from who opened it (`PROTOCOL.md` §4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StreamKind {
    /// The control stream: the client's first, and only one.
    Control,
    /// One TCP connection.
    Flow,
    /// One DNS query.
    Dns,
    /// One TCP connection to a published port; the server opens it.
    Inbound,
    /// One request for a page, which its objects follow.
    Page,
    /// Segments of one TCP connection between two PEPs; either side opens it.
    Segments,
}

impl StreamKind {
    /// The number on the wire.
    #[must_use]
    pub const fn code(self) -> u64 {
        match self {
            Self::Control => 0,
            Self::Flow => 1,
            Self::Dns => 2,
            Self::Inbound => 3,
            Self::Page => 4,
            Self::Segments => 5,
        }
    }

    /// Appends the kind.
    pub fn encode(self, out: &mut Vec<u8>) {
        varint::encode(self.code(), out);
    }

    /// Reads the kind at the very start of a stream and says how many bytes it took: 1, for the known kinds are valid in
    /// their shortest form only. `None`: need more bytes.
    /// Of the stream of a flow or a page consume nothing: [`Open::decode`] reads the kind once more.
    ///
    /// # Errors
    /// [`DecodeError::StreamKind`]: unknown, or not in its shortest form; refuse the stream, keep the tunnel (`PROTOCOL.md` §4).
    pub fn decode(buf: &[u8]) -> Result<Option<(Self, usize)>, DecodeError> {
        match varint::decode(buf) {
            None => Ok(None),
            Some((0, used @ 1)) => Ok(Some((Self::Control, used))),
            Some((1, used @ 1)) => Ok(Some((Self::Flow, used))),
            Some((2, used @ 1)) => Ok(Some((Self::Dns, used))),
            Some((3, used @ 1)) => Ok(Some((Self::Inbound, used))),
            Some((4, used @ 1)) => Ok(Some((Self::Page, used))),
            Some((5, used @ 1)) => Ok(Some((Self::Segments, used))),
            Some((kind, _)) => Err(DecodeError::StreamKind(kind)),
        }
    }
}

/// Fault in bytes from the peer. All but [`DecodeError::StreamKind`] close the tunnel with
/// [`CloseCode::ProtocolViolation`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// A length above the limit of its header.
    #[error("{what}: length {length} exceeds {max}")]
    TooLong {
        /// The header.
        what: &'static str,
        /// The length that the peer announced, bytes.
        length: u64,
        /// The limit, bytes.
        max: usize,
    },
    /// The body ends inside a field.
    #[error("{0}: ends inside a field")]
    Truncated(&'static str),
    /// The body goes on after its last field.
    #[error("{0}: bytes after the last field")]
    TrailingBytes(&'static str),
    /// A stream of this kind is unknown, or not expected here.
    #[error("stream of unknown or unexpected kind {0}")]
    StreamKind(u64),
    /// No such kind of address, or not in this place.
    #[error("unknown kind of address {0:#04x}")]
    AddressKind(u8),
    /// A destination's name is not one.
    #[error("destination: {0}")]
    Name(#[from] NameError),
    /// A parameter of HELLO came twice or out of order.
    #[error("HELLO: parameter {0} repeated or out of order")]
    ParameterOrder(u64),
    /// A text of HELLO is too long, empty or has characters that it must not.
    #[error("HELLO: {0} is not an acceptable text")]
    Text(&'static str),
    /// More than 8 assigned addresses, or routed prefixes.
    #[error("HELLO: more than {MAX_ASSIGNED} addresses or prefixes")]
    TooManyAddresses,
    /// A prefix longer than its address.
    #[error("HELLO: a prefix of {0} bits")]
    PrefixLength(u8),
}
