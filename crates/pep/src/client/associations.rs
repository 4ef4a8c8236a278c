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

use super::packets::PacketDevice;
use super::tunnels::Tunnels;
use crate::config::{ClientConfig, PortProtocol};
use crate::{process, status};
use bentpipe_tunnel::engine::ConnectionId;

/// The associations of a client, and their sockets.
pub(crate) struct Relays {
    tunnels: Rc<Tunnels>,
    state: RefCell<Associations>,
    sockets: RefCell<HashMap<AssociationId, Rc<UdpSocket>>>,
}

impl Relays {
    pub(super) fn new(config: &ClientConfig, tunnels: Rc<Tunnels>) -> Rc<Self> {
        // What comes for a published port is for its host.
        let published = config.publish.iter();
        let published = published.filter(|publish| publish.protocol == PortProtocol::Udp);
        let taken = published.map(|publish| publish.port).collect();
        Rc::new(Self {
            tunnels,
            state: RefCell::new(Associations::new(process::random_u64(), taken)),
            sockets: RefCell::default(),
        })
    }

    /// An association for datagrams of `host`, from `port` if that is known, that come to `socket`. `None`: too many.
    pub(crate) fn open(
        self: &Rc<Self>,
        host: IpAddr,
        port: Option<u16>,
        socket: Rc<UdpSocket>,
    ) -> Option<AssociationRelay> {
        let id = self.state.borrow_mut().open(process::now(), host, port)?;
        self.sockets.borrow_mut().insert(id, socket);
        Some(AssociationRelay {
            relays: self.clone(),
            id,
        })
    }

    /// The tunnel has come up: datagrams leave from what its server has assigned.
    pub(super) fn learn_assigned(&self) {
        let assigned = self.tunnels.assigned();
        let mut state = self.state.borrow_mut();
        state.set_assigned(assigned.unwrap_or_default());
    }

    /// Takes packets that have come through a connection; `device` gets those that are for no association.
    pub(super) fn on_packets(&self, id: ConnectionId, device: Option<&PacketDevice>) {
        let now = process::now();
        self.tunnels.change(id, |connection| {
            let packets = std::iter::from_fn(|| connection.tunnel.take_packet());
            let unclaimed = packets.filter(|packet| !self.take(now, packet));
            match device {
                Some(device) => device.write(unclaimed),
                None => unclaimed.for_each(|packet| {
                    self.state.borrow_mut().on_unclaimed(&packet);
                }),
            }
        });
    }

    fn send(&self, packets: Vec<Bytes>) {
        let count = packets.len();
        if !self.tunnels.send_packets(packets) {
            let mut state = self.state.borrow_mut();
            (0..count).for_each(|_| state.count(Cause::NoTunnel));
        }
    }

    /// The figures of `status`.
    pub(super) fn report(&self) -> status::Associations {
        let state = self.state.borrow();
        status::Associations::new(state.len(), &state.stats())
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
pub(crate) struct AssociationRelay {
    relays: Rc<Relays>,
    id: AssociationId,
}

impl AssociationRelay {
    /// A datagram has come to its socket; the name that is to be looked up first, if there is one. `permits` says whether
    /// rules let it into the tunnel.
    pub(crate) fn on_datagram(
        &self,
        from: SocketAddr,
        datagram: &[u8],
        permits: impl FnOnce(&Destination) -> bool,
    ) -> Option<HostName> {
        let mut state = self.relays.state.borrow_mut();
        let outcome = state.on_datagram(process::now(), self.id, from, datagram, permits);
        drop(state);
        match outcome {
            Outcome::Send(packet) => self.relays.send(vec![packet]),
            Outcome::Resolve(name) => return Some(name),
            Outcome::Wait => {}
            Outcome::Drop(cause) => tracing::trace!("a datagram of {from} dropped: {cause:?}"),
        }
        None
    }

    /// Notes where a name is, if anywhere.
    pub(crate) fn on_resolved(&self, name: &HostName, address: Option<IpAddr>) {
        let mut state = self.relays.state.borrow_mut();
        let packets = state.on_resolved(process::now(), self.id, name, address);
        drop(state);
        self.relays.send(packets);
    }

    /// Address families that datagrams can cross in: IPv4, then IPv6.
    pub(crate) fn families(&self) -> [bool; 2] {
        self.relays.state.borrow().families()
    }

    /// Instant at which it is over if nothing crosses before.
    pub(crate) fn idle_at(&self) -> Instant {
        let state = self.relays.state.borrow();
        state.idle_at(self.id).unwrap_or_else(process::now)
    }
}

impl Drop for AssociationRelay {
    fn drop(&mut self) {
        self.relays.state.borrow_mut().close(self.id);
        self.relays.sockets.borrow_mut().remove(&self.id);
    }
}
