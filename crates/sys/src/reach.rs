//! Where the kernel would send a packet to an address: to this machine, elsewhere, or nowhere.
//!
//! The answer is the routing tables' own (RTM_GETROUTE), so it holds for addresses that were added a moment ago, for
//! local routes without an address, and when this process has neither ports nor descriptors left: the socket is opened
//! once. Needs no privilege.

use std::io;
use std::net::IpAddr;

use netlink_packet_core::{NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteType};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

/// Room for one answer, bytes: a route with all its attributes takes a few hundred.
const ANSWER: usize = 8192;

/// Notices read at once; a daemon that fills a table sends thousands, and one says as much as all.
const NOTICES: usize = 256;

/// Netlink groups that tell of a change of what is local: addresses, routes and rules of both families
/// (RTNLGRP_IPV4_IFADDR and following in linux/rtnetlink.h).
const GROUPS: [u32; 6] = [5, 7, 8, 9, 11, 19];

/// Goal of packets to an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// To this machine: one of its addresses, or a broadcast, anycast or multicast address of it.
    Own,
    /// To another machine.
    Elsewhere,
    /// Nowhere: there is no route, or one that refuses.
    Nowhere,
}

/// A socket that asks the kernel for routes.
pub struct RouteQuery {
    socket: Socket,
    sequence: u32,
}

impl RouteQuery {
    /// Opens the socket, in the network namespace of this thread.
    ///
    /// # Errors
    /// The kernel's; usually no descriptor is left.
    pub fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self {
            socket,
            sequence: 0,
        })
    }

    /// Asks where a packet to `address` would go now. An IPv4 address mapped into IPv6 is asked for as the kernel would
    /// dial it: as IPv4.
    ///
    /// # Errors
    /// The kernel gave no answer: nothing is known of the address.
    pub fn ask(&mut self, address: IpAddr) -> io::Result<Reach> {
        let address = address.to_canonical();
        if address.is_unspecified() {
            // Connecting to it connects to this machine.
            return Ok(Reach::Own);
        }
        self.sequence = self.sequence.wrapping_add(1);
        self.socket.send(&request(address, self.sequence), 0)?;
        let mut buffer = Vec::with_capacity(ANSWER);
        loop {
            buffer.clear();
            // The kernel answers before it returns from sending: what is not there now never comes.
            self.socket.recv(&mut buffer, libc::MSG_DONTWAIT)?;
            if let Some(outcome) = outcome(&buffer, self.sequence) {
                return outcome;
            }
        }
    }
}

fn request(address: IpAddr, sequence: u32) -> Vec<u8> {
    let mut route = RouteMessage::default();
    (
        route.header.address_family,
        route.header.destination_prefix_length,
    ) = match address {
        IpAddr::V4(_) => (AddressFamily::Inet, 32),
        IpAddr::V6(_) => (AddressFamily::Inet6, 128),
    };
    let destination = RouteAttribute::Destination(RouteAddress::from(address));
    route.attributes.push(destination);
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST;
    header.sequence_number = sequence;
    let payload = NetlinkPayload::from(RouteNetlinkMessage::GetRoute(route));
    let mut message = NetlinkMessage::new(header, payload);
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

/// The answer in `bytes`; `None` if they belong to an earlier question.
fn outcome(bytes: &[u8], sequence: u32) -> Option<io::Result<Reach>> {
    let malformed = |error| io::Error::new(io::ErrorKind::InvalidData, format!("netlink: {error}"));
    let message = match NetlinkMessage::<RouteNetlinkMessage>::deserialize(bytes) {
        Ok(message) => message,
        Err(error) => return Some(Err(malformed(error.to_string()))),
    };
    if message.header.sequence_number != sequence {
        return None;
    }
    Some(match message.payload {
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewRoute(route)) => {
            reach(route.header.kind).ok_or_else(|| malformed("a route of another kind".into()))
        }
        NetlinkPayload::Error(error) => refused(error.to_io()),
        _ => Err(malformed("no route in the answer".into())),
    })
}

fn reach(kind: RouteType) -> Option<Reach> {
    match kind {
        RouteType::Local | RouteType::Broadcast | RouteType::Anycast | RouteType::Multicast => {
            Some(Reach::Own)
        }
        RouteType::Unicast => Some(Reach::Elsewhere),
        RouteType::BlackHole | RouteType::Unreachable | RouteType::Prohibit => Some(Reach::Nowhere),
        _ => None,
    }
}

/// Errors that are the routing tables' answer; any other says nothing of the address.
fn refused(error: io::Error) -> io::Result<Reach> {
    match error.raw_os_error() {
        Some(
            libc::ENETUNREACH
            | libc::EHOSTUNREACH
            | libc::EACCES
            | libc::EAFNOSUPPORT
            | libc::EOPNOTSUPP,
        ) => Ok(Reach::Nowhere),
        _ => Err(error),
    }
}

/// Notices of every change of addresses, routes and rules.
pub struct RouteChanges(Socket);

impl RouteChanges {
    /// Begins to listen, in the network namespace of this thread.
    ///
    /// # Errors
    /// The kernel's; usually no descriptor is left.
    pub fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        for group in GROUPS {
            socket.add_membership(group)?;
        }
        socket.set_non_blocking(true)?;
        Ok(Self(socket))
    }

    /// True if something has changed since the last call. Never misses a change: also true when notices were lost.
    #[must_use]
    pub fn take(&self) -> bool {
        let mut changed = false;
        let mut buffer = Vec::with_capacity(64);
        for _ in 0..NOTICES {
            buffer.clear();
            match self.0.recv(&mut buffer, libc::MSG_DONTWAIT) {
                Ok(_) => changed = true,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return changed,
                // The queue has overflowed, or worse: whatever was known may be wrong.
                Err(_) => return true,
            }
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_own_by_every_name() {
        let mut query = RouteQuery::open().expect("a socket");
        for address in [
            "127.0.0.1",
            "127.9.9.9",
            "::ffff:127.0.0.1",
            "0.0.0.0",
            "::",
        ] {
            let asked = query.ask(address.parse().expect("an address"));
            assert_eq!(asked.expect("an answer"), Reach::Own, "{address}");
        }
    }

    #[test]
    fn only_what_the_tables_say_is_an_answer() {
        let says = |code| refused(io::Error::from_raw_os_error(code));
        assert_eq!(says(libc::ENETUNREACH).ok(), Some(Reach::Nowhere));
        for code in [libc::EMFILE, libc::ENOBUFS, libc::EINVAL, libc::EPERM] {
            assert!(says(code).is_err(), "{code}");
        }
    }
}
