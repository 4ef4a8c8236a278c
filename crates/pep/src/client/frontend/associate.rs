//! UDP ASSOCIATE of SOCKS5: an application's datagrams cross as packets, for as long as its connection stays.
//!
//! ```text
//!   application ─► socket of the association ─► proto/proxy/associate ─► tunnel
//!                                        names ─► dns ─┘
//! ```
//!
//! Datagrams come to the address that the connection came to, and from its host alone.

use std::cell::Cell;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use bentpipe_proto::proxy::associate::{MAX_DATAGRAM, MOST};
use bentpipe_proto::proxy::socks5;
use bentpipe_proto::tunnel::{Destination, HostName, ReplyCode};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::task::spawn_local;
use tokio::time::{sleep_until, timeout};

use super::direct::Decisions;
use super::dns::Dns;
use super::share::Shares;
use crate::client::{AssociationRelay, Carrier};
use crate::config::{Action, UDP};
use crate::process;

/// Associations of all hosts together; a few of those that have to make way may not have heard of it yet.
const SHARED: usize = MOST - MOST / 8;

/// Time for which a name may be looked up: datagrams that wait longer are of no use.
const LOOKUP: Duration = Duration::from_secs(5);

/// Datagrams that are read before others get a turn.
const TURN: usize = 32;

/// Server of associations.
pub(super) struct Associates {
    carrier: Carrier,
    decisions: Rc<Decisions>,
    /// Finder of names.
    dns: Option<Rc<Dns>>,
    shares: Rc<Shares>,
    told: ToldOnce,
}

/// Lines that the log was told; once is enough.
#[derive(Default)]
struct ToldOnce {
    no_packets: Cell<bool>,
    no_dns: Cell<bool>,
    direct: Cell<bool>,
}

/// An association with its socket, and what the application is told that this is.
struct OpenedAssociation {
    relay: Rc<AssociationRelay>,
    socket: Rc<UdpSocket>,
    bound: SocketAddr,
}

impl Associates {
    pub(super) fn new(carrier: &Carrier, decisions: &Rc<Decisions>, dns: Option<&Rc<Dns>>) -> Self {
        Self {
            carrier: carrier.clone(),
            decisions: decisions.clone(),
            dns: dns.cloned(),
            shares: Shares::new(SHARED, "UDP associations of the SOCKS5 proxy"),
            told: ToldOnce::default(),
        }
    }

    /// Serves one until its connection ends; `port` is where its datagrams will come from, if that is known.
    pub(super) async fn serve(&self, mut control: TcpStream, peer: SocketAddr, port: Option<u16>) {
        let served = async {
            // A reset could overtake the answer.
            SockRef::from(&control).set_linger(None)?;
            let opened = match self.open(&control, peer, port).await {
                Ok(opened) => opened,
                Err(reply) => {
                    control.write_all(&reply).await?;
                    control.shutdown().await?;
                    return Ok("refused");
                }
            };
            let reply = socks5::reply(ReplyCode::Ok, Some(opened.bound));
            control.write_all(&reply).await?;
            self.run(&mut control, &opened, peer).await
        };
        let ended: Option<io::Result<_>> = self.shares.run(peer.ip(), served).await;
        match ended {
            Some(Ok(why)) => tracing::debug!("association of {peer}: {why}"),
            Some(Err(error)) => tracing::debug!("association of {peer}: {error}"),
            None => {}
        }
    }

    /// An association, or what the application is told instead.
    async fn open(
        &self,
        control: &TcpStream,
        peer: SocketAddr,
        port: Option<u16>,
    ) -> Result<OpenedAssociation, Vec<u8>> {
        let refused = |code| socks5::reply(code, None);
        let Some(session) = self.carrier.session() else {
            let mend =
                "`transport = \"plain\"` carries TCP only; use a tunnel (`transport = \"quic\"`)";
            self.explain(mend);
            return Err(socks5::not_associated());
        };
        if session.packet_road().is_open().is_none() && session.tunnel().await.is_err() {
            return Err(refused(ReplyCode::TimedOut));
        }
        if session.packet_road().is_open() != Some(true) {
            let mend = "the server carries TCP only; set `enabled = true` in [packets] of its configuration";
            self.explain(mend);
            return Err(socks5::not_associated());
        }
        let opened = control.local_addr().and_then(|local| self.bind(local));
        let (socket, bound) = opened.map_err(|error| {
            process::tell_of_files(&error);
            tracing::debug!("no socket for an association of {peer}: {error}");
            refused(ReplyCode::Internal)
        })?;
        let socket = Rc::new(socket);
        let relay = session
            .packet_road()
            .relays()
            .open(peer.ip(), port, socket.clone());
        Ok(OpenedAssociation {
            relay: Rc::new(relay.ok_or_else(|| refused(ReplyCode::LimitReached))?),
            socket,
            bound,
        })
    }

