//! Ports of this machine that deliver to hosts behind a client: opened for its session, if its configuration permits it, and
//! closed with it.
//!
//! ```text
//!   PUBLISH ─► permitted? ─┬ TCP: listener ─► a flow towards the client for each connection
//!                          └ UDP: a socket that keeps the port, and a rule of the kernel's that leads it to the client
//! ```
//!
//! A port that is in use is tried again: it may be that of the client's own earlier session, which is about to end.

use std::future::pending;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bentpipe_proto::tunnel::{Publish, PublishCode};
use socket2::Socket;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::clients::Client;
use super::publish::{Leading, Listeners, Ports, claim, protocol_of};
use super::sessions::Sessions;
use super::shares::HeldPlaces;
use crate::complaint::LastingFault;
use crate::config::PortProtocol;
use crate::process;
use crate::relay::{self, FlowHandle, Relay};
use crate::status;
use bentpipe_tunnel::engine::{ConnectionId, Engine};

/// Before a port that could not be opened is tried again: soon at first, for its last owner is likely to be leaving.
const PAUSES: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(5)];

/// Times that it is tried before the client hears of it.
const QUIET_TRIES: u32 = 20;

/// Time for which a client may be silent before its ports are closed: those who connect then would wait for nobody.
const SILENT_FOR: Duration = Duration::from_secs(10);

/// Descriptors of a published port: a socket of each family.
const OF_PORT: usize = 2;

/// Before accepting is tried again when this process has no descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

fn is_permitted(client: &Client, asked: &Publish) -> bool {
    let mut permits = client.publish.iter();
    permits.any(|permit| permit.covers(asked.protocol, asked.port))
}

impl Sessions {
    /// A client asks for a port.
    pub(super) fn on_publish(self: &Rc<Self>, id: ConnectionId, asked: Publish) {
        if self.with_ports(id, |ports| ports.insert(asked)) == Some(true) {
            self.claim_ports(id);
            self.check_port(id, &asked);
        }
    }

    /// The client's rights may have changed.
    pub(super) fn check_ports(self: &Rc<Self>, id: ConnectionId) {
        let asked = self.with_ports(id, |ports| ports.asked());
        let asked = asked.unwrap_or_default();
        for asked in asked {
            self.check_port(id, &asked);
        }
    }

    /// Opens a port that is permitted and not open, closes one that is open and not permitted.
    fn check_port(self: &Rc<Self>, id: ConnectionId, asked: &Publish) {
        let Some(client) = self.client(id) else {
            return;
        };
        let refusal = match protocol_of(asked.protocol) {
            None => Some(PublishCode::Unsupported),
            Some(_) if !is_permitted(&client, asked) => Some(PublishCode::NotPermitted),
            Some(_) => None,
        };
        if let Some(code) = refusal {
            self.with_ports(id, |ports| ports.close(asked.entry));
            return self.tell(id, asked, code);
        }
        let (this, port) = (self.clone(), *asked);
        self.with_ports(id, |ports| {
            ports.keep(asked.entry, |silent| this.keep(id, port, silent));
        });
    }

    fn tell(&self, id: ConnectionId, asked: &Publish, code: PublishCode) {
        if self.with_ports(id, |ports| ports.tell(asked.entry, code)) != Some(true) {
            return;
        }
        let (client, port) = (self.name(id), asked.port);
        let protocol = protocol_of(asked.protocol).map_or("?".into(), |known| known.to_string());
        match status::publish_refusal(&protocol, port, code) {
            None => tracing::info!(client, "{protocol} port {port} is published"),
            Some(why) => tracing::warn!(client, "{protocol} port {port} is not published: {why}"),
        }
        self.shard.change(id, |connection| {
            connection.tunnel.published(asked.entry, code);
        });
    }

    /// Closes ports of a client that is not answering (`outage`) for long, or keeps them once it answers again.
    pub(super) fn silence_ports(self: &Rc<Self>, id: ConnectionId, outage: bool) {
        let this = self.clone();
        self.with_ports(id, |ports| match outage {
            true => ports.begin_silence(async move {
                sleep(SILENT_FOR).await;
                this.with_ports(id, |ports| ports.close_for_silence());
            }),
            false => ports.end_silence(),
        });
    }

    /// Keeps a port open while the client answers; never ends.
    async fn keep(
        self: Rc<Self>,
        id: ConnectionId,
        asked: Publish,
        mut silent: watch::Receiver<bool>,
    ) {
        // They end with the port, not with the client's answers.
        let mut relays = JoinSet::new();
        loop {
            let open = async {
                match asked.protocol == PortProtocol::Tcp.number() {
                    true => self.accept(id, &asked, &mut relays).await,
                    false => self.lead(id, &asked).await,
                }
            };
            tokio::select! {
                () = open => {}
                _ = silent.wait_for(|silent| *silent) => {}
            }
            if silent.wait_for(|silent| !*silent).await.is_err() {
                return;
            }
        }
    }

    /// Yields what `open` yields, sooner or later.
    async fn opened<T>(
        &self,
        id: ConnectionId,
        asked: &Publish,
        open: impl Fn() -> io::Result<T>,
    ) -> T {
        let mut tries = 0;
        loop {
            match open() {
                Ok(opened) => return opened,
                Err(error) => {
                    let code = match error.kind() {
                        io::ErrorKind::AddrInUse => PublishCode::InUse,
                        io::ErrorKind::PermissionDenied => PublishCode::NoPrivilege,
                        _ => PublishCode::Internal,
                    };
                    if code != PublishCode::InUse || tries >= QUIET_TRIES {
                        tracing::debug!(port = asked.port, "cannot open a port: {error}");
                        self.tell(id, asked, code);
                    }
                }
            }
            sleep(PAUSES[usize::from(tries >= QUIET_TRIES)]).await;
            tries += 1;
        }
    }

