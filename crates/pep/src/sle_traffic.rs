//! Flows that are sealed beside the tunnels of one client, counted: at the client, or by its server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::status;

/// Payload of a full segment of TCP over IPv4 with timestamps, bytes.
const SEGMENT: u64 = 1448;
/// Headers of IPv4 and TCP with timestamps, bytes.
const HEADERS: u64 = 52;
/// IP packets that open and close a connection: SYN, its answer, three that carry nothing, and two with FIN.
const PACKETS_OF_ENDS: u64 = 7;

/// Flows and bytes of one client.
#[derive(Debug, Default)]
pub(crate) struct SleTraffic {
    active: AtomicU64,
    opened: AtomicU64,
    fell_back: AtomicU64,
    broken: AtomicU64,
    received: AtomicU64,
    sent: AtomicU64,
}

impl SleTraffic {
    /// One more flow, open until what is returned is dropped.
    pub(crate) fn open(self: &Arc<Self>) -> OpenFlow {
        add(&self.opened, 1);
        add(&self.active, 1);
        OpenFlow(self.clone())
    }

    /// A flow that was to be sealed goes through the tunnel.
    pub(crate) fn fell_back(&self) {
        add(&self.fell_back, 1);
    }

    /// Flows that are open.
    pub(crate) fn active(&self) -> u64 {
        self.active.load(Ordering::Relaxed)
    }

    /// Bytes that have crossed the link in both directions, IP packets whole: as if every segment were full and every second
    /// one acknowledged.
    pub(crate) fn crossed(&self) -> u64 {
        let payload = self.received.load(Ordering::Relaxed) + self.sent.load(Ordering::Relaxed);
        let segments = payload.div_ceil(SEGMENT);
        let ends = self.opened.load(Ordering::Relaxed) * PACKETS_OF_ENDS;
        payload + (segments + segments / 2 + ends) * HEADERS
    }

    /// Figures that `status` tells.
    pub(crate) fn report(&self) -> status::Sle {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        status::Sle {
            flows_active: get(&self.active),
            flows_total: get(&self.opened),
            fell_back_total: get(&self.fell_back),
            broken_total: get(&self.broken),
            bytes_in: get(&self.received),
            bytes_out: get(&self.sent),
            ..status::Sle::default()
        }
    }
}

fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Ordering::Relaxed);
}

/// An open flow, which counts what crosses.
pub(crate) struct OpenFlow(Arc<SleTraffic>);

impl OpenFlow {
    /// So many bytes have come by the outer connection.
    pub(crate) fn received(&self, bytes: usize) {
        add(&self.0.received, bytes as u64);
    }

    /// So many bytes have left by the outer connection.
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
        self.0.active.fetch_sub(1, Ordering::Relaxed);
    }
}
