//! ProbeBW: the cycle DOWN → CRUISE → REFILL → UP in which a flow spends its life (§ ProbeBW).
//!
//! Called once per ACK frame, and for losses of packets that probed. UP asks for more by sending faster, DOWN gives the
//! queue back, CRUISE leaves room for others, REFILL fills the pipe before the next question. It sets the long-term
//! bound; the rate and the window follow from the state in `mod.rs`.

use std::time::{Duration, Instant};

use bentpipe_units::Seed;

use super::super::LossSample;
use super::bounds::{BETA, inflight_at_loss, is_too_high};
use super::{Bbr3, Sample, State, scaled};

/// Shortest time between probes; up to [`WAIT_SPREAD`] is added at random.
const WAIT: Duration = Duration::from_secs(2);
const WAIT_SPREAD: u64 = 1_000_000_000;
/// Rounds after which Reno would have probed (IsRenoCoexistenceProbeTime).
const RENO_ROUNDS: u64 = 63;

/// BBR.ack_phase: what the ACKs that come in now answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AckPhase {
    Init,
    Refilling,
    ProbeStarting,
    ProbeFeedback,
    ProbeStopping,
}

/// Where the cycle is, and what the last probe found.
#[derive(Clone, Debug)]
pub(super) struct Cycle {
    pub(super) ack_phase: AckPhase,
    /// BBR.cycle_stamp and BBR.bw_probe_wait.
    started: Instant,
    wait: Duration,
    /// BBR.bw_probe_up_rounds, BBR.bw_probe_up_acked and BBR.probe_up_acked_per_inc.
    up_rounds: u32,
    up_acked: u64,
    acked_per_packet: u64,
    /// BBR.is_bw_probe_sample: losses now are those of the probe, which has not been answered yet.
    probe_sample: bool,
    /// BBR.prev_probe_too_high and BBR.prev_probe_precautionary.
    too_high: bool,
    precautionary: bool,
}

impl Cycle {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            ack_phase: AckPhase::Init,
            started: now,
            wait: WAIT,
            up_rounds: 0,
            up_acked: 0,
            acked_per_packet: u64::MAX,
            probe_sample: false,
            too_high: false,
            precautionary: false,
        }
    }
}

impl Bbr3 {
    /// StartProbeBW_DOWN.
    pub(super) fn start_down(&mut self, now: Instant) {
        self.bounds.reset_signals();
        self.cycle.acked_per_packet = u64::MAX;
        self.pick_wait();
        self.cycle.started = now;
        self.cycle.ack_phase = AckPhase::ProbeStopping;
        self.rounds.start(self.delivered);
        self.state = State::Down;
    }

    /// PickProbeWait. What was delivered differs between flows, and makes runs repeat.
    fn pick_wait(&mut self) {
        let random = Seed::new(self.delivered).stream("probe wait").as_u64();
        self.rounds.since_probe = random & 1;
        self.cycle.wait = WAIT + Duration::from_nanos((random >> 1) % WAIT_SPREAD);
    }

    /// StartProbeBW_REFILL.
    fn start_refill(&mut self) {
        self.bounds.reset_shortterm();
        (self.cycle.up_rounds, self.cycle.up_acked) = (0, 0);
        self.cycle.precautionary = false;
        self.cycle.ack_phase = AckPhase::Refilling;
        self.rounds.start(self.delivered);
        self.state = State::Refill;
    }

    /// StartProbeBW_UP.
    fn start_up(&mut self, sample: &Sample) {
        self.cycle.probe_sample = true;
        self.cycle.ack_phase = AckPhase::ProbeStarting;
        self.rounds.start(self.delivered);
        self.full.reset(sample.rate);
        self.state = State::Up;
        self.raise_slope();
    }

    /// UpdateProbeBWCyclePhase.
    pub(super) fn update_cycle(&mut self, sample: &Sample) {
        // Seen before the bound is raised: with few ACKs per round trip every one of them raises it.
        let held = self.is_held();
        if !self.full.reached || self.adapt_longterm(sample, held) {
            return;
        }
        let down = self.state == State::Up && self.is_time_to_go_down(sample, held);
        match self.state {
            State::Down | State::Cruise if self.is_time_to_probe(sample.now) => {
                self.start_refill();
            }
            State::Down if self.is_time_to_cruise(sample) => self.state = State::Cruise,
            State::Refill if self.rounds.started => self.start_up(sample),
            State::Up if down => {
                self.cycle.too_high = false;
                self.start_down(sample.now);
            }
            _ => {}
        }
    }

