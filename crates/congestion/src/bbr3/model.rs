//! What is believed of the path: its rate, its smallest round-trip time, how much it aggregates ACKs; and round trips.
//!
//! Fed on the data path by every ACK frame. It does not decide how fast to send, and losses do not touch it.

use std::time::{Duration, Instant};

use super::{Sample, bytes_in};

/// BBR.MinRTTFilterLen.
const MIN_RTT_SPAN: Duration = Duration::from_secs(10);
/// BBR.ExtraAckedFilterLen, the longest.
const AGGREGATION_ROUNDS: usize = 10;

/// Round trips counted by what was delivered (§ BBR.round_count).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rounds {
    next_delivered: u64,
    /// The present ACK begins a round.
    pub(super) started: bool,
    pub(super) count: u64,
    pub(super) since_probe: u64,
}

impl Rounds {
    /// UpdateRound.
    pub(super) fn on_ack(&mut self, prior_delivered: Option<u64>, delivered: u64) -> bool {
        self.started = prior_delivered.is_some_and(|prior| prior >= self.next_delivered);
        if self.started {
            self.start(delivered);
            self.count += 1;
            self.since_probe += 1;
        }
        self.started
    }

    /// StartRound.
    pub(super) fn start(&mut self, delivered: u64) {
        self.next_delivered = delivered;
    }
}

/// Rates are bytes per second.
#[derive(Clone, Debug)]
pub(super) struct Model {
    /// BBR.max_bw_filter: the highest rate of the last ProbeBW cycle and of this one.
    rates: [u64; 2],
    min_rtt: Option<(Duration, Instant)>,
    /// BBR.extra_acked_filter: (round, most bytes acknowledged beyond the rate) of recent rounds.
    extra: [(u64, u64); AGGREGATION_ROUNDS],
    extra_acked: u64,
    interval_start: Instant,
    interval_acked: u64,
}

impl Model {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            rates: [0; 2],
            min_rtt: None,
            extra: [(0, 0); AGGREGATION_ROUNDS],
            extra_acked: 0,
            interval_start: now,
            interval_acked: 0,
        }
    }

    /// BBR.max_bw.
    pub(super) fn max_rate(&self) -> u64 {
        self.rates[0].max(self.rates[1])
    }

    /// UpdateMaxBw: an idle sender's sample may raise the rate, but is no evidence that it fell.
    pub(super) fn add_rate(&mut self, sample: &Sample) {
        if sample.rate >= self.max_rate() || !sample.app_limited {
            self.rates[1] = self.rates[1].max(sample.rate);
        }
    }

    /// AdvanceMaxBwFilter: a cycle ended. One without a sample is no evidence.
    pub(super) fn advance_rate(&mut self) {
        if self.rates[1] > 0 {
            self.rates = [self.rates[1], 0];
        }
    }

    /// BBR.min_rtt.
    pub(super) fn min_rtt(&self) -> Option<Duration> {
        self.min_rtt.map(|(rtt, _)| rtt)
    }

    /// A rate measured in less than the round-trip time is that of a burst.
    pub(super) fn is_plausible(&self, interval: Duration) -> bool {
        self.min_rtt().is_none_or(|least| interval >= least)
    }

    /// `rtt`, seen `at`, is the smallest of the last ProbeRTT interval.
    pub(super) fn update_min_rtt(&mut self, now: Instant, rtt: Duration, at: Instant) {
        let keep = self.min_rtt.is_some_and(|(least, seen)| {
            least <= rtt && now.saturating_duration_since(seen) <= MIN_RTT_SPAN
        });
        if !keep {
            self.min_rtt = Some((rtt, at));
        }
    }

    /// Idle time is not a silence between ACKs.
    pub(super) fn restart(&mut self, now: Instant) {
        self.interval_start = now;
        self.interval_acked = 0;
    }

    /// UpdateACKAggregation: how much more was acknowledged than `bw` explains, at most within `rounds`.
    pub(super) fn on_aggregation(
        &mut self,
        sample: &Sample,
        bw: u64,
        window: u64,
        round: u64,
        rounds: u64,
    ) {
        let elapsed = sample.now.saturating_duration_since(self.interval_start);
        let mut expected = bytes_in(bw, elapsed);
        if self.interval_acked <= expected {
            self.restart(sample.now);
            expected = 0;
        }
        self.interval_acked += sample.newly_acked;
        let extra = self.interval_acked.saturating_sub(expected).min(window);
        #[expect(clippy::cast_possible_truncation, reason = "a remainder below 10")]
        let slot = &mut self.extra[(round % AGGREGATION_ROUNDS as u64) as usize];
        if slot.0 != round {
            *slot = (round, 0);
        }
        slot.1 = slot.1.max(extra);
        let recent = self.extra.iter().filter(|(at, _)| at + rounds > round);
        self.extra_acked = recent.map(|(_, extra)| *extra).max().unwrap_or(0);
    }

    /// BBR.extra_acked.
    pub(super) fn extra_acked(&self) -> u64 {
        self.extra_acked
    }
}
