//! Flows that are sealed beside the tunnels of one client, counted: at the client, or by its server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bentpipe_sealed::sle::{MAX_BODY, MAX_HELD};

use crate::status;

/// Payload of a full segment of TCP over IPv4 with timestamps, bytes.
const SEGMENT: u64 = 1448;
/// Headers of IPv4 and TCP with timestamps, bytes.
const HEADERS: u64 = 52;
/// IP packets that open and close a connection: SYN, its answer, three that carry nothing, and two with FIN.
const PACKETS_OF_ENDS: u64 = 7;

/// Places where a flow holds payload: one for each direction, and what was read and had no room.
const PLACES: u64 = 3;
/// Least that each of them may hold, however many flows there are, bytes.
const LEAST: usize = 2 * MAX_BODY;

/// Memory that flows share, and how many there are.
#[derive(Debug)]
pub(crate) struct SleMemory {
    ceiling: AtomicU64,
    flows: AtomicU64,
}

impl SleMemory {
    /// So many bytes for all flows.
    pub(crate) fn new(ceiling: u64) -> Arc<Self> {
        Arc::new(Self {
            ceiling: ceiling.into(),
            flows: AtomicU64::default(),
        })
    }

    /// Gives the flows so many bytes from now on.
    pub(crate) fn set_ceiling(&self, ceiling: u64) {
        self.ceiling.store(ceiling, Ordering::Relaxed);
    }

    /// Part of each place of a flow, bytes.
    fn share(&self) -> u64 {
        let places = PLACES * get(&self.flows).max(1);
        get(&self.ceiling) / places
    }
}

/// Flows and bytes of one client.
#[derive(Debug)]
pub(crate) struct SleTraffic {
    /// Memory of the client's flows, and that of all clients'.
    memories: [Arc<SleMemory>; 2],
    opened: AtomicU64,
    fell_back: AtomicU64,
    broken: AtomicU64,
    received: AtomicU64,
    sent: AtomicU64,
}

impl SleTraffic {
    /// No flow yet; flows may hold `own` bytes together, and with those of other clients what is left of `all`.
    pub(crate) fn new(own: u64, all: &Arc<SleMemory>) -> Arc<Self> {
        Arc::new(Self {
            memories: [SleMemory::new(own), all.clone()],
            opened: AtomicU64::default(),
            fell_back: AtomicU64::default(),
            broken: AtomicU64::default(),
            received: AtomicU64::default(),
            sent: AtomicU64::default(),
        })
    }

    /// Gives the flows so many bytes from now on.
    pub(crate) fn set_memory(&self, own: u64) {
        self.memories[0].set_ceiling(own);
    }

    /// One more flow, open until what is returned is dropped.
    pub(crate) fn open(self: &Arc<Self>) -> OpenFlow {
        add(&self.opened, 1);
        for memory in &self.memories {
            add(&memory.flows, 1);
        }
        OpenFlow(self.clone())
    }

    /// A flow that was to be sealed goes through the tunnel.
    pub(crate) fn fell_back(&self) {
        add(&self.fell_back, 1);
    }

    /// Flows that are open.
    pub(crate) fn active(&self) -> u64 {
        get(&self.memories[0].flows)
    }

    /// Bytes that have crossed the link in both directions, IP packets whole: as if every segment were full and every second
    /// one acknowledged.
    pub(crate) fn crossed(&self) -> u64 {
        let payload = get(&self.received) + get(&self.sent);
        let segments = payload.div_ceil(SEGMENT);
        let ends = get(&self.opened) * PACKETS_OF_ENDS;
        payload + (segments + segments / 2 + ends) * HEADERS
    }

    /// Figures that `status` tells.
    pub(crate) fn report(&self) -> status::Sle {
        status::Sle {
            flows_active: self.active(),
            flows_total: get(&self.opened),
            fell_back_total: get(&self.fell_back),
            broken_total: get(&self.broken),
            bytes_in: get(&self.received),
            bytes_out: get(&self.sent),
            ..status::Sle::default()
        }
    }
}

fn get(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}

fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Ordering::Relaxed);
}

/// An open flow, which counts what crosses.
pub(crate) struct OpenFlow(Arc<SleTraffic>);

impl OpenFlow {
    /// Bytes that the flow may take in now for a place that has room for `room`, which is that of a flow alone.
    pub(crate) fn room(&self, room: usize) -> usize {
        let share = self.0.memories.iter().map(|memory| memory.share()).min();
        let share = usize::try_from(share.unwrap_or(0)).unwrap_or(MAX_HELD);
        // What the others need of it.
        room.saturating_sub(MAX_HELD - share.clamp(LEAST, MAX_HELD))
    }

    /// Counts bytes that have come by the outer connection.
    pub(crate) fn received(&self, bytes: usize) {
        add(&self.0.received, bytes as u64);
    }

    /// Counts bytes that have left by the outer connection.
    pub(crate) fn sent(&self, bytes: usize) {
        add(&self.0.sent, bytes as u64);
    }

    /// The flow ended otherwise than its hosts wanted.
    pub(crate) fn broke(&self) {
        add(&self.0.broken, 1);
    }
}

impl Drop for OpenFlow {
    fn drop(&mut self) {
        for memory in &self.0.memories {
            memory.flows.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_flows_hold_together_what_their_client_and_all_clients_may() {
        let all = SleMemory::new(PLACES * 100 * 10_000);
        let traffic = SleTraffic::new(PLACES * 10 * 10_000, &all);
        let first = traffic.open();
        assert_eq!(first.room(MAX_HELD), MAX_HELD, "alone");
        assert_eq!(first.room(100), 100);
        let ten: Vec<_> = (1..10).map(|_| traffic.open()).collect();
        assert_eq!(first.room(MAX_HELD), 10_000);
        assert_eq!(first.room(MAX_HELD - 9_999), 1, "it holds the rest");
        assert_eq!(
            first.room(MAX_HELD - 20_000),
            0,
            "it holds more than its share"
        );
        drop(ten);
        let other = SleTraffic::new(u64::MAX, &all);
        let hundred: Vec<_> = (1..200).map(|_| other.open()).collect();
        assert_eq!(
            (first.room(MAX_HELD), hundred[0].room(MAX_HELD)),
            (5_000, 5_000)
        );
        let thousands: Vec<_> = (0..10_000).map(|_| other.open()).collect();
        assert_eq!(first.room(MAX_HELD), LEAST, "each goes on");
        drop((hundred, thousands));
        assert_eq!((traffic.active(), other.active()), (1, 0));
    }

    #[test]
    fn what_has_crossed_has_headers() {
        let traffic = SleTraffic::new(1, &SleMemory::new(1));
        let flow = traffic.open();
        flow.received(1448 * 100);
        flow.sent(100);
        drop(flow);
        let packets = 101 + 50 + PACKETS_OF_ENDS;
        assert_eq!(traffic.crossed(), 1448 * 100 + 100 + packets * HEADERS);
    }
}
