//! Pipe that stands for a connection: a request of HTTP/2 goes through it as one of HTTP/1.1, and knows how it has ended.
//!
//! A pipe that is dropped before it was shut down is a reset, as a connection would be: what came through it may not be whole.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf, duplex};
use tokio::sync::oneshot;

use crate::relay::PIPE;

/// End of a pipe at which a browser is answered.
pub(super) struct NearEnd {
    pipe: DuplexStream,
    /// Whether what was written has ended in order.
    ended: Rc<Cell<bool>>,
    /// Rings when the far end is gone.
    abandoned: oneshot::Receiver<()>,
}

/// End of a pipe at which a browser speaks.
pub(super) struct FarEnd {
    pipe: DuplexStream,
    ended: Rc<Cell<bool>>,
    /// Both ring when this end is gone.
    _gone: [oneshot::Sender<()>; 2],
}

/// A pipe, and what rings when its far end is gone.
pub(super) fn piped() -> (NearEnd, FarEnd, oneshot::Receiver<()>) {
    let ((near, far), ended) = (duplex(PIPE), Rc::new(Cell::new(false)));
    let ((tells_near, abandoned), (tells, gone)) = (oneshot::channel(), oneshot::channel());
    let near = NearEnd {
        pipe: near,
        ended: ended.clone(),
        abandoned,
    };
    let far = FarEnd {
        pipe: far,
        ended,
        _gone: [tells_near, tells],
    };
    (near, far, gone)
}

impl NearEnd {
    /// Waits until nobody is at the far end any more.
    pub(super) async fn abandoned(&mut self) {
        // Nothing is ever sent.
        let _ = (&mut self.abandoned).await;
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

impl AsyncRead for FarEnd {
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

impl AsyncWrite for FarEnd {
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
        Pin::new(&mut self.pipe).poll_shutdown(cx)
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
        let (mut near, far, gone) = piped();
        drop(far);
        near.abandoned().await;
        assert!(gone.await.is_err());
    }
}
