//! Words of a connection with its caller: the steps that it asks for, its state, and how it ended.

use bytes::Bytes;

use crate::sle::{Kind, RecordError};

/// Step that the caller takes for a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Read REPLY: body as the server sent it. A refusal is followed by [`Action::ResetLan`].
    Replied(Bytes),
    /// End the direction towards the LAN in order, then call [`super::Conn::on_lan_shut`].
    /// Everything before has been taken.
    ShutLan,
    /// Reset the LAN side, or give its dial up.
    ResetLan,
    /// Close the outer connection in order. Nothing is left to write.
    CloseOuter,
    /// Reset the outer connection.
    ResetOuter,
}

/// Reason why a connection broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A record cannot be believed.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The peer has sealed a record that has no place there.
    #[error("{kind} out of order: {state:?} when it came")]
    Order {
        /// Kind of the record.
        kind: Kind,
        /// State in which it came.
        state: State,
    },
    /// The outer connection ended in order before the flow had.
    #[error(
        "the outer connection was closed before the flow had ended: cut off on the way, or its peer died"
    )]
    Ended,
    /// The outer connection was reset or timed out.
    #[error("the outer connection was reset before the flow had ended")]
    Reset,
    /// The peer owes an end, and nothing has moved.
    #[error("nothing has moved for long, and no answer or no confirmation of the end has come")]
    Silence,
}

/// Way in which a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Both directions ended in order, with every byte delivered.
    Closed,
    /// The server could not or would not connect.
    Refused,
    /// The LAN side here was reset, or given up; the code has gone to the peer.
    Aborted(u8),
    /// The LAN side at the peer was reset, with this code.
    PeerAborted(u8),
    /// The outer connection cannot be believed any more; the LAN side is reset.
    Broken(Fault),
}

/// State of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The server's connect has not ended.
    Opening,
    /// Payload goes both ways.
    Open,
    /// FIN was sent.
    HalfLocal,
    /// FIN has come.
    HalfRemote,
    /// FIN was sent and has come.
    Closing,
    /// ABORT was sent.
    Aborting,
    /// ABORT has come; bytes before it are being delivered.
    Aborted,
    /// REPLY was a refusal.
    Refused,
    /// The connection has ended.
    Ended,
}
