//! How much the peer may send before the LAN side has taken it: one window per flow, one memory
//! ceiling per tunnel.
//!
//! A window starts at three of the path's bandwidth-delay products (so that a new flow of a warm
//! tunnel never waits for credit), grows while the LAN side takes all it is offered, and is paid from the tunnel's
//! budget: a part for first windows, a part for flows that proved to drain fast, so that slow readers cannot lock a
//! bulk transfer out. Credit is a promise, not memory; what is really held is counted
//! by the caller and compared with [`Budget::ceiling`].

use std::time::{Duration, Instant};

/// No first window is smaller than this, in bytes: one round trip of a small object.
const SMALLEST_WINDOW: u64 = 64 * 1024;

/// First window while nothing is known of the path, in bytes.
const COLD_WINDOW: u64 = 1024 * 1024;

/// Eighths of the ceiling for large first windows; one more is for small ones, and the rest for windows that grow.
const FIRST: u64 = 4;

/// Quarters of what is left for large first windows that one flow may take: most, and something for the next.
const FIRST_QUARTERS: u64 = 3;

/// A first window, in bandwidth-delay products: a packet that is lost twice is repaired after three round trips, and
/// until then nothing behind it proves that the LAN side keeps up.
const FIRST_PRODUCTS: u64 = 4;

/// Most that one flow's window grows to, in bandwidth-delay products. In a growing start-up the next round trip brings
/// three times what the last one did; at 5 % loss a byte in a thousand is lost three times, and while it is repeated
/// nothing behind it can be drained.
const MOST_PRODUCTS: u64 = 24;

/// Most that one flow's window grows to, in what its LAN side drained in one round trip: a start-up triples per round
/// trip, and behind a hole nothing can be drained for two.
const MOST_DRAINED: u64 = 12;

/// Before the LAN side has taken this part of a window, it may still turn out to be slow.
const PROOF: u64 = 2;

/// A window grows by this factor at once.
const MOST_STEP: u64 = 12;

/// Bytes that a path holds in one round trip.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Product {
    /// As flows were seen to bring it.
    pub measured: Option<u64>,
    /// As a train of packets has shown that it could: half as much again is a first window, out of half of the part for
    /// large ones, so that flows which begin together before anything is known leave something to those that follow.
    pub hoped: Option<u64>,
}

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

    /// Bytes that the tunnel may hold.
    pub fn ceiling(&self) -> u64 {
        self.ceiling
    }

    /// Bytes promised to flows that are open.
    pub fn promised(&self) -> u64 {
        self.first + self.grown
    }

    /// Promises made before stand.
    pub fn set_ceiling(&mut self, ceiling: u64) {
        self.ceiling = ceiling;
    }

    /// The window of a new flow on a path that holds `product`.
    pub fn open(&mut self, product: Product) -> CreditWindow {
        self.adopt(self.first_window(product))
    }

    /// The window of a flow that was opened when less was known of the path, as [`Self::open`] would give it now.
    /// Returns the offset to announce in FLOW_CREDIT, if that is more than before.
    pub fn widen(&mut self, window: &mut CreditWindow, product: Product) -> Option<u64> {
        // One that has grown already knows better.
        if window.size != window.first {
            return None;
        }
        self.first = self.first.saturating_sub(window.first);
        let size = self.first_window(product).max(window.size);
        self.first += size;
        (window.first, window.size) = (size, size);
        window.announce()
    }

    fn first_window(&self, Product { measured, hoped }: Product) -> u64 {
        let large = self.ceiling / 8 * FIRST;
        let share = |part: u64| part.saturating_sub(self.first) / 4 * FIRST_QUARTERS;
        let wanted = measured.map_or(0, |bdp| bdp.saturating_mul(FIRST_PRODUCTS));
        let wanted = wanted.max(COLD_WINDOW).min(share(large));
        let hoped = hoped.map_or(0, |bdp| bdp.saturating_mul(FIRST_PRODUCTS));
        let hoped = hoped.min(share(large / 2));
        // After many slow readers, the next flow still starts with enough to prove itself in a round trip or two.
        let floor = if self.first + COLD_WINDOW <= self.ceiling / 8 * (FIRST + 1) {
            COLD_WINDOW
        } else {
            SMALLEST_WINDOW
        };
        wanted.max(hoped).max(floor)
    }

    /// The window of a flow whose first credit was announced beforehand (in HELLO).
    pub fn adopt(&mut self, size: u64) -> CreditWindow {
        self.first += size;
        CreditWindow {
            size,
            first: size,
            announced: size,
            consumed: 0,
            drained: 0,
            slow: false,
            round: None,
        }
    }

    /// Returns a closed flow's promise.
    pub fn close(&mut self, window: &CreditWindow) {
        self.first = self.first.saturating_sub(window.first);
        let grown = window.size.saturating_sub(window.first);
        self.grown = self.grown.saturating_sub(grown);
    }

    /// One flow takes at most three quarters of what is left.
    fn grow(&mut self, window: &mut CreditWindow, target: u64) {
        let left = (self.ceiling / 8 * (7 - FIRST)).saturating_sub(self.grown);
        let target = target.min(window.size + left / 4 * 3);
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
    /// Most that was drained in a round trip lately.
    drained: u64,
    /// The LAN side did not take all it was offered, and has not drained half of its window in a round trip since.
    slow: bool,
    round: Option<Round>,
}

