//! `satellite`: a controller that models the path instead of reacting to single losses.
//!
//! On the data path this is one of the controllers behind [`super::Controller`]: acknowledgements and losses go in, a
//! pacing rate and a window come out. The rate is the highest that the path delivered in recent rounds (`model.rs`);
//! the window, twice what the path holds, is only the safety net. Phases: `startup.rs` → `drain.rs` → `probe.rs` ⇄
//! `drain.rs`. Which losses count is decided in `losses.rs`. The frame is that of BBR (draft-ietf-ccwg-bbr), the
//! differences follow from round trips of 600 ms:
//! - No ProbeRTT: the drain after each probe shows the round-trip time without queue, at no cost.
//! - Start-up and probes end on queue delay, not only on plateaus of several rounds, which overflow a queue of one BDP.
//! - Loss is compared with what the path loses below its rate instead of a fixed threshold.
//! - The model survives idle: samples of an idle sender may raise it, never lower it.
//!
//! It does not detect losses and does not touch packets.

mod drain;
mod losses;
mod model;
mod probe;
mod startup;
#[cfg(test)]
mod tests;

use std::time::Instant;

use bentpipe_units::BitRate;

use super::{AckSample, Config, LossSample, Observed, RoundCounter, Saved};
use drain::{Drain, Outcome};
use losses::Losses;
use model::{Model, scaled};
use probe::{Next, Probe};
use startup::Startup;

/// Smallest window in packets: two, and the ACKs of two more may be under way.
const MIN_WINDOW: u64 = 4;
/// Pacing is at least this fast, in bytes per second, so that a stalled path can be probed.
const MIN_RATE: u64 = 2_000;
/// Window while cruising, in permille of what the path holds: ACKs come in batches, and the queue of others delays them.
const WINDOW: u64 = 2000;
/// Pacing of a drain, in permille of the rate.
const DRAIN: u64 = 900;
/// What remains of the rate and the window after congestion, in permille.
const BETA: u64 = 850;
/// Rounds of standing queue after which cruising drains.
const PATIENCE: u32 = 2;

/// State of one path's controller.
#[derive(Clone, Debug)]
pub struct Satellite {
    mtu: u64,
    max_rate: Option<u64>,
    model: Model,
    losses: Losses,
    round: RoundCounter,
    phase: Phase,
    /// Most bytes in flight, after congestion showed how many are too many.
    bound: Option<u64>,
    /// Rounds in a row that ended with a standing queue.
    queued_rounds: u32,
    /// The drain now under way is that of start-up.
    fresh: bool,
    delivered: u64,
    observed: Observed,
}

#[derive(Clone, Debug)]
enum Phase {
    Startup(Startup),
    Drain(Drain),
    Probe(Probe),
}

impl Satellite {
    /// A controller in start-up.
    pub fn new(config: &Config, now: Instant) -> Self {
        let mtu = u64::from(config.mtu.max(1));
        let window = config.initial_window.max(MIN_WINDOW * mtu);
        Self {
            mtu,
            max_rate: config.max_rate.map(|rate| rate.as_u64() / 8),
            model: Model::new(config.initial_rtt, now),
            losses: Losses::default(),
            round: RoundCounter::new(now),
            phase: Phase::Startup(Startup::new(window)),
            bound: None,
            queued_rounds: 0,
            fresh: true,
            delivered: 0,
            observed: Observed::new(config, now),
        }
    }

    /// Nothing to do: the model moves when answers come.
    pub fn on_sent(&mut self, _now: Instant, _bytes: u64, _in_flight: u64) {}

    /// Takes the sample into the model and moves between phases.
    pub fn on_ack(&mut self, ack: &AckSample) {
        self.delivered += ack.newly_acked;
        self.observed.on_ack(ack);
        self.model.on_ack(ack);
        let queued = self.model.is_queued();
        self.losses
            .on_acked(ack.newly_acked, ack.newest_sent, queued);
        let round_ended = self.round.on_ack(ack.now, ack.newest_sent);
        if round_ended {
            self.model.end_round();
        }
        if let Phase::Startup(startup) = &mut self.phase {
            if startup.on_ack(ack, round_ended, &self.model, &self.losses, self.mtu) {
                self.drain(ack.now, DRAIN);
            }
        } else if round_ended {
            self.end_round(ack);
        }
        if round_ended {
            self.losses.end_round();
        }
    }

