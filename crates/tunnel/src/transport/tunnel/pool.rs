//! Memory for all tunnels of a process: one ceiling, under which those that hold most give way first.
//!
//! Tunnels live on several threads. Each says what it holds and asks how much it may hold; none waits for another. A tunnel may
//! hold as much as is free (dynamic thresholds, as switches share buffers: Choudhury and Hahne 1998): one that takes what it
//! gets has half of the memory, n of them an n+1st part each, and as much stays free. A quarter is set apart and belongs to
//! all in equal shares, so that those which hold much and do nothing leave enough to whoever comes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Part of the ceiling that is set apart.
const APART: u64 = 4;

/// Step in which a tunnel tells what it holds, in bytes: each telling is a write that all threads see.
const STEP: u64 = 64 << 10;

/// Memory that the tunnels of a process hold, and may hold, in bytes.
#[derive(Debug)]
pub struct MemoryPool {
    ceiling: AtomicU64,
    used: AtomicU64,
    tunnels: AtomicU64,
}

impl Default for MemoryPool {
    /// Without a ceiling.
    fn default() -> Self {
        Self::new(u64::MAX)
    }
}

impl MemoryPool {
    /// A pool of `ceiling` bytes.
    #[must_use]
    pub const fn new(ceiling: u64) -> Self {
        Self {
            ceiling: AtomicU64::new(ceiling),
            used: AtomicU64::new(0),
            tunnels: AtomicU64::new(0),
        }
    }

    /// Bytes that all tunnels hold now.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Bytes that all tunnels may hold together.
    #[must_use]
    pub fn ceiling(&self) -> u64 {
        self.ceiling.load(Ordering::Relaxed)
    }

    /// Another ceiling; tunnels that hold too much give way within a second.
    pub fn set_ceiling(&self, ceiling: u64) {
        self.ceiling.store(ceiling, Ordering::Relaxed);
    }

    /// Bytes that one tunnel may hold.
    fn allowance(&self) -> u64 {
        let ceiling = self.ceiling();
        let own = ceiling / APART / self.tunnels.load(Ordering::Relaxed).max(1);
        (ceiling - ceiling / APART)
            .saturating_sub(self.used())
            .max(own)
    }
}

/// Part of a pool that one tunnel holds; given back when it is dropped.
#[derive(Debug)]
pub(super) struct PoolShare {
    pool: Arc<MemoryPool>,
    told: u64,
}

impl PoolShare {
    pub(super) fn of(pool: Arc<MemoryPool>) -> Self {
        pool.tunnels.fetch_add(1, Ordering::Relaxed);
        Self { pool, told: 0 }
    }

    /// The tunnel holds so much now.
    pub(super) fn hold(&mut self, bytes: u64) {
        if bytes.abs_diff(self.told) < STEP && bytes > 0 {
            return;
        }
        // In one step, as what wraps around: two would let others see a sum that never was.
        let change = bytes.wrapping_sub(self.told);
        self.pool.used.fetch_add(change, Ordering::Relaxed);
        self.told = bytes;
    }

    /// Bytes that the tunnel may hold.
    pub(super) fn allowance(&self) -> u64 {
        self.pool.allowance()
    }
}

impl Drop for PoolShare {
    fn drop(&mut self) {
        self.hold(0);
        self.pool.tunnels.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Takes as much as it may, a step at a time.
    fn fill(share: &mut PoolShare) {
        while share.told + MIB <= share.allowance() {
            let more = share.told + MIB;
            share.hold(more);
        }
    }

    /// Gives way as far as it must.
    fn give_way(share: &mut PoolShare) {
        let excess = share.told.saturating_sub(share.allowance());
        let rest = share.told - excess.div_ceil(2);
        share.hold(rest);
    }

    #[test]
    fn the_greedy_share_equally_and_leave_room() {
        let pool = Arc::new(MemoryPool::new(1024 * MIB));
        let mut greedy: Vec<_> = (0..8).map(|_| PoolShare::of(pool.clone())).collect();
        for round in 0..40 {
            for share in &mut greedy {
                fill(share);
                assert!(pool.used() <= pool.ceiling(), "{}", pool.used());
                give_way(share);
            }
            if round > 20 {
                let held = greedy.iter().map(|share| share.told / MIB);
                let (least, most) = (held.clone().min(), held.max());
                // A ninth of three quarters, about.
                assert!(least >= Some(40) && most <= Some(140), "{least:?} {most:?}");
            }
        }
        let mut honest = PoolShare::of(pool.clone());
        fill(&mut honest);
        assert!(honest.told >= 1024 * MIB / 4 / 9 - MIB, "{}", honest.told);
        assert!(pool.used() <= pool.ceiling());
        drop((greedy, honest));
        assert_eq!(pool.used(), 0);
    }

    #[test]
    fn whoever_comes_late_finds_its_part() {
        let pool = Arc::new(MemoryPool::new(1024 * MIB));
        // These fill what they get and never give way.
        let mut idle: Vec<_> = (0..31).map(|_| PoolShare::of(pool.clone())).collect();
        idle.iter_mut().for_each(fill);
        let mut honest = PoolShare::of(pool.clone());
        fill(&mut honest);
        assert_eq!(honest.told, 1024 / 4 / 32 * MIB);
        assert!(pool.used() <= pool.ceiling());
    }
}
