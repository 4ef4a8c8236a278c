//! CUBIC (RFC 9438) with HyStart++ (RFC 9406), fitted to long fat links that go idle and fade.
//!
//! On the data path this is one of the controllers behind [`super::Controller`]: acknowledgements and losses go in, a
//! window and a pacing rate come out. The window law is in `window.rs`, the end of slow start in `slow_start.rs`.
//! It does not detect spurious losses (RFC 9438 §4.9.2) and does not distinguish loss from congestion.
//!
//! Deviations from the RFCs, and why:
//! - The window survives idle periods (against RFC 9002 §7.8, RFC 7661): a warm tunnel is the product's point, and a
//!   satellite path's capacity does not drift in a minute. Time spent idle does not advance CUBIC's clock (RFC 9438 §5.8).
//! - Persistent congestion cuts once like any loss (against RFC 9002 §7.6.2): an outage of a satellite link, by rain or
//!   handover, says nothing of its capacity afterwards, and two packets per 600 ms would take 8 s to grow back.

mod slow_start;
mod window;

use std::time::{Duration, Instant};

use bentpipe_units::BitRate;

use super::{AckSample, Config, LossSample, Observed, RoundCounter, Saved};
use slow_start::{HyStart, Phase};
use window::{BETA, Epoch};

/// Smallest window in packets (RFC 9002 §7.2).
const MIN_WINDOW: u64 = 2;
/// Pacing is at least this fast, so that a stalled path can be probed.
const MIN_RATE: u64 = 16_000;
/// Samples over which the round-trip time for pacing is the minimum: about one round at an ACK per RTT/8.
const RTT_SAMPLES: usize = 8;

/// State of one path's CUBIC controller.
#[derive(Clone, Debug)]
pub struct Cubic {
    window: u64,
    threshold: u64,
    mtu: u64,
    epoch: Epoch,
    hystart: Option<HyStart>,
    round: RoundCounter,
    rtt: PacingRtt,
    /// When the window was last cut; packets sent before are one congestion event with it (RFC 9002 §7.3.2).
    reduced_at: Option<Instant>,
    last_ack: Instant,
    max_rate: Option<u64>,
    observed: Observed,
}

impl Cubic {
    /// A controller in slow start; without `hystart` only a loss ends it.
    pub fn new(config: &Config, hystart: bool, now: Instant) -> Self {
        let mtu = u64::from(config.mtu.max(1));
        Self {
            window: config.initial_window.max(MIN_WINDOW * mtu),
            threshold: u64::MAX,
            mtu,
            epoch: Epoch::default(),
            hystart: hystart.then(HyStart::default),
            round: RoundCounter::new(now),
            rtt: PacingRtt::new(config.initial_rtt),
            reduced_at: None,
            last_ack: now,
            max_rate: config.max_rate.map(BitRate::as_u64),
            observed: Observed::new(config, now),
        }
    }

    /// Nothing to do: idle time shows at the next ACK.
    pub fn on_sent(&mut self, _now: Instant, _bytes: u64, _in_flight: u64) {}

    /// Grows the window, if it was the window that held the sender back.
    pub fn on_ack(&mut self, ack: &AckSample) {
        self.observed.on_ack(ack);
        let round_ended = self.round.on_ack(ack.now, ack.newest_sent);
        if let Some(rtt) = ack.rtt {
            self.rtt.add(rtt, ack.app_limited);
        }
        // At most one round trip: what passed beyond that, nothing was in flight.
        let elapsed = ack
            .now
            .saturating_duration_since(self.last_ack)
            .min(self.rtt.get());
        self.last_ack = ack.now;
        if self.reduced_at.is_some_and(|at| ack.newest_sent <= at) {
            return;
        }
        if self.window < self.threshold {
            self.slow_start(ack, round_ended);
        } else if self.is_window_limited(ack) {
            let rtt = self.rtt.get();
            self.window = self
                .epoch
                .grow(self.window, self.mtu, ack.newly_acked, elapsed, rtt);
        }
    }

    /// Cuts the window once per round trip.
    pub fn on_loss(&mut self, loss: &LossSample) {
        self.observed.on_loss(loss);
        if self.reduced_at.is_some_and(|at| loss.newest_sent <= at) {
            return;
        }
        self.reduced_at = Some(loss.now);
        self.epoch.reduce(self.window, self.mtu);
        self.window = scale(self.window, BETA).max(MIN_WINDOW * self.mtu);
        self.threshold = self.window;
    }

