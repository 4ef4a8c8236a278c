//! Queries in datagrams.

use std::cell::Cell;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use bentpipe_proto::dns::Room;
#[cfg(target_os = "linux")]
use bentpipe_sys::stand_in::StandIn;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::task::{JoinHandle, spawn_local, yield_now};

use super::{Asker, Dns, Question, bind_error};
use crate::config::Place;
use crate::net::datagrams::{Arrival, DatagramSocket, ReadRoom};
use crate::process::{self, RunError};

/// Port at which resolvers are asked.
#[cfg(target_os = "linux")]
const PORT: u16 = 53;

/// Batches before other tasks get a turn.
const TURN: usize = 8;

/// A socket that queries come to.
pub(super) struct Listener {
    socket: DatagramSocket,
    /// Places of queries that were meant for other resolvers: answers come from there.
    #[cfg(target_os = "linux")]
    places: Option<Places>,
    complained: Cell<bool>,
}

/// A host that waits for its answer.
#[derive(Clone)]
pub(super) struct UdpAsker {
    listener: Rc<Listener>,
    host: SocketAddr,
    /// Address that the query was sent to: from there the answer has to come.
    local: Option<IpAddr>,
}

impl UdpAsker {
    pub(super) fn answer(&self, message: &[u8]) {
        self.listener.send(self.host, self.local, message);
    }
}

impl Listener {
    fn new(socket: std::net::UdpSocket) -> io::Result<Self> {
        Ok(Self {
            socket: DatagramSocket::new(socket)?,
            #[cfg(target_os = "linux")]
            places: None,
            complained: Cell::new(false),
        })
    }

    /// Answers that the kernel does not take now are lost, like any datagram: the host asks again.
    fn send(&self, host: SocketAddr, local: Option<IpAddr>, message: &[u8]) {
        #[cfg(target_os = "linux")]
        if let Some(places) = &self.places {
            if let Err(error) = places.send(local, host, message)
                && !self.complained.replace(true)
            {
                tracing::warn!("cannot answer DNS in a resolver's place: {error}");
            }
            return;
        }
        let _ = self.socket.send(host, local, message);
    }
}

/// Answers in the place of resolvers.
#[cfg(target_os = "linux")]
struct Places {
    /// Absent without CAP_NET_RAW.
    raw: Option<StandIn>,
}

#[cfg(target_os = "linux")]
impl Places {
    fn open() -> Self {
        let raw = StandIn::open(crate::client::frontend::tproxy::own_mark());
        if let Err(error) = &raw {
            tracing::warn!(
                "{error}; beside another name server on port 53 hosts may get no answers"
            );
        }
        Self { raw: raw.ok() }
    }

    /// Answers as the resolver at `local`.
    fn send(&self, local: Option<IpAddr>, host: SocketAddr, message: &[u8]) -> io::Result<()> {
        let local = local.ok_or(io::ErrorKind::AddrNotAvailable)?;
        let mut resolver = SocketAddr::new(local, PORT);
        if let (SocketAddr::V6(resolver), SocketAddr::V6(host)) = (&mut resolver, host) {
            // A link-local address means something on one interface.
            resolver.set_scope_id(host.scope_id());
        }
        let sent = match &self.raw {
            Some(raw) => raw.send(resolver, host, message),
            None => return send_bound(resolver, host, message),
        };
        lost(sent)
    }
}

/// A socket for each answer: one that stayed would get what other interfaces send to an address of this machine's own.
#[cfg(target_os = "linux")]
fn send_bound(resolver: SocketAddr, host: SocketAddr, message: &[u8]) -> io::Result<()> {
    let mark = crate::client::frontend::tproxy::own_mark();
    let socket = bentpipe_sys::socket::transparent_udp(resolver, mark)?;
    lost(socket.send_to(message, host).map(drop))
}

/// Takes datagrams that the kernel does not take for lost, like any.
#[cfg(target_os = "linux")]
fn lost(sent: io::Result<()>) -> io::Result<()> {
    match sent {
        Err(error) if error.kind() != io::ErrorKind::InvalidInput => Ok(()),
        sent => sent,
    }
}

/// Serves what the kernel hands to `address` on its way to resolvers.
#[cfg(target_os = "linux")]
pub(super) fn intercept(
    dns: &Rc<Dns>,
    address: SocketAddr,
    place: &Place,
) -> Result<JoinHandle<()>, RunError> {
    let mark = crate::client::frontend::tproxy::own_mark();
    let socket = bentpipe_sys::socket::transparent_udp(address, mark);
    let socket = socket.map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => RunError::privilege(place, &error),
        kind => bind_error(place, address, kind.into()),
    })?;
    let mut listener = Listener::new(socket)?;
    listener.places = Some(Places::open());
    Ok(spawn_local(serve(dns.clone(), Rc::new(listener))))
}

/// Serves `address`; `place` is where the configuration asks for it.
pub(super) fn start(
    dns: &Rc<Dns>,
    address: SocketAddr,
    place: &Place,
) -> Result<JoinHandle<()>, RunError> {
    let listener = listen(address).map_err(|error| bind_error(place, address, error))?;
    Ok(spawn_local(serve(dns.clone(), Rc::new(listener))))
}

fn listen(address: SocketAddr) -> io::Result<Listener> {
    let domain = Domain::for_address(address);
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    process::widen(&socket);
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Listener::new(socket.into())
}

async fn serve(dns: Rc<Dns>, listener: Rc<Listener>) {
    #[cfg(target_os = "linux")]
    let intercepts = listener.places.is_some();
    #[cfg(not(target_os = "linux"))]
    let intercepts = false;
    let handle = |query: Arrival<'_>| {
        let (host, local) = (query.peer, query.local);
        let asker = Asker::Udp(UdpAsker {
            listener: listener.clone(),
            host,
            local,
        });
        let asked = Question {
            host: host.ip().to_canonical(),
            resolver: local.filter(|_| intercepts),
        };
        if let Some(answer) = dns.handle(asker, asked, query.bytes, Room::Udp) {
            listener.send(host, local, &answer);
        }
    };
    let mut room = ReadRoom::default();
    let mut turns = 0;
    while listener.socket.receive(&mut room, handle).await.is_ok() {
        turns += 1;
        if turns % TURN == 0 {
            yield_now().await;
        }
    }
}
