//! Faults of the other PEP, for which a flow is reset.

use thiserror::Error;

use crate::wire::WireFault;

/// Fault of the other PEP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PeerFault {
    /// The stream holds what is no message.
    #[error("{0}")]
    Wire(#[from] WireFault),
    /// Bytes between two blobs are missing.
    #[error("a blob with sequence number {number} follows bytes up to {tail}, or an end there")]
    Gap {
        /// Number of the blob's first byte.
        number: u32,
        /// Number that was due.
        tail: u32,
    },
    /// OPEN on a stream of an open flow.
    #[error("OPEN names another flow than the stream's")]
    Open,
}
