//! `bbr3`: BBR version 3 (draft-ietf-ccwg-bbr of August 2026; "§" below), the published controller to compare with.
//!
//! On the data path this is one of the controllers behind [`super::Controller`]: acknowledgements and losses go in, a
//! pacing rate and a window come out. Both follow from a model of the path (`model.rs`: rate, round-trip time, ACK
//! aggregation) and from bounds that losses and marks set (`bounds.rs`). Phases: `startup.rs` (Startup and Drain) →
//! `probe_bw.rs` (DOWN → CRUISE → REFILL → UP), interrupted by `probe_rtt.rs`.
//!
//! Names are the draft's: `longterm` and `shortterm` bounds are those of its long-term and short-term models. Deviations:
//! - The receiver acknowledges eight to sixteen times per round trip, so what must be in flight is an ACK frame more than
//!   what a round trip delivers. The short-term bound allows for it; without, every round with a loss costs an eighth of
//!   the rate. For the same reason precautionary probing looks at what was in flight before the ACK (as Linux does).
//! - quinn reports losses once per ACK frame: a batch is one packet of the draft's `InflightAtLoss`, and six
//!   discontiguous losses in a round are six lost packets reported by at least three ACK frames.
//! - Loss is excessive one standard deviation above the threshold: with 400 packets in flight a link that loses
//!   1 % often shows 2 % in a round by chance; without the margin Startup ended at a thirtieth of the link's rate, and so
//!   did every later probe.
//! - Pacing below the short-term rate has no margin of 1 %: it would compound, and the draft counts on a rate that falls
//!   by the share lost (§ Design Considerations for Choosing Constant Parameters).
//! - A round-trip time close to the smallest one keeps ProbeRTT away (`probe_rtt.rs`).
//! - A CE mark counts as a loss (§ ECN leaves the response open), and bounds the bytes in flight by ABE's factor
//!   (RFC 8511) besides, because a marking queue delivers at full rate.
//! - On a wire that delivers in order (a tunnel over TLS) the window is smaller, and a probe is over after two rounds without
//!   growth: a proxy's buffer shows no loss that would end it, and requests wait behind what stands there.
//! - Spurious losses are not undone: quinn does not report them.

mod bounds;
mod model;
mod probe_bw;
mod probe_rtt;
mod sample;
mod startup;
mod state;
#[cfg(test)]
mod tests;
mod window;

use std::time::{Duration, Instant};

use bentpipe_units::BitRate;

use super::{AckSample, Config, LossSample, MIN_RATE, Observed, Saved, bytes_in, scaled};
use bounds::Bounds;
use model::{Model, Rounds};
use probe_bw::Cycle;
use probe_rtt::ProbeRtt;
use sample::Sample;
use startup::{FullPipe, ROUNDS, ROUNDS_IN_ORDER};
use state::State;
use window::Window;

/// BBR.MinPipeCwnd, in packets.
const MIN_WINDOW: u64 = 4;
/// BBR.PacingMarginPercent, as a gain.
const MARGIN: u64 = 990;
/// BBR.StartupPacingGain.
const STARTUP_GAIN: u64 = 2770;

/// Gains of the window on a wire that delivers in order whatever it takes, in permille. The draft's 2000 is room for losses that
/// have not been repaired yet; where there are none it is a standing queue. A quarter is more than ACKs are late by.
const IN_ORDER: u64 = 1250;
const IN_ORDER_UP: u64 = 1500;

/// State of one path's controller.
#[derive(Clone, Debug)]
pub struct Bbr3 {
    mtu: u64,
    max_rate: Option<u64>,
    state: State,
    window: Window,
    /// C.pacing_rate, in bytes per second.
    rate: u64,
    rounds: Rounds,
    model: Model,
    bounds: Bounds,
    reading: Reading,
    full: FullPipe,
    cycle: Cycle,
    probe_rtt: ProbeRtt,
    /// Nothing was in flight when the last packets left (BBR.idle_restart).
    idle_restart: bool,
    /// C.delivered.
    delivered: u64,
    observed: Observed,
}

/// Meaning of losses for the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    /// As in the draft: that more is in flight than the path takes.
    Draft,
    /// Nothing while they are as rare as damage on the way: they do not lower the short-term bounds.
    StraySpared,
    /// Nothing at all, for there are none: the wire below delivers in order whatever it takes.
    Silent,
}

impl Bbr3 {
    /// A controller in Startup (§ Initialization).
    pub fn new(config: &Config, now: Instant) -> Self {
        let mtu = u64::from(config.mtu.max(1));
        let window = config.initial_window.max(MIN_WINDOW * mtu);
        let mut bbr = Self {
            mtu,
            max_rate: config.max_rate.map(|rate| rate.as_u64() / 8),
            state: State::Startup,
            window: Window::new(window),
            rate: 0,
            rounds: Rounds::default(),
            model: Model::new(now),
            bounds: Bounds::default(),
            reading: match config.in_order {
                true => Reading::Silent,
                false => Reading::Draft,
            },
            full: FullPipe::default(),
            cycle: Cycle::new(now),
            probe_rtt: ProbeRtt::new(now),
            idle_restart: false,
            delivered: 0,
            observed: Observed::new(config, now),
        };
        bbr.init_pacing(config.initial_rtt);
        bbr
    }

