//! The serialiser's clock: when each packet has left the sender at a given rate.
//!
//! Back-to-back packets carry the fraction of a nanosecond that their predecessor left over, so the long-run rate is
//! exact at any rate and size. What is sent is counted in bits or in symbols. It holds no packets.

use std::time::{Duration, Instant};

use bentpipe_units::{BitRate, ByteCount};

const NANOS_PER_SECOND: u128 = 1_000_000_000;

#[derive(Debug)]
pub(crate) struct Serialiser {
    /// Bits or symbols a second, at least 1.
    rate: u64,
    /// The last packet's end, rounded down; the rest is `remainder / rate` nanoseconds.
    busy_until: Instant,
    remainder: u64,
}

impl Serialiser {
    pub(crate) fn new(rate: BitRate, now: Instant) -> Self {
        Self {
            rate: rate.as_u64().max(1),
            busy_until: now,
            remainder: 0,
        }
    }

    /// The first whole nanosecond at which everything sent so far has left.
    pub(crate) fn idle_at(&self) -> Instant {
        self.busy_until + Duration::from_nanos(u64::from(self.remainder > 0))
    }

    /// Rate at which [`Self::send_at`] sends.
    pub(crate) fn rate_at(&self, share: f64) -> BitRate {
        match share == 1.0 {
            true => BitRate::bits_per_second(self.rate),
            false => BitRate::bits_per_second((self.rate as f64 * share) as u64),
        }
    }

    /// Sends `size` as [`Self::send`] does, at `share` times the rate.
    pub(crate) fn send_at(&mut self, share: f64, now: Instant, size: ByteCount) {
        if share == 1.0 {
            return self.send(now, size);
        }
        let full = self.rate;
        self.set_rate(self.rate_at(share));
        self.send(now, size);
        self.set_rate(BitRate::bits_per_second(full));
    }

    /// Sends `size` after what was sent before, and not before `now`.
    pub(crate) fn send(&mut self, now: Instant, size: ByteCount) {
        self.send_units(now, u128::from(size.as_u64()) * 8);
    }

    /// Sends bits, or symbols where the rate is a symbol rate.
    pub(crate) fn send_units(&mut self, now: Instant, units: u128) {
        if now > self.idle_at() {
            self.busy_until = now;
            self.remainder = 0;
        }
        let work = units * NANOS_PER_SECOND + u128::from(self.remainder);
        let rate = u128::from(self.rate);
        let nanos = u64::try_from(work / rate).unwrap_or(u64::MAX);
        self.busy_until += Duration::from_nanos(nanos);
        // Below `rate`, which is 64 bits.
        self.remainder = (work % rate) as u64;
    }

    /// The rate of the packets to come; the one being sent keeps its end.
    pub(crate) fn set_rate(&mut self, rate: BitRate) {
        self.busy_until = self.idle_at();
        self.remainder = 0;
        self.rate = rate.as_u64().max(1);
    }
}
