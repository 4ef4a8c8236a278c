//! Connections to origins that have answered and wait for another request, so that a page's objects need no new ones.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use socket2::SockRef;
use tokio::net::TcpStream;

use crate::process;
use bentpipe_tunnel::engine::ConnectionId;

/// Time for which a connection waits: less than origins do, which end theirs after five seconds and more.
const IDLE: Duration = Duration::from_secs(4);

/// Connections that wait, of all clients of a shard.
const MAX_IDLE: usize = 256;

/// A connection to an origin.
pub(super) struct OriginSocket {
    pub(super) stream: TcpStream,
    pub(super) to: SocketAddr,
    /// True if the connection has answered before: that it ends now may only mean that it is old.
    pub(super) used: bool,
}

struct Waiting {
    client: ConnectionId,
    to: SocketAddr,
    since: Instant,
    origin: TcpStream,
}

/// Connections that wait, the longest first.
#[derive(Default)]
pub(super) struct Origins(RefCell<Vec<Waiting>>);

impl Origins {
    /// One to `to` that this client has used, if there is one.
    pub(super) fn take(&self, client: ConnectionId, to: SocketAddr) -> Option<TcpStream> {
        self.sweep();
        let mut waiting = self.0.borrow_mut();
        let fits = |one: &Waiting| one.client == client && one.to == to && is_quiet(&one.origin);
        let found = waiting.iter().rposition(fits)?;
        Some(waiting.remove(found).origin)
    }

    /// One has answered and may be used again.
    pub(super) fn put(&self, client: ConnectionId, to: SocketAddr, origin: TcpStream) {
        let mut waiting = self.0.borrow_mut();
        if waiting.len() >= MAX_IDLE {
            close(&waiting.remove(0).origin);
        }
        waiting.push(Waiting {
            client,
            to,
            since: process::now(),
            origin,
        });
    }

    /// Ends those that have waited long enough.
    pub(super) fn sweep(&self) {
        let now = process::now();
        self.end_unless(|one| now.saturating_duration_since(one.since) < IDLE);
    }

    /// The client of these has gone.
    pub(super) fn forget(&self, client: ConnectionId) {
        self.end_unless(|one| one.client != client);
    }

    fn end_unless(&self, stays: impl Fn(&Waiting) -> bool) {
        self.0.borrow_mut().retain(|one| {
            let stays = stays(one);
            if !stays {
                close(&one.origin);
            }
            stays
        });
    }
}

/// True if the origin has neither ended the connection nor said something unasked.
fn is_quiet(origin: &TcpStream) -> bool {
    let read = origin.try_read(&mut [0; 1]);
    matches!(read, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}

/// Lets the kernel end the connection in order.
pub(super) fn close(origin: &TcpStream) {
    let _ = SockRef::from(origin).set_linger(None);
}