    /// Says once why there are no associations.
    fn explain(&self, why: &str) {
        if !self.told.no_packets.replace(true) {
            tracing::warn!("UDP ASSOCIATE of SOCKS5 is refused: {why}");
        }
    }

    /// A socket at the address that the application has connected to.
    fn bind(&self, local: SocketAddr) -> io::Result<(UdpSocket, SocketAddr)> {
        let mut address = local;
        if local.ip().to_canonical().is_ipv4() {
            address = SocketAddr::new(local.ip().to_canonical(), 0);
        }
        // A link-local address keeps its scope.
        address.set_port(0);
        let domain = Domain::for_address(address);
        let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
        process::widen(&socket);
        socket.set_nonblocking(true)?;
        #[cfg(target_os = "linux")]
        if let Some(mark) = super::own_mark(self.carrier.front()) {
            bentpipe_sys::socket::set_mark(&socket, mark)?;
        }
        socket.bind(&address.into())?;
        let socket = UdpSocket::from_std(socket.into())?;
        let bound = socket.local_addr()?;
        Ok((socket, bound))
    }

    /// Relays until the connection ends, or nothing has crossed for long; says which.
    async fn run(
        &self,
        control: &mut TcpStream,
        opened: &OpenedAssociation,
        peer: SocketAddr,
    ) -> io::Result<&'static str> {
        let OpenedAssociation { relay, socket, .. } = opened;
        // What is longer than it may be has to show.
        let mut buffer = vec![0; MAX_DATAGRAM + 1];
        let mut noise = [0; 64];
        loop {
            tokio::select! {
                read = control.read(&mut noise) => {
                    if read? == 0 {
                        return Ok("its connection has ended");
                    }
                }
                ready = socket.readable() => {
                    ready?;
                    for _ in 0..TURN {
                        let Ok((length, from)) = socket.try_recv_from(&mut buffer) else {
                            break;
                        };
                        self.on_datagram(relay, peer.ip(), from, &buffer[..length]);
                    }
                }
                () = sleep_until(relay.idle_at().into()) => {
                    if relay.idle_at() <= process::now() {
                        return Ok("nothing has crossed for long");
                    }
                }
            }
        }
    }

    fn on_datagram(
        &self,
        relay: &Rc<AssociationRelay>,
        host: IpAddr,
        from: SocketAddr,
        datagram: &[u8],
    ) {
        let permits = |destination: &Destination| self.permits(host, destination);
        let Some(name) = relay.on_datagram(from, datagram, permits) else {
            return;
        };
        let Some(dns) = self.dns.clone() else {
            if !self.told.no_dns.replace(true) {
                tracing::warn!(
                    "datagrams to names are dropped: nobody looks names up while [dns] has `enabled = false`"
                );
            }
            return relay.on_resolved(&name, None);
        };
        let (families, waiting) = (relay.families(), Rc::downgrade(relay));
        spawn_local(async move {
            let address = look_up(&dns, &name, host, families).await;
            if let Some(relay) = waiting.upgrade() {
                relay.on_resolved(&name, address);
            }
        });
    }

    /// True if rules let a datagram into the tunnel. There is no other way for it.
    fn permits(&self, host: IpAddr, destination: &Destination) -> bool {
        if self.decisions.is_empty() {
            return true;
        }
        let (front, source) = (self.carrier.front(), host.to_canonical());
        let decided = self.decisions.ask(front, None, source, destination, UDP);
        match decided.map(|(_, action)| action) {
            Some(Action::Tunnel) | None => true,
            Some(Action::Block) => false,
            Some(Action::Direct) => {
                if !self.told.direct.replace(true) {
                    tracing::warn!(
                        "datagrams that [socks5] gets and a rule calls `direct` are dropped: only connections go past the \
                         tunnel from there; let the application send them itself"
                    );
                }
                false
            }
        }
    }
}

/// An address of `name` that can be sent to. Of both families IPv4: the tunnel's own addresses of IPv6 are mostly local ones,
/// with which RFC 6724 prefers it as well.
async fn look_up(
    dns: &Rc<Dns>,
    name: &HostName,
    host: IpAddr,
    families: [bool; 2],
) -> Option<IpAddr> {
    let ask = async |ipv6: bool| {
        if !families[usize::from(ipv6)] {
            return None;
        }
        let found = timeout(LOOKUP, dns.addresses(name, ipv6, host)).await;
        found.ok()?.into_iter().find(|one| one.is_ipv6() == ipv6)
    };
    let (four, six) = tokio::join!(ask(false), ask(true));
    four.or(six)
}
