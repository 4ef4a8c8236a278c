//! Pipe that stands for a connection: a request of HTTP/2 goes through it as one of HTTP/1.1, and knows how it has ended.
//!
//! A pipe that is dropped before it was shut down is a reset, as a connection would be: what came through it may not be whole.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tokio::io::{
    AsyncRead, AsyncWrite, DuplexStream, Join, ReadBuf, ReadHalf, WriteHalf, duplex, join, split,
};
use tokio::sync::watch;

use crate::relay::PIPE;

/// End of a pipe at which a browser is answered.
pub(super) struct NearEnd {
    pipe: DuplexStream,
    /// True once what was written has ended in order.
    ended: Rc<Cell<bool>>,
    gone: Departure,
}

/// End of a pipe at which a browser speaks.
pub(super) type FarEnd = Join<FarReader, WriteHalf<DuplexStream>>;

/// Half of a far end that a browser is answered by.
pub(super) struct FarReader {
    pipe: ReadHalf<DuplexStream>,
    ended: Rc<Cell<bool>>,
    _gone: watch::Sender<()>,
}

/// Sign that nobody is at the far end of a pipe any more.
#[derive(Clone)]
pub(super) struct Departure(watch::Receiver<()>);

impl Departure {
    /// Waits until the far end is gone.
    pub(super) async fn wait(&mut self) {
        // Nothing is ever sent: an error says that the sender is no more.
        while self.0.changed().await.is_ok() {}
    }
}

/// A pipe, and what tells that its far end is gone.
pub(super) fn piped() -> (NearEnd, FarEnd, Departure) {
    let ((near, far), ended) = (duplex(PIPE), Rc::new(Cell::new(false)));
    let (sender, receiver) = watch::channel(());
    let gone = Departure(receiver);
    let near = NearEnd {
        pipe: near,
        ended: ended.clone(),
        gone: gone.clone(),
    };
    let (read, write) = split(far);
    let reader = FarReader {
        pipe: read,
        ended,
        _gone: sender,
    };
    (near, join(reader, write), gone)
}

impl NearEnd {
    /// Waits until nobody is at the far end any more.
    pub(super) async fn abandoned(&self) {
        self.gone.clone().wait().await;
    }
}

impl AsyncRead for NearEnd {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_read(cx, into)
    }
}

impl AsyncWrite for NearEnd {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.pipe).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.ended.set(true);
        Pin::new(&mut self.pipe).poll_shutdown(cx)
    }
}

impl AsyncRead for FarReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (before, room) = (into.filled().len(), into.remaining());
        ready!(Pin::new(&mut self.pipe).poll_read(cx, into))?;
        let at_its_end = room > 0 && into.filled().len() == before;
        Poll::Ready(match at_its_end && !self.ended.get() {
            true => Err(io::ErrorKind::ConnectionReset.into()),
            false => Ok(()),
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn a_pipe_ends_in_order_or_is_reset() {
        for in_order in [true, false] {
            let (mut near, mut far, _gone) = piped();
            near.write_all(b"abc").await.unwrap();
            if in_order {
                near.shutdown().await.unwrap();
            }
            drop(near);
            let mut read = Vec::new();
            let end = far.read_to_end(&mut read).await;
            assert_eq!((read.as_slice(), end.is_ok()), (&b"abc"[..], in_order));
        }
        let (near, far, mut gone) = piped();
        drop(far);
        near.abandoned().await;
        gone.wait().await;
    }
}
