//! Reliable wires: addresses to which datagrams travel in order inside a TCP connection, and how much may wait there.
//!
//! A TCP connection takes more than its path does, and what has been handed over cannot be overtaken any more. So a
//! connection whose wire has [`WireUse::room`] bytes waiting is given no turn: its bytes stay with their flows, and a request
//! still passes a download.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::time::Duration;

use bentpipe_units::BitRate;

/// Time that what waits at a wire takes to leave, at most.
const LONGEST_WAIT: Duration = Duration::from_millis(10);

/// Bytes that may wait however slow the path is: two datagrams, so that TCP never runs dry between two of them.
const LEAST_ROOM: u64 = 2 * 1400;

/// Bytes that a datagram costs on a reliable wire beside its own: its length, a record of TLS, a segment of TCP over IPv4 with
/// time stamps. Datagrams that leave together share records and segments; what that saves is about what the peer's TCP
/// acknowledgements take, which nobody counts.
pub(super) const HEADERS: u64 = 2 + 22 + 52;

/// IPv6 scope of peers that are reached over TCP. No datagram comes from such a scope, which is an index of an interface, so
/// these addresses differ from every address of the UDP socket, and still say who the peer is.
const SCOPE: u32 = u32::MAX;

/// Address by which an engine knows a peer whose datagrams come inside a TCP connection from `peer`.
#[must_use]
pub fn over_tcp(peer: SocketAddr) -> SocketAddr {
    let ip = match peer {
        SocketAddr::V4(peer) => peer.ip().to_ipv6_mapped(),
        SocketAddr::V6(peer) => *peer.ip(),
    };
    SocketAddrV6::new(ip, peer.port(), 0, SCOPE).into()
}

/// True for an address made by [`over_tcp`].
#[must_use]
pub fn is_over_tcp(address: SocketAddr) -> bool {
    matches!(address, SocketAddr::V6(address) if address.scope_id() == SCOPE)
}

/// Peer's address itself, of one by which an engine knows it: IPv4 in its own form, and the interface of an address of one link as its
/// scope, unless it was made by [`over_tcp`].
pub(super) fn peer_of(remote: SocketAddr) -> SocketAddr {
    match (remote, remote.ip().to_canonical()) {
        (SocketAddr::V6(known), IpAddr::V6(ip)) if !is_over_tcp(remote) => {
            SocketAddrV6::new(ip, known.port(), 0, known.scope_id()).into()
        }
        (_, ip) => (ip, remote.port()).into(),
    }
}

/// Use that an engine's connections make of a reliable wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WireUse {
    /// Bytes that may wait there.
    pub room: u64,
    /// Number of the connection that had the last turn there; `None`: none has had one.
    pub by: Option<u64>,
}

#[derive(Debug)]
struct Wire {
    waiting: u64,
    usage: WireUse,
}

/// Reliable wires, by the address that each leads to, and the connections that wait for one of them, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Wires {
    wires: BTreeMap<SocketAddr, Wire>,
    held: BTreeSet<(SocketAddr, u64)>,
}

impl Wires {
    /// Notes that so many bytes wait at the wire to `remote`; `None`: datagrams to it travel by themselves. Returns the
    /// connections that may send again.
    pub(super) fn set(&mut self, remote: SocketAddr, waiting: Option<u64>) -> Vec<u64> {
        let Some(waiting) = waiting else {
            self.wires.remove(&remote);
            return self.release(remote);
        };
        let fresh = Wire {
            waiting,
            usage: WireUse {
                room: LEAST_ROOM,
                by: None,
            },
        };
        let wire = self.wires.entry(remote).or_insert(fresh);
        wire.waiting = waiting;
        match waiting < wire.usage.room {
            true => self.release(remote),
            false => Vec::new(),
        }
    }

