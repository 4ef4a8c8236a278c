//! Start-up: from the initial window to the path's rate.
//!
//! The window grows with every byte acknowledged, and is sent within less than a round trip, so that the queue it builds
//! shows in the round-trip time of that very flight. It ends on a plateau of the delivery rate, on a queue, or on
//! losses that grow with the rate. It does not know what follows.
//!
//! A rate that was learned before or that is sold shortens it, and so does one that the peer saw a train of packets
//! arrive at (`dispersion.rs`). Such a rate is not believed further than this:
//! - The first round trip is sent at a part of it, evenly spread (RFC 9959 §4.2), and not in excess of a bound in bytes.
//! - What comes back decides: a queue or losses end start-up, at the rate at which the flight arrived.
//! - If it arrived as it was sent, the pace goes on to a fiftieth above the measured rate. A short queue must answer to
//!   that, and then the rate is known; if none does, the measurement was too low, and counts no
//!   longer: a train sees neither a terminal's allotment that grows with its demand nor what was idle while it passed.

use std::time::{Duration, Instant};

use crate::ablation::Part;

use super::super::{AckSample, bytes_in, rate_of, scaled};
use super::losses::Losses;
use super::path::{FAR, Path, Round};
use super::{DRAIN, RETREAT};

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
/// A round that is less than this faster than the one before, in permille, is a plateau.
const PLATEAU: u64 = 1250;
/// ACKs in a row that must show a queue.
const SAMPLES: u32 = 2;
/// Share of a round trip for which they must where nobody has measured the path's rate: a first ACK is delayed, and the next
/// ones with it if the return link has to be asked for capacity.
const WATCHED: u32 = 8;
/// Threshold of the queue: an eighth of the round trip, as long as the ACK delay, within these bounds.
const LONG_THRESHOLD: u32 = 8;
const MIN_THRESHOLD: Duration = Duration::from_millis(8);
const MAX_THRESHOLD: Duration = Duration::from_millis(75);
/// Threshold, as a part of a round trip, for the queue that is looked for where the path's rate was measured.
const SHORT_THRESHOLD: u32 = 64;
/// Pacing while that is looked for, and delivery that refutes the measured rate, in permille of it.
const ABOVE: u64 = 1020;
const REFUTED: u64 = 1010;
/// A queue of this part of a round trip that a flight's first packets meet is that of others.
const STOOD: u32 = 8;
/// Share of a round trip that a first flight is judged by.
const JUDGED: u32 = 4;
/// A flight that nothing is known of is no larger than this, whatever was measured, remembered or sold.
const MOST_JUMP: u64 = 32 << 20;
/// Rounds in which a queue that is somebody else's grows by as much as is sent, and the path's own length does not.
const DOUBT: u32 = 2;
/// A share of losses that grows by this from one round to the next is congestion.
const LOSS_STEP: f64 = 0.1;

#[derive(Clone, Copy, Debug)]
struct Growth {
    window: u64,
    pace: u64,
}

/// When a flight begins to be answered: the first ACK is delayed.
fn late(rtt: Duration) -> Duration {
    rtt + rtt / 8
}

/// Bytes in flight that fill a path of `rate` bytes per second so that it shows as a queue, while ACKs are a little late.
fn fill(rate: u64, rtt: Duration) -> u64 {
    bytes_in(scaled(rate, ABOVE), rtt + rtt / 4 + MAX_THRESHOLD)
}

fn growth(rtt: Duration) -> Growth {
    if Part::LongGrowth.or(rtt >= FAR, false) {
        LONG
    } else {
        SHORT
    }
}

/// Reason why start-up ends.
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
    /// Bytes per second that the path can carry, as far as that was measured.
    limit: Option<u64>,
    /// When what is in flight began to leave.
    flight_at: Instant,
    /// When ACKs began to show a queue, and how many did.
    queued: Option<(Instant, u32)>,
    /// Smallest round-trip times of this round and of the last one: a queue that stood before is not ours.
    round_rtt: Option<Duration>,
    last_rtt: Option<Duration>,
    /// Highest rate of the rounds before, and how many rounds were no faster.
    rate: u64,
    plateaus: u32,
    /// Share of losses in earlier rounds.
    lost: f64,
    /// The flight's first packets met a queue, once they are answered.
    stood: Option<bool>,
    /// Rounds for which the window stays as it is, until it is clear whose queue it is.
    doubt: u32,
}

