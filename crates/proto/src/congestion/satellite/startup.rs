//! Start-up: from the initial window to the path's rate.
//!
//! The window grows with every byte acknowledged, and is sent within less than a round trip, so that the queue it builds
//! shows in the round-trip time of that very flight. It ends on a plateau of the delivery rate, on a queue, or on
//! losses that grow with the rate. A rate that the peer measured, that was learned before or that is sold shortens it.
//! It does not know what follows.

use std::time::Duration;

use super::super::{AckSample, bytes_in, rate_of, scaled};
use super::losses::Losses;
use super::path::{Path, Round};

/// Bytes by which the window grows per byte acknowledged, in permille, and pacing, in permille of window per round trip:
/// ×2.8 per round where a round is long, ×2 where more rounds cost little and overshoot much.
const LONG: Growth = Growth {
    window: 1800,
    pace: 2800,
};
const SHORT: Growth = Growth {
    window: 1000,
    pace: 2000,
};
/// From here on a round trip is long.
const LONG_RTT: Duration = Duration::from_millis(200);
/// A round that is less than this faster than the one before, in permille, is a plateau.
const PLATEAU: u64 = 1250;
/// ACKs whose smallest round-trip time must show a queue.
const SAMPLES: usize = 2;
/// Threshold of the queue: an eighth of the round trip, as long as the ACK delay, within these bounds.
const MIN_THRESHOLD: Duration = Duration::from_millis(8);
const MAX_THRESHOLD: Duration = Duration::from_millis(75);
/// A share of losses that grows by this from one round to the next is congestion.
const LOSS_STEP: f64 = 0.1;

#[derive(Clone, Copy, Debug)]
struct Growth {
    window: u64,
    pace: u64,
}

fn growth(rtt: Duration) -> Growth {
    if rtt >= LONG_RTT { LONG } else { SHORT }
}

/// Why start-up ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Queue,
    Loss,
    Plateau,
}

/// State of start-up.
#[derive(Clone, Debug)]
pub(super) struct Startup {
    window: u64,
    /// Bytes per second up to which the path is believed to be free.
    hint: Option<u64>,
    recent: [Duration; SAMPLES],
    next: usize,
    /// Smallest round-trip times of this round and of the last one: a queue that stood before is not ours.
    round_rtt: Option<Duration>,
    last_rtt: Option<Duration>,
    /// Highest rate of the rounds before, and how many rounds were no faster.
    rate: u64,
    plateaus: u32,
    /// Share of losses in earlier rounds.
    lost: f64,
}

impl Startup {
    pub(super) fn new(window: u64) -> Self {
        Self {
            window,
            hint: None,
            recent: [Duration::ZERO; SAMPLES],
            next: 0,
            round_rtt: None,
            last_rtt: None,
            rate: 0,
            plateaus: 0,
            lost: 0.0,
        }
    }

    /// The path is believed to carry `rate` bytes per second.
    pub(super) fn jump(&mut self, rate: u64, rtt: Duration) {
        self.hint = Some(rate);
        self.window = self.window.max(bytes_in(rate, rtt));
    }

    /// The highest rate of a whole round.
    pub(super) fn rate(&self) -> u64 {
        self.rate
    }

    pub(super) fn window(&self) -> u64 {
        self.window
    }

    /// Bytes per second.
    pub(super) fn pace(&self, rtt: Duration) -> u64 {
        let pace = rate_of(scaled(self.window, growth(rtt).pace), rtt);
        // A window that jumped is spread over the round trip; what grew beyond it was confirmed.
        let spread = self
            .hint
            .map(|hint| hint.max(rate_of(scaled(self.window, 1100), rtt)));
        spread.map_or(pace, |spread| pace.min(spread))
    }

    /// Why start-up is over, if it is.
    pub(super) fn on_ack(
        &mut self,
        ack: &AckSample,
        round: Option<Round>,
        path: &Path,
        losses: &Losses,
        mtu: u64,
    ) -> Option<End> {
        let used = ack.in_flight + ack.newly_acked + 3 * mtu >= self.window / 2;
        if round.is_some() {
            self.last_rtt = self.round_rtt.take();
        }
        // A queue is ours only if we fill the window.
        let queued = self.sees_queue(ack, path.base()) && used;
        let lossy = losses.exceeds_share(self.lost, LOSS_STEP);
        if queued || lossy {
            return Some(if lossy { End::Loss } else { End::Queue });
        }
        if used && !ack.app_limited {
            self.window += scaled(ack.newly_acked, growth(path.base()).window);
        }
        let plateau = round.is_some_and(|round| self.end_round(round, losses));
        plateau.then_some(End::Plateau)
    }

    fn end_round(&mut self, round: Round, losses: &Losses) -> bool {
        self.lost = losses.share_of_last().unwrap_or(0.0).max(self.lost);
        if round.rate == 0 {
            return false;
        }
        if round.rate >= scaled(self.rate, PLATEAU) {
            self.rate = round.rate;
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
        self.round_rtt = Some(self.round_rtt.map_or(rtt, |least| least.min(rtt)));
        let Some(before) = self.last_rtt else {
            return false;
        };
        lowest
            >= before.saturating_sub(least) / 2
                + least
                + (least / 8).clamp(MIN_THRESHOLD, MAX_THRESHOLD)
    }
}
