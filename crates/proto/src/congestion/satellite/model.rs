//! What is believed of the path: its rate, its round-trip time without queue, and whether a queue stands now.
//!
//! Fed on the data path by every ACK frame. It does not decide how fast to send.

use std::time::{Duration, Instant};

use super::super::{AckSample, RateSample};

/// Rounds whose highest rate is the path's: longer than the time between two probes, so that a failed probe does not
/// lower the rate.
const RATE_ROUNDS: usize = 10;
/// The smallest round-trip time is that of the last one to two spans. No probe costs a round trip to refresh it: every
/// drain after a probe does (`drain.rs`), or shows that the path itself changed.
const RTT_SPAN: Duration = Duration::from_secs(20);
/// A queue stands when the round's smallest round-trip time exceeds the path's by a tenth, within these bounds.
const MIN_STANDING: Duration = Duration::from_millis(5);
const MAX_STANDING: Duration = Duration::from_millis(60);
/// A round that is this slow, in permille of the believed rate, behind a standing queue or with excess loss, refutes
/// the belief: the link became slower, and waiting for the filter to expire would fill its queue.
const REFUTED: u64 = 750;

/// `value × permille / 1000`, saturating.
pub(super) fn scaled(value: u64, permille: u64) -> u64 {
    u64::try_from(u128::from(value) * u128::from(permille) / 1000).unwrap_or(u64::MAX)
}

/// Rates here are bytes per second.
#[derive(Clone, Debug)]
pub(super) struct Model {
    rates: [u64; RATE_ROUNDS],
    current: usize,
    /// The current round had a sample that was not limited by the application.
    full: bool,
    /// The smallest round-trip time of the last complete span and of the present one.
    rtts: [Option<Duration>; 2],
    span_started: Instant,
    /// The smallest round-trip times of this round and of the last one.
    round_rtt: Option<Duration>,
    last_round_rtt: Option<Duration>,
    initial_rtt: Duration,
    /// Highest rate of the last complete round.
    last_rate: u64,
}

impl Model {
    pub(super) fn new(initial_rtt: Duration, now: Instant) -> Self {
        Self {
            rates: [0; RATE_ROUNDS],
            current: 0,
            full: false,
            rtts: [None; 2],
            span_started: now,
            round_rtt: None,
            last_round_rtt: None,
            initial_rtt: initial_rtt.max(Duration::from_millis(1)),
            last_rate: 0,
        }
    }

    pub(super) fn on_ack(&mut self, ack: &AckSample) {
        let Some(rtt) = ack.rtt else { return };
        if ack.now.saturating_duration_since(self.span_started) > RTT_SPAN {
            // After idle the old span is as good as a new one: nothing newer contradicts it.
            if let Some(present) = self.rtts[1].take() {
                self.rtts[0] = Some(present);
            }
            self.span_started = ack.now;
        }
        // A lone packet's ACK is delayed in full; a busy sender's hardly.
        if !ack.app_limited || self.rtts == [None; 2] || rtt < self.min_rtt() {
            self.rtts[1] = Some(self.rtts[1].map_or(rtt, |least| least.min(rtt)));
            self.round_rtt = Some(self.round_rtt.map_or(rtt, |least| least.min(rtt)));
        }
        if let Some(sample) = ack.rate.filter(|sample| is_plausible(sample, rtt)) {
            self.add_rate(&sample);
        }
    }

    fn add_rate(&mut self, sample: &RateSample) {
        let rate = sample.rate.as_u64() / 8;
        // What an idle sender measures may show a faster path, never a slower one.
        if !sample.app_limited {
            self.full = true;
        } else if rate <= self.rate() {
            return;
        }
        self.rates[self.current] = self.rates[self.current].max(rate);
    }

    /// Rounds in which the sender idled do not age what is known.
    pub(super) fn end_round(&mut self) {
        self.last_round_rtt = self.round_rtt.take();
        self.last_rate = self.rates[self.current];
        if self.full {
            self.full = false;
            self.current = (self.current + 1) % RATE_ROUNDS;
            self.rates[self.current] = 0;
        }
    }

    /// The last round was busy, and far slower than what is believed.
    pub(super) fn is_refuted(&self) -> bool {
        self.last_rate > 0 && self.last_rate < scaled(self.rate(), REFUTED)
    }

    /// Forgets every rate but `rate`.
    pub(super) fn set_rate(&mut self, rate: u64) {
        self.rates = [0; RATE_ROUNDS];
        self.rates[self.current] = rate;
    }

    /// The path's round-trip time is that of the last round: it changed.
    pub(super) fn adopt_rtt(&mut self, now: Instant) {
        if self.last_round_rtt.is_some() {
            self.rtts = [None, self.last_round_rtt];
            self.span_started = now;
        }
    }

    /// Bytes per second that the path delivers; 0 until measured.
    pub(super) fn rate(&self) -> u64 {
        self.rates.into_iter().max().unwrap_or_default()
    }

    /// Highest rate of the last complete round.
    pub(super) fn last_rate(&self) -> u64 {
        self.last_rate
    }

    /// The round-trip time without queue.
    pub(super) fn min_rtt(&self) -> Duration {
        let least = self.rtts.into_iter().flatten().min();
        least
            .unwrap_or(self.initial_rtt)
            .max(Duration::from_micros(1))
    }

    /// The smallest round-trip time of the last complete round.
    pub(super) fn last_round_rtt(&self) -> Option<Duration> {
        self.last_round_rtt
    }

    /// From here on the round-trip time counts as a queue.
    pub(super) fn standing(&self) -> Duration {
        let least = self.min_rtt();
        least + (least / 10).clamp(MIN_STANDING, MAX_STANDING)
    }

    /// A queue stood all through the last round.
    pub(super) fn is_queued(&self) -> bool {
        self.last_round_rtt.is_some_and(|rtt| rtt > self.standing())
    }

    /// Bytes that fill the path at `rate` bytes per second without a queue.
    pub(super) fn product(&self, rate: u64) -> u64 {
        let bytes = u128::from(rate) * self.min_rtt().as_nanos() / 1_000_000_000;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

/// A sample that spans much more than a round trip measured a silence (an outage), not the path.
fn is_plausible(sample: &RateSample, rtt: Duration) -> bool {
    sample.interval <= rtt * 2 + Duration::from_millis(100)
}
