//! Clients' packets without a device: UDP and ICMP echo from sockets that anybody may open.
//!
//! ```text
//!   client ═► shard: Filter ─► Nat ─► socket of the mapping ─► internet
//!   client ◄═ shard ◄───────── Nat ◄─ its task ◄────────────── internet
//! ```
//!
//! The table, its checks and all packets are `proto/nat`'s; this opens, reads, writes and closes sockets. A mapping lives on its
//! client's shard and ends with the tunnel.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::UdpSocket as StdSocket;
use std::rc::Rc;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use bentpipe_proto::nat::{Datagram, Dropped, Failure, Kind, MappingId, Nat, Outcome};
use bentpipe_proto::tunnel::PacketKinds;
use bentpipe_sys::datagram::{self, Queue};
use bentpipe_sys::privilege;
use bytes::Bytes;
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::sync::Semaphore;
use tokio::task::{spawn_local, yield_now};

use super::filter::{Filter, Rule, Verdict};
use super::outlet::Outlet;
use super::plan::{AddressPlan, Assigned};
use crate::config::ServerConfig;
use crate::process;
use crate::server::clients::Client;
use crate::server::shares::ClientPlaces;
use crate::shard::Shard;
use crate::status::Session;
use bentpipe_tunnel::engine::{Connection, ConnectionId};

/// The part of the process's files that mappings of all clients may take: TCP needs the others.
const SHARE: u64 = 4;

/// Most sockets that are worth counting.
const MOST: usize = 1 << 20;

/// Datagrams read from one socket before others get a turn.
const TURN: usize = 64;

/// State that all shards share.
pub(in crate::server) struct Sockets {
    plan: RwLock<AddressPlan>,
    permits: Arc<Semaphore>,
    /// True if the kernel lets this process ping.
    echo: bool,
}

impl Sockets {
    /// Sockets in place of a device, and a line about what they do not carry; `reason` is why there is no device.
    pub(super) fn start(config: &ServerConfig, reason: &io::Error) -> (Arc<Self>, String) {
        let ping = datagram::open_echo(false).or_else(|_| datagram::open_echo(true));
        let limited = match &ping {
            Ok(_) => format!("of packets UDP and ping alone are carried: {reason}"),
            Err(ping) => format!("of packets UDP alone is carried: {reason}; {ping}"),
        };
        for client in config
            .clients
            .iter()
            .filter(|known| !known.routes.is_empty())
        {
            tracing::warn!(
                client = client.name,
                "its `routes` need a device: not routed"
            );
        }
        let files = privilege::raise_nofile().map_or(1024, |(soft, _)| soft);
        let sockets = usize::try_from(files / SHARE).unwrap_or(MOST).min(MOST);
        let sockets = Arc::new(Self {
            plan: RwLock::new(AddressPlan::new(
                &config.packets,
                &config.clients,
                &AddressPlan::default(),
            )),
            permits: Arc::new(Semaphore::new(sockets)),
            echo: ping.is_ok(),
        });
        (sockets, limited)
    }

    /// The list of clients has changed.
    pub(in crate::server) fn reload(&self, config: &ServerConfig) {
        let mut plan = self.plan.write().unwrap_or_else(PoisonError::into_inner);
        *plan = AddressPlan::new(&config.packets, &config.clients, &plan);
    }

    /// The filter for a client that connects. It has no prefixes: nobody could send to them.
    pub(in crate::server) fn filter(&self, client: &Arc<Client>, rule: &Rule) -> Filter {
        let plan = self.plan.read().unwrap_or_else(PoisonError::into_inner);
        let assigned = Assigned {
            routed: Vec::new(),
            ..plan.of(&client.name)
        };
        let carried = match self.echo {
            true => PacketKinds::Sockets,
            false => PacketKinds::Udp,
        };
        Filter::new(
            assigned,
            client.clone(),
            rule.clone(),
            plan.speaker(),
            carried,
        )
    }

    /// Carrier of the packets of a client that connects.
    pub(in crate::server) fn translator(
        self: &Arc<Self>,
        filter: &Filter,
        (shard, id): (&Rc<Shard>, ConnectionId),
        (places, client): (Arc<ClientPlaces>, String),
    ) -> Translator {
        Translator {
            shared: self.clone(),
            nat: Rc::new(RefCell::new(Nat::new(filter.own()))),
            outlets: HashMap::new(),
            shard: shard.clone(),
            id,
            places,
            client,
            full: 0,
            malformed: 0,
            unsupported: 0,
        }
    }
}

