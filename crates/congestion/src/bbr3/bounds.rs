//! What losses and marks say of how much the path takes (§ Updating the Model Upon Packet Loss).
//!
//! Two time scales: `longterm` is the volume that a probe found too large, `shortterm` what other traffic leaves until
//! the next probe. Fed by every ACK frame and every loss report. Which of them applies is the state's business.

use super::super::{AtSend, LossSample};
use super::{Sample, scaled};

/// BBR.LossThresh, in permille.
const LOSS_THRESHOLD: u64 = 20;
/// Losses in a thousand packets that tell nothing of a queue: the share of a bad cable, far below what a full queue drops.
const STRAY: u64 = 5;
/// BBR.Beta.
pub(super) const BETA: u64 = 700;
/// BBR.Headroom.
const HEADROOM: u64 = 150;
/// What a round with CE marks leaves of the bytes in flight (RFC 8511).
const BETA_ECN: u64 = 850;

/// Losses of the present round.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RoundLosses {
    pub(super) bytes: u64,
    /// ACK frames that reported some.
    pub(super) reports: u32,
    pub(super) marked: bool,
}

/// Bounds of the model, and the delivery signals that they are adapted to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bounds {
    /// BBR.inflight_longterm.
    pub(super) longterm: Option<u64>,
    /// BBR.inflight_shortterm.
    pub(super) shortterm: Option<u64>,
    /// BBR.bw_shortterm.
    rate_shortterm: Option<u64>,
    /// BBR.bw_latest and BBR.inflight_latest: the most of the present round.
    rate_latest: u64,
    inflight_latest: u64,
    loss_round_delivered: u64,
    /// The present ACK ended a loss round.
    loss_round: bool,
    pub(super) losses: RoundLosses,
}

impl Bounds {
    /// `rate` below the short-term bound (BoundBWForModel).
    pub(super) fn bw(&self, rate: u64) -> u64 {
        self.rate_shortterm.map_or(rate, |bound| rate.min(bound))
    }

    pub(super) fn inflight_latest(&self) -> u64 {
        self.inflight_latest
    }

    /// UpdateLatestDeliverySignals; true if this ends a round in which losses are judged.
    pub(super) fn on_sample(&mut self, sample: &Sample, delivered: u64) -> bool {
        self.rate_latest = self.rate_latest.max(sample.rate);
        self.inflight_latest = self.inflight_latest.max(sample.volume());
        let prior = sample.prior_delivered;
        self.loss_round = prior.is_some_and(|prior| prior >= self.loss_round_delivered);
        if self.loss_round {
            self.loss_round_delivered = delivered;
        }
        self.loss_round
    }

    /// AdvanceLatestDeliverySignals.
    pub(super) fn advance(&mut self, sample: &Sample) {
        if self.loss_round {
            self.rate_latest = sample.rate;
            self.inflight_latest = sample.volume();
        }
    }

    /// NoteLoss.
    pub(super) fn note_loss(&mut self, loss: &LossSample, delivered: u64) {
        if self.losses.reports == 0 && !self.losses.marked {
            self.loss_round_delivered = delivered;
        }
        self.losses.bytes += loss.lost;
        self.losses.reports += u32::from(loss.lost > 0);
        self.losses.marked |= loss.ecn;
    }

    /// The round's losses, if there are any, are as few as damage on the way makes them, beyond one standard deviation.
    pub(super) fn losses_are_stray(&self, mtu: u64) -> bool {
        let usual = scaled(self.inflight_latest, STRAY);
        !self.losses.marked && self.losses.bytes <= usual + (usual * mtu).isqrt()
    }

    /// The losses of the round were judged.
    pub(super) fn end_round(&mut self) {
        self.losses = RoundLosses::default();
    }

    /// AdaptLowerBoundsFromCongestion: slow down to what was delivered in a round with losses.
    pub(super) fn adapt(&mut self, max_rate: u64, window: u64) {
        if self.losses.reports == 0 && !self.losses.marked {
            return;
        }
        let rate = self.rate_shortterm.unwrap_or(max_rate);
        self.rate_shortterm = Some(self.rate_latest.max(scaled(rate, BETA)));
        let shortterm = self.shortterm.unwrap_or(window);
        let shortterm = self.inflight_latest.max(scaled(shortterm, BETA));
        self.shortterm = Some(if self.losses.marked {
            scaled(shortterm.min(self.inflight_latest), BETA_ECN)
        } else {
            shortterm
        });
    }

    /// ResetCongestionSignals.
    pub(super) fn reset_signals(&mut self) {
        self.losses = RoundLosses::default();
        (self.rate_latest, self.inflight_latest) = (0, 0);
    }

    /// ResetShortTermModel.
    pub(super) fn reset_shortterm(&mut self) {
        (self.rate_shortterm, self.shortterm) = (None, None);
    }

    /// InflightWithHeadroom; `None` is no bound.
    pub(super) fn with_headroom(&self, mtu: u64) -> Option<u64> {
        let longterm = self.longterm?;
        let headroom = scaled(longterm, HEADROOM).max(mtu);
        Some(longterm.saturating_sub(headroom))
    }
}

/// IsInflightTooHigh: more was lost since the packet left than a probe may cost, beyond one standard deviation.
pub(super) fn is_too_high(at_send: &AtSend, mtu: u64) -> bool {
    let threshold = scaled(at_send.in_flight, LOSS_THRESHOLD);
    at_send.lost > threshold + (threshold * mtu).isqrt()
}

/// InflightAtLoss: the volume at which losses crossed the threshold, of which the last `lost` bytes were lost together.
pub(super) fn inflight_at_loss(at_send: &AtSend, lost: u64) -> u64 {
    let before = at_send.in_flight.saturating_sub(lost);
    let lost_before = at_send.lost.saturating_sub(lost);
    let allowed = scaled(before, LOSS_THRESHOLD);
    let prefix = allowed.saturating_sub(lost_before) * 1000 / (1000 - LOSS_THRESHOLD);
    before + prefix
}
