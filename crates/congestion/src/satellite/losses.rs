//! Which losses are the path's and which are congestion.
//!
//! A lossy link loses the same share however fast it is used; a full queue or a policer loses what exceeds its rate.
//! So the share lost by packets that left well below the path's rate is the path's own: the baseline.
//! Fed on the data path by every ACK and loss report. It does not change the rate.

mod quiet;

use std::time::Instant;

use crate::ablation::Part;

use super::super::{float, whole};
use quiet::{Answer, Quiet, Span, Tally};

/// No link that is worth using loses more by itself.
const MAX_BASELINE: f64 = 0.2;
/// Fewest packets that make a share.
const MIN_PACKETS: f64 = 40.0;
/// Packets without a loss that show that the path has none of its own.
const CLEAN: f64 = 400.0;
/// A share of losses that is worth a remedy.
const USUAL: f64 = 0.002;
/// Packets that show what is usual, roughly.
const SEEN: f64 = 200.0;
/// Packets after which what was seen before counts half.
const MEMORY: f64 = 4000.0;
/// What a managed queue drops of so many packets, at least, until it is believed to do that.
const DROPPED: f64 = 0.003;
const DROPPED_OF: f64 = 1000.0;
/// Share that is no surprise before the baseline is known.
const UNKNOWN: f64 = 0.02;
/// Losses that might as well have happened among those that showed the baseline.
const DOUBT: f64 = 1.5;
/// Excess losses, as a share, that stop growth.
pub(super) const MARGIN: f64 = 0.005;
/// Losses come in bursts: the variance of a round's count is at least this many times that of independent losses.
const BURSTS: f64 = 2.0;
/// No more than that, whatever is measured (bursts of 20 packets): what explains everything finds nothing.
const MOST_BURSTS: f64 = 40.0;
/// How fast the measured variance follows.
const GAIN: f64 = 0.125;

/// What a quiet span showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lesson {
    /// The baseline, for the first time.
    Known,
    /// The path takes less than was sent: the bytes that arrived in a second.
    Congested(u64),
}

/// Loss of the current round and the share that the path loses by itself.
#[derive(Clone, Debug)]
pub(super) struct Losses {
    packet: f64,
    /// Packets sent before do not count.
    since: Instant,
    round: Tally,
    last: Tally,
    /// Below the path's rate.
    quiet: Quiet,
    /// Losses while a pulse sent above the path's rate.
    pulse: Option<Span>,
    baseline: f64,
    /// What the baseline was learned from, older evidence less.
    learned: Tally,
    /// Variance of a round's count, in variances of independent losses.
    bursts: f64,
    known: bool,
    /// Packets since the last round with a loss.
    clean: f64,
    /// What was lost of the last few thousand packets, whatever the reason.
    recent: Tally,
}

impl Losses {
    pub(super) fn new(mtu: u64, now: Instant) -> Self {
        Self {
            packet: float(mtu).max(1.0),
            since: now,
            round: Tally::default(),
            last: Tally::default(),
            quiet: Quiet::default(),
            pulse: None,
            baseline: 0.0,
            learned: Tally::default(),
            bursts: BURSTS,
            known: false,
            clean: 0.0,
            recent: Tally::default(),
        }
    }

    /// What was lost until now is explained.
    pub(super) fn forget(&mut self, now: Instant) {
        self.since = now;
        self.round = Tally::default();
        self.last = Tally::default();
        self.recent = Tally::default();
    }

    /// Packets leave `depth` (a share) below the path's rate from now on; until now `rate` packets a second arrived.
    pub(super) fn start_quiet(&mut self, now: Instant, depth: f64, rate: u64) {
        self.quiet.start(now, depth, float(rate) / self.packet);
    }

    /// The next quiet span is to be as deep as possible.
    pub(super) fn wants_depth(&self) -> bool {
        self.quiet.wants_depth()
    }

    /// What was to be quiet will not be.
    pub(super) fn give_up_quiet(&mut self) {
        self.quiet.give_up();
    }

