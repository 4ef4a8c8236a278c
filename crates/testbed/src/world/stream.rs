//! TCP connections below tunnels, as far as a tunnel can tell: bytes arrive in order, behind a lost one they wait for a round
//! trip, and no more of them are taken than there is room for.
//!
//! ```text
//!  engine ─► outbox ─► buffer ─► slow link, losses ─► in order ─► engine
//!            waits     TCP's window, or an operator's PEP, which acknowledges at once
//! ```

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bentpipe_link::sim::next_wakeup;
use bentpipe_tunnel::engine::{Arrival, is_over_tcp};
use bentpipe_units::{BitRate, ByteCount, Seed};
use rand_core::Rng as _;
use rand_pcg::Pcg64Mcg;

use super::wire::{Datagram, Packet};
use super::{SERVER, Terminal};

/// Bytes of a datagram's length, its TLS record and its TCP segment.
const HEADERS: usize = 76;

/// Path of a TCP connection, the same both ways.
#[derive(Debug, Clone, Copy)]
pub struct TcpPath {
    /// Rate of the slowest link.
    pub rate: BitRate,
    /// Time that a segment takes beside its time on the slowest link.
    pub one_way_delay: Duration,
    /// Share of segments lost, 0 to 1: each holds up all behind it for a round trip.
    pub loss: f64,
    /// Bytes that are taken before the slowest link has sent them.
    pub buffer: ByteCount,
}

/// Both directions of one TCP connection, from the terminal and to it.
pub(super) struct TcpWire {
    pub(super) up: TcpStream,
    pub(super) down: TcpStream,
}

impl TcpWire {
    /// An idle connection at the instant `now`.
    pub(super) fn new(now: Instant, path: TcpPath, seed: Seed) -> Self {
        Self {
            up: TcpStream::new(now, path, seed.stream("up")),
            down: TcpStream::new(now, path, seed.stream("down")),
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        next_wakeup([self.up.poll_timeout(), self.down.poll_timeout()])
    }
}

/// One direction.
pub(super) struct TcpStream {
    path: TcpPath,
    random: Pcg64Mcg,
    /// Datagrams that TCP has not taken.
    outbox: VecDeque<Datagram>,
    /// Instant at which the slowest link has sent all that was taken.
    idle: Instant,
    /// Datagrams that were taken, by the instant at which all before them have arrived, too.
    taken: VecDeque<(Instant, Datagram)>,
    /// Instant of the last arrival so far.
    last: Instant,
    /// Time for which arrivals have waited for a lost segment.
    pub(super) blocked: Duration,
}

impl TcpStream {
    fn new(now: Instant, path: TcpPath, seed: Seed) -> Self {
        Self {
            path,
            random: Pcg64Mcg::new(seed.as_u64().into()),
            outbox: VecDeque::new(),
            idle: now,
            taken: VecDeque::new(),
            last: now,
            blocked: Duration::ZERO,
        }
    }

    /// Takes a datagram.
    pub(super) fn push(&mut self, now: Instant, datagram: Datagram) {
        self.outbox.push_back(datagram);
        self.fill(now);
    }

    /// The next datagram that has arrived.
    pub(super) fn pop(&mut self, now: Instant) -> Option<Datagram> {
        self.fill(now);
        let (due, _) = self.taken.front()?;
        let arrived = *due <= now;
        arrived.then(|| self.taken.pop_front().expect("there is one").1)
    }

    /// Bytes that TCP has not taken.
    pub(super) fn waiting(&self) -> u64 {
        let sizes = self
            .outbox
            .iter()
            .map(|datagram| datagram.data.len() as u64);
        sizes.sum()
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let room = (!self.outbox.is_empty()).then(|| self.has_room());
        next_wakeup([self.taken.front().map(|(due, _)| *due), room])
    }

    /// Instant at which another datagram is taken.
    fn has_room(&self) -> Instant {
        self.idle - self.path.rate.transmit_time(self.path.buffer)
    }

    /// Takes datagrams into the buffer while there is room.
    fn fill(&mut self, now: Instant) {
        while self.has_room() <= now
            && let Some(datagram) = self.outbox.pop_front()
        {
            let size = ByteCount::from_usize(datagram.data.len() + HEADERS);
            self.idle = self.idle.max(now) + self.path.rate.transmit_time(size);
            let due = self.arrival();
            self.taken.push_back((due, datagram));
        }
    }

    /// Arrival of the segment that the slowest link has sent last.
    fn arrival(&mut self) -> Instant {
        let first = (self.idle + self.path.one_way_delay).max(self.last);
        let mut repeated = self.idle + self.path.one_way_delay;
        while self.is_lost() {
            repeated += 2 * self.path.one_way_delay;
        }
        self.last = first.max(repeated);
        self.blocked += self.last - first;
        self.last
    }

    fn is_lost(&mut self) -> bool {
        let bits = self.random.next_u64() >> 11;
        (bits as f64) < self.path.loss * (1_u64 << 53) as f64
    }
}

impl Terminal {
    /// Has a packet of the terminal's travel by its TCP connection; gives it back if it has none.
    pub(super) fn send_by_tcp(&mut self, now: Instant, packet: Packet) -> Option<Packet> {
        match (&mut self.tcp, packet) {
            (Some(tcp), Packet::Tunnel(datagram)) if is_over_tcp(self.address) => {
                tcp.up.push(now, datagram);
                let waiting = Some(tcp.up.waiting());
                self.engine.set_waiting(SERVER.into(), waiting);
                None
            }
            (_, packet) => Some(packet),
        }
    }
}

/// A datagram, as it comes to an engine.
pub(super) fn arrival(now: Instant, datagram: Datagram) -> Arrival {
    Arrival {
        at: now,
        remote: datagram.from,
        local: None,
        ecn: datagram.ecn,
        data: datagram.data,
    }
}