    /// IsTimeToProbeBW: T_probe is the shorter of our time scale and Reno's.
    fn is_time_to_probe(&self, now: Instant) -> bool {
        let reno = (self.target() / self.mtu).min(RENO_ROUNDS);
        now.saturating_duration_since(self.cycle.started) > self.cycle.wait
            || self.rounds.since_probe >= reno
    }

    /// IsTimeToCruise: the queue is gone, and the headroom is free.
    fn is_time_to_cruise(&self, sample: &Sample) -> bool {
        let room = self.bounds.with_headroom(self.mtu);
        let room = room.map(|room| room.max(super::MIN_WINDOW * self.mtu));
        room.is_none_or(|room| sample.in_flight <= room)
            && sample.in_flight <= self.quantized(self.bdp(1000))
    }

    /// The long-term bound is what holds the flow back.
    fn is_held(&self) -> bool {
        let longterm = self.bounds.longterm;
        self.window.is_limited() && longterm.is_some_and(|longterm| self.window.size() >= longterm)
    }

    /// IsTimeToGoDown.
    fn is_time_to_go_down(&mut self, sample: &Sample, held: bool) -> bool {
        let before = sample.in_flight + sample.newly_acked;
        let risky = self
            .bounds
            .longterm
            .is_some_and(|longterm| before + self.mtu > longterm);
        if self.cycle.too_high && risky {
            // The volume that was too much last time is not held for a whole round trip.
            self.cycle.precautionary = true;
            return true;
        }
        if held {
            self.full.reset(sample.rate);
            return false;
        }
        self.full.now
    }

    /// RaiseInflightLongtermSlope: 1, 2, 4, … packets per round.
    fn raise_slope(&mut self) {
        let growth = 1 << self.cycle.up_rounds;
        self.cycle.up_rounds = (self.cycle.up_rounds + 1).min(30);
        self.cycle.acked_per_packet = (self.window.size() / growth).max(self.mtu);
    }

    /// ProbeInflightLongtermUpward.
    fn raise_longterm(&mut self, sample: &Sample, longterm: u64) {
        self.cycle.up_acked += sample.newly_acked;
        let packets = self.cycle.up_acked / self.cycle.acked_per_packet;
        self.cycle.up_acked -= packets * self.cycle.acked_per_packet;
        self.bounds.longterm = Some(longterm + packets * self.mtu);
        if self.rounds.started {
            self.raise_slope();
        }
    }

    /// AdaptLongTermModel; true if it decided on a transition.
    fn adapt_longterm(&mut self, sample: &Sample, held: bool) -> bool {
        if self.rounds.started && self.cycle.ack_phase == AckPhase::ProbeStarting {
            self.cycle.ack_phase = AckPhase::ProbeFeedback;
        }
        if self.rounds.started && self.cycle.ack_phase == AckPhase::ProbeStopping {
            self.cycle.probe_sample = false;
            self.cycle.ack_phase = AckPhase::Init;
            if self.state.is_probe_bw() && !sample.app_limited {
                self.model.advance_rate();
            }
            if self.state.is_probe_bw() && self.cycle.precautionary && !self.cycle.too_high {
                // The careful probe was harmless: ask again, without care.
                self.start_refill();
                return true;
            }
        }
        let Some((at_send, longterm)) = sample.at_send.zip(self.bounds.longterm) else {
            return false;
        };
        if !is_too_high(&at_send, self.mtu) {
            let longterm = longterm.max(at_send.in_flight);
            self.bounds.longterm = Some(longterm);
            if self.state == State::Up && held {
                self.raise_longterm(sample, longterm);
            }
        }
        false
    }

    /// HandleLostPacket: did the probe put too much in flight? A mark says so by itself.
    pub(super) fn check_probe_loss(&mut self, loss: &LossSample) {
        let Some(at_send) = loss.at_send.filter(|_| self.cycle.probe_sample) else {
            return;
        };
        if !loss.ecn && !is_too_high(&at_send, self.mtu) {
            return;
        }
        // HandleInflightTooHigh.
        self.cycle.too_high = true;
        self.cycle.probe_sample = false;
        if !at_send.app_limited {
            let volume = if loss.ecn {
                at_send.in_flight
            } else {
                inflight_at_loss(&at_send, loss.lost)
            };
            self.bounds.longterm = Some(volume.max(scaled(self.target(), BETA)));
        }
        if self.state == State::Up {
            self.start_down(loss.now);
        }
    }
}
