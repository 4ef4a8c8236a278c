//! UDP associations of SOCKS5 (RFC 1928 §7): datagrams of applications become packets of the tunnel, and packets datagrams.
//!
//! ```text
//!   application ─► on_datagram ─┬─────────────────► packet ─► tunnel
//!                               └► name ─► DNS ─► on_resolved ─┘
//!   application ◄──────────────────── on_packet ◄── packet ◄─ tunnel
//! ```
//!
//! An association has a port of its own of each address that the server has assigned, out of a range that the client's kernel
//! leaves alone ([`PORTS`]); so it needs neither a device nor privileges. Its host alone may use it, from one port. Sockets, names
//! and the time come from outside.

mod names;
mod stats;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::socks5::{BadDatagram, MAX_DATAGRAM_HEAD, datagram_head, decode_datagram};
use crate::nat::Kind;
use crate::nat::content::Content;
use crate::packets::build::{self, Head, Pair, udp_head};
use crate::packets::ip::UDP;
use crate::packets::{Header, MTU};
use crate::tunnel::{Destination, Host, HostName};
use names::{NameFound, Names};
pub use stats::{AssociateStats, Cause, Drops};

/// Ports of the assigned addresses that are for associations: beyond those that Linux gives out by itself, and few, because
/// what hosts behind the client send from these has to be given others.
pub const PORTS: RangeInclusive<u16> = 64_512..=65_535;

/// Associations of one client: half of the ports, so that none is used again at once.
pub const MOST: usize = 512;

/// An association that has carried nothing for so long is over.
pub const IDLE: Duration = Duration::from_secs(600);

/// No datagram of an application's that fits into a packet is longer.
pub const MAX_DATAGRAM: usize = MTU + MAX_DATAGRAM_HEAD;

/// Datagrams of all associations that wait for the addresses of names.
const MOST_WAITING: usize = 1024;

/// Hops that a packet may take.
const HOPS: u8 = 64;

/// Byte at which the checksum stands in a UDP header.
const CHECKSUM: usize = 6;

/// Names an association; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AssociationId(u64);

/// Fate of a datagram of an application's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The packet is to cross.
    Send(Bytes),
    /// The addresses of this name are asked for; whatever is found goes to [`Associations::on_resolved`].
    Resolve(HostName),
    /// The name was asked for already.
    Wait,
    /// Nothing.
    Drop(Cause),
}

/// A datagram for an application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// From the socket of this association.
    pub id: AssociationId,
    /// To there.
    pub to: SocketAddr,
    /// With its head.
    pub datagram: Vec<u8>,
}

/// Meaning of a packet of the tunnel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// A datagram of an association's.
    Deliver(Delivery),
    /// Nothing that an application could get.
    Drop,
    /// For no association: somebody else may want it.
    NotOurs,
}

#[derive(Debug)]
struct Association {
    /// The host that may use it.
    host: IpAddr,
    /// From there; until the first datagram it may be unknown.
    port: Option<u16>,
    /// Port of the association of the assigned addresses.
    inner: u16,
    used: Instant,
    names: Names,
}

/// A client's associations.
#[derive(Debug)]
pub struct Associations {
    by_id: HashMap<AssociationId, Association>,
    by_port: HashMap<u16, AssociationId>,
    /// Ports that are somebody else's.
    taken: Vec<u16>,
    assigned: Vec<IpAddr>,
    /// The next association's.
    next_id: u64,
    next_port: u16,
    /// The next packet's.
    number: u32,
    /// Datagrams that wait for names.
    waiting: usize,
    stats: AssociateStats,
}

impl Associations {
    /// None yet; ports follow on one that `random` chooses, without those that are `taken`.
    #[must_use]
    pub fn new(random: u64, taken: Vec<u16>) -> Self {
        let count = u64::from(PORTS.end() - PORTS.start()) + 1;
        let first = u16::try_from(random % count).unwrap_or(0);
        Self {
            by_id: HashMap::new(),
            by_port: HashMap::new(),
            taken,
            assigned: Vec::new(),
            next_id: 0,
            next_port: PORTS.start() + first,
            number: 0,
            waiting: 0,
            stats: AssociateStats::default(),
        }
    }