/// One client's mappings and their sockets.
pub(in crate::server) struct Translator {
    shared: Arc<Sockets>,
    nat: Rc<RefCell<Nat>>,
    outlets: HashMap<MappingId, Outlet>,
    shard: Rc<Shard>,
    id: ConnectionId,
    places: Arc<ClientPlaces>,
    /// Name of the client.
    client: String,
    full: u64,
    malformed: u64,
    unsupported: u64,
}

impl Translator {
    /// Lets the packets that came through `connection` go on, as far as `filter` permits.
    pub(in crate::server) fn take(
        &mut self,
        filter: &mut Filter,
        now: Instant,
        connection: &mut Connection,
    ) {
        filter.refresh();
        while let Some(packet) = connection.tunnel.take_packet() {
            let answer = match filter.check(now, &packet) {
                Verdict::Pass => self.pass(now, &packet).filter(|_| filter.may_tell(now)),
                Verdict::Answer(error) => Some(error),
                Verdict::Drop => None,
            };
            if let Some(error) = answer {
                connection.tunnel.send_packet(now, error);
            }
        }
    }

    /// Sends a packet that may be sent; what comes of it is what the client has to be told.
    fn pass(&mut self, now: Instant, packet: &Bytes) -> Option<Bytes> {
        let outcome = self
            .nat
            .borrow_mut()
            .on_packet(now, packet, self.shared.echo);
        self.close_outlets();
        match outcome {
            Outcome::Send(datagram) => match self.send(&datagram) {
                Ok(()) => None,
                Err(error) => self.not_sent(&datagram, &error),
            },
            Outcome::Answer(error) => {
                self.unsupported += 1;
                Some(error)
            }
            Outcome::Drop(cause) => {
                *match cause {
                    Dropped::Malformed => &mut self.malformed,
                    Dropped::Kind => &mut self.unsupported,
                    Dropped::Full => &mut self.full,
                } += 1;
                None
            }
        }
    }

    fn send(&mut self, datagram: &Datagram) -> io::Result<()> {
        let id = datagram.mapping;
        if !self.outlets.contains_key(&id) {
            match self.open(datagram) {
                Ok(outlet) => drop(self.outlets.insert(id, outlet)),
                Err(error) => {
                    tracing::debug!("no socket for a client's datagrams: {error}");
                    process::tell_of_files(&error);
                    self.nat.borrow_mut().close(id);
                    self.full += 1;
                }
            }
        }
        match self.outlets.get_mut(&id) {
            Some(outlet) => outlet.send(datagram),
            None => Ok(()),
        }
    }

    fn open(&self, datagram: &Datagram) -> io::Result<Outlet> {
        let permit = self.shared.permits.clone().try_acquire_owned();
        let permit = permit.map_err(|_| io::Error::other("all clients' sockets are in use"))?;
        let place = self.places.take(&self.client, 1);
        let place = place.ok_or_else(|| io::Error::other("the client has its share"))?;
        let ipv6 = datagram.to.is_ipv6();
        let socket: StdSocket = match datagram.kind {
            Kind::Udp => datagram::open_udp(ipv6)?,
            Kind::Echo => datagram::open_echo(ipv6)?,
        };
        let listener = MappingReader {
            socket: Rc::new(UdpSocket::from_std(socket)?),
            ipv6,
            nat: self.nat.clone(),
            shard: self.shard.clone(),
            id: self.id,
            mapping: datagram.mapping,
        };
        let socket = listener.socket.clone();
        let task = spawn_local(listener.run()).abort_handle();
        Ok(Outlet::new(socket, ipv6, task, (permit, place)))
    }

    /// Message that the client is told, if any; else it is counted. Of what is too large the socket's other queue tells.
    fn not_sent(&mut self, datagram: &Datagram, error: &io::Error) -> Option<Bytes> {
        let answer = self.unreachable(datagram, error);
        if answer.is_none() && Errno::from_io_error(error) != Some(Errno::MSGSIZE) {
            self.full += 1;
        }
        answer
    }

    /// Message that the kernel of a router would tell the client.
    fn unreachable(&self, datagram: &Datagram, error: &io::Error) -> Option<Bytes> {
        let ipv6 = datagram.to.is_ipv6();
        let said = match (error.kind(), ipv6) {
            (io::ErrorKind::NetworkUnreachable, false) => (3, 0),
            (io::ErrorKind::HostUnreachable, false) => (3, 1),
            (io::ErrorKind::NetworkUnreachable, true) => (1, 0),
            (io::ErrorKind::HostUnreachable, true) => (1, 3),
            _ => return None,
        };
        let failure = Failure {
            from: None,
            said,
            mtu: 0,
            to: datagram.to,
            content: &datagram.content,
        };
        self.nat.borrow().on_failure(datagram.mapping, &failure)
    }

