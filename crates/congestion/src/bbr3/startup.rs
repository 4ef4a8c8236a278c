//! Startup doubles the rate every round trip until the pipe is full; Drain empties the queue that this made.
//!
//! Called once per ACK frame. The full-pipe estimator also ends ProbeBW_UP (§ Exiting Acceleration Based on Bandwidth
//! Plateau). It does not hold the rate or the window, nor the state.

use super::bounds::{RoundLosses, is_too_high};
use super::{Sample, scaled};

/// Growth of the rate that shows that the pipe is not full, in permille.
const GROWTH: u64 = 1250;
/// Rounds without it after which it is.
pub(super) const ROUNDS: u32 = 3;
/// Rounds without growth after which a probe is over on a wire that delivers in order.
pub(super) const ROUNDS_IN_ORDER: u32 = 2;
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
    /// Round in which Drain began.
    pub(super) drains_since: u64,
}

impl FullPipe {
    /// ResetFullBW, with `rate` as the new baseline.
    pub(super) fn reset(&mut self, rate: u64) {
        (self.rate, self.count, self.now) = (rate, 0, false);
    }

    /// A round has ended: `rounds` without growth are a plateau.
    pub(super) fn on_round(&mut self, sample: &Sample, rounds: u32) {
        if self.now || sample.app_limited || sample.rate == 0 {
            return;
        }
        if sample.rate >= scaled(self.rate, GROWTH) {
            self.reset(sample.rate);
        } else {
            self.count += 1;
            self.now = self.count >= rounds;
            self.reached |= self.now;
        }
    }

    /// True if Drain has had all the rounds that it gets, in round `round`.
    pub(super) fn has_drained_for_long(&self, round: u64) -> bool {
        round > self.drains_since + DRAIN_ROUNDS
    }
}

/// CheckStartupHighLoss, at the end of a round with losses.
pub(super) fn losses_are_many(losses: &RoundLosses, sample: &Sample, mtu: u64) -> bool {
    let many = losses.reports >= LOSS_REPORTS && losses.bytes >= LOST_PACKETS * mtu;
    let high = |at_send| is_too_high(&at_send, mtu);
    many && sample.at_send.is_some_and(high)
}