    /// The path's packet size changed; the window in bytes stays.
    pub fn on_mtu(&mut self, mtu: u16) {
        self.mtu = u64::from(mtu.max(1));
        self.window = self.window.max(MIN_WINDOW * self.mtu);
    }

    /// Bytes that may be in flight.
    pub fn window(&self) -> u64 {
        self.window
    }

    /// 2 × window / RTT in slow start, 1.25 × afterwards (RFC 9002 §7.7), below the configured ceiling.
    pub fn pacing_rate(&self) -> BitRate {
        let (gain_num, gain_den) = match self.phase() {
            Phase::SlowStart => (2, 1),
            Phase::Conservative | Phase::Done => (5, 4),
        };
        let bits = u128::from(self.window) * 8 * gain_num * 1_000_000_000;
        let rate = bits / (self.rtt.get().as_nanos().max(1) * gain_den);
        let rate = u64::try_from(rate).unwrap_or(u64::MAX).max(MIN_RATE);
        BitRate::bits_per_second(
            self.max_rate
                .map_or(rate, |max| rate.min(max.max(MIN_RATE))),
        )
    }

    /// What was observed of the path; CUBIC itself makes no use of it.
    pub fn saved(&self, now: Instant) -> Option<Saved> {
        self.observed.saved(now)
    }

    fn phase(&self) -> Phase {
        if self.window >= self.threshold {
            return Phase::Done;
        }
        self.hystart
            .as_ref()
            .map_or(Phase::SlowStart, HyStart::phase)
    }

    /// RFC 9002 §7.8: an underused window proves nothing. Slow start paces at twice the ACK rate, so that half a window
    /// in flight is a full one soon; afterwards a quarter is slack for one ACK per eighth of a round trip.
    fn is_window_limited(&self, ack: &AckSample) -> bool {
        let before = ack.in_flight + ack.newly_acked;
        let needed = if self.window < self.threshold {
            self.window / 2
        } else {
            self.window / 4 * 3
        };
        !ack.app_limited && before + 3 * self.mtu >= needed
    }

    fn slow_start(&mut self, ack: &AckSample, round_ended: bool) {
        let grows = self.is_window_limited(ack);
        // A queue shows while a transfer ends as well, and the next one must not find it by overflow. A few packets
        // show nothing but the receiver's delay.
        let shows_delay = ack.in_flight + ack.newly_acked >= self.window / 8;
        let Some(hystart) = &mut self.hystart else {
            self.window += if grows { ack.newly_acked } else { 0 };
            return;
        };
        if shows_delay {
            hystart.on_ack(ack, round_ended);
        }
        if grows {
            self.window += ack.newly_acked / hystart.growth_divisor();
        }
        if hystart.phase() == Phase::Done {
            self.threshold = self.window;
            self.epoch.start(self.window, self.mtu);
        }
    }
}

/// `bytes × factor`, for factors within 0 and 1.
fn scale(bytes: u64, factor: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "within 2^53"
    )]
    let scaled = (bytes as f64 * factor) as u64;
    scaled
}

/// The round-trip time that pacing divides by: the minimum of recent samples, because a sample contains up to RTT/8 of
/// ACK delay. A lone packet's ACK is delayed in full, so samples of an idle sender may lower it but never raise it:
/// the first sample after idle cannot distort the rate.
#[derive(Clone, Debug)]
struct PacingRtt {
    recent: [Duration; RTT_SAMPLES],
    next: usize,
    measured: bool,
}

impl PacingRtt {
    fn new(initial: Duration) -> Self {
        Self {
            recent: [initial; RTT_SAMPLES],
            next: 0,
            measured: false,
        }
    }

    fn get(&self) -> Duration {
        self.recent
            .into_iter()
            .min()
            .unwrap_or_default()
            .max(Duration::from_micros(1))
    }

    fn add(&mut self, sample: Duration, app_limited: bool) {
        if !self.measured {
            *self = Self {
                recent: [sample; RTT_SAMPLES],
                next: 0,
                measured: true,
            };
        } else if !app_limited || sample < self.get() {
            self.recent[self.next] = sample;
            self.next = (self.next + 1) % RTT_SAMPLES;
        }
    }
}
