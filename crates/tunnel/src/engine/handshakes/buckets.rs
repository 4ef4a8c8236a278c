//! Token buckets of many sources in a table of fixed size: whoever forges addresses cannot make it grow.

use std::time::{Duration, Instant};

use bentpipe_units::Seed;

/// Buckets in a table, as a power of two: 4096, which take 64 kB.
const BITS: u32 = 12;

/// Share of one source.
#[derive(Debug, Clone, Copy)]
pub(super) struct Share {
    /// At once.
    pub(super) burst: u32,
    /// In each second, for good.
    pub(super) per_second: u32,
}

impl Share {
    /// A share of so many sources together.
    pub(super) const fn times(self, sources: u32) -> Self {
        Self {
            burst: self.burst * sources,
            per_second: self.per_second * sources,
        }
    }
}

/// Buckets of one size. Sources that meet in a slot share its bucket.
#[derive(Debug)]
pub(super) struct Buckets {
    /// Times at which each bucket will be full again (the theoretical arrival time of GCRA); `None`: full. Empty until one is used,
    /// which a client never does.
    full: Vec<Option<Instant>>,
    /// Time in which one is given back.
    each: Duration,
    /// Time in which an empty bucket fills.
    whole: Duration,
    /// Multiplier and offset of the hash, which senders do not know.
    key: [u128; 2],
}

impl Buckets {
    pub(super) fn new(share: Share, seed: Seed) -> Self {
        let word = |n| u128::from(seed.nth(n).as_u64());
        let each = Duration::from_secs(1) / share.per_second;
        Self {
            full: Vec::new(),
            each,
            whole: each * share.burst,
            key: [(word(0) << 64 | word(1)) | 1, word(2) << 64 | word(3)],
        }
    }

    /// Multiply-shift hashing (Dietzfelbinger 1996).
    fn slot(&self, source: u128) -> usize {
        let [factor, offset] = self.key;
        let hash = factor.wrapping_mul(source).wrapping_add(offset);
        (hash >> (u128::BITS - BITS)) as usize
    }

    /// Takes one; false if there is none.
    pub(super) fn take(&mut self, now: Instant, source: u128) -> bool {
        self.full.resize(1 << BITS, None);
        let slot = self.slot(source);
        let full = self.full[slot].map_or(now, |full| full.max(now)) + self.each;
        let taken = full <= now + self.whole;
        if taken {
            self.full[slot] = Some(full);
        }
        taken
    }

    /// Gives one back.
    pub(super) fn give_back(&mut self, source: u128) {
        let slot = self.slot(source);
        if let Some(Some(full)) = self.full.get_mut(slot) {
            *full -= self.each;
        }
    }
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "one base instant; all else is virtual"
)]
mod tests {
    use super::*;

    fn taken(buckets: &mut Buckets, now: Instant, source: u128) -> usize {
        (0..1000).take_while(|_| buckets.take(now, source)).count()
    }

    #[test]
    fn a_bucket_has_its_burst_and_then_its_rate() {
        let share = Share {
            burst: 20,
            per_second: 10,
        };
        let (mut buckets, start) = (Buckets::new(share, Seed::new(1)), Instant::now());
        assert_eq!(taken(&mut buckets, start, 7), 20);
        let later = start + Duration::from_millis(550);
        assert_eq!(taken(&mut buckets, later, 7), 5);
        buckets.give_back(7);
        assert_eq!(taken(&mut buckets, later, 7), 1);
        assert_eq!(taken(&mut buckets, later + Duration::from_secs(99), 7), 20);
    }

    #[test]
    fn few_sources_meet_in_a_bucket() {
        let share = Share {
            burst: 1,
            per_second: 1,
        };
        for seed in 0..20 {
            let mut buckets = Buckets::new(share, Seed::new(seed));
            let now = Instant::now();
            // Addresses of one /24, as an attacker who has one may use them.
            let alone = (0..256).filter(|host| buckets.take(now, 0x0a00_0000 | host));
            assert!(alone.count() > 220, "seed {seed}");
        }
    }
}
