//! Datagrams of SOCKS5 applications, between their sockets and the tunnel.
//!
//! `proto/proxy/associate` decides what becomes of each datagram. Packets for an association are taken out before the device,
//! if there is one, gets the others.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Instant;

use bentpipe_proto::proxy::associate::{
    Arrival, AssociationId, Associations, Cause, Delivery, Outcome,
};
use bentpipe_proto::tunnel::{Destination, HostName};
use bytes::Bytes;
use tokio::net::UdpSocket;

use super::session::Session;
use crate::config::{ClientConfig, PortProtocol};
use crate::{process, status};
use bentpipe_tunnel::engine::{Connection, ConnectionId, Engine};

/// The associations of a client, and their sockets.
pub(super) struct Relays {
    state: RefCell<Associations>,
    sockets: RefCell<HashMap<AssociationId, Rc<UdpSocket>>>,
}

impl Relays {
    pub(super) fn new(config: &ClientConfig) -> Self {
        // What comes for a published port is for its host.
        let published = config.publish.iter();
        let published = published.filter(|publish| publish.protocol == PortProtocol::Udp);
        let taken = published.map(|publish| publish.port).collect();
        Self {
            state: RefCell::new(Associations::new(process::random_u64(), taken)),
            sockets: RefCell::default(),
        }
    }

    /// Takes a packet out of the tunnel if an association is to have it; false: it is for somebody else.
    fn take(&self, now: Instant, packet: &[u8]) -> bool {
        let arrival = self.state.borrow_mut().on_packet(now, packet);
        match arrival {
            Arrival::Deliver(delivery) => self.deliver(&delivery),
            Arrival::Drop => {}
            Arrival::NotOurs => return false,
        }
        true
    }

    fn deliver(&self, delivery: &Delivery) {
        let sockets = self.sockets.borrow();
        let sent = sockets
            .get(&delivery.id)
            .map(|socket| socket.try_send_to(&delivery.datagram, delivery.to));
        if !matches!(sent, Some(Ok(_))) {
            self.state.borrow_mut().count(Cause::Overflow);
        }
    }
}

/// One association; over when this is dropped.
pub(crate) struct Relay {
    session: Rc<Session>,
    id: AssociationId,
}

impl Relay {
    /// A datagram has come to its socket; the name that is to be looked up first, if there is one. `permits` says whether
    /// rules let it into the tunnel.
    pub(crate) fn on_datagram(
        &self,
        from: SocketAddr,
        datagram: &[u8],
        permits: impl FnOnce(&Destination) -> bool,
    ) -> Option<HostName> {
        let mut state = self.session.relays.state.borrow_mut();
        let outcome = state.on_datagram(process::now(), self.id, from, datagram, permits);
        drop(state);
        match outcome {
            Outcome::Send(packet) => self.session.send_datagrams(vec![packet]),
            Outcome::Resolve(name) => return Some(name),
            Outcome::Wait => {}
            Outcome::Drop(cause) => tracing::trace!("a datagram of {from} dropped: {cause:?}"),
        }
        None
    }

    /// Notes where a name is, if anywhere.
    pub(crate) fn on_resolved(&self, name: &HostName, address: Option<IpAddr>) {
        let mut state = self.session.relays.state.borrow_mut();
        let packets = state.on_resolved(process::now(), self.id, name, address);
        drop(state);
        self.session.send_datagrams(packets);
    }

    /// Address families that datagrams can cross in: IPv4, then IPv6.
    pub(crate) fn families(&self) -> [bool; 2] {
        self.session.relays.state.borrow().families()
    }

    /// Instant at which it is over if nothing crosses before.
    pub(crate) fn idle_at(&self) -> Instant {
        let state = self.session.relays.state.borrow();
        state.idle_at(self.id).unwrap_or_else(process::now)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let relays = &self.session.relays;
        relays.state.borrow_mut().close(self.id);
        relays.sockets.borrow_mut().remove(&self.id);
    }
}

impl Session {
    /// True if the tunnel carries packets now; `None` without a tunnel.
    pub(crate) fn carries_packets(&self) -> Option<bool> {
        let id = self.ready()?;
        let carries = |engine: &Engine| Some(engine.peek(id)?.tunnel.carries_packets());
        self.shard.peek(carries)
    }

    /// An association for datagrams of `host`, from `port` if that is known, that come to `socket`. `None`: too many.
    pub(crate) fn associate(
        self: &Rc<Self>,
        host: IpAddr,
        port: Option<u16>,
        socket: Rc<UdpSocket>,
    ) -> Option<Relay> {
        let mut state = self.relays.state.borrow_mut();
        let id = state.open(process::now(), host, port)?;
        self.relays.sockets.borrow_mut().insert(id, socket);
        Some(Relay {
            session: self.clone(),
            id,
        })
    }

    /// The tunnel has come up: datagrams leave from what its server has assigned.
    pub(super) fn learn_assigned(&self, id: ConnectionId) {
        let assigned = self.shard.peek(|engine| {
            let hello = engine.peek(id)?.tunnel.remote()?;
            Some(hello.assigned.clone())
        });
        let mut state = self.relays.state.borrow_mut();
        state.set_assigned(assigned.unwrap_or_default());
    }

    /// Packets have come through the tunnel.
    pub(super) fn on_packets(&self, id: ConnectionId) {
        let (now, device) = (process::now(), self.device.get());
        self.shard.change(id, |connection| {
            let packets = std::iter::from_fn(|| connection.tunnel.take_packet());
            let unclaimed = packets.filter(|packet| !self.relays.take(now, packet));
            match device {
                Some(device) => device.write(unclaimed),
                None => unclaimed.for_each(|packet| {
                    self.relays.state.borrow_mut().on_unclaimed(&packet);
                }),
            }
        });
    }

    /// Sends packets through the tunnel; false if there is none that carries them, and then they are dropped.
    pub(super) fn send_packets(&self, packets: Vec<Bytes>) -> bool {
        let now = process::now();
        let send = |connection: &mut Connection| {
            let tunnel = &mut connection.tunnel;
            let carries = tunnel.carries_packets();
            if carries {
                packets
                    .into_iter()
                    .for_each(|packet| tunnel.send_packet(now, packet));
            }
            carries
        };
        let sent = self.ready().and_then(|id| self.shard.change(id, send));
        sent == Some(true)
    }

    fn send_datagrams(&self, packets: Vec<Bytes>) {
        let count = packets.len();
        if !self.send_packets(packets) {
            let mut state = self.relays.state.borrow_mut();
            (0..count).for_each(|_| state.count(Cause::NoTunnel));
        }
    }

    /// The figures of `status`, where applications may ask for associations.
    pub(super) fn associations(&self) -> Option<status::Associations> {
        self.front().socks5.as_ref()?;
        let state = self.relays.state.borrow();
        Some(status::Associations::new(state.len(), &state.stats()))
    }
}
