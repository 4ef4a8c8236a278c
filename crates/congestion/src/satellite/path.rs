//! What is seen of the path: its round-trip time without queue, the queue now, and the rate at which it delivers.
//!
//! Fed on the data path by every ACK frame. It decides nothing: how fast to send is `cruise.rs`'s business.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::super::{AckSample, RateSample, rate_of};
use super::jumps::{Jump, Jumps};
use super::noise::Noise;

/// The arrival rate of ACKs is taken over this share of a round trip, which brings several, and at least so long,
const FRESH_SHARE: u32 = 3;
const FRESH_LEAST: Duration = Duration::from_millis(30);
/// or so many times as long as round-trip times vary,
const FRESH_NOISES: u32 = 40;
/// or from so many ACKs.
const FRESH_ACKS: usize = 4;
/// The smallest round-trip time is that of the last one to two spans.
const RTT_SPAN: Duration = Duration::from_secs(60);
/// Low orbits change their distance all the time, and their beam every 15 s.
const SHORT_SPAN: Duration = Duration::from_millis(2500);
/// In company the queue is empty now and then only, when all have waited for it.
const SHARED_SPAN: Duration = Duration::from_secs(30);
/// Longer ones are those of a high orbit.
const SHORT_RTT: Duration = Duration::from_millis(200);
/// A path that moved is expected to move again for so long.
const MOVES: Duration = Duration::from_secs(60);
/// What it changes by at most, but for what was seen.
const STEP: Duration = Duration::from_millis(200);
/// So many round trips after a jump it may turn out to be another path.
const DOUBT: u32 = 6;
/// An ACK is delayed no longer than this.
const MAX_SPACING: Duration = Duration::from_millis(80);
/// Rounds after a rest in which the path may turn out to be no longer than it was.
const TRIAL: u32 = 5;
/// A queue of this part of a round trip shows it.
const FILLING: u32 = 4;
/// Rounds whose round-trip times must all differ, standard deviations by which those of a round do, and what matters of one.
const SPREADS: usize = 3;
const DEVIATIONS: u32 = 4;
const LOUD: Duration = Duration::from_millis(2);
/// ACKs whose round-trip times say whether the queue is empty now.
const RECENT: usize = 4;

/// What a whole round showed. Rates are bytes per second.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Round {
    /// Smallest round-trip time, and by how much the longest was longer.
    pub(super) rtt: Option<Duration>,
    pub(super) spread: Duration,
    /// Mean rate at which acknowledgements came for what a busy sender sent; 0 if it never was busy.
    pub(super) rate: u64,
    /// Mean rate at which the same bytes had been sent, without those that were lost.
    pub(super) sent: u64,
}

/// The mean of a few numbers.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    sum: u128,
    count: u128,
}

impl Mean {
    fn add(&mut self, value: u64) {
        self.sum += u128::from(value);
        self.count += 1;
    }

    fn take(&mut self) -> u64 {
        let mean = self.sum.checked_div(self.count).unwrap_or(0);
        *self = Self::default();
        u64::try_from(mean).unwrap_or(u64::MAX)
    }
}

/// State of the path. Rates are bytes per second, of what arrives.
#[derive(Clone, Debug)]
pub(super) struct Path {
    rtts: [Option<Duration>; 2],
    span_started: Instant,
    initial_rtt: Duration,
    spacing: Duration,
    shared: bool,
    held: bool,
    /// When it was last found to have moved.
    moved_at: Option<Instant>,
    jumps: Jumps,
    recent: [Duration; RECENT],
    next: usize,
    round_rtt: Option<Duration>,
    /// The longest of the round, and what the two differed by in the last steady rounds.
    round_most: Duration,
    spreads: [Duration; SPREADS],
    noise: Noise,
    rates: Mean,
    sends: Mean,
    /// When ACKs came, and how much was acknowledged by then.
    arrivals: VecDeque<(Instant, u64)>,
    acked: u64,
    heard_at: Instant,
    /// The round-trip time before a rest, and rounds since then.
    before_rest: Option<(Duration, u32)>,
}

impl Path {
    pub(super) fn new(initial_rtt: Duration, now: Instant) -> Self {
        Self {
            rtts: [None; 2],
            span_started: now,
            initial_rtt: initial_rtt.max(Duration::from_millis(1)),
            spacing: Duration::ZERO,
            shared: false,
            held: false,
            moved_at: None,
            jumps: Jumps::default(),
            recent: [Duration::ZERO; RECENT],
            next: 0,
            round_rtt: None,
            round_most: Duration::ZERO,
            spreads: [Duration::ZERO; SPREADS],
            noise: Noise::new(),
            rates: Mean::default(),
            sends: Mean::default(),
            arrivals: VecDeque::new(),
            acked: 0,
            heard_at: now,
            before_rest: None,
        }
    }