impl CreditWindow {
    /// Payload offset that the peer may reach, as announced.
    pub fn announced(&self) -> u64 {
        self.announced
    }

    /// Data came in, up to payload offset `reached`. Returns the offset to announce in FLOW_CREDIT, if it is time.
    ///
    /// The window grows when an eighth of it arrived within a round trip: it may then be what holds the flow back. Two
    /// things cap it: `bdp`, what the path brings per round trip, and, for a LAN side that is slow or not yet known to
    /// be fast, what it proved to drain.
    pub fn on_arrived(
        &mut self,
        now: Instant,
        reached: u64,
        rtt: Duration,
        bdp: u64,
        budget: &mut Budget,
    ) -> Option<u64> {
        let round = *self.round.get_or_insert(Round {
            since: now,
            reached: 0,
            consumed: 0,
        });
        let elapsed = now.saturating_duration_since(round.since);
        let drained = per_round(self.consumed - round.consumed, elapsed, rtt);
        if reached.saturating_sub(round.reached) * 8 >= self.size {
            let path = bdp.saturating_mul(MOST_PRODUCTS).max(COLD_WINDOW);
            let lan = self.drained.max(drained).saturating_mul(MOST_DRAINED);
            let unproven = self.consumed < self.size / PROOF;
            let slow = self.slow || unproven;
            let target = if slow { path.min(lan) } else { path };
            budget.grow(self, target.min(self.size * MOST_STEP));
        }
        if elapsed > rtt {
            self.drained = drained.max(self.drained / 8 * 7);
            self.slow &= drained < self.size / 2;
            self.round = Some(Round {
                since: now,
                reached,
                consumed: self.consumed,
            });
        }
        self.announce()
    }

    /// The LAN side was offered more than it takes now.
    pub fn on_blocked(&mut self) {
        self.slow = true;
    }

    /// The LAN side drained `n` bytes. Returns the offset to announce in FLOW_CREDIT, if it is time.
    pub fn on_consumed(&mut self, n: u64) -> Option<u64> {
        self.consumed += n;
        self.announce()
    }

    fn announce(&mut self) -> Option<u64> {
        let next = self.consumed + self.size;
        (next - self.announced >= self.size / 4).then(|| {
            self.announced = next;
            next
        })
    }
}

/// Position of a flow when the current round trip began.
#[derive(Clone, Copy, Debug)]
struct Round {
    since: Instant,
    reached: u64,
    consumed: u64,
}

