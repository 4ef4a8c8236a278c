//! Names of connections, and news of them.

use super::ConnectionNotice;

/// Names a connection of an engine; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// Something happened on a connection.
#[derive(Debug)]
pub struct Event {
    /// On which.
    pub connection: ConnectionId,
    /// Notice of that connection.
    pub notice: ConnectionNotice,
}