    pub(super) fn on_ack(&mut self, ack: &AckSample) {
        self.acked += ack.newly_acked;
        self.heard_at = ack.now;
        let Some(rtt) = ack.rtt else { return };
        if is_busy(ack) {
            self.look_for_jump(ack.now, rtt);
        }
        let span = if self.shared && !self.is_far() {
            SHARED_SPAN
        } else if !self.is_far() {
            SHORT_SPAN
        } else {
            RTT_SPAN
        };
        if self.held {
            self.span_started = ack.now;
        } else if ack.now.saturating_duration_since(self.span_started) > span {
            // After idle the old span is as good as a new one: nothing newer contradicts it.
            if let Some(present) = self.rtts[1].take() {
                self.rtts[0] = Some(present);
            }
            self.span_started = ack.now;
        }
        self.arrivals.push_back((ack.now, self.acked));
        let recent = self.fresh_span();
        while self
            .arrivals
            .get(1)
            .is_some_and(|(at, _)| ack.now.saturating_duration_since(*at) >= recent)
        {
            self.arrivals.pop_front();
        }
        // A lone packet's ACK is delayed in full; a busy sender's hardly.
        if is_busy(ack) || self.rtts == [None; 2] || rtt < self.base() {
            self.rtts[1] = Some(self.rtts[1].map_or(rtt, |least| least.min(rtt)));
            self.round_rtt = Some(self.round_rtt.map_or(rtt, |least| least.min(rtt)));
            self.round_most = self.round_most.max(rtt);
            self.recent[self.next] = rtt;
            self.next = (self.next + 1) % RECENT;
        }
        // The last ACK of a transfer is delayed as well.
        let sample = ack
            .rate
            .filter(|sample| !sample.app_limited && !ack.app_limited);
        if let Some(sample) = sample.filter(|sample| is_plausible(sample, rtt)) {
            self.rates.add(rate_of(sample.delivered, sample.acked_in));
            self.sends.add(rate_of(sample.delivered, sample.sent_in));
        }
    }

    pub(super) fn end_round(&mut self) -> Round {
        self.before_rest = self
            .before_rest
            .map(|(rtt, rounds)| (rtt, rounds + 1))
            .filter(|(_, rounds)| *rounds < TRIAL);
        let most = std::mem::take(&mut self.round_most);
        Round {
            spread: self.round_rtt.map_or(most, |rtt| most.saturating_sub(rtt)),
            rtt: self.round_rtt.take(),
            rate: self.rates.take(),
            sent: self.sends.take(),
        }
    }

    /// The round-trip time without queue.
    pub(super) fn base(&self) -> Duration {
        self.measured()
            .unwrap_or(self.initial_rtt)
            .max(Duration::from_micros(1))
    }

    /// The same, if it was measured.
    pub(super) fn measured(&self) -> Option<Duration> {
        self.rtts.into_iter().flatten().min()
    }

    /// The path became longer (or shorter): its round-trip time without queue is `rtt`.
    pub(super) fn adopt(&mut self, rtt: Duration, now: Instant) {
        if rtt > self.base() {
            self.moved_at = Some(now);
        }
        self.rtts = [None, Some(rtt)];
        self.span_started = now;
    }

    /// Nothing was in flight: there is no queue of ours.
    pub(super) fn rest(&mut self, now: Instant) {
        let idle = now.saturating_duration_since(self.heard_at);
        if !self.is_far() && idle > SHORT_SPAN && !self.held {
            // In a low orbit it is another path by now.
            self.before_rest = self.measured().map(|rtt| (rtt, 0));
            self.initial_rtt = self.base();
            self.rtts = [None; 2];
        }
        self.jumps.rest();
        self.recent = [self.base(); RECENT];
        self.round_rtt = None;
        self.round_most = Duration::ZERO;
        self.arrivals.clear();
    }

    /// Packets arrive this far apart: so long may the newest of an ACK have waited for it.
    pub(super) fn set_spacing(&mut self, spacing: Duration) {
        self.spacing = spacing.min(MAX_SPACING);
    }

    /// Too much is sent. Soon after a rest that means: the path did not become longer, somebody fills it.
    pub(super) fn on_overload(&mut self, now: Instant) {
        if let Some((rtt, _)) = self.before_rest.take()
            && rtt < self.base()
        {
            self.adopt(rtt, now);
        }
    }

    /// The queue grows to a part of the round trip.
    pub(super) fn is_filling(&self) -> bool {
        self.before_rest.is_some() && self.queue_least() > self.base() / FILLING
    }

    /// By how much it may become longer from one packet to the next: until ACKs come again there is to be something to send.
    pub(super) fn step(&self) -> Duration {
        if self.moves() || self.has_jumped() {
            self.jumps.step().max(STEP)
        } else {
            Duration::ZERO
        }
    }

    /// Of a busy sender's ACK, before anything else is made of it.
    fn look_for_jump(&mut self, now: Instant, rtt: Duration) {
        let base = self.measured();
        let jump = if self.base() < SHORT_RTT {
            self.jumps.on_short(now, rtt, base, self.shared)
        } else if self.shared {
            None
        } else {
            self.jumps.on_ack(now, rtt, base)
        };
        let Some(jump) = jump else {
            return;
        };
        if jump == Jump::Down {
            self.moved_at = Some(now);
        }
        // The gap, or the crowd, of ACKs is no rate.
        self.arrivals.clear();
    }