    /// The answer to a quiet span is not complete yet.
    pub(super) fn is_waiting(&self) -> bool {
        self.quiet.is_waiting()
    }

    /// Packets that leave from `start` to `end` are above the path's rate.
    pub(super) fn watch(&mut self, start: Instant, end: Instant) {
        self.pulse = Some(Span::new(start, Some(end)));
    }

    /// The share lost of them beyond the path's own, and beyond chance.
    pub(super) fn excess_of_pulse(&self) -> f64 {
        self.pulse.map_or(0.0, |Span { tally, .. }| {
            let usual = self.usual() + self.doubt();
            if tally.share() > usual + 2.0 * self.chance(usual, tally.total()) {
                tally.share() - usual
            } else {
                0.0
            }
        })
    }

    /// The share lost of them beyond the path's own, whatever is chance.
    pub(super) fn surplus_of_pulse(&self) -> f64 {
        let share = self.pulse.map_or(0.0, |span| span.tally.share());
        share - self.baseline
    }

    /// The round that ended last was below the path's rate, as it turned out.
    pub(super) fn learn_last(&mut self) {
        self.learn(self.last, false);
    }

    /// Ends the rounds of which the losses are the path's own.
    pub(super) fn end_quiet(&mut self, now: Instant) {
        self.quiet.end(now);
    }

    /// Returns what a quiet span showed once it is answered.
    pub(super) fn on_acked(&mut self, bytes: u64, sent: Instant, queued: bool) -> Option<Lesson> {
        let count = float(bytes) / self.packet;
        self.count(Tally::acked(count), sent);
        match self.quiet.on_acked(count, sent, queued, self.baseline)? {
            Answer::Congested(_) if Part::QuietCongestion.or(false, true) => None,
            Answer::Congested(arrived) => Some(Lesson::Congested(whole(arrived * self.packet))),
            Answer::Shown(tally) => {
                let known = self.known;
                self.learn(tally, queued);
                (self.known != known).then_some(Lesson::Known)
            }
        }
    }

    pub(super) fn on_lost(&mut self, bytes: u64, sent: Instant) {
        let count = float(bytes) / self.packet;
        self.count(Tally::lost(count), sent);
        self.quiet.on_lost(count, sent);
    }

    /// Counts packets that left at `sent` in the round, and in the pulse that they belong to.
    fn count(&mut self, packets: Tally, sent: Instant) {
        if sent >= self.since {
            self.round.add(packets);
        }
        if let Some(pulse) = &mut self.pulse {
            pulse.count(packets, sent);
        }
    }

    /// Behind a queue that still stands the span was not below the path's rate: what it lost may lower the baseline,
    /// not raise it.
    fn learn(&mut self, tally: Tally, queued: bool) {
        if queued && (!self.known || tally.share() >= self.baseline) {
            return;
        }
        self.learned.halve();
        self.learned.add(tally);
        self.baseline = Part::PathLoss.or(self.learned.share().min(MAX_BASELINE), 0.0);
        self.known = true;
    }

    /// How far the share lost of `total` packets is from `usual` by chance: standard deviation of both shares.
    fn chance(&self, usual: f64, total: f64) -> f64 {
        let learned = if self.known {
            self.learned.total()
        } else {
            self.recent.total()
        };
        (self.bursts * usual * (1.0 / total.max(1.0) + 1.0 / learned.max(1.0))).sqrt()
    }

    /// By how much the path's share may exceed the baseline because that was learned from few packets.
    fn doubt(&self) -> f64 {
        Part::FewPackets.or((DOUBT / self.learned.total().max(1.0)).min(UNKNOWN), 0.0)
    }

    /// The share that the path loses by itself, or what was lost lately while that is not known.
    fn usual(&self) -> f64 {
        if self.known {
            self.baseline
        } else {
            self.recent.share().min(UNKNOWN)
        }
    }

    /// The path loses nothing by itself, and yet packets have been lost for a while.
    pub(super) fn come_with_queue(&self) -> bool {
        let seen = self.recent.total() >= DROPPED_OF && self.recent.share() > DROPPED;
        self.known && self.baseline < USUAL && seen && self.is_more(self.recent)
    }

