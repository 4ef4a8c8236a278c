//! Startup doubles the rate every round trip until the pipe is full; Drain empties the queue that this made.
//!
//! Called once per ACK frame. The full-pipe estimator also ends ProbeBW_UP (§ Exiting Acceleration Based on Bandwidth
//! Plateau). It does not hold the rate or the window.

use super::bounds::is_too_high;
use super::{Bbr3, Sample, State, scaled};

/// Growth of the rate that shows that the pipe is not full, in permille.
const GROWTH: u64 = 1250;
/// Rounds without it after which it is.
const ROUNDS: u32 = 3;
/// Rounds without growth after which a probe is over on a wire that delivers in order.
const ROUNDS_IN_ORDER: u32 = 2;
/// Packets lost in a round that end Startup (BBRStartupFullLossCnt), and the ACK frames that must have reported them: a
/// single burst is in one or two.
const LOST_PACKETS: u64 = 6;
const LOSS_REPORTS: u32 = 3;
/// Rounds after which Drain ends in any case.
const DRAIN_ROUNDS: u64 = 3;

/// The plateau detector.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FullPipe {
    rate: u64,
    count: u32,
    /// BBR.full_bw_now.
    pub(super) now: bool,
    /// BBR.full_bw_reached.
    pub(super) reached: bool,
}

impl FullPipe {
    /// ResetFullBW, with `rate` as the new baseline.
    pub(super) fn reset(&mut self, rate: u64) {
        (self.rate, self.count, self.now) = (rate, 0, false);
    }
}

impl Bbr3 {
    /// CheckFullBWReached and CheckStartupDone.
    pub(super) fn check_full_pipe(&mut self, sample: &Sample) {
        if !self.full.now && self.rounds.started && !sample.app_limited && sample.rate > 0 {
            if sample.rate >= scaled(self.full.rate, GROWTH) {
                self.full.reset(sample.rate);
            } else {
                self.full.count += 1;
                self.full.now = self.full.count >= self.rounds_of_a_plateau();
                self.full.reached |= self.full.now;
            }
        }
        if self.state == State::Startup && self.full.reached {
            self.state = State::Drain;
            self.drain_round = self.rounds.count;
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

    /// CheckStartupHighLoss, at the end of a round with losses.
    pub(super) fn check_startup_losses(&mut self, sample: &Sample) {
        let losses = &self.bounds.losses;
        let many = losses.reports >= LOSS_REPORTS && losses.bytes >= LOST_PACKETS * self.mtu;
        let high = |at_send| is_too_high(&at_send, self.mtu);
        if many && sample.at_send.is_some_and(high) {
            self.bound_startup();
        }
    }

    /// Losses, or a mark, show that the pipe is full. A mark needs no round to be believed.
    pub(super) fn bound_startup(&mut self) {
        if !self.full.reached {
            self.full.reached = true;
            let safe = self.bdp(1000).max(self.bounds.inflight_latest());
            self.bounds.longterm = Some(safe);
        }
    }

    /// CheckDrainDone.
    pub(super) fn check_drain_done(&mut self, sample: &Sample) {
        if self.state == State::Drain
            && (sample.in_flight <= self.quantized(self.bdp(1000))
                || self.rounds.count > self.drain_round + DRAIN_ROUNDS)
        {
            self.start_down(sample.now);
        }
    }
}
