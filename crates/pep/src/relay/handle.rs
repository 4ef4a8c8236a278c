//! One flow of the tunnel, as the task that owns it sees it; dropping it gives the flow up.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll};

use bentpipe_proto::tunnel::ReplyCode;

use crate::shard::Shard;
use bentpipe_tunnel::engine::ConnectionId;
use bentpipe_tunnel::relay::FlowAccess;
use bentpipe_tunnel::transport::{FlowKey, Incoming, Streams, Tunnel};

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
        self.change(|tunnel, flow, _| tunnel.take_notice(flow));
    }

    /// Waits for the server's answer to OPEN: the address it connected from, or why it did not.
    ///
    /// # Errors
    /// The server's code; [`ReplyCode::Internal`] if the tunnel was lost.
    pub(crate) async fn reply(&self) -> Result<Option<SocketAddr>, ReplyCode> {
        poll_fn(|cx| {
            self.watch(cx);
            match self.incoming() {
                Incoming::Refused(code) => return Poll::Ready(Err(code)),
                Incoming::Gone => return Poll::Ready(Err(ReplyCode::Internal)),
                Incoming::Data | Incoming::Blocked | Incoming::End(_) => {}
            }
            let reply = self.look(|tunnel, flow| tunnel.reply_of(flow).map(|reply| reply.bound));
            reply
                .flatten()
                .map_or(Poll::Pending, |bound| Poll::Ready(Ok(bound)))
        })
        .await
    }

    fn incoming(&self) -> Incoming {
        self.look(Tunnel::incoming).unwrap_or(Incoming::Gone)
    }

    /// Waits until the flow is no more: it was thrown away, or its tunnel was lost.
    pub(crate) async fn gone(&self) {
        poll_fn(|cx| {
            self.watch(cx);
            match self.incoming() {
                Incoming::Gone => Poll::Ready(()),
                _ => Poll::Pending,
            }
        })
        .await;
    }

    /// The flow has ended: nothing is to be released.
    pub(super) fn detach(&mut self) {
        self.attached = false;
    }

    /// As [`FlowAccess::with`]: the engine looks at what it has to send afterwards.
    fn change(&self, change: impl FnOnce(&mut Tunnel, FlowKey, &mut Streams)) {
        self.shard.change(self.connection, |connection| {
            let (tunnel, quic) = connection.parts();
            change(tunnel, self.flow, quic);
        });
    }

    pub(super) fn shard(&self) -> &Rc<Shard> {
        &self.shard
    }
}

impl FlowAccess for FlowHandle {
    fn look<T>(&self, question: impl FnOnce(&Tunnel, FlowKey) -> T) -> Option<T> {
        // Without waking the engine.
        self.shard.peek(|engine| {
            let connection = engine.peek(self.connection)?;
            Some(question(&connection.tunnel, self.flow))
        })
    }

    fn with(&mut self, change: impl FnOnce(&mut Tunnel, FlowKey, &mut Streams)) {
        self.change(change);
    }
}

impl Drop for FlowHandle {
    fn drop(&mut self) {
        self.shard.unwatch(self.connection, self.flow);
        if self.attached {
            self.change(|tunnel, flow, quic| tunnel.release(quic, flow));
        }
    }
}
