//! The controllers that take a loss for congestion: CUBIC (RFC 9438) and NewReno (RFC 9002 §7), with HyStart++ (RFC 9406).
//!
//! On the data path these are among the controllers behind [`super::Controller`]: acknowledgements and losses go in, a
//! window and a pacing rate come out. What both share is here: slow start, one reduction per round trip, and the rule
//! that an unused window does not grow. They differ in the law of congestion avoidance (`cubic.rs`, `reno.rs`) and in
//! what idle and outages do to the window. It does not detect spurious losses (RFC 9438 §4.9.2) and does not distinguish
//! loss from congestion.
//!
//! `new-reno` keeps to its RFCs: persistent congestion collapses the window (RFC 9002 §7.6.2), and a window that was not
//! used for five minutes is halved (RFC 7661, `validation.rs`). CUBIC is fitted to long fat links that go idle and fade:
//! - The window survives idle periods (against RFC 7661): a warm tunnel is the product's point, and a satellite path's
//!   capacity does not drift in a minute. Time spent idle does not advance CUBIC's clock (RFC 9438 §5.8).
//! - Persistent congestion cuts once like any loss (against RFC 9002 §7.6.2): an outage of a satellite link, by rain or
//!   handover, says nothing of its capacity afterwards, and two packets per 600 ms would take 8 s to grow back.

mod cubic;
mod pacing_rtt;
mod reno;
mod slow_start;
#[cfg(test)]
mod tests;
mod validation;

use std::time::Instant;

use bentpipe_units::BitRate;

use super::{AckSample, Config, Kind, LossSample, MIN_RATE, Observed, RoundCounter, Saved};
use pacing_rtt::PacingRtt;
use slow_start::{HyStart, SlowStartPhase};
use validation::Validation;

/// Smallest window in packets (RFC 9002 §7.2).
const MIN_WINDOW: u64 = 2;

/// How the window moves in congestion avoidance.
#[derive(Clone, Debug)]
enum Law {
    Cubic(cubic::Epoch),
    Reno(reno::Reno),
}

/// State of one path's controller.
#[derive(Clone, Debug)]
pub struct LossBased {
    kind: Kind,
    window: u64,
    threshold: u64,
    mtu: u64,
    law: Law,
    hystart: Option<HyStart>,
    /// Whether the window is still justified by use; `None` keeps it whatever happens.
    validation: Option<Validation>,
    round: RoundCounter,
    rtt: PacingRtt,
    /// Instant at which the window was last cut; packets sent before are one congestion event with it (RFC 9002 §7.3.2).
    reduced_at: Option<Instant>,
    last_ack: Instant,
    max_rate: Option<u64>,
    observed: Observed,
}

impl LossBased {
    /// A controller in slow start: one of those that [`Kind`] says react to loss; CUBIC if it is none of them.
    pub fn new(kind: Kind, config: &Config, now: Instant) -> Self {
        let (law, validation) = if kind == Kind::NewReno {
            let validation = Validation::new(config.initial_window, now);
            (Law::Reno(reno::Reno::default()), Some(validation))
        } else {
            (Law::Cubic(cubic::Epoch::default()), None)
        };
        let mtu = u64::from(config.mtu.max(1));
        Self {
            kind,
            window: config.initial_window.max(MIN_WINDOW * mtu),
            threshold: u64::MAX,
            mtu,
            law,
            hystart: (kind != Kind::CubicNoHystart).then(HyStart::default),
            validation,
            round: RoundCounter::new(now),
            rtt: PacingRtt::new(config.initial_rtt),
            reduced_at: None,
            last_ack: now,
            max_rate: config.max_rate.map(BitRate::as_u64),
            observed: Observed::new(config, now),
        }
    }

