//! Roads to a host: sockets past the tunnel, and sockets through it by the client's own front ends.
//!
//! ```text
//!   past ──────────── TCP, marked as the client's own where it takes this machine in ─────────────► host
//!   Socks5, Http ──── TCP ──► front end of the running client ═══ tunnel ═══ server ───────────────► host
//!   through, no proxy ─ TCP without a mark ──► interception of the running client ═══ tunnel ═══ … ─► host
//! ```

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bentpipe_proto::proxy::socks5;
use bentpipe_proto::tunnel::Destination;
use hyper::client::conn::http1;
use hyper::header::HOST;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use super::Fault;
use crate::client::frontend::own_mark;
use crate::config::FrontEnds;

/// Time that a handshake of TCP may take: a few round trips of a satellite, and packets that are lost.
const PATIENCE: Duration = Duration::from_secs(20);

/// A way to open connections to one host.
#[derive(Debug, Clone)]
pub(super) enum Road {
    /// To this address; with a mark, past the interception.
    Address(SocketAddr, Option<u32>),
    /// By SOCKS5 at this address.
    Socks5(SocketAddr, Destination),
    /// By HTTP CONNECT at this address.
    Http(SocketAddr, Destination),
}

impl Road {
    /// Past the tunnel to `address`, with the mark of the client's own sockets where `front` takes this machine in.
    pub(super) fn past(front: &FrontEnds, address: SocketAddr) -> Self {
        let marked = takes_in_this_machine(front);
        Self::Address(address, own_mark(front).filter(|_| marked))
    }

    /// Through the tunnel to `destination`, by what `front` has; `known` is the host's address, if this machine knows it.
    pub(super) fn through(
        front: &FrontEnds,
        destination: Destination,
        known: Option<SocketAddr>,
    ) -> Result<Self, Fault> {
        if let Some(socks5) = &front.socks5 {
            return Ok(Self::Socks5(reachable(socks5.listen), destination));
        }
        if let Some(http) = &front.http {
            return Ok(Self::Http(reachable(http.listen), destination));
        }
        match known.filter(|_| takes_in_this_machine(front)) {
            Some(address) => Ok(Self::Address(address, None)),
            None => Err(Fault::NoFrontEnd),
        }
    }

    /// A new connection.
    pub(super) async fn open(&self) -> Result<TcpStream, Fault> {
        match self {
            Self::Address(address, mark) => {
                connect(*address, *mark)
                    .await
                    .map_err(|source| match source.kind() {
                        io::ErrorKind::PermissionDenied if mark.is_some() => Fault::Mark(source),
                        _ => Fault::Connect(*address, source),
                    })
            }
            Self::Socks5(proxy, destination) => {
                let stream = connect(*proxy, None).await;
                let stream = stream.map_err(|source| Fault::FrontEnd(*proxy, source))?;
                ask_socks5(stream, destination).await
            }
            Self::Http(proxy, destination) => {
                let stream = connect(*proxy, None).await;
                let stream = stream.map_err(|source| Fault::FrontEnd(*proxy, source))?;
                ask_http(stream, &destination.to_string()).await
            }
        }
    }

    /// Words for the road, for whoever reads a report.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Address(_, _) => "the interception of this machine".to_owned(),
            Self::Socks5(proxy, ..) => format!("SOCKS5 at {proxy}"),
            Self::Http(proxy, ..) => format!("the HTTP proxy at {proxy}"),
        }
    }
}

fn takes_in_this_machine(front: &FrontEnds) -> bool {
    front.intercept.as_ref().is_some_and(|it| it.local)
}

/// Address by which this machine reaches its own listener.
fn reachable(mut listen: SocketAddr) -> SocketAddr {
    if listen.ip().is_unspecified() {
        listen.set_ip(match listen {
            SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        });
    }
    listen
}

async fn connect(address: SocketAddr, mark: Option<u32>) -> io::Result<TcpStream> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    #[cfg(target_os = "linux")]
    if let Some(mark) = mark {
        socket2::SockRef::from(&socket).set_mark(mark)?;
    }
    #[cfg(not(target_os = "linux"))]
    let _ = mark;
    socket.set_nonblocking(true)?;
    let socket = TcpSocket::from_std_stream(socket.into());
    let stream = timeout(PATIENCE, socket.connect(address)).await??;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Has the SOCKS5 proxy at the other end of `stream` connect to `destination`.
async fn ask_socks5(mut stream: TcpStream, destination: &Destination) -> Result<TcpStream, Fault> {
    let refused = |why: &dyn fmt::Display| Fault::Refused(format!("SOCKS5: {why}"));
    stream.write_all(&socks5::GREETING).await?;
    let mut agreed = [0; socks5::GREETING_REPLY.len()];
    stream.read_exact(&mut agreed).await?;
    if agreed != socks5::GREETING_REPLY {
        return Err(refused(&"it asks for a password"));
    }
    stream
        .write_all(&socks5::encode_connect(destination))
        .await?;
    let mut answer = Vec::new();
    // Byte by byte: what follows belongs to the connection.
    while answer.len() < socks5::MAX_MESSAGE {
        answer.push(stream.read_u8().await?);
        match socks5::decode_reply(&answer) {
            Ok(None) => {}
            Ok(Some((0, _))) => return Ok(stream),
            Ok(Some((code, _))) => return Err(refused(&format_args!("code {code}"))),
            Err(error) => return Err(refused(&error)),
        }
    }
    Err(refused(&"an endless answer"))
}

/// Has the HTTP proxy at the other end of `stream` connect to `authority`.
async fn ask_http(stream: TcpStream, authority: &str) -> Result<TcpStream, Fault> {
    let broken = |error: hyper::Error| Fault::http(authority, &error);
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(broken)?;
    let driver = tokio::spawn(connection.with_upgrades());
    let request = Request::builder()
        .method(Method::CONNECT)
        .uri(authority)
        .header(HOST, authority)
        .body(http_body_util::Empty::<bytes::Bytes>::new())
        .map_err(|error| Fault::Refused(error.to_string()))?;
    let response = sender.send_request(request).await.map_err(broken)?;
    if !response.status().is_success() {
        return Err(Fault::Refused(response.status().to_string()));
    }
    let upgraded = hyper::upgrade::on(response).await.map_err(broken)?;
    driver.abort();
    let parts = upgraded.downcast::<TokioIo<TcpStream>>();
    let parts = parts.map_err(|_| Fault::Refused("no bare connection".to_owned()))?;
    // A server of HTTP says nothing before it is asked.
    Ok(parts.io.into_inner())
}
