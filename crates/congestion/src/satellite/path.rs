//! What is seen of the path: its round-trip time without queue, the queue now, and the rate at which it delivers.
//!
//! Fed on the data path by every ACK frame. It decides nothing: how fast to send is `cruise.rs`'s business.

mod observed;

use std::time::{Duration, Instant};

use crate::ablation::Part;

use super::super::{AckSample, rate_of};
use super::jumps::{Jump, Jumps};
use super::noise::Noise;
use observed::{Arrivals, LeastRtt, PresentRound, RecentRtts};

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
/// Round-trip time from which on a path is long, as that of a high orbit is: a round more costs much, and the path stays where it is.
pub(super) const FAR: Duration = Duration::from_millis(200);
/// Round-trip time below which a path is a low orbit's: its length changes more, and sooner, than a common queue would tell.
pub(super) const NEAR: Duration = Duration::from_millis(100);
/// A path that moved is expected to move again for so long.
const MOVES: Duration = Duration::from_secs(60);
/// What it changes by at most, but for what was seen.
const STEP: Duration = Duration::from_millis(200);
/// Round trips after a jump within which the path may turn out to be another path.
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

/// State of the path. Rates are bytes per second, of what arrives.
#[derive(Clone, Debug)]
pub(super) struct Path {
    least: LeastRtt,
    spacing: Duration,
    shared: bool,
    held: bool,
    /// Instant at which it was last found to have moved.
    moved_at: Option<Instant>,
    jumps: Jumps,
    recent: RecentRtts,
    round: PresentRound,
    /// What the smallest and the longest round-trip time of the last steady rounds differed by.
    spreads: [Duration; SPREADS],
    noise: Noise,
    arrivals: Arrivals,
    heard_at: Instant,
    /// The round-trip time before a rest, and rounds since then.
    before_rest: Option<(Duration, u32)>,
}

impl Path {
    pub(super) fn new(initial_rtt: Duration, now: Instant) -> Self {
        Self {
            least: LeastRtt::new(initial_rtt, now),
            spacing: Duration::ZERO,
            shared: false,
            held: false,
            moved_at: None,
            jumps: Jumps::default(),
            recent: RecentRtts::default(),
            round: PresentRound::default(),
            spreads: [Duration::ZERO; SPREADS],
            noise: Noise::new(),
            arrivals: Arrivals::default(),
            heard_at: now,
            before_rest: None,
        }
    }

    pub(super) fn on_ack(&mut self, ack: &AckSample) {
        self.arrivals.count(ack.newly_acked);
        self.heard_at = ack.now;
        let Some(rtt) = ack.rtt else { return };
        if is_busy(ack) {
            self.look_for_jump(ack.now, rtt);
        }
        let span = if self.shared && !self.is_far() {
            Part::SharedSpan.or(SHARED_SPAN, SHORT_SPAN)
        } else if !self.is_far() {
            Part::ShortSpan.or(SHORT_SPAN, RTT_SPAN)
        } else {
            RTT_SPAN
        };
        if self.held {
            self.least.hold(ack.now);
        } else {
            self.least.advance(ack.now, span);
        }
        self.arrivals.add(ack.now);
        self.arrivals.trim(ack.now, self.fresh_span());
        // A lone packet's ACK is delayed in full; a busy sender's hardly.
        if is_busy(ack) || self.least.measured().is_none() || rtt < self.base() {
            self.least.add(rtt);
            self.round.add_rtt(rtt);
            self.recent.add(rtt);
        }
        // The last ACK of a transfer is delayed as well.
        let sample = ack
            .rate
            .filter(|sample| !sample.app_limited && !ack.app_limited);
        // One that spans much more than a round trip measured a silence (an outage), not the path.
        if let Some(sample) = sample.filter(|sample| !is_outage(sample.interval, rtt)) {
            self.round.add_rate(&sample);
        }
    }

    pub(super) fn end_round(&mut self) -> Round {
        self.before_rest = self
            .before_rest
            .map(|(rtt, rounds)| (rtt, rounds + 1))
            .filter(|(_, rounds)| *rounds < TRIAL);
        self.round.end()
    }

    /// The round-trip time without queue.
    pub(super) fn base(&self) -> Duration {
        self.least.get()
    }

    /// Smallest round-trip time, if one was measured.
    pub(super) fn measured(&self) -> Option<Duration> {
        self.least.measured()
    }

    /// The path became longer (or shorter): its round-trip time without queue is `rtt`.
    pub(super) fn adopt(&mut self, rtt: Duration, now: Instant) {
        if rtt > self.base() {
            self.moved_at = Some(now);
        }
        self.least.set(rtt, now);
    }

    /// Nothing was in flight: there is no queue of ours.
    pub(super) fn rest(&mut self, now: Instant) {
        let idle = now.saturating_duration_since(self.heard_at);
        if !self.is_far() && idle > SHORT_SPAN && !self.held {
            // In a low orbit it is another path by now.
            self.before_rest = self.measured().map(|rtt| (rtt, 0));
            self.least.forget();
        }
        self.jumps.rest();
        self.recent.fill(self.base());
        self.round.forget_rtts();
        self.arrivals.clear();
    }

