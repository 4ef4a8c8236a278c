//! Start-up: from the initial window to the path's rate.
//!
//! The window grows with every byte acknowledged, and is sent within less than a round trip, so that the queue it builds
//! shows in the round-trip time of that very flight. It ends on a plateau of the delivery rate, on a queue, or on
//! losses that grow with the rate. It does not know what follows.

use std::time::Duration;

use super::super::AckSample;
use super::losses::Losses;
use super::model::{Model, scaled};

/// Bytes by which the window grows per byte acknowledged, in permille: ×2.8 per round.
const GROWTH: u64 = 1800;
/// Pacing, in permille of window per round trip.
const PACE: u64 = 2800;
/// A round that is less than this faster than the one before, in permille, is a plateau.
const PLATEAU: u64 = 1250;
/// ACKs whose smallest round-trip time must show a queue.
const SAMPLES: usize = 2;
/// Threshold of the queue: an eighth of the round trip, as long as the ACK delay, within these bounds.
const MIN_THRESHOLD: Duration = Duration::from_millis(8);
const MAX_THRESHOLD: Duration = Duration::from_millis(75);
/// A share of losses that grows by this from one round to the next, in permille, is congestion.
const LOSS_STEP: u64 = 120;

/// State of start-up.
#[derive(Clone, Debug)]
pub(super) struct Startup {
    window: u64,
    recent: [Duration; SAMPLES],
    next: usize,
    /// Highest rate of the round before, and how many rounds were no faster.
    rate: u64,
    plateaus: u32,
    /// Share of losses in earlier rounds.
    lost: u64,
}

impl Startup {
    pub(super) fn new(window: u64) -> Self {
        Self {
            window,
            recent: [Duration::ZERO; SAMPLES],
            next: 0,
            rate: 0,
            plateaus: 0,
            lost: 0,
        }
    }

    pub(super) fn window(&self) -> u64 {
        self.window
    }

    /// Bytes per second.
    pub(super) fn pace(&self, rtt: Duration) -> u64 {
        let rate = u128::from(scaled(self.window, PACE)) * 1_000_000_000 / rtt.as_nanos().max(1);
        u64::try_from(rate).unwrap_or(u64::MAX)
    }

    /// True if start-up is over.
    pub(super) fn on_ack(
        &mut self,
        ack: &AckSample,
        round_ended: bool,
        model: &Model,
        losses: &Losses,
        mtu: u64,
    ) -> bool {
        let used = ack.in_flight + ack.newly_acked + 3 * mtu >= self.window / 2;
        let limited = ack.app_limited || ack.rate.is_some_and(|sample| sample.app_limited);
        let queued = self.sees_queue(ack, model.min_rtt());
        let lossy = losses.exceeds(self.lost, LOSS_STEP, mtu);
        if queued || lossy {
            return true;
        }
        if used && !ack.app_limited {
            self.window += scaled(ack.newly_acked, GROWTH);
        }
        round_ended && self.end_round(limited, model, losses, mtu)
    }

    fn end_round(&mut self, limited: bool, model: &Model, losses: &Losses, mtu: u64) -> bool {
        self.lost = losses.share(mtu).unwrap_or(0).max(self.lost);
        if limited {
            return false;
        }
        let rate = model.last_rate();
        if rate >= scaled(self.rate, PLATEAU) {
            self.rate = rate;
            self.plateaus = 0;
        } else {
            self.plateaus += 1;
        }
        self.plateaus >= 2
    }

    fn sees_queue(&mut self, ack: &AckSample, least: Duration) -> bool {
        let Some(rtt) = ack.rtt else { return false };
        self.recent[self.next] = rtt;
        self.next = (self.next + 1) % SAMPLES;
        let lowest = self.recent.into_iter().min().unwrap_or_default();
        lowest >= least + (least / 8).clamp(MIN_THRESHOLD, MAX_THRESHOLD)
    }
}
