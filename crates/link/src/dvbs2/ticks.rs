//! The timing of OpenSAND 8.2, for comparison with it: frames leave in clumps at ticks, and delays are polled.
//!
//! A gateway fills BBFRAMEs every 10 ms for the symbols of that time and emits them at once; every hop looks at its
//! delayed frames once a millisecond. A modulator does neither.

use std::time::{Duration, Instant};

use bentpipe_units::{Seed, SymbolRate};

/// The forward frame.
const FORWARD_TICK: Duration = Duration::from_millis(10);
const FORWARD_TICKS_PER_SECOND: u64 = 100;
/// Period at which a hop looks for frames that are due.
const POLL: Duration = Duration::from_millis(1);

/// Instants at which frames may leave, and symbols of them that may.
#[derive(Debug)]
pub(crate) struct Ticks {
    next: Instant,
    symbols_per_tick: u64,
    credit: u64,
    polls: Polls,
}

impl Ticks {
    pub(crate) fn new(symbol_rate: SymbolRate, seed: Seed, start: Instant) -> Self {
        Self {
            next: start,
            symbols_per_tick: symbol_rate.as_u64() / FORWARD_TICKS_PER_SECOND,
            credit: 0,
            polls: Polls::new(seed.stream("polls")),
        }
    }

    /// The first tick from which something that waits since `ready` can leave.
    pub(crate) fn next_start(&self, ready: Instant) -> Instant {
        let behind = ready.saturating_duration_since(self.next);
        self.next + round_up(behind, FORWARD_TICK)
    }

    /// Comes to the tick `at`; what was left over beyond a frame is lost.
    pub(crate) fn begin(&mut self, at: Instant, largest_frame: u64) {
        self.credit = self.credit.min(largest_frame) + self.symbols_per_tick;
        self.next = at + FORWARD_TICK;
    }

    /// Takes the symbols of a frame; false if none are left.
    pub(crate) const fn take(&mut self, symbols: u64) -> bool {
        let left = self.credit.checked_sub(symbols);
        if let Some(left) = left {
            self.credit = left;
        }
        left.is_some()
    }

    /// The delay of what leaves at `since_start`, with the polling of uplink and downlink.
    pub(crate) fn polled(&self, since_start: Duration, one_way_delay: Duration) -> Duration {
        self.polls.delay(since_start, one_way_delay)
    }
}

/// Two hops that each look once a millisecond, out of step with the ticks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Polls {
    phases: [Duration; 2],
}

impl Polls {
    pub(crate) fn new(seed: Seed) -> Self {
        let nanos = POLL.as_nanos() as u64;
        let phase = |hop| Duration::from_nanos(seed.stream(hop).as_u64() % nanos);
        Self {
            phases: ["uplink", "downlink"].map(phase),
        }
    }

    /// A one-way delay, half of which is each hop's.
    pub(crate) fn delay(&self, since_start: Duration, one_way_delay: Duration) -> Duration {
        let half = one_way_delay / 2;
        let mut at = since_start;
        for (phase, hop) in self.phases.iter().zip([half, one_way_delay - half]) {
            let due = at + hop;
            at = *phase + round_up(due.saturating_sub(*phase), POLL);
        }
        at - since_start
    }
}

/// The smallest multiple of `step` that is at least `time`.
fn round_up(time: Duration, step: Duration) -> Duration {
    let steps = time.as_nanos().div_ceil(step.as_nanos());
    let nanos = steps * step.as_nanos();
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polling_adds_up_to_two_milliseconds() {
        let delay = Duration::from_millis(250);
        for seed in 0..50 {
            let polls = Polls::new(Seed::new(seed));
            for millis in 0..50u64 {
                let added = polls.delay(Duration::from_micros(millis * 377), delay) - delay;
                assert!(added < Duration::from_millis(2), "{added:?}");
            }
        }
    }
}
