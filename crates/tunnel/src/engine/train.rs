//! Trains of packets: one in each direction, in the round trip that a new tunnel waits for HELLO; later ones when the sender's
//! controller wants to know what the path carries, in the midst of what is sent.
//!
//! ```text
//!   sender   HELLO, packets back to back ─────────────►  timed as they are read      receiver
//!            controller.hint(rate)       ◄── RATE_HINT ─  first credit of new flows
//! ```
//!
//! The receiver learns what the path brings before anybody asked it for credit, the sender what it can carry before the
//! first answer leaves. `connection.rs` sends and feeds them; what the figures mean is the controller's and the tunnel's
//! business.

use std::time::{Duration, Instant};

use bentpipe_congestion::{Dispersion, Estimate};
use bentpipe_proto::tunnel::TrainPacket;
use bytes::Bytes;
use quinn_proto::Side;

/// Packets of a train on the forward link. There are links whose queue holds 25, and HELLO precedes it.
const FORWARD: u64 = 24;
/// Packets of a train on the return link, which may be thin: at 0.5 Mbit/s they take 0.24 s of a round trip that is idle.
const RETURN: u64 = 12;
/// Fewer packets than these say nothing.
const FEWEST: u64 = 8;
/// A train has ended when nothing came of it for so long. One of packets that are farther apart belongs to a path whose
/// rate a sender needs not know: an initial window fills it.
const SILENCE: Duration = Duration::from_millis(30);
/// Packets that come so long after a train ended belong to another one.
const APART: Duration = Duration::from_millis(300);

/// Both trains of one connection.
#[derive(Debug, Default)]
pub(super) struct Train {
    sending: TrainState,
    repeated: bool,
    receiving: Dispersion,
    /// Instant at which the peer's train is taken to have ended.
    deadline: Option<Instant>,
    /// Instant at which the train has ended: what comes soon after does not count.
    ended: Option<Instant>,
    report: Option<Estimate>,
    /// Bytes of its frames, sent and received.
    bytes: [u64; 2],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum TrainState {
    #[default]
    Idle,
    /// As soon as HELLO has left.
    Due,
    /// quinn has so many packets of it still.
    Loaded(usize),
    Done,
}

impl Train {
    /// A train is to leave as soon as nothing precedes it.
    pub(super) fn start(&mut self) {
        if self.sending == TrainState::Idle {
            self.sending = TrainState::Due;
        }
    }

    /// Another one is to leave at once, in the midst of what is sent; false while one is under way.
    pub(super) fn repeat(&mut self) -> bool {
        let may = matches!(self.sending, TrainState::Idle | TrainState::Done);
        if may {
            self.sending = TrainState::Due;
            self.repeated = true;
        }
        may
    }

    pub(super) fn is_due(&self) -> bool {
        self.sending == TrainState::Due
    }

    /// True if the train is not the first one, for which the path was idle.
    pub(super) fn is_repeated(&self) -> bool {
        self.repeated
    }

    /// Hands the train to quinn, as much of it as `room` packets permit.
    pub(super) fn load(&mut self, quic: &mut quinn_proto::Connection, room: usize) {
        self.sending = TrainState::Done;
        let most = match quic.side() {
            Side::Client => RETURN,
            Side::Server => FORWARD,
        };
        let count = most.min(room as u64);
        let mut datagrams = quic.datagrams();
        let Some(size) = datagrams.max_size().filter(|_| count >= FEWEST) else {
            return;
        };
        let packets = (0..count).map(|index| TrainPacket { count, index }.encode(size));
        let taken = packets
            .map_while(|packet| datagrams.send(Bytes::from(packet), false).ok())
            .count();
        self.bytes[0] += (taken * size) as u64;
        self.sending = TrainState::Loaded(taken);
    }

    /// Packets that quinn still has.
    pub(super) fn left(&self) -> usize {
        match self.sending {
            TrainState::Loaded(left) => left,
            TrainState::Idle | TrainState::Due | TrainState::Done => 0,
        }
    }

    /// Notes that `packets` left; none means that quinn has none any more.
    pub(super) fn on_sent(&mut self, packets: usize) {
        self.sending = match self.left().saturating_sub(packets) {
            0 => TrainState::Done,
            _ if packets == 0 => TrainState::Done,
            left => TrainState::Loaded(left),
        };
    }

    /// A DATAGRAM frame is read that came at `at`, in an IP packet of `bytes`.
    pub(super) fn on_datagram(&mut self, now: Instant, at: Instant, content: &[u8], bytes: u64) {
        let Some(packet) = TrainPacket::decode(content) else {
            return;
        };
        self.bytes[1] += content.len() as u64;
        if let Some(ended) = self.ended {
            if now < ended + APART {
                return;
            }
            self.ended = None;
        }
        self.receiving.on_packet(at, bytes);
        self.deadline = Some(now + SILENCE);
        if packet.index + 1 == packet.count {
            self.end(now);
        }
    }

    /// Bytes of its frames so far, sent and received.
    pub(super) fn bytes(&self) -> [u64; 2] {
        self.bytes
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.deadline
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            self.end(now);
        }
    }

    fn end(&mut self, now: Instant) {
        (self.ended, self.deadline) = (Some(now), None);
        self.report = std::mem::take(&mut self.receiving).estimate();
    }

    /// Estimate that the peer's train showed, once.
    pub(super) fn take_report(&mut self) -> Option<Estimate> {
        self.report.take()
    }
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "one base instant; all else is virtual"
)]
mod tests {
    use super::*;

    /// A train of 24 packets of 1250 bytes, one each millisecond, comes at `now`.
    fn arrive(train: &mut Train, now: Instant) -> Option<Estimate> {
        for index in 0..24 {
            let at = now + Duration::from_millis(index);
            let packet = TrainPacket { count: 24, index }.encode(1200);
            train.on_datagram(at, at, &packet, 1250);
        }
        train.take_report()
    }

    /// Each train that comes is reported once, and stragglers are none.
    #[test]
    fn later_trains_are_reported_as_well() {
        let (mut train, now) = (Train::default(), Instant::now());
        let first = arrive(&mut train, now);
        assert_eq!(first.map(|seen| seen.rate.as_u64() / 1_000_000), Some(10));
        assert_eq!(arrive(&mut train, now + APART / 2), None);
        assert_eq!(arrive(&mut train, now + APART * 2), first);
    }
}