    /// Packets arrive this far apart: so long may the newest of an ACK have waited for it.
    pub(super) fn set_spacing(&mut self, spacing: Duration) {
        self.spacing = spacing.min(MAX_SPACING);
    }

    /// Too much is sent. Soon after a rest that means: the path did not become longer, somebody fills it.
    pub(super) fn on_overload(&mut self, now: Instant) {
        if let Some((rtt, _)) = self.before_rest.take()
            && Part::BeforeRest.or(rtt < self.base(), false)
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
            Part::StepRoom.or(self.jumps.step().max(STEP), Duration::ZERO)
        } else {
            Duration::ZERO
        }
    }

    /// Of a busy sender's ACK, before anything else is made of it.
    fn look_for_jump(&mut self, now: Instant, rtt: Duration) {
        let base = self.measured();
        let jump = if self.base() < FAR {
            Part::JumpsNear.or(self.jumps.on_short(now, rtt, base, self.shared), None)
        } else if self.shared {
            None
        } else {
            Part::JumpsFar.or(self.jumps.on_ack(now, rtt, base), None)
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

    /// True if the round-trip time jumped after `since`.
    pub(super) fn jumped_after(&self, since: Instant) -> bool {
        self.jumps.last().is_some_and(|at| at > since)
    }

    /// True if the path may have become longer just now.
    pub(super) fn is_in_doubt(&self) -> bool {
        !self.is_far() || self.has_jumped()
    }

    /// True if the round-trip time jumped lately.
    pub(super) fn has_jumped(&self) -> bool {
        self.jumps
            .last()
            .is_some_and(|at| self.heard_at.saturating_duration_since(at) < self.base() * DOUBT)
    }

    /// True if the path's length changes.
    pub(super) fn moves(&self) -> bool {
        let moves = self
            .moved_at
            .is_some_and(|at| self.heard_at.saturating_duration_since(at) < MOVES);
        Part::Moves.or(moves, false)
    }

    /// True if the path moved, at any time, as far as is known.
    pub(super) fn has_moved(&self) -> bool {
        self.moved_at.is_some() || self.jumps.last().is_some()
    }

    /// True if the path's length changes, or a short one seems to have changed just now: a queue tells of nobody else.
    pub(super) fn may_move(&self) -> bool {
        self.moves() || self.base() < FAR && self.has_jumped()
    }

    /// True if round trips are long, and the path stays where it is.
    pub(super) fn is_far(&self) -> bool {
        self.base() >= FAR && !self.moves()
    }

    /// Keeps the base while `held`, because another sender fills the queue: what was the smallest round-trip time still is.
    pub(super) fn hold(&mut self, held: bool) {
        self.held = Part::Held.or(held, false);
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
            Part::NearNoise.or(self.noise.get(self.spacing), Duration::ZERO)
        }
    }

    /// Noise that is to be told from a queue: never nothing where it may not have shown yet. Where round trips are
    /// long it shows within one, and ACKs that wait for a return link's frames differ by much.
    pub(super) fn audible(&self) -> Duration {
        if self.is_far() {
            let spread = self.spreads.into_iter().min().unwrap_or_default();
            let noise = Some(spread / DEVIATIONS)
                .filter(|noise| *noise >= LOUD)
                .unwrap_or_default();
            Part::FarNoise.or(noise, Duration::ZERO)
        } else {
            Part::NearNoise.or(self.noise.at_worst(self.spacing), Duration::ZERO)
        }
    }

    /// The round-trip time of the queue behind `rtt`.
    pub(super) fn queue(&self, rtt: Duration) -> Duration {
        rtt.saturating_sub(self.base() + self.spacing + self.noise() * 2)
    }

    /// The smallest of the last round-trip times.
    pub(super) fn rtt_least(&self) -> Duration {
        self.recent.least()
    }

    /// The smallest queue that the last ACKs saw.
    pub(super) fn queue_least(&self) -> Duration {
        self.queue(self.rtt_least())
    }

    /// Nothing that came before says what the path is like now.
    pub(super) fn forget_arrivals(&mut self) {
        self.arrivals.keep_last();
    }

    /// Forgets what came before a gap between ACKs: it answered another flight, and the gap is no rate.
    pub(super) fn end_gap(&mut self, now: Instant) {
        if now.saturating_duration_since(self.heard_at) >= self.fresh_span() {
            self.arrivals.clear();
        }
    }

    /// Over how long the arrival rate of ACKs is taken.
    fn fresh_span(&self) -> Duration {
        (self.base() / FRESH_SHARE)
            .max(FRESH_LEAST)
            .max(self.noise() * FRESH_NOISES)
    }

    /// At what rate acknowledgements came lately; `None` until enough did.
    pub(super) fn fresh_rate(&self) -> Option<u64> {
        let (bytes, span, acks) = self.arrivals.since_first()?;
        let enough = span >= self.fresh_span() / 2;
        // What varies while ACKs are under way stretches and presses them.
        let many = acks >= FRESH_ACKS && self.noise().is_zero();
        (enough || Part::FewAcks.or(many && !enough, false)).then(|| rate_of(bytes, span))
    }
}

/// What is acknowledged was sent by a sender that had more to send.
pub(super) fn is_busy(ack: &AckSample) -> bool {
    ack.rate
        .map_or(!ack.app_limited, |sample| !sample.app_limited)
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
