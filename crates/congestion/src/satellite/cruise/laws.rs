//! The queue that cruising aims at, the rate and the pacing that lead there, and the dips in between.

use std::time::{Duration, Instant};

use crate::ablation::Part;

use super::super::super::{float, scaled};
use super::super::belief::Bottleneck;
use super::super::losses::Losses;
use super::super::path::{Path, Round};
use super::super::pulse::{SLOWEST, proportion};
use super::crowd::overflows;
use super::{AS_SENT, Cruise, Stage, sent};

/// The least queue that is taken for one at which packets are marked.
const ROOM_LEAST: Duration = Duration::from_millis(2);
/// Target of the queue at [`REFERENCE`]; it falls with the square root of the rate.
const TARGET: f64 = 0.008;
/// 20 Mbit/s in bytes per second.
const REFERENCE: f64 = 2_500_000.0;
const TARGET_BOUNDS: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(25)];
/// No target is longer, in seconds, however slow the path.
const MOST_TARGET: f64 = 0.05;
/// A queue this far above its target is somebody's mistake.
const HIGH: u32 = 3;
const HIGH_LEAST: Duration = Duration::from_millis(25);
/// Share of the difference between queue and target that one round mends, in permille.
const GENTLE: u64 = 250;
const FIRM: u64 = 500;
/// Most by which the rate follows one round's delivery while the queue is short, in permille.
pub(super) const FOLLOW: u64 = 30;
/// Most by which the rate follows, in permille, where the queue neither grows nor shrinks: what looks like one may be a path whose length varies.
const CREEP: u64 = 3;
/// Rounds in a row that lose more than a lossy path does by itself, after which that is no burst of the weather's.
const OVERLOADED: u32 = 2;

impl Cruise {
    /// What the laws of cruise go by.
    pub(in super::super) fn bottleneck(&self) -> Bottleneck {
        if self.share.is_shared() {
            Bottleneck::Shared
        } else if self.policed.is_found() {
            Bottleneck::Policed
        } else {
            Bottleneck::Alone
        }
    }

    /// What the queue is to be.
    pub(in super::super) fn target(&self, mtu: u64) -> Duration {
        let rate = float(self.rate.max(1));
        let target = (TARGET * (REFERENCE / rate).sqrt()).min(1.0);
        let target = Part::LowerTarget.or(target, TARGET);
        let mut target = Duration::from_secs_f64(target).clamp(TARGET_BOUNDS[0], TARGET_BOUNDS[1]);
        if self.is_shared() {
            target = target.max(self.share.queue(self.rate, self.base));
        }
        if let Some(room) = self.room {
            target = target.min(room / 4 * 3);
        }
        // Less than two packets is no queue.
        target.max(Duration::from_secs_f64(
            (2.0 * float(mtu) / rate).min(MOST_TARGET),
        ))
    }

    /// A queue above this is too long.
    pub(in super::super) fn high(&self, mtu: u64) -> Duration {
        (self.target(mtu) * HIGH).max(HIGH_LEAST)
    }

    /// The rate after a round behind `queue`.
    pub(super) fn follow(&mut self, queue: Duration, round: Round, losses: &mut Losses, mtu: u64) {
        if !self.trend.end_round() || round.rate == 0 {
            return;
        }
        let excessive = losses.was_excessive();
        self.trend.add(round.sent, round.rate, excessive);
        let seen = sent(round.rate, losses.share());
        let overloaded = if losses.are_usual() {
            Part::OverloadedTwice.or(OVERLOADED, 1)
        } else {
            1
        };
        // Delivered as it was sent: the path may carry more, and its delay is not our queue.
        let as_sent = round.rate.abs_diff(round.sent) <= scaled(round.sent, AS_SENT);
        if self.is_shared() {
            return self.follow_in_company(queue, seen, losses);
        }
        if queue > self.high(mtu) {
            if !as_sent {
                self.rate = seen;
            }
        } else if queue >= self.target(mtu) / 2 {
            let steady = self.trend.is_steady() && !overflows(losses);
            let steady = Part::SteadyRate.or(steady, false);
            let least = scaled(self.rate, 1000 - if steady { CREEP } else { FOLLOW });
            self.rate = seen.clamp(least, scaled(self.rate, 1000 + FOLLOW));
        } else if self.bottleneck() == Bottleneck::Policed {
            self.rate = self.policed.after_round(self.rate, losses);
        } else if losses.is_known()
            && Part::Excess.or(self.trend.excessive() >= overloaded, false)
            && !self.pulses.found_full()
        {
            // Had the last pulse met a queue and lost nothing, this would not be a full path's doing.
            self.rate = seen.clamp(scaled(self.rate, 850), self.rate);
            self.pulses.wait(2);
        } else {
            self.rate = self.rate.max(seen.min(scaled(self.rate, 1000 + FOLLOW)));
        }
    }

    /// Pacing that brings the queue to its target.
    pub(super) fn law(&self, queue: Duration, base: Duration, mtu: u64, losses: &Losses) -> u64 {
        let target = self.target(mtu);
        if self.is_shared() {
            return self.law_in_company(queue, target, losses);
        }
        let firm = Part::FirmLaw.or(queue > target * 2, false);
        let strength = if firm { FIRM } else { GENTLE };
        let part = |difference| proportion(difference, base, strength);
        if queue <= target && self.bottleneck() == Bottleneck::Policed {
            1000
        } else if queue > target {
            1000u64.saturating_sub(part(queue - target)).max(SLOWEST)
        } else {
            1000 + part(target - queue).min(FOLLOW)
        }
    }

    /// Begins a dip after a round behind `queue` in which `rate` was delivered, if it is time for one.
    pub(super) fn dip_if_due(
        &mut self,
        now: Instant,
        queue: Duration,
        rate: u64,
        losses: &mut Losses,
        mtu: u64,
    ) {
        if !losses.is_known() {
            self.dips.hasten();
        }
        let lossy = losses.was_excessive() && self.bottleneck() != Bottleneck::Policed;
        let suspicious = lossy && queue <= self.high(mtu);
        let due = self.dips.is_due(suspicious) && !losses.is_waiting();
        if !Part::Dips.or(due, false) {
            return;
        }
        let deep = Part::DeepDips.or(suspicious || losses.wants_depth(), false);
        let (shared, spread) = (self.is_shared(), self.pulses.spread());
        let depth = self.dips.begin(queue, self.base, deep, shared, spread);
        self.stage = Stage::Dip { gain: 1000 - depth };
        self.company.on_dip(queue);
        losses.start_quiet(now, float(depth) / 1000.0, rate);
    }

    /// Packets that are lost behind a short queue, and not without one, are dropped by whoever manages that queue (CoDel): from now on it
    /// is to be shorter. With long round trips one round in which it drains ends that by itself.
    pub(super) fn shorten(&mut self, queue: Duration, path: &Path, losses: &mut Losses, mtu: u64) {
        let ours = (self.target(mtu) / 2..=self.high(mtu)).contains(&queue);
        let alone = self.bottleneck() == Bottleneck::Alone;
        let managed = ours && alone && !path.is_far() && losses.come_with_queue();
        if Part::ManagedQueue.or(managed, false) {
            self.make_room(queue);
            losses.forget_recent();
        }
    }

    pub(super) fn make_room(&mut self, queue: Duration) {
        let queue = queue.max(ROOM_LEAST);
        self.room = Some(self.room.map_or(queue, |room| room.min(queue)));
    }
}