    /// Which of them this is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Halves a window that was not used for long (RFC 7661 §4.4.3), before it is.
    pub fn on_sent(&mut self, now: Instant, _bytes: u64, _in_flight: u64) {
        let Some(validation) = &mut self.validation else {
            return;
        };
        while let Some((window, threshold)) = validation.expire(now, self.window, self.threshold) {
            (self.window, self.threshold) = (window.max(MIN_WINDOW * self.mtu), threshold);
            if threshold != u64::MAX {
                self.hystart = None;
            }
        }
    }

    /// CUBIC in congestion avoidance, whose last loss was at `window` bytes.
    pub(super) fn avoiding(config: &Config, window: u64, now: Instant) -> Self {
        let mut cubic = Self::new(Kind::CubicNoHystart, config, now);
        cubic.window = window.max(MIN_WINDOW * cubic.mtu);
        cubic.threshold = cubic.window;
        if let Law::Cubic(epoch) = &mut cubic.law {
            epoch.start(cubic.window, cubic.mtu);
        }
        cubic
    }

    /// Grows the window, if it was the window that held the sender back.
    pub fn on_ack(&mut self, ack: &AckSample) {
        self.observed.on_ack(ack);
        let round_ended = self.round.on_ack(ack.now, ack.newest_sent);
        if let Some(validation) = &mut self.validation {
            validation.on_ack(ack.now, ack.newly_acked, round_ended, self.window);
        }
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
            let (mtu, rtt) = (self.mtu, self.rtt.get());
            self.window = match &mut self.law {
                Law::Cubic(epoch) => epoch.grow(self.window, mtu, ack.newly_acked, elapsed, rtt),
                Law::Reno(reno) => reno.grow(self.window, mtu, ack.newly_acked),
            };
        }
    }

    /// Cuts the window once per round trip.
    pub fn on_loss(&mut self, loss: &LossSample) {
        self.observed.on_loss(loss);
        if self.reduced_at.is_none_or(|at| loss.newest_sent > at) {
            self.reduced_at = Some(loss.now);
            self.reduce(loss);
        }
        if let (Law::Reno(_), true) = (&self.law, loss.persistent) {
            // RFC 9002 §7.6.2 and B.8: the smallest window, slow start, and no recovery period.
            self.window = MIN_WINDOW * self.mtu;
            self.reduced_at = None;
            self.hystart = None;
        }
    }

    fn reduce(&mut self, loss: &LossSample) {
        if let Some(validation) = &self.validation {
            // What was not used was not what the path refused (RFC 7661 §4.4.1).
            let used = validation.used(self.window, loss.in_flight + loss.lost);
            self.window = self.window.min(used);
        }
        let window = match &mut self.law {
            Law::Cubic(epoch) => epoch.reduce(self.window, self.mtu),
            Law::Reno(reno) => reno.reduce(self.window),
        };
        self.window = window.max(MIN_WINDOW * self.mtu);
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
            SlowStartPhase::SlowStart => (2, 1),
            SlowStartPhase::Conservative | SlowStartPhase::Done => (5, 4),
        };
        let bits = u128::from(self.window) * 8 * gain_num * 1_000_000_000;
        let rate = bits / (self.rtt.get().as_nanos().max(1) * gain_den);
        let rate = u64::try_from(rate).unwrap_or(u64::MAX).max(MIN_RATE);
        BitRate::bits_per_second(
            self.max_rate
                .map_or(rate, |max| rate.min(max.max(MIN_RATE))),
        )
    }

    /// What was observed of the path; these controllers make no use of it.
    pub fn saved(&self, now: Instant) -> Option<Saved> {
        self.observed.saved(now)
    }

    fn phase(&self) -> SlowStartPhase {
        if self.window >= self.threshold {
            return SlowStartPhase::Done;
        }
        self.hystart
            .as_ref()
            .map_or(SlowStartPhase::SlowStart, HyStart::phase)
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
        if hystart.phase() == SlowStartPhase::Done {
            self.threshold = self.window;
            if let Law::Cubic(epoch) = &mut self.law {
                epoch.start(self.window, self.mtu);
            }
        }
    }
}