    /// A controller whose short-term bounds stay as they are in rounds that lose a few packets in a thousand.
    /// Beyond the draft, where each round with a loss lowers them: a gigabit over 5 ms that loses one packet in a thousand
    /// then carries 0.92 of its rate.
    #[must_use]
    pub fn sparing_stray_losses(self) -> Self {
        Self {
            reading: Reading::StraySpared,
            ..self
        }
    }

    /// § Restarting From Idle: the pipe is empty, so the rate is the path's, whatever was being probed.
    pub fn on_sent(&mut self, now: Instant, bytes: u64, in_flight: u64) {
        if in_flight <= bytes && self.delivered > 0 {
            self.idle_restart = true;
            self.model.restart(now);
            if self.state.is_probe_bw() {
                self.set_pacing(1000);
            } else if self.state == State::ProbeRtt {
                self.check_probe_rtt_done(now);
            }
        }
        self.window.on_in_flight(in_flight, self.mtu);
    }

    /// UpdateOnACK (§ Per-ACK Steps).
    pub fn on_ack(&mut self, ack: &AckSample) {
        self.observed.on_ack(ack);
        let sample = self.sample(ack);
        self.window.on_arrived(ack.newest_sent);
        self.update_model(&sample);
        self.check_full_pipe(&sample);
        self.check_drain_done(&sample);
        self.update_cycle(&sample);
        self.update_min_rtt(&sample);
        self.check_probe_rtt(&sample);
        self.bounds.advance(&sample);
        self.set_pacing(self.state.pacing_gain());
        self.set_window(sample.newly_acked);
    }

    /// § Per-Loss Steps.
    pub fn on_loss(&mut self, loss: &LossSample) {
        self.observed.on_loss(loss);
        self.bounds.note_loss(loss, self.delivered);
        self.check_probe_loss(loss);
        if loss.ecn && self.state == State::Startup {
            self.bound_startup();
        }
        if loss.persistent {
            self.window.save(self.state == State::ProbeRtt);
            self.window.collapse(loss.now, loss.in_flight + self.mtu);
        }
        self.set_pacing(self.state.pacing_gain());
        self.bound_window();
    }

    /// The path's packet size changed; the model is in bytes.
    pub fn on_mtu(&mut self, mtu: u16) {
        self.mtu = u64::from(mtu.max(1));
    }

    /// Bytes that may be in flight.
    pub fn window(&self) -> u64 {
        self.window.size().max(MIN_WINDOW * self.mtu)
    }

    /// The rate that the model and the state allow, below the configured ceiling.
    pub fn pacing_rate(&self) -> BitRate {
        let rate = self.max_rate.map_or(self.rate, |max| self.rate.min(max));
        BitRate::bits_per_second(rate.saturating_mul(8).max(MIN_RATE))
    }

    /// What was observed of the path; Startup finds it again in any case.
    pub fn saved(&self, now: Instant) -> Option<Saved> {
        self.observed.saved(now)
    }

    fn sample(&mut self, ack: &AckSample) -> Sample {
        let rate = ack.rate.as_ref();
        self.delivered = rate.map_or(self.delivered + ack.newly_acked, |rate| {
            rate.prior_delivered + rate.delivered
        });
        let before = ack.in_flight + ack.newly_acked;
        self.window.on_in_flight(before, self.mtu);
        // § Upon receiving an ACK: an interval below the round-trip time measures a burst.
        let plausible = rate.filter(|rate| self.model.is_plausible(rate.interval));
        Sample {
            now: ack.now,
            newly_acked: ack.newly_acked,
            rtt: ack.rtt,
            in_flight: ack.in_flight,
            rate: plausible.map_or(0, |rate| rate.rate.as_u64() / 8),
            delivered: rate.map_or(0, |rate| rate.delivered),
            prior_delivered: rate.map(|rate| rate.prior_delivered),
            at_send: rate.map(|rate| rate.at_send),
            app_limited: rate.is_some_and(|rate| rate.app_limited)
                || rate.is_some_and(|rate| self.probe_rtt.covers(rate.prior_delivered)),
        }
    }

