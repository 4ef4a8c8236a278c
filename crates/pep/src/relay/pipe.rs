//! A relay whose LAN side is this process: what speaks frames reads and writes a pipe.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use bentpipe_tunnel::relay::{LanSocket, Outcome, Relay as Machine};
use bytes::Bytes;
use tokio::io::{AsyncRead as _, AsyncWrite as _, DuplexStream, ReadBuf};

use super::FlowHandle;
use crate::shard::Shard;

/// Bytes that each direction of a pipe holds.
pub(crate) const PIPE: usize = 64 * 1024;

/// One end of a pipe, as a relay uses it.
struct Pipe {
    end: DuplexStream,
    shard: Rc<Shard>,
}

/// Relays between `flow` and the other end of `end` until the flow is over. Dropping the other end ends the flow's direction
/// with FIN; what still comes is answered with an abort.
pub(crate) async fn relay_in_process(mut flow: FlowHandle, end: DuplexStream) -> Outcome {
    let shard = flow.shard().clone();
    let mut pipe = Pipe { end, shard };
    let mut machine = Machine::default();
    let outcome = poll_fn(|cx| {
        flow.watch(cx);
        machine.poll(cx, &mut flow, &mut pipe)
    })
    .await;
    if outcome == Outcome::LanReset {
        flow.detach();
    }
    outcome
}

impl LanSocket for Pipe {
    fn poll_read(&mut self, cx: &mut Context<'_>, room: usize) -> Poll<io::Result<Bytes>> {
        let mut scratch = self.shard.scratch().borrow_mut();
        let room = room.min(scratch.len());
        let mut buffer = ReadBuf::new(&mut scratch[..room]);
        ready!(Pin::new(&mut self.end).poll_read(cx, &mut buffer))?;
        Poll::Ready(Ok(Bytes::copy_from_slice(buffer.filled())))
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        chunks: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.end).poll_write_vectored(cx, chunks)
    }

    fn finish(&mut self) -> io::Result<()> {
        // A pipe's end does not wait for anything.
        let mut cx = Context::from_waker(Waker::noop());
        match Pin::new(&mut self.end).poll_shutdown(&mut cx) {
            Poll::Ready(finished) => finished,
            Poll::Pending => Ok(()),
        }
    }

    /// A pipe has no reset; that its other end is gone shows when it is written to.
    fn poll_hangup(&mut self, _cx: &mut Context<'_>) -> Poll<io::Error> {
        Poll::Pending
    }
}
