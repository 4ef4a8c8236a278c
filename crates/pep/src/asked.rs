//! One request on a connection, and its response in parts: of an origin's web server, and of an origin to a client.

use std::io;
use std::pin::Pin;
use std::task::{Context, Waker};

use bentpipe_web::{Incoming, MAX_DATA, Part};
use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};

/// A connection on which a request has been sent.
pub(crate) struct AskedStream<S> {
    stream: S,
    unread: BytesMut,
    incoming: Incoming,
}

/// NextPart of a response.
pub(crate) enum NextPart {
    Part(Part),
    /// The connection has ended; true if the response is whole.
    Ended(bool),
}

/// True if the other end of a connection that waits for a request has neither ended it nor said something unasked, which would pass for
/// the next answer. Session tickets, which TLS takes in with its next read, are nothing.
pub(crate) fn is_quiet(stream: &mut (impl AsyncRead + Unpin + ?Sized)) -> bool {
    let (mut byte, mut cx) = ([0; 1], Context::from_waker(Waker::noop()));
    Pin::new(stream)
        .poll_read(&mut cx, &mut ReadBuf::new(&mut byte))
        .is_pending()
}

impl<S: AsyncRead + AsyncWrite + Unpin> AskedStream<S> {
    /// Sends a request on a connection.
    pub(crate) async fn send(mut stream: S, head: &[u8]) -> io::Result<Self> {
        stream.write_all(head).await?;
        stream.flush().await?;
        Ok(Self {
            stream,
            unread: BytesMut::new(),
            incoming: Incoming::default(),
        })
    }

    /// Waits for the next part of the response. Can be given up and asked again.
    pub(crate) async fn next(&mut self) -> io::Result<NextPart> {
        loop {
            if let Some(part) = self.incoming.read(&mut self.unread) {
                return Ok(NextPart::Part(part));
            }
            self.unread.reserve(MAX_DATA);
            if self.stream.read_buf(&mut self.unread).await? == 0 {
                return Ok(NextPart::Ended(self.incoming.ends_here()));
            }
        }
    }

    /// The connection, if nothing was read behind the response.
    pub(crate) fn into_stream(self) -> Option<S> {
        self.unread.is_empty().then_some(self.stream)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    #[tokio::test]
    async fn a_connection_waits_until_its_other_end_speaks_or_goes() {
        let (mut waits, mut other) = duplex(64);
        assert!(is_quiet(&mut waits));
        other
            .write_all(b"HTTP/1.1 408 Request Timeout\r\n")
            .await
            .unwrap();
        assert!(!is_quiet(&mut waits));
        let (mut waits, other) = duplex(64);
        drop(other);
        assert!(!is_quiet(&mut waits));
    }
}