    /// The server has assigned these addresses.
    pub fn set_assigned(&mut self, assigned: Vec<IpAddr>) {
        self.assigned = assigned;
    }

    /// Whether there is an address of IPv4, and one of IPv6, to send from.
    #[must_use]
    pub fn families(&self) -> [bool; 2] {
        [false, true].map(|ipv6| self.assigned.iter().any(|one| one.is_ipv6() == ipv6))
    }

    /// Associations now.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// None.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> AssociateStats {
        self.stats
    }

    /// A new one, for datagrams of `host`, from `port` if that is known. `None`: there are too many.
    pub fn open(&mut self, now: Instant, host: IpAddr, port: Option<u16>) -> Option<AssociationId> {
        if self.by_id.len() >= MOST {
            return None;
        }
        let inner = self.free_port()?;
        let id = AssociationId(self.next_id);
        self.next_id += 1;
        let association = Association {
            host: host.to_canonical(),
            port,
            inner,
            used: now,
            names: Names::default(),
        };
        self.by_id.insert(id, association);
        self.by_port.insert(inner, id);
        self.stats.opened += 1;
        Some(id)
    }

    /// In turn, so that what comes late for the last user of a port is not for the next.
    fn free_port(&mut self) -> Option<u16> {
        for _ in PORTS {
            let port = self.next_port;
            self.next_port = match port == *PORTS.end() {
                true => *PORTS.start(),
                false => port + 1,
            };
            if !self.by_port.contains_key(&port) && !self.taken.contains(&port) {
                return Some(port);
            }
        }
        None
    }

    /// The association is over.
    pub fn close(&mut self, id: AssociationId) {
        if let Some(association) = self.by_id.remove(&id) {
            self.by_port.remove(&association.inner);
            self.waiting -= association.names.waiting();
        }
    }

    /// Instant at which the association is over if nothing crosses before.
    #[must_use]
    pub fn idle_at(&self, id: AssociationId) -> Option<Instant> {
        Some(self.by_id.get(&id)?.used + IDLE)
    }

    /// A `datagram` has come to the socket of an association; `permits` says whether rules let it into the tunnel.
    pub fn on_datagram(
        &mut self,
        now: Instant,
        id: AssociationId,
        from: SocketAddr,
        datagram: &[u8],
        permits: impl FnOnce(&Destination) -> bool,
    ) -> Outcome {
        let outcome = self.admit(now, id, from, datagram, permits);
        outcome.unwrap_or_else(|cause| {
            self.count(cause);
            Outcome::Drop(cause)
        })
    }

    fn admit(
        &mut self,
        now: Instant,
        id: AssociationId,
        from: SocketAddr,
        datagram: &[u8],
        permits: impl FnOnce(&Destination) -> bool,
    ) -> Result<Outcome, Cause> {
        let association = self.by_id.get_mut(&id).ok_or(Cause::Stranger)?;
        let port = association.port.unwrap_or(from.port());
        if from.ip().to_canonical() != association.host || from.port() != port {
            return Err(Cause::Stranger);
        }
        if datagram.len() > MAX_DATAGRAM {
            return Err(Cause::Large);
        }
        let (destination, at) = decode_datagram(datagram).map_err(|bad| match bad {
            BadDatagram::Fragment => Cause::Fragment,
            BadDatagram::Malformed => Cause::Malformed,
        })?;
        // What cannot be read shows nothing about whose the association is.
        association.port = Some(port);
        association.used = now;
        if !permits(&destination) {
            return Err(Cause::Rule);
        }
        let content = &datagram[at..];
        let name = match destination.host {
            Host::Ip(address) => return self.send(id, address, destination.port, content),
            Host::Name(name) => name,
        };
        match association.names.find(now, &name) {
            NameFound::At(address) => return self.send(id, address, destination.port, content),
            NameFound::Full => return Err(Cause::Overflow),
            NameFound::Asked | NameFound::Unknown if self.waiting >= MOST_WAITING => {
                return Err(Cause::Overflow);
            }
            NameFound::Asked | NameFound::Unknown => {}
        }
        let kept = Bytes::copy_from_slice(content);
        let first = association.names.keep(&name, destination.port, kept);
        let first = first.ok_or(Cause::Overflow)?;
        self.waiting += 1;
        Ok(if first {
            Outcome::Resolve(name)
        } else {
            Outcome::Wait
        })
    }

    /// The packet for `content`; counted.
    fn send(
        &mut self,
        id: AssociationId,
        address: IpAddr,
        port: u16,
        content: &[u8],
    ) -> Result<Outcome, Cause> {
        let inner = self.by_id.get(&id).ok_or(Cause::Stranger)?.inner;
        let address = address.to_canonical();
        let mut pairs = self.assigned.iter();
        let pair = pairs.find_map(|own| Pair::new(*own, address));
        self.number = self.number.wrapping_add(1);
        let head = Head {
            pair: pair.ok_or(Cause::Family)?,
            protocol: UDP,
            hops: HOPS,
            traffic_class: 0,
            number: self.number,
        };
        let front = udp_head(inner, port, content.len()).ok_or(Cause::Large)?;
        let packet = build::packet(&head, &[&front, content], CHECKSUM);
        // Not every server carries the parts of a packet.
        let packet = packet.filter(|packet| packet.len() <= MTU);
        let packet = packet.ok_or(Cause::Large)?;
        self.stats.sent += 1;
        Ok(Outcome::Send(packet))
    }

    /// Takes what is known of the addresses of `name`, and yields the packets that waited for it.
    pub fn on_resolved(
        &mut self,
        now: Instant,
        id: AssociationId,
        name: &HostName,
        address: Option<IpAddr>,
    ) -> Vec<Bytes> {
        let Some(association) = self.by_id.get_mut(&id) else {
            return Vec::new();
        };
        let waited = association.names.resolved(now, name, address);
        self.waiting -= waited.len();
        let mut packets = Vec::with_capacity(waited.len());
        for (port, content) in waited {
            let sent = address.ok_or(Cause::Unresolved);
            match sent.and_then(|address| self.send(id, address, port, &content)) {
                Ok(Outcome::Send(packet)) => packets.push(packet),
                Ok(_) => {}
                Err(cause) => self.count(cause),
            }
        }
        packets
    }

    /// A packet has come out of the tunnel.
    pub fn on_packet(&mut self, now: Instant, packet: &[u8]) -> Arrival {
        let Some((id, header)) = self.owner(packet) else {
            return Arrival::NotOurs;
        };
        let content = match Content::parse(packet, &header) {
            Ok(Some(content)) if content.kind == Kind::Udp => content,
            _ => {
                self.count(Cause::Malformed);
                return Arrival::Drop;
            }
        };
        let Some(association) = self.by_id.get_mut(&id) else {
            return Arrival::Drop;
        };
        // Nobody has been spoken to from there.
        let Some(port) = association.port else {
            self.count(Cause::Stranger);
            return Arrival::Drop;
        };
        association.used = now;
        self.stats.received += 1;
        let mut datagram = datagram_head(SocketAddr::new(header.source, content.from));
        datagram.extend_from_slice(&packet[content.place]);
        Arrival::Deliver(Delivery {
            id,
            to: SocketAddr::new(association.host, port),
            datagram,
        })
    }

    /// Association that a packet belongs to.
    fn owner(&self, packet: &[u8]) -> Option<(AssociationId, Header)> {
        let header = Header::parse(packet)?;
        let (_, to) = header.ports.filter(|_| header.protocol == UDP)?;
        let id = self.by_port.get(&to)?;
        let ours = self.assigned.contains(&header.destination);
        ours.then_some((*id, header))
    }

    /// A packet that is nobody's, because there is no device: parts of long datagrams are counted, for they may have been for
    /// an association.
    pub fn on_unclaimed(&mut self, packet: &[u8]) {
        if Header::parse(packet).is_some_and(|header| header.fragment && !self.is_empty()) {
            self.count(Cause::Large);
        }
    }

    /// A datagram was dropped by whoever has the sockets.
    pub fn count(&mut self, cause: Cause) {
        self.stats.dropped.count(cause);
    }
}
