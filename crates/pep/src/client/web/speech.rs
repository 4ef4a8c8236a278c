//! Streams on which browsers speak HTTP/1.1: TCP in clear, TLS that is ended here, and pipes out of HTTP/2.

use std::io;
use std::mem::MaybeUninit;
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, Interest};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;

use super::piped::NearEnd;
use crate::relay::over_tcp::OverTcp as _;
use crate::relay::{abandoned, delivered};

/// Time for which a browser may hold up the end of its connection.
pub(super) const PARTING: Duration = Duration::from_secs(5);

/// Bytes both ways.
pub(super) trait ByteStream: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> ByteStream for T {}

/// Stream on which a browser speaks HTTP/1.1.
pub(super) enum Speech {
    Clear(TcpStream),
    /// In TLS that is ended here, for the host of this name.
    Trusted(Box<TlsStream<TcpStream>>, String),
    /// One request of HTTP/2 in such TLS.
    Piped(Box<NearEnd>, String),
}

impl Speech {
    pub(super) fn stream(&mut self) -> &mut dyn ByteStream {
        match self {
            Self::Clear(socket) => socket,
            Self::Trusted(tls, _) => &mut **tls,
            Self::Piped(pipe, _) => &mut **pipe,
        }
    }

    /// Host that this side speaks TLS as, if it does.
    pub(super) fn name(&self) -> Option<&str> {
        match self {
            Self::Clear(_) => None,
            Self::Trusted(_, name) | Self::Piped(_, name) => Some(name),
        }
    }

    /// True if the browser has agreed to speak first: HTTP by ALPN (RFC 7301).
    pub(super) fn is_http(&self) -> bool {
        match self {
            Self::Clear(_) => false,
            Self::Trusted(tls, _) => tls.get_ref().1.alpn_protocol().is_some(),
            Self::Piped(..) => true,
        }
    }

    /// True if the browser has sent what was not read, in TLS perhaps no more than the end of its direction. A pipe has one request.
    pub(super) fn has_spoken(&self) -> bool {
        let socket = match self {
            Self::Clear(socket) => socket,
            Self::Trusted(tls, _) => tls.tcp(),
            Self::Piped(..) => return false,
        };
        let peeked = SockRef::from(socket).peek(&mut [MaybeUninit::uninit()]);
        peeked.is_ok_and(|bytes| bytes > 0)
    }

    /// Waits until the browser has reset the connection.
    pub(super) async fn lost(&mut self) {
        match self {
            Self::Clear(socket) => drop(socket.ready(Interest::ERROR).await),
            Self::Trusted(tls, _) => drop(tls.tcp().ready(Interest::ERROR).await),
            Self::Piped(pipe, _) => pipe.abandoned().await,
        }
    }

    /// Waits until the browser is gone, which waits for an answer: see [`abandoned`].
    pub(super) async fn abandoned(&self) {
        match self {
            Self::Clear(socket) => abandoned(socket).await,
            Self::Trusted(tls, _) => abandoned(tls.tcp()).await,
            Self::Piped(pipe, _) => pipe.abandoned().await,
        }
    }

    /// Waits until the browser has what was written, or is gone.
    pub(super) async fn delivered(&self) {
        match self {
            Self::Clear(socket) => delivered(socket).await,
            Self::Trusted(tls, _) => delivered(tls.tcp()).await,
            // What is in the pipe is read, whatever comes behind it.
            Self::Piped(..) => {}
        }
    }

    /// Writes `bytes`, and has them leave.
    pub(super) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let stream = self.stream();
        stream.write_all(bytes).await?;
        stream.flush().await
    }

    /// Ends the connection in order, in TLS by close_notify.
    pub(super) async fn close(&mut self) {
        match self {
            Self::Clear(_) => {}
            // Whoever does not read has no right to wait for the end.
            Self::Trusted(..) | Self::Piped(..) => {
                let _ = timeout(PARTING, self.stream().shutdown()).await;
            }
        }
        self.cut();
    }

    /// Ends the connection by FIN alone; a pipe cannot, and is reset.
    pub(super) fn cut(&self) {
        match self {
            Self::Clear(socket) => socket.close_in_order(),
            Self::Trusted(tls, _) => tls.close_in_order(),
            Self::Piped(..) => {}
        }
    }
}