    /// The client's rights have changed, of which `filter` knows: mappings that have spoken only to whom it may not speak
    /// any more are closed, and others no longer hear them.
    pub(in crate::server) fn recheck(&mut self, filter: &mut Filter, now: Instant) {
        let filter = RefCell::new(filter);
        let permitted = |address| filter.borrow_mut().permits_any(now, address);
        self.nat.borrow_mut().retain(permitted);
        self.close_outlets();
    }

    /// To be called about once a second.
    pub(in crate::server) fn handle_timeout(&mut self, now: Instant) {
        self.nat.borrow_mut().handle_timeout(now);
        self.close_outlets();
        let lost: u64 = self.outlets.values_mut().map(Outlet::newly_lost).sum();
        self.full += lost;
    }

    fn close_outlets(&mut self) {
        let mut nat = self.nat.borrow_mut();
        while let Some(id) = nat.poll_closed() {
            if let Some(mut outlet) = self.outlets.remove(&id) {
                self.full += outlet.newly_lost();
            }
        }
    }

    /// Adds what is known here.
    pub(in crate::server) fn count(&self, session: &mut Session) {
        if let Some(packets) = &mut session.packets {
            packets.mappings = Some(self.outlets.len() as u64);
            packets.dropped.overflow += self.full;
            packets.dropped.malformed += self.malformed;
            packets.dropped.unsupported = self.unsupported;
        }
    }
}

/// Reads the socket of one mapping.
struct MappingReader {
    socket: Rc<UdpSocket>,
    ipv6: bool,
    nat: Rc<RefCell<Nat>>,
    shard: Rc<Shard>,
    id: ConnectionId,
    mapping: MappingId,
}

impl MappingReader {
    /// Never ends while the socket works.
    async fn run(self) {
        while let Ok(ready) = self
            .socket
            .ready(Interest::READABLE | Interest::ERROR)
            .await
        {
            let (mut packets, now) = (Vec::new(), process::now());
            // One after the other: tokio forgets nothing of an interest in both.
            let queues = [
                (Interest::READABLE, ready.is_readable(), Queue::Datagrams),
                (Interest::ERROR, ready.is_error(), Queue::Failures),
            ];
            for (interest, _, queue) in queues.into_iter().filter(|(_, ready, _)| *ready) {
                let read = || self.read(now, queue, |packet| packets.push(packet));
                // Whatever it says is known: nothing waits any more, or there is more.
                let _ = self.socket.try_io(interest, read);
            }
            self.shard.change(self.id, |connection| {
                for packet in packets {
                    connection.tunnel.send_packet(now, packet);
                }
            });
            // More may wait at once, and being ready is no reason for tokio to let others run.
            yield_now().await;
        }
    }

    /// Reads what waits in `queue`, a turn at most; `WouldBlock` if that was all.
    fn read(&self, now: Instant, queue: Queue, mut deliver: impl FnMut(Bytes)) -> io::Result<()> {
        let mut buffer = self.shard.scratch().borrow_mut();
        for _ in 0..TURN {
            match datagram::receive(&self.socket, queue, &mut buffer) {
                Ok(received) => self.on_received(now, received, &buffer, &mut deliver),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(error),
                // A failure, reported in place of what waits; it is in the other queue as well.
                Err(_) => {}
            }
        }
        Ok(())
    }

    fn on_received(
        &self,
        now: Instant,
        received: datagram::Received,
        buffer: &[u8],
        mut deliver: impl FnMut(Bytes),
    ) {
        let content = &buffer[..received.length.min(buffer.len())];
        let mut nat = self.nat.borrow_mut();
        let Some(failure) = received.failure else {
            let head = (received.hops, received.traffic_class);
            nat.on_datagram(now, self.mapping, received.peer, content, head, deliver);
            return;
        };
        let too_large = if self.ipv6 { (2, 0) } else { (3, 4) };
        let failure = Failure {
            from: failure.from,
            said: failure.from.map_or(too_large, |_| failure.said),
            mtu: failure.mtu,
            to: received.peer,
            content,
        };
        if let Some(error) = nat.on_failure(self.mapping, &failure) {
            deliver(error);
        }
    }
}
