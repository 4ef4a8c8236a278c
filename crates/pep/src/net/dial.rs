//! Sockets to destinations, for clients with rights. In which order names are resolved, addresses checked and dialled is
//! `dial` of the crate `tunnel`.

use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use bentpipe_proto::tunnel::{Destination, ReplyCode};
use bentpipe_tunnel::dial::{Found, Network, dial};
use rustix::io::Errno;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::net::TcpStream;
use tokio::time::sleep;

use super::judge::{Judge, Refusal};
use super::names::LookupPermits;
use super::policy::{Denied, Policy};
use super::resolver::Resolver;
use crate::config::{RESPONDER_NAME, Service};
use crate::{process, relay};

/// Rights of one client to dial.
#[derive(Debug)]
pub(crate) struct Rights {
    pub(crate) policy: Policy,
    lookups: LookupPermits,
}

impl Rights {
    pub(crate) fn new(policy: Policy) -> Self {
        Self {
            policy,
            lookups: LookupPermits::default(),
        }
    }
}

/// Reason why there is no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotDialled {
    /// Code that the client is told.
    pub(crate) code: ReplyCode,
    /// The address that it may not reach, and why, if that was the reason.
    pub(crate) denied: Option<(IpAddr, Denied)>,
}

impl From<ReplyCode> for NotDialled {
    fn from(code: ReplyCode) -> Self {
        Self { code, denied: None }
    }
}

/// Dials for the clients of one shard.
pub(crate) struct Dialler {
    judge: Rc<Judge>,
    resolver: Rc<Resolver>,
    /// Time that one connection may take, name lookup included.
    patience: Duration,
    /// Address that [`RESPONDER_NAME`] leads to.
    responder: Option<SocketAddr>,
}

impl Dialler {
    pub(crate) fn new(judge: Rc<Judge>, resolver: Rc<Resolver>, patience: Duration) -> Self {
        Self {
            judge,
            resolver,
            patience,
            responder: None,
        }
    }

    /// Leads [`RESPONDER_NAME`] to `responder`, which every client may reach.
    #[must_use]
    pub(crate) fn with_responder(self, responder: Option<SocketAddr>) -> Self {
        Self { responder, ..self }
    }

    /// Connects to `destination` on behalf of a client with these `rights`; says what it has connected to.
    pub(crate) async fn dial(
        &self,
        destination: &Destination,
        rights: &Rights,
    ) -> Result<(TcpStream, SocketAddr), NotDialled> {
        let dialler = self;
        dial(&Permitted { dialler, rights }, destination, self.patience).await
    }

    /// As [`Self::permits`], but waits for what is still being found out.
    async fn permits_in_time(
        &self,
        policy: &Policy,
        address: SocketAddr,
    ) -> Result<(), NotDialled> {
        if self.responder == Some(address) {
            return Ok(());
        }
        let service = Service::Port(address.port());
        match self.judge.check(policy, address.ip(), service) {
            Err(Refusal::Unsettled) => {
                self.judge.settled().await;
                self.permits(policy, address)
            }
            verdict => verdict.map_err(|refusal| refused(address.ip(), &refusal)),
        }
    }

    /// Checks that a client with this `policy` may have a connection to `address`.
    pub(crate) fn permits(&self, policy: &Policy, address: SocketAddr) -> Result<(), NotDialled> {
        if self.responder == Some(address) {
            return Ok(());
        }
        let service = Service::Port(address.port());
        let verdict = self.judge.check(policy, address.ip(), service);
        verdict.map_err(|refusal| refused(address.ip(), &refusal))
    }
}

/// Network as one client may use it.
struct Permitted<'a> {
    dialler: &'a Dialler,
    rights: &'a Rights,
}

impl Network for Permitted<'_> {
    type Connection = TcpStream;
    type Failure = NotDialled;

    async fn resolve<'a>(&'a self, name: &'a str, port: u16) -> Found<'a> {
        // A name that no resolver is asked for, whether there is a responder or not.
        if name.eq_ignore_ascii_case(RESPONDER_NAME) {
            let own: Vec<_> = self.dialler.responder.into_iter().collect();
            return own.into();
        }
        let resolver = &self.dialler.resolver;
        let found = resolver.look_up(name, &self.rights.lookups).await;
        found.at(port)
    }

    async fn check(&self, address: SocketAddr) -> Result<(), NotDialled> {
        let permitted = self.dialler.permits_in_time(&self.rights.policy, address);
        permitted.await
    }

    async fn open(&self, address: SocketAddr) -> Result<TcpStream, ReplyCode> {
        open(address, None).await.map_err(|error| code_of(&error))
    }

    async fn pause(&self, time: Duration) {
        sleep(time).await;
    }
}

fn refused(address: IpAddr, refusal: &Refusal) -> NotDialled {
    match refusal {
        Refusal::Denied(denied) => NotDialled {
            code: ReplyCode::Denied,
            denied: Some((address, *denied)),
        },
        // Not a reason that lasts: the client is to try again.
        Refusal::Unknown(_) | Refusal::Unsettled => ReplyCode::Internal.into(),
    }
}

/// Connects to `address`, which nobody has checked; `mark` is the socket's, if it needs one.
pub(crate) async fn open(address: SocketAddr, mark: Option<u32>) -> io::Result<TcpStream> {
    let domain = Domain::for_address(address);
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP)).inspect_err(|error| {
        process::tell_of_files(error);
    })?;
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
            process::tell_of_ports(&error);
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