impl Startup {
    pub(super) fn new(window: u64, now: Instant) -> Self {
        Self {
            window,
            hint: None,
            limit: None,
            flight_at: now,
            queued: None,
            round_rtt: None,
            last_rtt: None,
            rate: 0,
            plateaus: 0,
            lost: 0.0,
            stood: None,
            doubt: 0,
        }
    }

    /// Goes on with `window` in flight and round-trip times of `rtt`, behind what may be the queue of somebody who fills it.
    pub(super) fn behind(window: u64, rtt: Option<Duration>, now: Instant) -> Self {
        Self {
            last_rtt: rtt,
            doubt: Part::StartupDoubt.or(DOUBT, 0),
            ..Self::new(window, now)
        }
    }

    /// If a queue ends it now, that is not only its own.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.doubt > 0
    }

    /// The path is believed to be free up to `rate` bytes per second.
    pub(super) fn jump(&mut self, now: Instant, rate: u64, rtt: Duration) {
        self.flight_at = now;
        self.stood = None;
        let rate = rate.min(rate_of(MOST_JUMP, rtt));
        self.hint = self.hint.max(Some(rate));
        self.window = self.window.max(bytes_in(rate, late(rtt)));
    }

    /// The path was measured to carry `rate` bytes per second.
    pub(super) fn measured(&mut self, rate: u64) {
        self.limit = Some(rate);
    }

    /// A thin path, of `rate` bytes per second and `rtt`, holds less than the window: what is more would be dropped by its queue.
    pub(super) fn narrow(&mut self, rate: u64, rtt: Duration) {
        let full = fill(rate, rtt);
        if full < self.window {
            self.measured(rate);
            self.window = full;
        }
    }

    /// Nothing was in flight at `now`: a flight begins.
    pub(super) fn begin_flight(&mut self, now: Instant) {
        self.flight_at = now;
        self.stood = None;
    }

    /// Begins anew at `now` after an outage: the flight that was lost in it says nothing of the path. A rate that the path is
    /// believed or was measured to carry is kept; `window` and `rtt` are the initial window and the shortest round trip.
    pub(super) fn restart(&mut self, now: Instant, window: u64, rtt: Duration) {
        let jump = self.hint.map_or(0, |hint| bytes_in(hint, late(rtt)));
        *self = Self {
            hint: self.hint,
            limit: self.limit,
            ..Self::new(window.max(jump), now)
        };
    }

    /// A flight at a rate that was not tried before is judged when a part of it is answered, so that its answers have a rate:
    /// the queue may have stood before.
    fn is_answered(&self, sent: Instant, rtt: Duration) -> bool {
        let early = self.hint.is_some() && sent < self.flight_at + rtt / JUDGED;
        !Part::Answered.or(early, false)
    }

    /// True if the source of what `ack` is about gave as much as a rate that is believed to be free permits, or nearly so. A source that
    /// gives less leaves acknowledgements to the peer's timer, and that delay is no queue.
    fn was_filled(&self, ack: &AckSample, mtu: u64) -> bool {
        let (Some(hint), Some(sample)) = (self.hint, ack.rate) else {
            return true;
        };
        let span = ack.newest_sent.saturating_duration_since(self.flight_at);
        let permitted = bytes_in(hint, span).min(self.window);
        // The first flight after a rest counts as app-limited, however fast it left.
        let full = !sample.app_limited || sample.at_send.in_flight + 3 * mtu >= permitted / 2;
        Part::SlowSource.or(full, true)
    }

    /// The rate that a flight with a free rate ahead of it has shown when packets sent until `sent` came back behind
    /// `queue`: what was sent meanwhile, without what still waits.
    pub(super) fn shown(&self, sent: Instant, queue: Duration) -> u64 {
        let span = sent.saturating_duration_since(self.flight_at);
        let through = span.saturating_sub(queue);
        self.hint
            .map_or(0, |hint| rate_of(bytes_in(hint, through), span))
    }

    /// What the path was measured to carry, unless that turned out to be too low.
    pub(super) fn limit(&self) -> Option<u64> {
        self.limit
    }

    /// `rate` is what the path was measured to carry, or nearly so.
    pub(super) fn is_as_measured(&self, rate: u64) -> bool {
        self.limit.is_some_and(|limit| rate >= scaled(limit, 900))
    }

    /// A queue stood before the flight met it.
    pub(super) fn met_queue(&self) -> bool {
        Part::MetQueue.or(self.stood == Some(true), false)
    }

    /// How fast to go on, in permille of what arrives, after losses or a mark: a rate that was nothing but believed is not tried
    /// again.
    pub(super) fn retreat(&self) -> u64 {
        if self.hint.is_some() {
            Part::Retreat.or(RETREAT, DRAIN)
        } else {
            DRAIN
        }
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
            .map(|hint| hint.max(rate_of(self.window, late(rtt))));
        let pace = spread.map_or(pace, |spread| pace.min(spread));
        self.limit
            .map_or(pace, |limit| pace.min(scaled(limit, ABOVE)))
    }

    /// Reason why start-up is over, if it is.
    pub(super) fn on_ack(
        &mut self,
        ack: &AckSample,
        round: Option<Round>,
        path: &Path,
        losses: &Losses,
        mtu: u64,
    ) -> Option<End> {
        if let Some(rtt) = ack.rtt.filter(|_| self.stood.is_none())
            && ack.newest_sent >= self.flight_at
        {
            self.stood = Some(rtt > path.base() + path.base() / STOOD);
        }
        let used = ack.in_flight + ack.newly_acked + 3 * mtu >= self.window / 2;
        if round.is_some() && self.doubt > 0 {
            self.doubt -= 1;
        } else if round.is_some() {
            self.last_rtt = self.round_rtt.take();
        }
        // A queue is ours only if we fill the window.
        let seen = self.sees_queue(ack, path.base()) && used && self.was_filled(ack, mtu);
        let queued = Part::StartupQueue.or(seen, false);
        // With a limit the rate of arrival is compared: the first ACKs have none, which is no sign of others. Where ACKs are rare
        // there never is one.
        let waited = |(since, _)| ack.now.saturating_duration_since(since) >= path.base();
        let is_comparable =
            self.limit.is_none() || path.fresh_rate().is_some() || self.queued.is_some_and(waited);
        if queued && !(is_comparable && self.is_answered(ack.newest_sent, path.base())) {
            return None;
        }
        let lossy = Part::StartupLoss.or(losses.exceeds_share(self.lost, LOSS_STEP), false);
        if queued || lossy {
            return Some(if lossy { End::Loss } else { End::Queue });
        }
        if used && !ack.app_limited && self.doubt == 0 {
            self.window += scaled(ack.newly_acked, growth(path.base()).window);
            if let Some(limit) = self.limit {
                self.window = self.window.min(fill(limit, path.base()));
            }
        }
        let plateau = round.is_some_and(|round| self.doubt == 0 && self.end_round(round, losses));
        plateau.then_some(End::Plateau)
    }

    fn end_round(&mut self, round: Round, losses: &Losses) -> bool {
        self.lost = losses.share_of_last().unwrap_or(0.0).max(self.lost);
        if round.rate == 0 {
            return false;
        }
        if let Some(limit) = self.limit
            && Part::Refuted.or(round.rate >= scaled(limit, REFUTED), false)
        {
            (self.limit, self.hint) = (None, None);
        }
        if round.rate >= scaled(self.rate, PLATEAU) {
            self.rate = round.rate;
            self.plateaus = 0;
        } else {
            self.plateaus += 1;
        }
        Part::Plateau.or(self.plateaus >= 2, false)
    }

    fn sees_queue(&mut self, ack: &AckSample, least: Duration) -> bool {
        let Some(rtt) = ack.rtt else { return false };
        self.round_rtt = Some(self.round_rtt.map_or(rtt, |least| least.min(rtt)));
        let Some(before) = self.last_rtt else {
            return false;
        };
        let (part, watched) = if self.limit.is_some() {
            (SHORT_THRESHOLD, Duration::ZERO)
        } else {
            (LONG_THRESHOLD, least / WATCHED)
        };
        let threshold = (least / part).clamp(MIN_THRESHOLD, MAX_THRESHOLD);
        if rtt < before.saturating_sub(least) / 2 + least + threshold {
            self.queued = None;
            return false;
        }
        let (since, count) = self.queued.unwrap_or((ack.now, 0));
        self.queued = Some((since, count + 1));
        count + 1 >= SAMPLES && ack.now.saturating_duration_since(since) >= watched
    }
}
