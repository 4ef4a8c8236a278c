//! From a destination to a connected socket: resolve, check each address, connect.
//!
//! Every address is checked after resolution and just before it is dialled, so a name that changes
//! its mind between two lookups gains nothing.

use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use bentpipe_proto::tunnel::{Destination, Host, ReplyCode};
use rustix::io::Errno;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::policy::Policy;
use crate::{process, relay};

/// Addresses tried for one name; more would only prolong a failure.
const MAX_ADDRESSES: usize = 6;

/// Name lookups that one client may have under way. They occupy threads that all clients share, some for many seconds.
const MAX_LOOKUPS: usize = 64;

/// What may be dialled for one client.
#[derive(Debug)]
pub(super) struct Rights {
    pub(super) policy: Policy,
    lookups: Arc<Semaphore>,
}

impl Rights {
    pub(super) fn new(policy: Policy) -> Self {
        Self {
            policy,
            lookups: Arc::new(Semaphore::new(MAX_LOOKUPS)),
        }
    }
}

/// Connects to `destination` on behalf of a client with these `rights`, within `patience` in all.
pub(super) async fn dial(
    destination: &Destination,
    rights: &Rights,
    patience: Duration,
) -> Result<TcpStream, ReplyCode> {
    timeout(patience, connect(destination, rights))
        .await
        .unwrap_or(Err(ReplyCode::TimedOut))
}

async fn connect(destination: &Destination, rights: &Rights) -> Result<TcpStream, ReplyCode> {
    if destination.port == 0 {
        return Err(ReplyCode::Refused);
    }
    let mut outcome = Err(ReplyCode::NameNotFound);
    for address in resolve(destination, rights).await? {
        outcome = if !is_permitted(address.ip(), &rights.policy).await {
            Err(ReplyCode::Denied)
        } else {
            open(address, None).await.map_err(|error| code_of(&error))
        };
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

async fn resolve(destination: &Destination, rights: &Rights) -> Result<Vec<SocketAddr>, ReplyCode> {
    let name = match &destination.host {
        Host::Ip(address) => return Ok(vec![SocketAddr::new(*address, destination.port)]),
        Host::Name(name) => name.as_str().to_owned(),
    };
    let permit = rights.lookups.clone().acquire_owned().await;
    let port = destination.port;
    let found = spawn_blocking(move || {
        // Held until the resolver returns, which may be long after the flow has given up.
        let _permit = permit;
        let found = (name, port).to_socket_addrs()?;
        Ok::<_, io::Error>(found.take(MAX_ADDRESSES).collect())
    });
    let found = found.await.map_err(|_| ReplyCode::Internal)?;
    found.map_err(|_| ReplyCode::NameNotFound)
}

/// The server's own addresses may be public, and are denied like private ones.
async fn is_permitted(address: IpAddr, policy: &Policy) -> bool {
    policy.check(address).is_ok() && (policy.allows_own(address) || !is_own(address).await)
}

/// True if `address` is one of this machine's: only then can a socket be bound to it.
async fn is_own(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).await.is_ok()
}

/// Connects to `address`, which nobody has checked; `mark` is the socket's, if it needs one.
pub(crate) async fn open(address: SocketAddr, mark: Option<u32>) -> io::Result<TcpStream> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    // From birth: a crash while connecting must not look like a clean close either.
    socket.set_linger(Some(Duration::ZERO))?;
    #[cfg(target_os = "linux")]
    if let Some(mark) = mark {
        bentpipe_sys::socket::set_mark(&socket, mark)?;
    }
    #[cfg(not(target_os = "linux"))]
    let _ = mark;
    socket.set_nonblocking(true)?;
    match socket.connect(&address.into()) {
        Err(error) if error.raw_os_error() != Some(Errno::INPROGRESS.raw_os_error()) => {
            return Err(error);
        }
        _ => {}
    }
    let stream = TcpStream::from_std(socket.into())?;
    stream.writable().await?;
    // Asking for SO_ERROR, as tokio's connect does, would take a reset that followed the connect for a
    // refusal, and lose what was said before it. Peeking finds bytes first, and leaves them.
    match SockRef::from(&stream).peek(&mut [MaybeUninit::uninit()]) {
        // Also a reset that nothing preceded: peeking has taken it, so a relay would read a clean end.
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
        _ => {}
    }
    relay::prepare(&stream)?;
    Ok(stream)
}

pub(crate) fn code_of(error: &io::Error) -> ReplyCode {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => ReplyCode::Refused,
        io::ErrorKind::NetworkUnreachable => ReplyCode::NetworkUnreachable,
        io::ErrorKind::HostUnreachable => ReplyCode::HostUnreachable,
        io::ErrorKind::TimedOut => ReplyCode::TimedOut,
        // A packet filter on this side, or on the way (EACCES, EPERM).
        io::ErrorKind::PermissionDenied => ReplyCode::HostUnreachable,
        // Among them a reset once connected: passed on as one, but no reason to refuse the next.
        _ => ReplyCode::Internal,
    }
}

/// Whether this machine can send to `address` at all; no packet is sent.
pub(super) fn has_route(address: IpAddr) -> bool {
    process::source_address(address).is_some()
}
