//! One request on a connection, and its response in parts: of an origin's web server, and of an origin to a client.

use std::io;

use bentpipe_web::{Incoming, MAX_DATA, Part};
use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

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
