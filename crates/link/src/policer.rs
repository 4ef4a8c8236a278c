//! A policer: one token bucket in front of the queue, as operators put it before UDP or before a customer.
//!
//! What finds no tokens is dropped at once; nothing is delayed. It holds no packets.

use std::time::Instant;

use bentpipe_units::{BitRate, ByteCount};

const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// A token bucket: what it lets pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policer {
    /// In the long run, IP-layer.
    pub rate: BitRate,
    /// At once, after a pause. The bucket is full at the start.
    pub burst: ByteCount,
}

/// The bucket of a [`Policer`]: tokens are counted in bits × 10⁹, so that nothing is ever rounded.
#[derive(Debug)]
pub(crate) struct Bucket {
    policer: Policer,
    tokens: u128,
    filled: Instant,
}

impl Bucket {
    pub(crate) fn new(policer: Policer, now: Instant) -> Self {
        Self {
            policer,
            tokens: cost(policer.burst),
            filled: now,
        }
    }

    /// Takes the tokens for `size`; false if there are too few, and then takes none.
    pub(crate) fn admit(&mut self, now: Instant, size: ByteCount) -> bool {
        let nanos = now.saturating_duration_since(self.filled).as_nanos();
        let earned = nanos * u128::from(self.policer.rate.as_u64());
        self.tokens = (self.tokens + earned).min(cost(self.policer.burst));
        self.filled = self.filled.max(now);
        let left = self.tokens.checked_sub(cost(size));
        self.tokens = left.unwrap_or(self.tokens);
        left.is_some()
    }
}

fn cost(size: ByteCount) -> u128 {
    u128::from(size.as_u64()) * 8 * NANOS_PER_SECOND
}
