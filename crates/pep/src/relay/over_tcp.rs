//! Byte streams over one TCP connection: the connection itself, or what TLS carries in it.

use std::io;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::{client, server};

/// Byte stream over one TCP connection, whose socket carries SO_LINGER 0 until it ends in order.
pub(crate) trait OverTcp: AsyncRead + AsyncWrite + Unpin {
    /// TCP connection below the stream.
    fn tcp(&self) -> &TcpStream;

    /// Lets the kernel end the connection in order once the stream is dropped.
    fn close_in_order(&self) {
        let _ = SockRef::from(self.tcp()).set_linger(None);
    }
}

impl OverTcp for TcpStream {
    fn tcp(&self) -> &TcpStream {
        self
    }
}

impl OverTcp for client::TlsStream<TcpStream> {
    fn tcp(&self) -> &TcpStream {
        self.get_ref().0
    }
}

impl OverTcp for server::TlsStream<TcpStream> {
    fn tcp(&self) -> &TcpStream {
        self.get_ref().0
    }
}

/// True if `error` of reading TLS says that the connection has ended without close_notify: bytes may be missing.
pub(crate) fn is_cut(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::UnexpectedEof
}