    /// UpdateLatestDeliverySignals, UpdateCongestionSignals and UpdateACKAggregation.
    fn update_model(&mut self, sample: &Sample) {
        if self.rounds.on_ack(sample.prior_delivered, self.delivered) {
            self.window.end_round();
        }
        let loss_round = self.bounds.on_sample(sample, self.delivered);
        self.model.add_rate(sample);
        if loss_round {
            if startup::losses_are_many(&self.bounds.losses, sample, self.mtu) {
                self.bound_startup();
            }
            let spared =
                self.reading == Reading::StraySpared && self.bounds.losses_are_stray(self.mtu);
            if !self.state.is_probing() && !spared {
                self.bounds.adapt(self.model.max_rate(), self.window.size());
            }
            self.bounds.end_round();
        }
        let (bw, window) = (self.bw(), self.window.size());
        let rounds = if self.full.reached { 10 } else { 1 };
        self.model
            .on_aggregation(sample, bw, window, self.rounds.count, rounds);
    }

    /// BBR.bw.
    fn bw(&self) -> u64 {
        self.bounds.bw(self.model.max_rate())
    }

    /// BDPMultiple.
    fn bdp(&self, gain: u64) -> u64 {
        match self.model.min_rtt() {
            Some(rtt) => scaled(bytes_in(self.bw(), rtt), gain),
            None => self.window.initial(),
        }
    }

    /// QuantizationBudget. A send quantum is at most 1 ms at the rate, less than any path's BDP, and needs no room here.
    fn quantized(&self, bytes: u64) -> u64 {
        let extra = if self.state == State::Up { 2 } else { 0 };
        bytes.max(MIN_WINDOW * self.mtu) + extra * self.mtu
    }

    /// TargetInflight.
    fn target(&self) -> u64 {
        self.bdp(1000).min(self.window.size())
    }

    /// InitPacingRate, and again when the first round-trip time is known.
    fn init_pacing(&mut self, rtt: Duration) {
        let nanos = rtt.as_nanos().max(1_000_000);
        let nominal = u128::from(self.window.size()) * 1_000_000_000 / nanos;
        self.rate = scaled(u64::try_from(nominal).unwrap_or(u64::MAX), STARTUP_GAIN);
    }

    /// SetPacingRateWithGain: until the pipe was full once, the rate only grows.
    fn set_pacing(&mut self, gain: u64) {
        let below_path = scaled(self.model.max_rate(), MARGIN);
        let rate = scaled(self.bw().min(below_path), gain);
        if self.full.reached || rate > self.rate {
            self.rate = rate;
        }
    }

    /// SetCwnd.
    fn set_window(&mut self, newly_acked: u64) {
        let most = self.bdp(self.window_gain()) + self.model.extra_acked();
        let most = self.quantized(most);
        self.window
            .grow(newly_acked, most, self.full.reached, self.delivered);
        self.bound_window();
    }

    /// BoundCwndForProbeRTT and BoundCwndForModel.
    fn bound_window(&mut self) {
        self.window.floor(self.mtu);
        if self.state == State::ProbeRtt {
            self.window.cap(self.probe_rtt_window());
        }
        let longterm = match self.state {
            State::Startup | State::Drain => None,
            State::Down | State::Refill | State::Up => self.bounds.longterm,
            State::Cruise | State::ProbeRtt => self.bounds.with_headroom(self.mtu),
        };
        let bounds = [longterm, self.bounds.shortterm];
        let cap = bounds.into_iter().flatten().min().unwrap_or(u64::MAX);
        self.window.cap(cap.max(MIN_WINDOW * self.mtu));
    }

    /// Gain of the window in the present state and on this wire, in permille of the BDP.
    fn window_gain(&self) -> u64 {
        match self.state {
            State::Up if self.is_in_order() => IN_ORDER_UP,
            state if self.is_in_order() && state.is_probe_bw() => IN_ORDER,
            state => state.window_gain(),
        }
    }

    fn is_in_order(&self) -> bool {
        self.reading == Reading::Silent
    }

    /// CheckFullBWReached and CheckStartupDone.
    fn check_full_pipe(&mut self, sample: &Sample) {
        if self.rounds.started {
            self.full.on_round(sample, self.rounds_of_a_plateau());
        }
        if self.state == State::Startup && self.full.reached {
            self.state = State::Drain;
            self.full.drains_since = self.rounds.count;
        }
    }

    /// Rounds without growth after which the pipe is full. On a wire that delivers in order a probe fills a buffer that shows no
    /// end: the round that answers it must do.
    fn rounds_of_a_plateau(&self) -> u32 {
        match self.state {
            State::Up if self.is_in_order() => ROUNDS_IN_ORDER,
            _ => ROUNDS,
        }
    }

    /// Losses, or a mark, show that the pipe is full. A mark needs no round to be believed.
    fn bound_startup(&mut self) {
        if !self.full.reached {
            self.full.reached = true;
            let safe = self.bdp(1000).max(self.bounds.inflight_latest());
            self.bounds.longterm = Some(safe);
        }
    }

    /// CheckDrainDone.
    fn check_drain_done(&mut self, sample: &Sample) {
        if self.state == State::Drain
            && (sample.in_flight <= self.quantized(self.bdp(1000))
                || self.full.has_drained_for_long(self.rounds.count))
        {
            self.start_down(sample.now);
        }
    }
}