    /// Counts; what the losses mean is decided at the end of the round.
    pub fn on_loss(&mut self, loss: &LossSample) {
        self.observed.on_loss(loss);
        // A mark is a packet that would have been lost.
        let bytes = if loss.ecn { self.mtu } else { loss.lost };
        self.losses.on_lost(bytes, loss.newest_sent);
    }

    /// Start-up finds the path's rate in any case.
    pub fn resume(&mut self, _now: Instant, _saved: Saved) -> bool {
        false
    }

    /// What was observed of the path.
    pub fn saved(&self, now: Instant) -> Option<Saved> {
        self.observed.saved(now)
    }

    /// The path's packet size changed; rates in bytes stay.
    pub fn on_mtu(&mut self, mtu: u16) {
        self.mtu = u64::from(mtu.max(1));
    }

    /// Bytes that may be in flight.
    pub fn window(&self) -> u64 {
        let window = match &self.phase {
            Phase::Startup(startup) => startup.window(),
            Phase::Drain(drain) => drain.window(self.bdp()),
            Phase::Probe(_) => scaled(self.bdp(), WINDOW),
        };
        let window = self.bound.map_or(window, |bound| window.min(bound));
        window.max(MIN_WINDOW * self.mtu)
    }

    /// The model's rate times the phase's gain, below the configured ceiling.
    pub fn pacing_rate(&self) -> BitRate {
        let rate = match &self.phase {
            Phase::Startup(startup) => startup.pace(self.model.min_rtt()),
            Phase::Drain(drain) => scaled(self.send_rate(), drain.gain),
            Phase::Probe(probe) => scaled(self.send_rate(), probe.gain()),
        };
        let rate = self.max_rate.map_or(rate, |max| rate.min(max));
        BitRate::bits_per_second(rate.max(MIN_RATE).saturating_mul(8))
    }

    /// What must be sent so that the path's rate arrives.
    fn send_rate(&self) -> u64 {
        self.losses.compensated(self.model.rate())
    }

    /// What the path holds without a queue.
    fn bdp(&self) -> u64 {
        self.model.product(self.send_rate())
    }

    fn drain(&mut self, now: Instant, gain: u64) {
        self.losses.start_quiet(now);
        self.phase = Phase::Drain(Drain::new(gain));
    }

    fn cruise(&mut self, now: Instant) {
        self.losses.end_quiet(now);
        self.queued_rounds = 0;
        let probe = if std::mem::take(&mut self.fresh) {
            Probe::eager(self.model.rate())
        } else {
            Probe::new(self.delivered / self.mtu)
        };
        self.phase = Phase::Probe(probe);
    }

    fn end_round(&mut self, ack: &AckSample) {
        let queued = self.model.is_queued();
        let excessive = self.losses.is_excessive(self.mtu, queued);
        if (queued || excessive) && self.model.is_refuted() {
            self.model.set_rate(self.model.last_rate());
        }
        self.queued_rounds = if queued { self.queued_rounds + 1 } else { 0 };
        let bdp = self.bdp();
        if queued && excessive {
            self.bound = Some(scaled(ack.in_flight + ack.newly_acked, BETA).max(scaled(bdp, 1250)));
        } else if let Some(bound) = self.bound {
            let bound = scaled(bound, 1050);
            self.bound = (bound < scaled(bdp, WINDOW)).then_some(bound);
        }
        match &mut self.phase {
            Phase::Startup(_) => {}
            Phase::Drain(drain) => match drain.end_round(&self.model, ack.in_flight, bdp) {
                Outcome::Continue => {}
                Outcome::Done => self.cruise(ack.now),
                Outcome::Longer => {
                    self.model.adopt_rtt(ack.now);
                    self.cruise(ack.now);
                }
            },
            Phase::Probe(probe) => {
                let pressed = excessive || self.queued_rounds >= PATIENCE;
                if pressed || !ack.app_limited && probe.end_round(&self.model) == Next::Drain {
                    self.drain(ack.now, DRAIN);
                }
            }
        }
    }
}
