//! How much the peer may send before the LAN side has taken it: one window per flow, one memory
//! ceiling per tunnel.
//!
//! A window starts at twice the path's bandwidth-delay product (so that a new flow of a warm tunnel
//! never waits for credit), follows what the LAN side drains, and is paid from the tunnel's budget:
//! one half for first windows, one half for flows that proved to drain fast, so that slow readers
//! cannot lock a bulk transfer out. Credit is a promise, not memory; what is really held is counted
//! by the caller and compared with [`Budget::ceiling`].

use std::time::{Duration, Instant};

/// No first window is smaller than this, in bytes: one round trip of a small object.
const SMALLEST_WINDOW: u64 = 64 * 1024;

/// First window while nothing is known of the path, in bytes.
const COLD_WINDOW: u64 = 1024 * 1024;

/// Share of what is left of the first-window half that one flow may take.
const FIRST_SHARE: u64 = 8;

/// Promises made on one tunnel, in bytes.
#[derive(Debug)]
pub struct Budget {
    ceiling: u64,
    first: u64,
    grown: u64,
}

impl Budget {
    /// A tunnel that may hold `ceiling` bytes.
    pub fn new(ceiling: u64) -> Self {
        Self {
            ceiling,
            first: 0,
            grown: 0,
        }
    }

    /// What the tunnel may hold, in bytes.
    pub fn ceiling(&self) -> u64 {
        self.ceiling
    }

    /// The window of a new flow; `bdp` is the path's bandwidth-delay product, if measured.
    pub fn open(&mut self, bdp: Option<u64>) -> CreditWindow {
        let wanted = bdp.map_or(COLD_WINDOW, |bdp| bdp.saturating_mul(2).max(COLD_WINDOW));
        let left = (self.ceiling / 2).saturating_sub(self.first);
        self.adopt(wanted.min(left / FIRST_SHARE).max(SMALLEST_WINDOW))
    }

    /// The window of a flow whose first credit was announced beforehand (in HELLO).
    pub fn adopt(&mut self, size: u64) -> CreditWindow {
        self.first += size;
        CreditWindow {
            size,
            first: size,
            announced: size,
            consumed: 0,
            round: None,
        }
    }

    /// Returns a closed flow's promise.
    pub fn close(&mut self, window: &CreditWindow) {
        self.first -= window.first;
        self.grown -= window.size - window.first;
    }

    fn grow(&mut self, window: &mut CreditWindow, cap: u64) {
        let left = (self.ceiling / 2).saturating_sub(self.grown);
        let target = (window.size * 2).min(cap).min(window.size + left);
        if target > window.size {
            self.grown += target - window.size;
            window.size = target;
        }
    }
}

/// Credit of one receiving direction, in payload bytes.
#[derive(Debug)]
pub struct CreditWindow {
    size: u64,
    first: u64,
    announced: u64,
    consumed: u64,
    /// Start of the current round trip and what was drained before it.
    round: Option<(Instant, u64)>,
}

impl CreditWindow {
    /// Payload offset that the peer may reach, as announced.
    pub fn announced(&self) -> u64 {
        self.announced
    }

    /// The LAN side drained `n` bytes. Returns the offset to announce in FLOW_CREDIT, if it is time.
    ///
    /// The window doubles when half of it was drained within a round trip: the LAN side is then not
    /// the bottleneck, the window might be. `bdp` caps that at twice the path's.
    pub fn on_consumed(
        &mut self,
        now: Instant,
        n: u64,
        rtt: Duration,
        bdp: u64,
        budget: &mut Budget,
    ) -> Option<u64> {
        self.consumed += n;
        let (since, before) = *self.round.get_or_insert((now, self.consumed - n));
        if (self.consumed - before) * 2 >= self.size {
            if now.saturating_duration_since(since) <= rtt {
                budget.grow(self, bdp.saturating_mul(2).max(COLD_WINDOW));
            }
            self.round = Some((now, self.consumed));
        } else if now.saturating_duration_since(since) > rtt {
            self.round = Some((now, self.consumed));
        }
        let next = self.consumed + self.size;
        (next - self.announced >= self.size / 4).then(|| {
            self.announced = next;
            next
        })
    }
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "one base instant; all else is virtual"
)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(600);
    const BDP: u64 = 18_750_000;

    #[test]
    fn slow_readers_leave_room_for_a_bulk_transfer() {
        let mut budget = Budget::new(256 << 20);
        let readers: Vec<_> = (0..20).map(|_| budget.open(Some(BDP))).collect();
        let mut bulk = budget.open(Some(BDP));
        let mut now = Instant::now();
        for _ in 0..400 {
            now += RTT / 40;
            bulk.on_consumed(now, bulk.size / 40 + 1, RTT, BDP, &mut budget);
        }
        assert!(bulk.size >= 2 * BDP, "{}", bulk.size);
        for window in readers.iter().chain([&bulk]) {
            budget.close(window);
        }
        assert_eq!((budget.first, budget.grown), (0, 0));
    }

    #[test]
    fn a_slow_reader_does_not_grow_and_credit_follows_what_it_took() {
        let mut budget = Budget::new(256 << 20);
        let mut window = budget.adopt(400_000);
        let mut now = Instant::now();
        let mut announced = 0;
        for _ in 0..100 {
            now += Duration::from_millis(100);
            if let Some(offset) = window.on_consumed(now, 10_000, RTT, BDP, &mut budget) {
                announced = offset;
            }
        }
        assert_eq!(window.size, 400_000);
        assert_eq!(announced, 1_400_000);
    }

    #[test]
    fn many_flows_still_get_the_smallest_window() {
        let mut budget = Budget::new(64 << 20);
        for _ in 0..10_000 {
            assert!(budget.open(None).announced() >= SMALLEST_WINDOW);
        }
    }
}
