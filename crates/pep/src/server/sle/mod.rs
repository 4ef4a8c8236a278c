//! Flows that clients seal beside their tunnels (SLE, `PROTOCOL.md` §18): what all threads of the server share of them.
//!
//! ```text
//!  TCP ─► door (main thread): preface, record 0, window ─► the shard of the tunnel: rights, dial, relay
//!              ▲ secrets of epochs                                │
//!              ╰──────────────── SealedTunnels ◄──────────────────╯ tunnel ready, next epoch, tunnel over
//! ```

mod door;
mod flows;
#[cfg(target_os = "linux")]
mod intake;
#[cfg(not(target_os = "linux"))]
mod no_intake;
mod porch;
mod vouched;
mod wish;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bentpipe_sealed::sle::{Accepted, Associations, Refusal};
use bytes::Bytes;
use ipnet::IpNet;
use tokio::sync::Notify;

use crate::config::SleListening;
use crate::sle_traffic::{SleMemory, SleTraffic};
use crate::status;
use bentpipe_tunnel::engine::identity::PublicKey;
pub(super) use door::SleDoor;
pub(super) use flows::SealedFlows;
pub(super) use intake::IntakeRules;
#[cfg(not(target_os = "linux"))]
use no_intake as intake;

/// Outer connection whose first record has been opened, on its way to the shard of its tunnel.
pub(super) struct FreshFlow {
    outer: std::net::TcpStream,
    /// Bytes that were read behind the first record.
    unread: Bytes,
    /// Bytes that were read in all.
    read: usize,
    accepted: Accepted,
    /// Destination that it was made to, if it was taken in on its way there.
    place: Option<SocketAddr>,
}

/// Tunnels that have agreed on sealed flows.
pub(super) struct SealedTunnels {
    /// TCP port that clients are told.
    port: u16,
    /// Prefixes that clients are told, to whose addresses connections are taken in on their way.
    prefixes: Vec<IpNet>,
    associations: Mutex<Associations>,
    /// Rings when a tunnel or an epoch has come that a connection may wait for.
    changed: Notify,
    traffic: Mutex<HashMap<PublicKey, Arc<SleTraffic>>>,
    memory: Arc<SleMemory>,
    refused: TurnedAway,
}

/// Outer connections that were refused, by cause.
#[derive(Default)]
struct TurnedAway {
    preface: AtomicU64,
    association: AtomicU64,
    epoch: AtomicU64,
    replayed: AtomicU64,
    record: AtomicU64,
    redirected: AtomicU64,
    incomplete: AtomicU64,
    crowded: AtomicU64,
}

/// Shard whose tunnel has this name: its first byte says so.
fn shard_of(id: u32) -> usize {
    usize::from(id.to_be_bytes()[0])
}

impl SealedTunnels {
    /// No tunnel yet; outer connections come where `sle` says, and their flows may hold `memory` bytes together.
    pub(super) fn new(sle: &SleListening, memory: u64) -> Arc<Self> {
        let intake = sle.intake.as_ref();
        Arc::new(Self {
            port: sle.port(),
            prefixes: intake.map_or(Vec::new(), |intake| intake.prefixes.clone()),
            associations: Mutex::default(),
            changed: Notify::new(),
            traffic: Mutex::default(),
            memory: SleMemory::new(memory),
            refused: TurnedAway::default(),
        })
    }

    /// Gives the flows of all clients so many bytes from now on.
    pub(super) fn set_memory(&self, memory: u64) {
        self.memory.set_ceiling(memory);
    }

    fn associations(&self) -> MutexGuard<'_, Associations> {
        self.associations
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Count of a client's flows, since the server started.
    fn traffic_of(&self, key: &PublicKey) -> Arc<SleTraffic> {
        let mut traffic = self.traffic.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = || SleTraffic::new(u64::MAX, &self.memory);
        traffic.entry(*key).or_insert_with(fresh).clone()
    }

    fn count(&self, refusal: Refusal) {
        let refused = &self.refused;
        let cause = match refusal {
            Refusal::Preface(_) => &refused.preface,
            Refusal::Association(_) => &refused.association,
            Refusal::Epoch(_) => &refused.epoch,
            Refusal::Stale(_) => &refused.replayed,
            Refusal::Record(_) | Refusal::NotOpen(_) => &refused.record,
            Refusal::Late => &refused.incomplete,
        };
        cause.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an outer connection that was one too many.
    fn count_crowded(&self) {
        self.refused.crowded.fetch_add(1, Ordering::Relaxed);
    }

    /// Figures of all clients for `status`.
    pub(super) fn report(&self) -> status::Sle {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let refused = &self.refused;
        let mut report = status::Sle {
            refused_total: status::SleRefused {
                preface: get(&refused.preface),
                association: get(&refused.association),
                epoch: get(&refused.epoch),
                replayed: get(&refused.replayed),
                record: get(&refused.record),
                redirected: get(&refused.redirected),
                incomplete: get(&refused.incomplete),
                crowded: get(&refused.crowded),
            },
            ..status::Sle::default()
        };
        let traffic = self.traffic.lock().unwrap_or_else(PoisonError::into_inner);
        traffic.values().for_each(|one| report.add(&one.report()));
        report
    }
}