    /// Opens a port and takes what comes; never ends.
    async fn accept(&self, id: ConnectionId, asked: &Publish, relays: &mut JoinSet<()>) {
        let open = || Ok((self.places_of_port(id)?, Listeners::open(asked)?));
        let (_places, mut listeners) = self.opened(id, asked, open).await;
        self.tell(id, asked, PublishCode::Ok);
        loop {
            tokio::select! {
                accepted = listeners.accept() => match accepted {
                    Ok((socket, peer)) => {
                        if let Some(relay) = self.carry(id, asked.entry, socket, peer) {
                            relays.spawn_local(relay);
                        }
                    }
                    // It was reset while it waited.
                    Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                    Err(error) => {
                        process::tell_of_files(&error);
                        sleep(ACCEPT_PAUSE).await;
                    }
                },
                Some(_) = relays.join_next() => {}
            }
        }
    }

    /// Places for the sockets of a port.
    fn places_of_port(&self, id: ConnectionId) -> io::Result<HeldPlaces> {
        let client = self.client(id);
        let places = client.and_then(|it| self.shared.places.take(&it.name, OF_PORT));
        places.ok_or_else(|| io::Error::other("the client has its share of file descriptors"))
    }

    /// Opens a flow for a connection; `None`: it is reset, for the client takes no more.
    fn carry(
        &self,
        id: ConnectionId,
        entry: u64,
        socket: TcpStream,
        peer: SocketAddr,
    ) -> Option<impl Future<Output = ()> + use<>> {
        relay::prepare(&socket).ok()?;
        let client = self.client(id)?;
        let place = self.shared.places.take(&client.name, 1)?;
        let destination = socket.local_addr().ok();
        let opened = self.shard.change(id, |connection| {
            if connection.tunnel.flow_count() as u64 >= client.max_flows {
                return None;
            }
            let (tunnel, quic) = connection.parts();
            let opened = tunnel.open_inbound(quic, entry, Some(peer), destination);
            opened.ok()
        });
        let handle = FlowHandle::new(self.shard.clone(), id, opened??);
        Some(async move {
            let outcome = Relay::new(handle, socket).run().await;
            drop(place);
            tracing::debug!(client = client.name, %peer, ?outcome, "inbound flow ended");
        })
    }

    /// Has the kernel lead a UDP port to the client; never ends.
    async fn lead(&self, id: ConnectionId, asked: &Publish) {
        let open = || Ok((self.places_of_port(id)?, claim(asked)?));
        let (_places, claimed) = self.opened(id, asked, open).await;
        let leading = self.leading(id, asked, claimed);
        let code = match &leading {
            None => PublishCode::NoPackets,
            Some(leading) => {
                self.begin(id, asked, leading).await;
                PublishCode::Ok
            }
        };
        self.tell(id, asked, code);
        // Until the port is closed, what leads to the client is kept.
        let () = pending().await;
    }

    /// Has `leading` begin, sooner or later: what the kernel refuses now it may take in a moment.
    async fn begin(&self, id: ConnectionId, asked: &Publish, leading: &Leading) {
        let mut fault = LastingFault::none();
        while let Err(error) = leading.begin().await {
            if fault.is_news(&error) {
                tracing::error!(
                    "cannot lead UDP port {} to its client: {error}; trying on",
                    asked.port
                );
            }
            self.tell(id, asked, PublishCode::Internal);
            sleep(PAUSES[1]).await;
        }
    }

    /// Rules that lead to the client; `None`: its packets do not cross.
    fn leading(&self, id: ConnectionId, asked: &Publish, claimed: Vec<Socket>) -> Option<Leading> {
        let carries = |engine: &Engine| Some(engine.peek(id)?.tunnel.agreement().carries_packets());
        let carried = self.shard.peek(carries).unwrap_or(false);
        let packets = self.shared.packets.clone().filter(|_| carried)?;
        let addresses = self.addresses(id, asked);
        let ports: Vec<_> = addresses.into_iter().map(|to| (asked.port, to)).collect();
        (!ports.is_empty()).then(|| Leading::new(packets, ports, claimed))
    }

    /// The client's addresses in the tunnel that a port is asked for, one of each family.
    fn addresses(&self, id: ConnectionId, asked: &Publish) -> Vec<IpAddr> {
        let sessions = self.open.borrow();
        let session = sessions.get(&id);
        let addresses = session
            .map(|it| it.crossing.addresses())
            .unwrap_or_default();
        let of_family = |ipv6| {
            let mut own = addresses.iter().filter(|to| to.is_ipv6() == ipv6);
            own.find(|to| asked.families.covers(**to)).copied()
        };
        [false, true].into_iter().filter_map(of_family).collect()
    }

    fn client(&self, id: ConnectionId) -> Option<Arc<Client>> {
        Some(self.open.borrow().get(&id)?.client.clone())
    }

    fn with_ports<T>(&self, id: ConnectionId, act: impl FnOnce(&mut Ports) -> T) -> Option<T> {
        let mut sessions = self.open.borrow_mut();
        sessions.get_mut(&id).map(|session| act(&mut session.ports))
    }

    /// The client's ports are this session's from now on.
    fn claim_ports(&self, id: ConnectionId) {
        let key = self.open.borrow().get(&id).map(|session| session.key);
        if let Some(key) = key {
            self.shared.registry.publish(key, self.index, id);
        }
    }
}
