//! What an origin has done since it started, and what its log hears of it.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::keys::PublicKey;
use crate::process;
use crate::status::{OriginFigures, OriginRefused};
use crate::throttle::Throttle;

/// Counts since the origin started.
#[derive(Debug, Default)]
pub(super) struct OriginCounts {
    pub(super) terminals: Cell<u64>,
    pub(super) hubs: Cell<u64>,
    pub(super) ordinary: Cell<u64>,
    pub(super) sessions: Cell<u64>,
    pub(super) objects: Cell<u64>,
    pub(super) object_bytes: Cell<u64>,
    pub(super) objects_failed: Cell<u64>,
    /// Times that the web server could not be reached.
    pub(super) unreached: Cell<u64>,
    pub(super) refused: RefusedCounts,
}

/// Counts of peers that got less than they asked for.
#[derive(Debug, Default)]
pub(super) struct RefusedCounts {
    /// Connections that did not come to a handshake's end.
    pub(super) strangers: Cell<u64>,
    /// Connections for which there was no place.
    pub(super) crowded: Cell<u64>,
    /// Connections that gave way to others.
    pub(super) displaced: Cell<u64>,
    /// Terminals that have named a hub which is not listed.
    pub(super) unlisted_servers: Cell<u64>,
    /// Terminals that are not listed.
    pub(super) unlisted_clients: Cell<u64>,
    /// Pages of clients that were read no further, for want of processor time.
    pub(super) unread: Cell<u64>,
    /// Sessions whose hub took no links.
    pub(super) slow_hubs: Cell<u64>,
    /// Requests of hubs for what they may not have.
    pub(super) hubs: Cell<u64>,
}

pub(super) fn count(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}

impl OriginCounts {
    /// Figures for `status`, beside `unlisted` hubs.
    pub(super) fn report(&self, unlisted: &UnlistedHubs) -> OriginFigures {
        let refused = &self.refused;
        OriginFigures {
            terminals_total: self.terminals.get(),
            hubs_total: self.hubs.get(),
            others_total: self.ordinary.get(),
            sessions_total: self.sessions.get(),
            objects_total: self.objects.get(),
            objects_bytes_total: self.object_bytes.get(),
            objects_failed_total: self.objects_failed.get(),
            unreached_total: self.unreached.get(),
            refused_total: OriginRefused {
                crowded: refused.crowded.get(),
                displaced: refused.displaced.get(),
                handshake: refused.strangers.get(),
                unlisted_hubs: unlisted.count.load(Ordering::Relaxed),
                unlisted_servers: refused.unlisted_servers.get(),
                unlisted_clients: refused.unlisted_clients.get(),
                unread: refused.unread.get(),
                slow_hubs: refused.slow_hubs.get(),
                hubs: refused.hubs.get(),
            },
            ..OriginFigures::default()
        }
    }
}

/// Servers that ask for keys of sessions and are not listed, as TLS sees them.
#[derive(Debug)]
pub(super) struct UnlistedHubs {
    count: AtomicU64,
    complaint: Throttle,
}

impl UnlistedHubs {
    pub(super) const fn new() -> Self {
        Self {
            count: AtomicU64::new(0),
            complaint: Throttle::new(),
        }
    }

    /// Counts one who shows this key.
    pub(super) fn note(&self, key: &PublicKey) {
        self.count.fetch_add(1, Ordering::Relaxed);
        if self.complaint.is_due(process::now()) {
            tracing::warn!(
                "a hub that shows the key {key} is refused: `hubs` does not list it; add the key if the server is to bring objects"
            );
        }
    }
}

/// Lines that peers could repeat, each kind for itself.
pub(super) struct OriginComplaints {
    pub(super) crowded: Throttle,
    pub(super) hubs: Throttle,
    pub(super) servers: Throttle,
    pub(super) clients: Throttle,
    pub(super) slow: Throttle,
}

impl OriginComplaints {
    pub(super) const fn new() -> Self {
        Self {
            crowded: Throttle::new(),
            hubs: Throttle::new(),
            servers: Throttle::new(),
            clients: Throttle::new(),
            slow: Throttle::new(),
        }
    }
}
