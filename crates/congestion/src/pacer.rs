//! Spreads packets over time at the controller's rate.
//!
//! The engine's loop asks for a budget before it opens quinn's gate and reports what left. The pacer is a schedule, not
//! a bucket that is topped up: `next` is when the next packet is due, and every byte sent moves it on by exactly its
//! own duration, so that the long-run rate is exact however late the wake-ups come.
//! It does not know the congestion window, and packets that leave through the shut gate are not charged.

use std::time::{Duration, Instant};

use bentpipe_units::BitRate;

/// Packets in the largest batch (one GSO send), but on fast paths.
pub const MAX_BATCH: u32 = 10;
/// Packets in the largest batch of all: no more than 64 KiB leave in one send.
pub const LARGEST_BATCH: u32 = 40;
/// A batch holds what the rate sends in this time, within 1 and [`MAX_BATCH`] packets.
const QUANTUM: Duration = Duration::from_millis(1);
/// Sending time of a batch of more than [`MAX_BATCH`] packets, from 300 Mbit/s on: every send costs CPU time, which is scarce
/// there. The shortest round trip bounds this time, because a queue of one bandwidth-delay product drops what exceeds it.
const FAST_QUANTUM: Duration = Duration::from_micros(400);
/// After idle at least this many packets may leave together: a short request and its first bytes.
const IDLE_BURST: u32 = 2;
/// A wake-up that comes later than this is not caught up: the burst would fill a shallow queue.
const MAX_LATENESS: Duration = Duration::from_millis(8);

/// When, and how many, packets may leave.
#[derive(Clone, Debug)]
pub struct Pacer {
    next: Instant,
    /// Duration of one batch at the last rate; bounds the debt.
    batch_time: Duration,
    last_call: Instant,
    /// The last budget was 0: time that passes now is spent waiting for us, and is not idle.
    waiting: bool,
}

impl Pacer {
    /// A pacer that lets the first batch out at once.
    pub fn new(now: Instant) -> Self {
        Self {
            next: now,
            batch_time: Duration::ZERO,
            last_call: now,
            waiting: false,
        }
    }

    /// Packets of `mtu` bytes that may leave now, 0 to [`LARGEST_BATCH`], on a path whose shortest round trip is `min_rtt`.
    /// The pacer credits time only to a caller that was waiting for it: see [`Self::on_shut`].
    pub fn budget(&mut self, now: Instant, rate: BitRate, mtu: u16, min_rtt: Duration) -> u32 {
        let packet_time = duration_of(u64::from(mtu.max(1)), rate);
        let most = packets(FAST_QUANTUM.min(min_rtt), packet_time).max(MAX_BATCH);
        let batch = packets(QUANTUM, packet_time).clamp(1, most);
        self.batch_time = packet_time * batch;
        let continuous = self.waiting || now.saturating_duration_since(self.last_call) <= QUANTUM;
        let kept = if continuous {
            MAX_LATENESS
        } else {
            packet_time * IDLE_BURST.saturating_sub(batch)
        };
        if let Some(floor) = now.checked_sub(kept) {
            self.next = self.next.max(floor);
        }
        self.last_call = now;
        self.waiting = self.next > now;
        if self.waiting {
            return 0;
        }
        (batch + packets(now - self.next, packet_time)).min(most)
    }

    /// `bytes` left at `now` through the open gate.
    pub fn on_sent(&mut self, now: Instant, bytes: u64, rate: BitRate) {
        let time = duration_of(bytes, rate);
        // Debt is bounded, or one oversized send would silence the tunnel.
        let bound = now + (self.batch_time * 2).max(time);
        self.next = (self.next + time).min(bound);
    }

    /// The window is shut: from now on it is not the pacer that the caller waits for.
    pub fn on_shut(&mut self) {
        self.waiting = false;
    }

    /// Instant at which to ask again, after a budget of 0.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.waiting.then_some(self.next)
    }
}

/// Whole packets in `time`, no more than the largest batch.
fn packets(time: Duration, packet_time: Duration) -> u32 {
    let count = time
        .as_nanos()
        .checked_div(packet_time.as_nanos())
        .unwrap_or(u128::from(u32::MAX));
    u32::try_from(count).unwrap_or(u32::MAX).min(LARGEST_BATCH)
}

/// Time that `bytes` take at `rate`, rounded up to a nanosecond; a rate of 0 counts as 1 bit/s.
fn duration_of(bytes: u64, rate: BitRate) -> Duration {
    let nanos = (u128::from(bytes) * 8 * 1_000_000_000).div_ceil(u128::from(rate.as_u64().max(1)));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX / 1024))
}
