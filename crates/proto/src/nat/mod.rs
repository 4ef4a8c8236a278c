//! A network address translator over sockets, for a server that may not have a device (`PROTOCOL.md` §14).
//!
//! ```text
//!   tunnel: IP packet ─► Nat::on_packet ─► Datagram ─► socket of its mapping ─► internet
//!   tunnel: IP packet ◄─ Nat::on_datagram, Nat::on_failure ◄──── that socket ◄─ internet
//! ```
//!
//! One table for each client. A mapping belongs to one address and port (or identifier of ICMP echo) of the client, and to no
//! destination: whoever the client speaks to from there sees the same port of the server's (endpoint-independent mapping,
//! RFC 4787 §4.1). It lets in only what comes from addresses that were spoken to (address-dependent filtering, §5), since
//! nobody outside may begin a connection to a client. Which destinations are permitted is asked before a packet comes here.
//!
//! It holds no socket and no clock; whoever does opens a socket for a mapping when the first datagram is to leave from it, and
//! closes it when [`Nat::poll_closed`] says so.

pub(crate) mod content;
mod mapping;

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use bytes::Bytes;

use crate::packets::build::{self, Head, Pair};
use crate::packets::icmp::expired;
use crate::packets::ip::UDP;
use crate::packets::{Header, Prohibited, prohibited};
use content::Content;
use mapping::Mapping;
pub use mapping::{ECHO_LIFE, PEERS, UDP_LIFE, UNANSWERED_LIFE};

/// Mappings of one client.
pub const MAPPINGS: usize = 1024;

/// Inner end of a mapping: an address and a port, or the identifier of ICMP echo.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Inner {
    kind: Kind,
    address: IpAddr,
    port: u16,
}

/// Use of a mapping's socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// UDP.
    Udp,
    /// ICMP echo.
    Echo,
}

/// Names a mapping; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MappingId(u64);

/// Fate of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The packet leaves from a socket.
    Send(Datagram),
    /// The packet goes nowhere, and the client is told so with this one.
    Answer(Bytes),
    /// The packet goes nowhere.
    Drop(Dropped),
}

/// Reason why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// The bytes are no packet, or a checksum is wrong.
    Malformed,
    /// The packet is of a kind, or a part of one, that sockets cannot carry.
    Kind,
    /// All mappings are in use.
    Full,
}

/// Datagram that leaves from a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// From the socket of this mapping.
    pub mapping: MappingId,
    /// Kind of the socket.
    pub kind: Kind,
    /// To there; without a port for ICMP echo.
    pub to: SocketAddr,
    /// UDP's payload, or the ICMP message, whose identifier and checksum are the kernel's.
    pub content: Bytes,
    /// Hop limit.
    pub hops: u8,
    /// DSCP, in the upper six bits; ECN is not offered, because marks of what comes back would be lost.
    pub traffic_class: u8,
    /// Not to be cut on its way.
    pub whole: bool,
}

/// Error that a socket heard about a datagram that it has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure<'a> {
    /// Address of the host that says so; `None`: this machine.
    pub from: Option<IpAddr>,
    /// Type and code of the ICMP message.
    pub said: (u8, u8),
    /// The largest packet that would pass, where it is said.
    pub mtu: u32,
    /// Goal of the datagram.
    pub to: SocketAddr,
    /// Part of its content that is known.
    pub content: &'a [u8],
}

/// One client's mappings.
#[derive(Debug)]
pub struct Nat {
    own: Prohibited,
    by_inner: HashMap<Inner, MappingId>,
    mappings: HashMap<MappingId, Mapping>,
    closed: VecDeque<MappingId>,
    /// The next mapping's, and the next packet's number.
    next: u64,
    number: u32,
}

impl Nat {
    /// No mappings yet; errors that begin here come from `own`.
    #[must_use]
    pub fn new(own: Prohibited) -> Self {
        Self {
            own,
            by_inner: HashMap::new(),
            mappings: HashMap::new(),
            closed: VecDeque::new(),
            next: 0,
            number: 0,
        }
    }

    /// Mappings now.
    #[must_use]
    pub fn len(&self) -> usize {
        self.mappings.len()
    }

