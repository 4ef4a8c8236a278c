//! Orders that a shard gets from the main thread and from other shards.

use std::future::pending;

use bentpipe_proto::tunnel::Families;
use tokio::sync::mpsc;

use bentpipe_tunnel::engine::ConnectionId;

/// Order of the main thread or another shard to a shard.
#[derive(Debug, Clone)]
pub(super) enum Command {
    /// Finish: no new flows, end when the open ones have, or when patience runs out.
    Drain,
    /// End now, whatever is open.
    End,
    /// The list of clients has changed.
    Recheck,
    /// A client's newer connection has asked for ports: this one's are closed.
    Yield(ConnectionId),
    /// The machine has gained or lost its route of a family.
    Families(Families),
    /// A client's newer process has taken over from this connection.
    Replaced(ConnectionId),
}

/// Waits for the command to end at once.
pub(super) async fn until_end(commands: &mut mpsc::UnboundedReceiver<Command>) {
    loop {
        match commands.recv().await {
            Some(Command::End) => return,
            Some(_) => {}
            None => pending().await,
        }
    }
}
