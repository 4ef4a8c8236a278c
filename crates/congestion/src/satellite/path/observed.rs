//! Observations of a path over one span each: of minutes, of a round, of the last few ACKs.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::super::super::{RateSample, rate_of};
use super::Round;

/// ACKs whose round-trip times say whether the queue is empty now.
const RECENT: usize = 4;

/// Smallest round-trip time of the last one to two spans.
#[derive(Clone, Debug)]
pub(super) struct LeastRtt {
    /// Of the last span and of the present one.
    spans: [Option<Duration>; 2],
    started: Instant,
    /// Taken until something was measured.
    initial: Duration,
}

impl LeastRtt {
    pub(super) fn new(initial: Duration, now: Instant) -> Self {
        Self {
            spans: [None; 2],
            started: now,
            initial: initial.max(Duration::from_millis(1)),
        }
    }

    /// Smallest round-trip time, if any was measured.
    pub(super) fn measured(&self) -> Option<Duration> {
        self.spans.into_iter().flatten().min()
    }

    /// Smallest round-trip time, measured or taken; never zero.
    pub(super) fn get(&self) -> Duration {
        self.measured()
            .unwrap_or(self.initial)
            .max(Duration::from_micros(1))
    }

    pub(super) fn add(&mut self, rtt: Duration) {
        self.spans[1] = Some(self.spans[1].map_or(rtt, |least| least.min(rtt)));
    }

    /// Begins another span, if the present one has lasted longer than `span`.
    pub(super) fn advance(&mut self, now: Instant, span: Duration) {
        if now.saturating_duration_since(self.started) > span {
            // After idle the old span is as good as a new one: nothing newer contradicts it.
            if let Some(present) = self.spans[1].take() {
                self.spans[0] = Some(present);
            }
            self.started = now;
        }
    }

    /// Lets the present span begin now: what was smallest still is.
    pub(super) fn hold(&mut self, now: Instant) {
        self.started = now;
    }

    /// Takes `rtt` instead of what was measured.
    pub(super) fn set(&mut self, rtt: Duration, now: Instant) {
        self.spans = [None, Some(rtt)];
        self.started = now;
    }

    /// Lets the next measurement stand alone; until then what was known is taken.
    pub(super) fn forget(&mut self) {
        self.initial = self.get();
        self.spans = [None; 2];
    }
}

/// The mean of a few numbers.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    sum: u128,
    count: u128,
}

impl Mean {
    fn add(&mut self, value: u64) {
        self.sum += u128::from(value);
        self.count += 1;
    }

    fn take(&mut self) -> u64 {
        let mean = self.sum.checked_div(self.count).unwrap_or(0);
        *self = Self::default();
        u64::try_from(mean).unwrap_or(u64::MAX)
    }
}

/// The round that has not ended yet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PresentRound {
    least: Option<Duration>,
    most: Duration,
    rates: Mean,
    sends: Mean,
}

impl PresentRound {
    pub(super) fn add_rtt(&mut self, rtt: Duration) {
        self.least = Some(self.least.map_or(rtt, |least| least.min(rtt)));
        self.most = self.most.max(rtt);
    }

    pub(super) fn add_rate(&mut self, sample: &RateSample) {
        self.rates.add(rate_of(sample.delivered, sample.acked_in));
        self.sends.add(rate_of(sample.delivered, sample.sent_in));
    }

    /// Drops its round-trip times.
    pub(super) fn forget_rtts(&mut self) {
        self.least = None;
        self.most = Duration::ZERO;
    }

    /// Ends the round; the next one begins.
    pub(super) fn end(&mut self) -> Round {
        let mut round = std::mem::take(self);
        let spread = match round.least {
            Some(least) => round.most.saturating_sub(least),
            None => round.most,
        };
        Round {
            rtt: round.least,
            spread,
            rate: round.rates.take(),
            sent: round.sends.take(),
        }
    }
}

/// Round-trip times of the last few ACKs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RecentRtts {
    rtts: [Duration; RECENT],
    next: usize,
}

impl RecentRtts {
    pub(super) fn add(&mut self, rtt: Duration) {
        self.rtts[self.next] = rtt;
        self.next = (self.next + 1) % RECENT;
    }

    /// Takes `rtt` for all of them.
    pub(super) fn fill(&mut self, rtt: Duration) {
        self.rtts = [rtt; RECENT];
    }

    pub(super) fn least(&self) -> Duration {
        self.rtts.into_iter().min().unwrap_or_default()
    }
}

/// When ACKs came lately, and how many bytes were acknowledged by then.
#[derive(Clone, Debug, Default)]
pub(super) struct Arrivals {
    acks: VecDeque<(Instant, u64)>,
    acked: u64,
}

impl Arrivals {
    /// Counts `bytes` that were acknowledged.
    pub(super) fn count(&mut self, bytes: u64) {
        self.acked += bytes;
    }

    /// Notes an ACK.
    pub(super) fn add(&mut self, now: Instant) {
        self.acks.push_back((now, self.acked));
    }

    /// Drops what is older than `span`, but for the newest of those.
    pub(super) fn trim(&mut self, now: Instant, span: Duration) {
        let old = |at: &Instant| now.saturating_duration_since(*at) >= span;
        while self.acks.get(1).is_some_and(|(at, _)| old(at)) {
            self.acks.pop_front();
        }
    }

    pub(super) fn clear(&mut self) {
        self.acks.clear();
    }

    /// Drops all but the last one.
    pub(super) fn keep_last(&mut self) {
        let last = self.acks.pop_back();
        self.acks.clear();
        self.acks.extend(last);
    }

    /// Bytes that came since the first ACK, the time that they took, and the number of ACKs.
    pub(super) fn since_first(&self) -> Option<(u64, Duration, usize)> {
        let (first, before) = *self.acks.front()?;
        let (last, after) = *self.acks.back()?;
        let span = last.saturating_duration_since(first);
        Some((after - before, span, self.acks.len()))
    }
}
