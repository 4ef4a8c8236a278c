//! The ceiling of what a tunnel holds for its LAN sides: three quarters to receive, a quarter to send; and its part of the
//! memory for all tunnels.

use std::sync::Arc;

use super::pool::{MemoryPool, PoolShare};

/// Memory that a tunnel may hold, in bytes.
#[derive(Debug)]
pub(super) struct Ceilings {
    /// For all its LAN sides together.
    own: u64,
    pool: Arc<MemoryPool>,
    /// Share of the pool that the tunnel holds, once the peer is known.
    share: Option<PoolShare>,
}

impl Ceilings {
    /// A tunnel's own ceiling, beside others that share `pool`.
    pub(super) fn new(own: u64, pool: Arc<MemoryPool>) -> Self {
        let share = None;
        Self { own, pool, share }
    }

    /// Bytes for all LAN sides together.
    pub(super) fn own(&self) -> u64 {
        self.own
    }

    pub(super) fn set_own(&mut self, own: u64) {
        self.own = own;
    }

    /// The peer is known: the tunnel takes its part of the pool.
    pub(super) fn join(&mut self) {
        self.share = Some(PoolShare::of(self.pool.clone()));
    }

    /// The tunnel is over, or its connection is.
    pub(super) fn leave(&mut self) {
        self.share = None;
    }

    /// Bytes that the tunnel may hold now of the memory for all tunnels.
    pub(super) fn allowance(&self) -> u64 {
        self.share.as_ref().map_or(u64::MAX, PoolShare::allowance)
    }

    /// Bytes that receivers may hold together.
    pub(super) fn receiving(&self) -> u64 {
        receiving(self.own)
    }

    /// Bytes that receivers may be promised together: less while other tunnels need memory.
    pub(super) fn promised(&self) -> u64 {
        receiving(self.own.min(self.allowance()))
    }

    /// Bytes that senders may hold together.
    pub(super) fn sending(&self) -> u64 {
        self.own.min(self.allowance()) / 4
    }

    /// Says to the other tunnels of the process what this one holds.
    pub(super) fn tell(&mut self, bytes: u64) {
        if let Some(share) = &mut self.share {
            share.hold(bytes);
        }
    }
}

fn receiving(ceiling: u64) -> u64 {
    ceiling / 4 * 3
}