/// Bytes per round trip of `n` bytes in `elapsed`; in less than one, all of them.
fn per_round(n: u64, elapsed: Duration, rtt: Duration) -> u64 {
    let span = elapsed.max(rtt).as_nanos().max(1);
    u64::try_from(u128::from(n) * rtt.as_nanos() / span).unwrap_or(u64::MAX)
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
    const BROAD: Product = Product {
        measured: Some(BDP),
        hoped: None,
    };

    /// `n` more bytes arrive, and as many are drained.
    fn pass(window: &mut CreditWindow, now: Instant, n: u64, budget: &mut Budget) {
        window.on_arrived(now, window.consumed + n, RTT, BDP, budget);
        window.on_consumed(n);
    }

    #[test]
    fn slow_readers_leave_room_for_a_bulk_transfer() {
        let mut budget = Budget::new(256 << 20);
        let mut readers: Vec<_> = (0..20).map(|_| budget.open(BROAD)).collect();
        let mut bulk = budget.open(BROAD);
        let mut now = Instant::now();
        for _ in 0..400 {
            now += RTT / 40;
            for reader in &mut readers {
                reader.on_blocked();
                pass(reader, now, 1500, &mut budget);
            }
            let n = bulk.size / 40 + 1;
            pass(&mut bulk, now, n, &mut budget);
        }
        assert!(bulk.size >= 3 * BDP, "{}", bulk.size);
        for window in readers.iter().chain([&bulk]) {
            budget.close(window);
        }
        assert_eq!((budget.first, budget.grown), (0, 0));
    }

    /// Neither one that is sent little nor one that drains little of what it is sent.
    #[test]
    fn slow_flows_do_not_grow_and_credit_follows_what_they_took() {
        for ahead in [0, 300_000] {
            let mut budget = Budget::new(256 << 20);
            let mut window = budget.adopt(800_000);
            let mut now = Instant::now();
            for _ in 0..100 {
                now += Duration::from_millis(100);
                window.on_blocked();
                let reached = window.consumed + ahead;
                window.on_arrived(now, reached, RTT, BDP, &mut budget);
                window.on_consumed(10_000);
            }
            assert_eq!(window.size, 800_000);
            assert_eq!(window.announced, 1_800_000);
        }
    }

    /// A flow that was drained at once so far is given more although a hole keeps it from being drained now.
    #[test]
    fn a_hole_does_not_look_like_a_slow_reader() {
        let mut now = Instant::now();
        let mut budget = Budget::new(256 << 20);
        let mut window = budget.adopt(1 << 20);
        pass(&mut window, now, 1 << 18, &mut budget);
        now += RTT / 2;
        let announced = window.announced;
        assert!(window.on_arrived(now, announced, RTT, BDP, &mut budget) > Some(announced));
        assert!(window.size >= 12 << 18, "{}", window.size);
    }

    /// Who was there before the train gets what the next one gets, and the first ones do not get all of it.
    #[test]
    fn a_train_widens_first_windows_within_half_of_their_part() {
        let shown = Product {
            measured: None,
            hoped: Some(BDP),
        };
        let mut budget = Budget::new(192 << 20);
        let mut alone = budget.open(Product::default());
        let credit = budget.widen(&mut alone, shown);
        assert!(credit.is_some_and(|credit| credit >= BDP), "{credit:?}");
        budget.close(&alone);
        let mut early: Vec<_> = (0..20).map(|_| budget.open(Product::default())).collect();
        let first = budget.widen(&mut early[0], shown);
        assert!(first.is_some_and(|first| first >= BDP / 2), "{first:?}");
        assert_eq!(budget.widen(&mut early[0], shown), None);
        for window in &mut early[1..] {
            budget.widen(window, shown);
        }
        assert!(budget.first <= (48 << 20) + (20 << 20), "{}", budget.first);
        let bulk = budget.open(BROAD);
        assert!(bulk.size >= BDP / 2, "{}", bulk.size);
        early.push(bulk);
        for window in &early {
            budget.close(window);
        }
        assert_eq!((budget.first, budget.grown), (0, 0));
    }

    #[test]
    fn many_flows_still_get_the_smallest_window() {
        let mut budget = Budget::new(64 << 20);
        for _ in 0..10_000 {
            assert!(budget.open(Product::default()).announced() >= SMALLEST_WINDOW);
        }
    }
}
