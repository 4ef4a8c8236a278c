//! Packets that clients seal beside their tunnels (LES, `PROTOCOL.md` §20): what all threads of the server share of them.
//!
//! ```text
//!  UDP ─► door (main thread): whose SPI? ─► the shard of the tunnel: open, rights ─► device
//!              ▲ SPIs that are received          │
//!              ╰──────── LayeredTunnels ◄────────╯     device ─► shard: seal ─► UDP, where the client was last heard
//! ```

mod door;
mod ends;

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bentpipe_sealed::les::sa::{Held, PepKey, Psk};
use bentpipe_sealed::les::{Spi, spi_of};

use crate::config::LesListening;
use crate::keys::PublicKey;
use crate::les::psk;
use crate::net::datagrams::DatagramSocket;
use crate::process::RunError;
use crate::status;
use bentpipe_tunnel::engine::ConnectionId;
pub(super) use door::{LesDoor, LesInbox};
pub(super) use ends::LayeredEnds;

/// Way back to whoever has sent a datagram.
#[derive(Clone)]
pub(super) struct ReturnPath {
    socket: Arc<DatagramSocket>,
    peer: SocketAddr,
    /// Address of this machine that the client knows.
    local: Option<IpAddr>,
}

impl ReturnPath {
    /// Sends a packet back; false if the socket has no room.
    fn send(&self, packet: &[u8]) -> bool {
        self.socket.send(self.peer, self.local, packet).is_ok()
    }
}

/// Packet for an association of one shard.
pub(super) struct LayeredPacket {
    /// Tunnel of the association.
    tunnel: ConnectionId,
    from: ReturnPath,
    bytes: Vec<u8>,
}

/// Tunnels with associations.
#[derive(Default)]
pub(super) struct LayeredTunnels {
    table: Mutex<SpiTable>,
    /// Key of a laboratory, in place of those of tunnels.
    psk: Option<Psk>,
}

/// Associations that are received, and packets that are not.
#[derive(Default)]
struct SpiTable {
    /// Shard and tunnel of each association.
    places: HashMap<Spi, (u8, ConnectionId)>,
    held: Held<ReturnPath>,
    refused: status::LesRefused,
    /// PEPs to which clients may hand K2.
    peps: Vec<PepKey>,
    /// Shard and tunnel of a laboratory's client, who has all packets that are nobody else's.
    laboratory: Option<(u8, ConnectionId)>,
}

impl LayeredTunnels {
    /// No association yet; clients may hand K2 to the PEPs of `les`.
    ///
    /// # Errors
    /// The file of a laboratory's key holds none any more.
    pub(super) fn new(les: &LesListening) -> Result<Self, RunError> {
        let tunnels = Self {
            psk: psk(les.psk_file.as_deref()).map_err(RunError::Key)?,
            ..Self::default()
        };
        tunnels.accept(&les.peps);
        Ok(tunnels)
    }

    /// A client has connected; in a laboratory all packets are its own.
    fn on_client(&self, place: (u8, ConnectionId)) {
        if self.psk.is_some() {
            self.table().laboratory = Some(place);
        }
    }

    /// A client's tunnel is over; in a laboratory `other`, one of the client's that stands, has all packets.
    fn on_client_gone(&self, place: (u8, ConnectionId), other: Option<(u8, ConnectionId)>) {
        let mut table = self.table();
        if table.laboratory == Some(place) {
            table.laboratory = other;
        }
    }

    /// Clients may hand K2 to PEPs with these keys from now on; associations that stand are what they were.
    pub(super) fn accept(&self, peps: &[PublicKey]) {
        self.table().peps = peps.iter().map(|key| PepKey(key.to_bytes())).collect();
    }

    /// PEPs to which clients may hand K2.
    fn accepted(&self) -> Vec<PepKey> {
        self.table().peps.clone()
    }

    fn table(&self) -> MutexGuard<'_, SpiTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds out whose `datagram` is; holds it for a while if its association may be about to begin.
    fn place_of(
        &self,
        now: Instant,
        datagram: &[u8],
        from: impl FnOnce() -> ReturnPath,
    ) -> Option<(u8, ConnectionId)> {
        let mut table = self.table();
        if table.laboratory.is_some() {
            return table.laboratory;
        }
        let Some(spi) = spi_of(datagram) else {
            table.refused.malformed += 1;
            return None;
        };
        let place = table.places.get(&spi).copied();
        if place.is_none() {
            table.expire(now);
            if !table.held.hold(now, datagram, from()) {
                table.refused.crowded += 1;
            }
        }
        place
    }

    /// Packets of `spi` are those of a tunnel at `place` from now on; returns those that were faster.
    fn listen(
        &self,
        now: Instant,
        spi: Spi,
        place: (u8, ConnectionId),
    ) -> Vec<(ReturnPath, Vec<u8>)> {
        let mut table = self.table();
        table.expire(now);
        table.places.insert(spi, place);
        table.held.take(now, spi)
    }

    /// Packets of `spi` are nobody's from now on.
    fn forget(&self, spi: Spi) {
        self.table().places.remove(&spi);
    }

    /// True if a tunnel receives by `spi`.
    fn is_taken(&self, spi: Spi) -> bool {
        self.table().places.contains_key(&spi)
    }

    /// Counts a packet for which a shard had no room.
    fn count_crowded(&self) {
        self.table().refused.crowded += 1;
    }

    /// Packets that belong to no client, by cause, for `status`.
    pub(super) fn report(&self, now: Instant) -> status::LesRefused {
        let mut table = self.table();
        table.expire(now);
        table.refused
    }
}

impl SpiTable {
    /// Counts held packets whose association has not begun in time.
    fn expire(&mut self, now: Instant) {
        self.refused.association += self.held.handle_timeout(now) as u64;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bentpipe_sealed::les::sa::{HELD_PACKETS, HELD_TIME};

    use super::*;
    use crate::process;

    fn from() -> ReturnPath {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        ReturnPath {
            peer: socket.local_addr().unwrap(),
            local: None,
            socket: Arc::new(DatagramSocket::new(socket).unwrap()),
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn packets_that_are_faster_than_their_association_are_held_within_bounds() {
        let tunnels = LayeredTunnels::default();
        let now = process::now();
        let packet = |spi: u32| [&spi.to_be_bytes()[..], &[0; 60]].concat();
        for _ in 0..HELD_PACKETS {
            assert!(tunnels.place_of(now, &packet(300), from).is_none());
        }
        assert!(tunnels.place_of(now, &packet(301), from).is_none());
        assert!(tunnels.place_of(now, &packet(7), from).is_none());
        let refused = tunnels.report(now);
        assert_eq!((refused.crowded, refused.malformed), (1, 1));
        let late = now + HELD_TIME - Duration::from_millis(1);
        let place = (0, ConnectionId(7));
        let spi = Spi::new(300).unwrap();
        assert_eq!(tunnels.listen(late, spi, place).len(), HELD_PACKETS);
        assert_eq!(tunnels.place_of(late, &packet(300), from), Some(place));
        assert!(tunnels.is_taken(spi));
        tunnels.forget(spi);
        assert!(tunnels.place_of(late, &packet(300), from).is_none());
        assert_eq!(tunnels.report(late + HELD_TIME).association, 1);
    }
}
