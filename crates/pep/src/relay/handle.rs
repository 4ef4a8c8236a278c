//! One flow of the tunnel, as the task that owns it sees it; dropping it gives the flow up.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll};

use bentpipe_proto::tunnel::{AbortCode, ReplyCode};
use quinn_proto::Connection;

use crate::shard::Shard;
use bentpipe_tunnel::engine::ConnectionId;
use bentpipe_tunnel::transport::{FlowKey, Incoming, Tunnel};

/// A flow of a tunnel. Its tunnel may be lost at any time; every question then has an answer that says so.
pub(crate) struct FlowHandle {
    shard: Rc<Shard>,
    connection: ConnectionId,
    flow: FlowKey,
    /// The tunnel still counts on us to end the flow.
    attached: bool,
}

impl FlowHandle {
    /// Of a flow that the tunnel `connection` has just opened or taken.
    pub(crate) fn new(shard: Rc<Shard>, connection: ConnectionId, flow: FlowKey) -> Self {
        Self {
            shard,
            connection,
            flow,
            attached: true,
        }
    }

    /// Wakes the task when the tunnel has news of the flow.
    pub(super) fn watch(&self, cx: &Context<'_>) {
        self.shard.watch(self.connection, self.flow, cx.waker());
        self.with(|tunnel, flow, _| tunnel.take_notice(flow));
    }

    /// Waits for the server's answer to OPEN: the address it connected from, or why it did not.
    ///
    /// # Errors
    /// The server's code; [`ReplyCode::Internal`] if the tunnel was lost.
    pub(crate) async fn reply(&self) -> Result<Option<SocketAddr>, ReplyCode> {
        poll_fn(|cx| {
            self.watch(cx);
            match self.look(Tunnel::incoming) {
                Incoming::Refused(code) => return Poll::Ready(Err(code)),
                Incoming::Gone => return Poll::Ready(Err(ReplyCode::Internal)),
                Incoming::Data | Incoming::Blocked | Incoming::End(_) => {}
            }
            let bound = self.shard.peek(|engine| {
                let connection = engine.peek(self.connection)?;
                connection
                    .tunnel
                    .reply_of(self.flow)
                    .map(|reply| reply.bound)
            });
            bound.map_or(Poll::Pending, |bound| Poll::Ready(Ok(bound)))
        })
        .await
    }

    /// Waits until the flow is no more: it was thrown away, or its tunnel was lost.
    pub(crate) async fn gone(&self) {
        poll_fn(|cx| {
            self.watch(cx);
            match self.look(Tunnel::incoming) {
                Incoming::Gone => Poll::Ready(()),
                _ => Poll::Pending,
            }
        })
        .await;
    }

    /// The LAN side was reset: its bytes so far still reach the other end, then the reset does.
    pub(super) fn abort(&mut self, code: AbortCode) {
        self.attached = false;
        self.with(|tunnel, flow, quic| tunnel.abort(quic, flow, code));
    }

    /// Reads without waking the engine.
    pub(super) fn look<T: Gone>(&self, question: impl FnOnce(&Tunnel, FlowKey) -> T) -> T {
        self.shard
            .peek(|engine| match engine.peek(self.connection) {
                Some(connection) => question(&connection.tunnel, self.flow),
                None => T::gone(),
            })
    }

    /// Changes the flow; the engine looks at what it has to send afterwards.
    pub(super) fn with(&self, change: impl FnOnce(&mut Tunnel, FlowKey, &mut Connection)) {
        self.shard.change(self.connection, |connection| {
            let (tunnel, quic) = connection.parts();
            change(tunnel, self.flow, quic);
        });
    }

    pub(super) fn shard(&self) -> &Shard {
        &self.shard
    }
}

impl Drop for FlowHandle {
    fn drop(&mut self) {
        self.shard.unwatch(self.connection, self.flow);
        if self.attached {
            self.with(|tunnel, flow, quic| tunnel.release(quic, flow));
        }
    }
}

/// What a question about a flow answers when its connection no longer exists.
pub(super) trait Gone {
    fn gone() -> Self;
}

impl Gone for Incoming {
    fn gone() -> Self {
        Self::Gone
    }
}

impl Gone for usize {
    fn gone() -> Self {
        0
    }
}

impl Gone for io::Result<usize> {
    fn gone() -> Self {
        Err(io::ErrorKind::WouldBlock.into())
    }
}
