//! A connection in clear or in TLS, as browser and origin use it.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use bentpipe_testbed::peer::{PATIENCE, set_patience};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection, StreamOwned};

/// Name of the origin.
pub(super) const NAME: &str = "web.example";

/// Scheme of the pages of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    /// Port 80, in clear.
    Clear,
    /// Port 443, in TLS that both daemons end, for a host that is listed.
    Trusted,
}

impl Over {
    pub(super) fn port(self) -> u16 {
        match self {
            Self::Clear => 80,
            Self::Trusted => 443,
        }
    }
}

/// One end of a connection.
pub(super) enum Speech {
    Clear(TcpStream),
    Browser(Box<StreamOwned<ClientConnection, TcpStream>>),
    Origin(Box<StreamOwned<ServerConnection, TcpStream>>),
}

impl Speech {
    /// A browser's end, in TLS with the host `name` where there is a configuration.
    pub(super) fn browser(
        socket: TcpStream,
        tls: Option<&Arc<ClientConfig>>,
        name: &str,
    ) -> Result<Self> {
        set_patience(&socket, PATIENCE)?;
        socket.set_nodelay(true)?;
        let Some(tls) = tls else {
            return Ok(Self::Clear(socket));
        };
        let name = ServerName::try_from(name.to_owned())?;
        let mut stream = StreamOwned::new(ClientConnection::new(tls.clone(), name)?, socket);
        let shaken = stream.conn.complete_io(&mut stream.sock);
        shaken.context("no handshake")?;
        Ok(Self::Browser(Box::new(stream)))
    }

    /// An origin's end; a handshake takes a round trip of `trip`.
    pub(super) fn origin(
        socket: TcpStream,
        tls: Option<&Arc<ServerConfig>>,
        trip: Duration,
    ) -> Result<Self> {
        set_patience(&socket, PATIENCE)?;
        socket.set_nodelay(true)?;
        std::thread::sleep(trip);
        let Some(tls) = tls else {
            return Ok(Self::Clear(socket));
        };
        std::thread::sleep(trip);
        let mut stream = StreamOwned::new(ServerConnection::new(tls.clone())?, socket);
        stream.conn.complete_io(&mut stream.sock)?;
        Ok(Self::Origin(Box::new(stream)))
    }

    /// Certificate that a browser has been shown.
    pub(super) fn certificate(&self) -> Option<&[u8]> {
        match self {
            Self::Browser(stream) => Some(stream.conn.peer_certificates()?.first()?),
            Self::Clear(_) | Self::Origin(_) => None,
        }
    }

    /// Ends this direction in order.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        match self {
            Self::Clear(socket) => socket.shutdown(Shutdown::Write),
            Self::Browser(stream) => {
                stream.conn.send_close_notify();
                stream.flush()?;
                stream.sock.shutdown(Shutdown::Write)
            }
            Self::Origin(stream) => {
                stream.conn.send_close_notify();
                stream.flush()?;
                stream.sock.shutdown(Shutdown::Write)
            }
        }
    }

    /// Ends this direction by FIN alone, as some origins do.
    pub(super) fn cut(&mut self) -> io::Result<()> {
        match self {
            Self::Clear(socket) => socket.shutdown(Shutdown::Write),
            Self::Browser(stream) => stream.sock.shutdown(Shutdown::Write),
            Self::Origin(stream) => {
                stream.flush()?;
                stream.sock.shutdown(Shutdown::Write)
            }
        }
    }
}

impl Read for Speech {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Clear(socket) => socket.read(into),
            Self::Browser(stream) => stream.read(into),
            Self::Origin(stream) => stream.read(into),
        }
    }
}

impl Write for Speech {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Clear(socket) => socket.write(bytes),
            Self::Browser(stream) => stream.write(bytes),
            Self::Origin(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Clear(socket) => socket.flush(),
            Self::Browser(stream) => stream.flush(),
            Self::Origin(stream) => stream.flush(),
        }
    }
}