    /// None.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.mappings.is_empty()
    }

    /// The client sends `packet` to where it may; without `echo`, ICMP echo cannot be sent.
    pub fn on_packet(&mut self, now: Instant, packet: &Bytes, echo: bool) -> Outcome {
        let Some(header) = Header::parse(packet) else {
            return Outcome::Drop(Dropped::Malformed);
        };
        if header.fragment {
            return Outcome::Drop(Dropped::Kind);
        }
        let content = match Content::parse(packet, &header) {
            Ok(Some(content)) if echo || content.kind == Kind::Udp => content,
            Ok(_) => {
                return prohibited(packet, &header, self.own)
                    .map_or(Outcome::Drop(Dropped::Kind), Outcome::Answer);
            }
            Err(()) => return Outcome::Drop(Dropped::Malformed),
        };
        let hops = header.hops(packet);
        // Whoever forwards a packet takes one (RFC 1812 §5.3.1), and this stands where a router would.
        if hops <= 1 {
            return expired(packet, &header, self.own)
                .map_or(Outcome::Drop(Dropped::Kind), Outcome::Answer);
        }
        let inner = Inner {
            kind: content.kind,
            address: header.source,
            port: content.from,
        };
        let Some(mapping) = self.mapping(now, inner) else {
            return Outcome::Drop(Dropped::Full);
        };
        if let Some(known) = self.mappings.get_mut(&mapping) {
            known.on_sent(now, header.destination, content.to);
        }
        Outcome::Send(Datagram {
            mapping,
            kind: content.kind,
            to: SocketAddr::new(header.destination, content.to),
            content: packet.slice(content.place),
            hops: hops - 1,
            traffic_class: header.traffic_class & 0xfc,
            whole: header.is_whole(packet),
        })
    }

    /// The mapping of `inner`, a new one if need be.
    fn mapping(&mut self, now: Instant, inner: Inner) -> Option<MappingId> {
        if let Some(id) = self.by_inner.get(&inner) {
            return Some(*id);
        }
        if self.mappings.len() >= MAPPINGS {
            self.handle_timeout(now);
        }
        if self.mappings.len() >= MAPPINGS {
            self.make_room()?;
        }
        let id = MappingId(self.next);
        self.next += 1;
        self.by_inner.insert(inner, id);
        self.mappings.insert(id, Mapping::new(now, inner));
        Some(id)
    }

    /// Who has never been answered gives way, the oldest first: a scan of ports does not keep others out.
    fn make_room(&mut self) -> Option<()> {
        let silent = self.mappings.iter().filter(|(_, known)| !known.answered());
        let (id, _) = silent.min_by_key(|(id, known)| (known.used(), **id))?;
        let id = *id;
        self.close(id);
        self.closed.push_back(id);
        Some(())
    }

    /// The socket of `mapping` has got `content` from `from`, over so many `hops` as are left, with this traffic class. What the client
    /// is to get is handed to `deliver`: several packets if it is long.
    pub fn on_datagram(
        &mut self,
        now: Instant,
        mapping: MappingId,
        from: SocketAddr,
        content: &[u8],
        (hops, traffic_class): (u8, u8),
        deliver: impl FnMut(Bytes),
    ) {
        let Some(known) = self.mappings.get_mut(&mapping) else {
            return;
        };
        let inner = known.inner;
        let (Some(pair), true) = (
            Pair::new(from.ip(), inner.address),
            known.admits(from.ip()) && hops > 1,
        ) else {
            return;
        };
        let Some(written) = content::answer(inner, from.port(), content) else {
            return;
        };
        known.on_answer(now);
        self.number = self.number.wrapping_add(1);
        let head = Head {
            pair,
            protocol: content::protocol(inner),
            hops: hops - 1,
            traffic_class: traffic_class & 0xfc,
            number: self.number,
        };
        let (front, rest) = written;
        let place = if head.protocol == UDP { 6 } else { 2 };
        if let Some(whole) = build::packet(&head, &[&front, rest], place) {
            build::emit(&head, whole, deliver);
        }
    }

    /// The socket of `mapping` has heard of a failure: the packet that tells the client, if there is one.
    #[must_use]
    pub fn on_failure(&self, mapping: MappingId, failure: &Failure<'_>) -> Option<Bytes> {
        let known = self.mappings.get(&mapping)?;
        known.admits(failure.to.ip()).then_some(())?;
        content::failure(known.inner, failure, self.own)
    }

    /// The socket of `mapping` could not be opened, or has failed.
    pub fn close(&mut self, mapping: MappingId) {
        if let Some(known) = self.mappings.remove(&mapping) {
            self.by_inner.remove(&known.inner);
        }
    }

    /// The client's rights have changed: what is not `permitted` any more is not heard, and a mapping that has spoken to
    /// nobody else is closed.
    pub fn retain(&mut self, permitted: impl Fn(IpAddr) -> bool) {
        let left =
            |(id, known): (&MappingId, &mut Mapping)| known.retain(&permitted).then_some(*id);
        let over: Vec<_> = self.mappings.iter_mut().filter_map(left).collect();
        for id in over {
            self.close(id);
            self.closed.push_back(id);
        }
    }

    /// Closes mappings whose time is over. To be called about once a second; a late call keeps them longer.
    pub fn handle_timeout(&mut self, now: Instant) {
        let over: Vec<_> = self
            .mappings
            .iter()
            .filter(|(_, known)| known.expires() <= now)
            .map(|(id, _)| *id)
            .collect();
        for id in over {
            self.close(id);
            self.closed.push_back(id);
        }
    }

    /// The next mapping whose socket is to be closed.
    pub fn poll_closed(&mut self) -> Option<MappingId> {
        self.closed.pop_front()
    }
}

#[cfg(test)]
mod tests;
