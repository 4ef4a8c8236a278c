//! A TLS connection over TCP, as bytes in and out: rustls does not touch sockets, and tokio's types cannot change threads.

use std::future::poll_fn;
use std::io::{self, Read, Write};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustls::Connection;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{default_provider, kx_group};
use socket2::SockRef;
use tokio::net::TcpStream;

/// Ciphertext that a socket holds back while TCP takes no more, in bytes.
const UNSENT: usize = 64 * 1024;

/// Algorithms of the outer TLS: what a browser offers, X25519MLKEM768 and X25519.
pub(crate) fn key_exchange() -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider {
        kx_groups: vec![kx_group::X25519MLKEM768, kx_group::X25519],
        ..default_provider()
    })
}

/// Congestion control of the outer TCP, where the kernel lets us have it: losses of the link do not slow it down.
#[cfg(target_os = "linux")]
const CONGESTION: &[u8] = b"bbr";

/// Has a socket send small pieces at once, and with the congestion control that suits satellites, if there is one.
///
/// # Errors
/// The socket is no TCP connection.
pub(crate) fn tune(socket: &SockRef<'_>) -> io::Result<()> {
    socket.set_tcp_nodelay(true)?;
    // Of most kernels only the administrator has it: the default serves as well.
    #[cfg(target_os = "linux")]
    let _ = socket.set_tcp_congestion(CONGESTION);
    Ok(())
}

/// TLS connection that may be under way.
pub(crate) struct TlsSocket {
    tcp: Rc<TcpStream>,
    tls: Connection,
}

impl TlsSocket {
    /// A connection of which nothing was sent, or what another thread has begun.
    pub(crate) fn new(tcp: TcpStream, tls: impl Into<Connection>) -> Self {
        let mut tls = tls.into();
        tls.set_buffer_limit(Some(UNSENT));
        Self {
            tcp: Rc::new(tcp),
            tls,
        }
    }

    /// The TCP connection, to set its options and to look at its counters.
    pub(crate) fn tcp(&self) -> &Rc<TcpStream> {
        &self.tcp
    }

    /// Parts that another thread can go on with.
    ///
    /// # Errors
    /// The runtime does not let go of the socket, or somebody else has it.
    pub(crate) fn into_parts(self) -> io::Result<(std::net::TcpStream, Connection)> {
        let tcp = Rc::into_inner(self.tcp).ok_or(io::ErrorKind::ResourceBusy)?;
        Ok((tcp.into_std()?, self.tls))
    }

    /// Completes the handshake.
    ///
    /// # Errors
    /// The connection broke, or the peer does not speak TLS 1.3.
    pub(crate) async fn handshake(&mut self) -> io::Result<()> {
        poll_fn(|cx| {
            while self.tls.is_handshaking() {
                ready!(self.poll_flush(cx))?;
                if self.tls.is_handshaking() && ready!(self.poll_receive(cx))? == 0 {
                    return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
                }
            }
            self.poll_flush(cx)
        })
        .await
    }

    /// Reads payload; 0 bytes are the peer's end.
    ///
    /// # Errors
    /// The connection broke, or somebody has changed its bytes.
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            match self.tls.reader().read(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // A peer that vanishes without a word has sent all that its datagrams need.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Poll::Ready(Ok(0));
                }
                done => return Poll::Ready(done),
            }
            if ready!(self.poll_receive(cx))? == 0 {
                return Poll::Ready(Ok(0));
            }
        }
    }

    /// Reads ciphertext from the socket; 0 bytes are its end.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.tcp.poll_read_ready(cx))?;
            match self.tls.read_tls(&mut Unblocked(&self.tcp)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(count) if count > 0 => {
                    let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
                    let state = self.tls.process_new_packets().map_err(|error| {
                        // The alert says why.
                        let _ = self.tls.write_tls(&mut Unblocked(&self.tcp));
                        invalid(error)
                    })?;
                    let ended = state.peer_has_closed() && state.plaintext_bytes_to_read() == 0;
                    return Poll::Ready(Ok(if ended { 0 } else { count }));
                }
                done => return Poll::Ready(done),
            }
        }
    }

    /// Takes payload to send, as much as there is room for; returns how many bytes that was.
    ///
    /// # Errors
    /// The connection takes no more.
    pub(crate) fn write(&mut self, payload: &[u8]) -> io::Result<usize> {
        self.tls.writer().write(payload)
    }

    /// Hands everything that was written to TCP.
    ///
    /// # Errors
    /// The connection broke.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.tls.wants_write() {
            ready!(self.tcp.poll_write_ready(cx))?;
            match self.tls.write_tls(&mut Unblocked(&self.tcp)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => drop(done?),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Says that nothing follows, as far as TCP takes that now.
    pub(crate) fn close(&mut self) {
        self.tls.send_close_notify();
        let _ = self.tls.write_tls(&mut Unblocked(&self.tcp));
    }
}

/// A socket that is read from and written to without waiting.
struct Unblocked<'a>(&'a TcpStream);

impl Read for Unblocked<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(into)
    }
}

impl Write for Unblocked<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
