//! Packets of associations that B does not know yet: Q1 may be behind them.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::super::{MTU, OVERHEAD, Spi, spi_of};

/// Packets that are held at one time; 92,928 bytes at most.
pub const HELD_PACKETS: usize = 64;
/// Time for which a packet is held, 3 s.
pub const HELD_TIME: Duration = Duration::from_secs(3);

/// Packets of unknown associations, in their order, each with the `From` that it came from.
#[derive(Debug)]
pub struct Held<From> {
    packets: VecDeque<HeldPacket<From>>,
}

/// Packet that waits for its association.
#[derive(Debug)]
struct HeldPacket<From> {
    since: Instant,
    spi: Spi,
    from: From,
    bytes: Vec<u8>,
}

impl<From> Default for Held<From> {
    fn default() -> Self {
        Self {
            packets: VecDeque::new(),
        }
    }
}

impl<From> Held<From> {
    /// Holds `packet`. `false`: there is no room, or this is no packet; it is discarded.
    pub fn hold(&mut self, now: Instant, packet: &[u8], from: From) -> bool {
        self.handle_timeout(now);
        let room = self.packets.len() < HELD_PACKETS && packet.len() <= OVERHEAD + MTU;
        let Some(spi) = spi_of(packet).filter(|_| room) else {
            return false;
        };
        self.packets.push_back(HeldPacket {
            since: now,
            spi,
            from,
            bytes: packet.to_vec(),
        });
        true
    }

    /// Takes the packets of an association that is known now.
    pub fn take(&mut self, now: Instant, spi: Spi) -> Vec<(From, Vec<u8>)> {
        self.handle_timeout(now);
        let (own, others): (VecDeque<_>, _) = std::mem::take(&mut self.packets)
            .into_iter()
            .partition(|held| held.spi == spi);
        self.packets = others;
        own.into_iter()
            .map(|held| (held.from, held.bytes))
            .collect()
    }

    /// Moment at which the oldest packet is to be discarded, if one is held.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.packets.front().map(|held| held.since + HELD_TIME)
    }

    /// Discards packets that have waited long enough; how many.
    pub fn handle_timeout(&mut self, now: Instant) -> usize {
        let before = self.packets.len();
        while self.deadline().is_some_and(|deadline| now >= deadline) {
            self.packets.pop_front();
        }
        before - self.packets.len()
    }
}
