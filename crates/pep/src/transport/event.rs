//! What a tunnel reports: news, faults of the peer, counters.

use bentpipe_proto::relay::CreditExceeded;
use bentpipe_proto::tunnel::{CloseCode, DecodeError, Open, VERSION};
use thiserror::Error;

use super::flow::FlowKey;

/// What the shell has to act on.
#[derive(Debug)]
pub enum TunnelEvent {
    /// The peer's HELLO arrived: flows may be opened.
    Ready,
    /// The peer opened a flow (server only); answer with [`super::Tunnel::reply`].
    Opened(FlowKey, Box<Open>),
    /// Something changed for this flow's LAN side: look at [`super::Tunnel::incoming`], [`super::Tunnel::capacity`].
    Flow(FlowKey),
    /// The peer drains: it opens no more flows, and takes none.
    Goaway,
}

/// The peer broke the protocol; the tunnel must be closed with [`Fault::code`].
#[derive(Debug, Error)]
pub enum Fault {
    /// A frame or header that cannot be decoded.
    #[error("peer sent a malformed frame: {0}")]
    Malformed(#[from] DecodeError),
    /// More data than our credit allowed.
    #[error(transparent)]
    Credit(#[from] CreditExceeded),
    /// Something that this protocol never allows at that point.
    #[error("peer broke the protocol: {0}")]
    Violation(&'static str),
    /// A version that we do not speak.
    #[error("peer speaks version {0} of the tunnel protocol, we speak {VERSION}")]
    Version(u64),
}

impl Fault {
    /// The code for CONNECTION_CLOSE.
    pub fn code(&self) -> CloseCode {
        match self {
            Self::Malformed(_) | Self::Violation(_) => CloseCode::ProtocolViolation,
            Self::Credit(_) => CloseCode::CreditExceeded,
            Self::Version(_) => CloseCode::VersionUnsupported,
        }
    }
}

/// Why a flow cannot be opened now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum OpenError {
    /// No HELLO yet, or the connection is closing.
    #[error("the tunnel is not ready")]
    NotReady,
    /// The server's limit on flows is reached.
    #[error("the server's limit on flows is reached")]
    LimitReached,
    /// The peer drains.
    #[error("the server is shutting down")]
    Draining,
}

/// Counters for `status`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct TunnelStats {
    /// Flows opened so far.
    pub opened: u64,
    /// Flows that the server could not connect.
    pub refused: u64,
    /// Payload bytes taken from the LAN side.
    pub lan_in: u64,
    /// Payload bytes given to the LAN side.
    pub lan_out: u64,
    /// Flows reset because the tunnel was at its memory ceiling.
    pub shed: u64,
}