    /// Queues that start-up met are its own.
    pub(super) fn forget_jumps(&mut self) {
        self.jumps.forget();
    }

    /// Its round-trip time jumped after `since`.
    pub(super) fn jumped_after(&self, since: Instant) -> bool {
        self.jumps.last().is_some_and(|at| at > since)
    }

    /// It may have become longer just now.
    pub(super) fn is_in_doubt(&self) -> bool {
        !self.is_far() || self.has_jumped()
    }

    /// Its round-trip time jumped lately.
    pub(super) fn has_jumped(&self) -> bool {
        self.jumps
            .last()
            .is_some_and(|at| self.heard_at.saturating_duration_since(at) < self.base() * DOUBT)
    }

    /// Its length changes.
    pub(super) fn moves(&self) -> bool {
        self.moved_at
            .is_some_and(|at| self.heard_at.saturating_duration_since(at) < MOVES)
    }

    /// It moved, at any time, as far as is known.
    pub(super) fn has_moved(&self) -> bool {
        self.moved_at.is_some() || self.jumps.last().is_some()
    }

    /// Its length changes, or a short one seems to have changed just now: a queue tells of nobody else.
    pub(super) fn may_move(&self) -> bool {
        self.moves() || self.base() < SHORT_RTT && self.has_jumped()
    }

    /// Its round trips are long, and it stays where it is.
    pub(super) fn is_far(&self) -> bool {
        self.base() >= SHORT_RTT && !self.moves()
    }

    /// Somebody fills the queue: what was the smallest round-trip time still is.
    pub(super) fn hold(&mut self, held: bool) {
        self.held = held;
    }

    /// The queue is that of others, too.
    pub(super) fn set_shared(&mut self, shared: bool) {
        self.shared = shared;
    }

    /// A round ended; `steady` if it was sent like the one before, so that what differs is the path's own.
    pub(super) fn compare(&mut self, round: Round, steady: bool) {
        if !self.is_far() {
            self.noise
                .on_round(round.rtt.filter(|_| steady), self.base());
        } else if steady {
            self.spreads.rotate_left(1);
            self.spreads[SPREADS - 1] = round.spread;
        }
    }

    /// By how much round-trip times differ although the queue does not. Where they are long all of it is our queue.
    pub(super) fn noise(&self) -> Duration {
        if self.is_far() {
            Duration::ZERO
        } else {
            self.noise.get(self.spacing)
        }
    }

    /// The same where it is to be told from a queue: never nothing where it may not have shown yet. Where round trips are
    /// long it shows within one, and ACKs that wait for a return link's frames differ by much.
    pub(super) fn audible(&self) -> Duration {
        if self.is_far() {
            let spread = self.spreads.into_iter().min().unwrap_or_default();
            Some(spread / DEVIATIONS)
                .filter(|noise| *noise >= LOUD)
                .unwrap_or_default()
        } else {
            self.noise.at_worst(self.spacing)
        }
    }

    /// The round-trip time of the queue behind `rtt`.
    pub(super) fn queue(&self, rtt: Duration) -> Duration {
        rtt.saturating_sub(self.base() + self.spacing + self.noise() * 2)
    }

    /// The smallest of the last round-trip times.
    pub(super) fn rtt_least(&self) -> Duration {
        self.recent.into_iter().min().unwrap_or_default()
    }

    /// The smallest queue that the last ACKs saw.
    pub(super) fn queue_least(&self) -> Duration {
        self.queue(self.rtt_least())
    }

    /// Nothing that came before says what the path is like now.
    pub(super) fn forget_arrivals(&mut self) {
        let now = self.arrivals.pop_back();
        self.arrivals.clear();
        self.arrivals.extend(now);
    }

    /// Over how long the arrival rate of ACKs is taken.
    fn fresh_span(&self) -> Duration {
        (self.base() / FRESH_SHARE)
            .max(FRESH_LEAST)
            .max(self.noise() * FRESH_NOISES)
    }

    /// At what rate acknowledgements came lately; `None` until enough did.
    pub(super) fn fresh_rate(&self) -> Option<u64> {
        let (first, before) = *self.arrivals.front()?;
        let (last, after) = *self.arrivals.back()?;
        let span = last.saturating_duration_since(first);
        let enough = span >= self.fresh_span() / 2;
        // What varies while ACKs are under way stretches and presses them.
        let many = self.arrivals.len() >= FRESH_ACKS && self.noise().is_zero();
        (enough || many).then(|| rate_of(after - before, span))
    }
}

/// What is acknowledged was sent by a sender that had more to send.
pub(super) fn is_busy(ack: &AckSample) -> bool {
    ack.rate
        .map_or(!ack.app_limited, |sample| !sample.app_limited)
}

/// A sample that spans much more than a round trip measured a silence (an outage), not the path.
fn is_plausible(sample: &RateSample, rtt: Duration) -> bool {
    !is_outage(sample.interval, rtt)
}

/// True if `silence` is longer than what delays an answer on a path with round trips of `rtt`.
pub(super) fn is_outage(silence: Duration, rtt: Duration) -> bool {
    silence > rtt * 2 + Duration::from_millis(100)
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "one base instant; all else is virtual"
)]
mod tests;
