//! Outer connections until a flow begins: they are made, and where nobody knows yet whether they reach the server, it is asked.
//!
//! ```text
//!   connect ── to the server's port, or to a destination on whose way it has answered lately ──► flow
//!      ╰── ask: preface ──► answer that the server alone can make, for this destination ──► flow
//!                       ╰─► anything else, or nothing in 5 s ──► tunnel; a stranger there has seen 16 bytes
//! ```

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bentpipe_sealed::sle::{ANSWER, Keys};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::ways::OuterWay;
use crate::net::dial;
use bentpipe_tunnel::engine::ConnectionId;

/// Time for which an outer connection, and then an answer on it, is waited for before the flow goes through the tunnel.
const PATIENCE: Duration = Duration::from_secs(5);

/// Goal of an outer connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OuterTarget {
    pub(super) way: OuterWay,
    /// Tunnel whose server it is to lead to.
    pub(super) tunnel: ConnectionId,
}

/// Outer connection on which no more than a preface has been said.
pub(in crate::client) struct OuterSocket {
    socket: TcpStream,
    pub(super) target: OuterTarget,
    /// Keys of the preface that was said and answered, if the server was asked.
    asked: Option<Keys>,
}

/// Reason why an outer connection leads nowhere.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotThere {
    /// The outer connection could not be made.
    #[error("no connection to {0}: {1}")]
    Unconnected(SocketAddr, io::Error),
    /// The outer connection stands, and no server has answered on it.
    #[error(
        "no answer of the server on the way to {0}: {1}; its `[sle]` or the routes lead past it"
    )]
    Silent(SocketAddr, io::Error),
    /// Somebody else has answered.
    #[error(
        "not the server has answered on the way to {0}; its `[sle]` or the routes lead past it"
    )]
    Stranger(SocketAddr),
    /// The tunnel was lost meanwhile.
    #[error("the tunnel was lost")]
    NoTunnel,
}

impl OuterSocket {
    /// Connects to `target` by a socket with this `mark`.
    pub(super) async fn connect(target: OuterTarget, mark: Option<u32>) -> Result<Self, NotThere> {
        let place = target.way.address;
        let connected = timeout(PATIENCE, dial::open(place, mark)).await;
        let socket = connected
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
            .map_err(|error| NotThere::Unconnected(place, error))?;
        Ok(Self {
            socket,
            target,
            asked: None,
        })
    }

    /// Says the preface of `keys` and waits for the server's answer.
    pub(super) async fn ask(mut self, keys: Option<Keys>) -> Result<Self, NotThere> {
        let keys = keys.ok_or(NotThere::NoTunnel)?;
        let place = self.target.way.address;
        let mut answer = [0; ANSWER];
        let asked = timeout(PATIENCE, async {
            self.socket.write_all(&keys.preface().encode()).await?;
            self.socket.read_exact(&mut answer).await
        });
        match asked.await {
            Err(_) => Err(NotThere::Silent(place, io::ErrorKind::TimedOut.into())),
            Ok(Err(error)) => Err(NotThere::Silent(place, error)),
            Ok(Ok(_)) if answer != keys.answer(place) => Err(NotThere::Stranger(place)),
            Ok(Ok(_)) => {
                self.asked = Some(keys);
                Ok(self)
            }
        }
    }

    /// The socket, and the keys if the preface has been said.
    pub(super) fn into_parts(self) -> (TcpStream, Option<Keys>) {
        (self.socket, self.asked)
    }
}