    /// What was lost lately has had its answer.
    pub(super) fn forget_recent(&mut self) {
        self.recent = Tally::default();
    }

    /// Losses are to be reckoned with.
    pub(super) fn are_usual(&self) -> bool {
        self.usual() >= USUAL
    }

    /// Enough is known of what is lost, and that is little enough, to tell whether more is.
    pub(super) fn are_seen(&self) -> bool {
        let seen = self.recent.total() >= SEEN && self.recent.share() <= UNKNOWN;
        self.known || seen
    }

    /// The baseline was measured.
    pub(super) fn is_known(&self) -> bool {
        self.known
    }

    /// The share that the path loses by itself.
    pub(super) fn baseline(&self) -> f64 {
        self.baseline
    }

    /// Share lost in the round that ended last, without what exceeds the baseline by more than chance.
    pub(super) fn share(&self) -> f64 {
        let total = self.last.total();
        if total < MIN_PACKETS {
            return self.baseline;
        }
        let chance = (self.baseline * self.bursts / total).sqrt();
        self.last.share().min(self.baseline + chance)
    }

    /// Share lost in the round that ended last, all of it.
    pub(super) fn share_of_last(&self) -> Option<f64> {
        (self.last.total() >= MIN_PACKETS).then(|| self.last.share())
    }

    /// More is lost in this round than `share`, by a `margin` and more than chance.
    pub(super) fn exceeds_share(&self, share: f64, margin: f64) -> bool {
        let total = self.round.total();
        let chance = 3.0 * (self.bursts * (share + margin) / total.max(1.0)).sqrt();
        total >= MIN_PACKETS && self.round.share() > share + margin + chance
    }

    /// What was lost in this round is more than chance; on a path without losses of its own any is.
    pub(super) fn is_congestion(&self) -> bool {
        self.is_more(self.round)
    }

    /// True if the round that ended last lost more than the path does by itself.
    pub(super) fn was_congestion(&self) -> bool {
        self.is_more(self.last)
    }

    fn is_more(&self, tally: Tally) -> bool {
        let expected = self.baseline * tally.total().max(MIN_PACKETS);
        tally.lost > expected + 3.0 * (expected * self.bursts).sqrt()
    }

    /// True if the round that ended last lost more than the path does by itself: beyond three standard deviations and [`MARGIN`].
    pub(super) fn was_excessive(&self) -> bool {
        self.exceeds_usual(MARGIN)
    }

    /// More was lost in the round that ended last than the path loses by itself: beyond three standard deviations and `margin`.
    fn exceeds_usual(&self, margin: f64) -> bool {
        let total = self.last.total();
        let usual = self.baseline + self.doubt();
        let margin = if self.known { margin } else { UNKNOWN };
        let most = usual + 3.0 * self.chance(usual, total) + margin;
        total >= MIN_PACKETS && self.last.lost > most * total + 2.0
    }

    /// A round with few packets tells nothing alone, so it goes on with the next.
    pub(super) fn end_round(&mut self) {
        if self.round.total() < MIN_PACKETS {
            self.last = Tally::default();
            return;
        }
        self.last = std::mem::take(&mut self.round);
        if self.recent.total() > MEMORY {
            self.recent.halve();
        }
        self.recent.add(self.last);
        let (total, expected) = (self.last.total(), self.baseline * self.last.total());
        // Whatever the rate was: this path need not lose anything.
        self.clean = if self.last.lost > 0.0 {
            0.0
        } else {
            self.clean + total
        };
        if Part::CleanPath.or(!self.known && self.clean >= CLEAN, false) {
            self.known = true;
            self.learned.acked = self.clean;
        }
        if total >= MIN_PACKETS && expected >= 2.0 && !self.exceeds_usual(0.0) {
            let deviation = (self.last.lost - expected).powi(2) / expected;
            let bursts = self.bursts + (deviation - self.bursts) * GAIN;
            self.bursts = Part::Bursts.or(bursts.clamp(BURSTS, MOST_BURSTS), BURSTS);
        }
    }
}
