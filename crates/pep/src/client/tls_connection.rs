//! Opens the TLS connection that carries the tunnel's datagrams where UDP does not pass.
//!
//! Nobody looks at the server's certificate. TLS is here for the firewall; who the two ends are, and that nobody else can read
//! or change what they say, is QUIC's business inside. A man in the middle of this TLS sees what an observer of UDP sees.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bentpipe_tunnel::engine::identity;
use rustls::ClientConnection;
use rustls::pki_types::ServerName;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use super::servers::Servers;
use crate::config::Server;
use crate::tls::{TlsSocket, key_exchange, tune};

/// Time for a TCP connection and the handshake of TLS, at each address of a name.
const PATIENCE: Duration = Duration::from_secs(10);

/// Addresses of one name that are tried.
const MOST_ADDRESSES: usize = 3;

/// Time for which TCP repeats what is not acknowledged: a connection that stays silent longer is replaced by another one.
#[cfg(target_os = "linux")]
const SILENT: Duration = Duration::from_secs(30);

/// Pause after which TCP asks whether the path still stands, in an idle tunnel.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// Opens a connection to the TLS address of `server`, with this `mark` on its packets; of several addresses of a name the one after
/// `passed` others is tried first.
///
/// # Errors
/// No address is known, none answers, or what answers does not speak TLS 1.3.
pub(super) async fn open(
    server: &Server,
    servers: &Servers,
    mark: Option<u32>,
    passed: usize,
) -> io::Result<TlsSocket> {
    let address = server.tls.as_ref().ok_or(io::ErrorKind::InvalidInput)?;
    let mut found = servers.find(address).await?;
    found.truncate(MOST_ADDRESSES);
    let first = passed % found.len().max(1);
    found.rotate_left(first);
    let mut last = io::ErrorKind::NotFound.into();
    for address in found {
        let opened = timeout(PATIENCE, connect(address, server.tls_name.as_deref(), mark)).await;
        match opened.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn connect(
    address: SocketAddr,
    name: Option<&str>,
    mark: Option<u32>,
) -> io::Result<TlsSocket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_nonblocking(true)?;
    tune(&SockRef::from(&socket))?;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE))?;
    #[cfg(target_os = "linux")]
    {
        socket.set_tcp_user_timeout(Some(SILENT))?;
        if let Some(mark) = mark {
            bentpipe_sys::socket::set_mark(&socket, mark)?;
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = mark;
    let tcp: TcpStream = TcpSocket::from_std_stream(socket.into())
        .connect(address)
        .await?;
    let config = identity::unverified_client(key_exchange()).map_err(io::Error::other)?;
    // Without a name the address stands for one, and TLS says nothing of it (RFC 6066 §3).
    let name = match name {
        Some(name) => ServerName::try_from(name.to_owned()).map_err(io::Error::other)?,
        None => ServerName::IpAddress(address.ip().into()),
    };
    let tls = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
    let mut socket = TlsSocket::new(tcp, tls);
    socket.handshake().await?;
    Ok(socket)
}