    fn release(&mut self, remote: SocketAddr) -> Vec<u64> {
        let all = (remote, 0)..=(remote, u64::MAX);
        let held: Vec<_> = self.held.range(all).copied().collect();
        let released = held.into_iter().inspect(|entry| {
            self.held.remove(entry);
        });
        released.map(|(_, id)| id).collect()
    }

    /// Asks for a turn of a connection to `remote`, which delivers at `rate`.
    pub(super) fn ask(
        &mut self,
        id: u64,
        remote: SocketAddr,
        rate: impl FnOnce() -> BitRate,
    ) -> WireTurn {
        // Of most engines no peer is behind TCP.
        if self.wires.is_empty() {
            return WireTurn::Datagrams;
        }
        let Some(wire) = self.wires.get_mut(&remote) else {
            return WireTurn::Datagrams;
        };
        let room = rate().bytes_in(LONGEST_WAIT).as_u64().max(LEAST_ROOM);
        wire.usage = WireUse { room, by: Some(id) };
        if wire.waiting < room {
            return WireTurn::Reliable;
        }
        self.held.insert((remote, id));
        WireTurn::Full
    }

    /// Use that is made of the wire to `remote`; `None` if that is not a reliable one.
    pub(super) fn usage(&self, remote: SocketAddr) -> Option<WireUse> {
        self.wires.get(&remote).map(|wire| wire.usage)
    }
}

/// Answer to a connection that may have something to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WireTurn {
    /// Its datagrams travel by themselves: they may be lost and overtaken.
    Datagrams,
    /// Its datagrams travel in order, and none is lost.
    Reliable,
    /// So many wait there that nothing may be added.
    Full,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_over_tcp_names_the_peer_and_is_no_other() {
        for text in ["192.0.2.1:40000", "[2001:db8::1]:40000"] {
            let peer: SocketAddr = text.parse().expect("an address");
            let over = over_tcp(peer);
            assert!(is_over_tcp(over) && !is_over_tcp(peer));
            assert_eq!(over.ip().to_canonical(), peer.ip());
            assert_eq!(over.port(), peer.port());
            assert_ne!(over, peer);
            let mapped: SocketAddr = (over.ip(), over.port()).into();
            assert_ne!(over, mapped, "the UDP socket's form of it");
            assert_eq!([over, mapped].map(peer_of), [peer; 2]);
        }
        let near: SocketAddr = "[fe80::1%3]:4433".parse().expect("an address");
        assert_eq!(peer_of(near), near, "of one link");
    }

    #[test]
    fn a_connection_waits_while_its_wire_is_full() {
        let mut wires = Wires::default();
        let [slow, fast] = [512_000, 8_000_000].map(BitRate::bits_per_second);
        let [one, other] = [1, 2].map(|port| over_tcp(([192, 0, 2, 1], port).into()));
        let id = 7;
        assert_eq!(wires.ask(id, one, || slow), WireTurn::Datagrams);
        assert!(wires.set(one, Some(0)).is_empty());
        assert_eq!(wires.ask(id, one, || slow), WireTurn::Reliable);
        assert_eq!(wires.ask(id, other, || slow), WireTurn::Datagrams);

        assert!(wires.set(one, Some(LEAST_ROOM)).is_empty());
        assert_eq!(
            wires.ask(id, one, || fast),
            WireTurn::Reliable,
            "10 ms are 10 kB"
        );
        assert_eq!(wires.ask(id, one, || slow), WireTurn::Full);
        assert!(wires.set(one, Some(LEAST_ROOM)).is_empty(), "still full");
        assert_eq!(wires.set(one, Some(LEAST_ROOM - 1)), [id]);
        assert!(wires.set(one, Some(0)).is_empty(), "released once");

        assert!(wires.set(one, Some(1 << 20)).is_empty());
        assert_eq!(wires.ask(id, one, || fast), WireTurn::Full);
        assert_eq!(wires.set(one, None), [id], "the wire is gone");
        assert_eq!(wires.ask(id, one, || fast), WireTurn::Datagrams);
    }
}
