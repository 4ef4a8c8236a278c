//! Cruise: at the path's rate, with a queue of a few milliseconds to show that the path is full.
//!
//! Behind a queue the rate of delivery *is* the path's rate, or this tunnel's share of it; so the rate follows it, and a
//! small gain brings the queue to its target. The target falls with the rate, so that of two tunnels at one bottleneck
//! the slower one pushes harder, and they come to equal shares.
//!
//! - **Dip.** Every 16 to 24 rounds one round is sent a little slower: the queue empties, which shows the round-trip time
//!   without it, and what is lost then is the path's own loss. It costs what the queue held.
//! - **Pulse.** When the queue is empty the path may be faster than believed: a quarter of a round trip is sent a
//!   quarter faster. If no queue answers, the rate was right; if one does, its height tells the path's rate.

mod alarm;
mod crowd;
mod dips;
mod laws;
mod policed;
mod pulses;
mod trains;
mod trend;

use std::time::{Duration, Instant};

use crate::ablation::Part;

use super::super::{AckSample, bytes_in, float, scaled, whole};
use super::ceiling::Ceiling;
use super::common::EMPTY;
use super::company::Company;
use super::losses::Losses;
use super::path::{Path, Round, is_busy};
use super::pulse::{Pulse, SLOWEST};
use super::share::Share;
use alarm::Alarm;
pub(super) use crowd::is_thin;
use dips::Dips;
use laws::FOLLOW;
use policed::Policed;
use pulses::{PATIENCE, Pulses};
use trains::Trains;
use trend::Trend;

/// Rates that differ by no more are the same, in permille.
const AS_SENT: u64 = 20;
/// Rounds by which what tunnels do now and then differs, at most: they are not to do it in step.
const SPREAD: u64 = 8;
/// In so many rounds the queue at which packets are marked is believed to be longer by a factor of e.
const SPACIOUS: u32 = 300;
/// Where round trips are long, a path so much slower, in permille, lowers the rate again before the last cut is answered.
const MUCH_SLOWER: u64 = 850;
/// The round in which the rate is cut, and the next one.
const STALE: u32 = 3;
/// The round in which ACKs came late.
const GAP: u32 = 2;

#[derive(Clone, Copy, Debug)]
enum Stage {
    Hold,
    /// One round below the rate.
    Dip {
        gain: u64,
    },
    /// Above the rate until `end`; then until its packets are answered.
    Pulse(Pulse),
}

/// State of cruising. Rates are bytes per second that are sent.
#[derive(Clone, Debug)]
pub(super) struct Cruise {
    rate: u64,
    /// Pacing, in permille of the rate.
    gain: u64,
    stage: Stage,
    dips: Dips,
    pulses: Pulses,
    alarm: Alarm,
    trend: Trend,
    /// The queue from which on the path marks packets, where it does.
    room: Option<Duration>,
    company: Company,
    ceiling: Ceiling,
    share: Share,
    trains: Trains,
    policed: Policed,
    /// The round-trip time without queue.
    base: Duration,
    /// The last round's queue.
    last_queue: Duration,
}

impl Cruise {
    /// `noise` is any number that differs between tunnels.
    pub(super) fn new(rate: u64, noise: u64, now: Instant) -> Self {
        Self {
            rate,
            room: None,
            company: Company::new(now),
            ceiling: Ceiling::new(),
            share: Share::default(),
            trains: Trains::default(),
            policed: Policed::default(),
            base: Duration::ZERO,
            last_queue: Duration::MAX,
            gain: 1000,
            stage: Stage::Hold,
            dips: Dips::new(noise),
            pulses: Pulses::new(noise),
            alarm: Alarm::new(now),
            trend: Trend::default(),
        }
    }

    /// Cruise at another rate over a path of which the length, and what it carries, are known already.
    pub(super) fn over_same_path(&self, rate: u64, noise: u64, now: Instant) -> Self {
        Self {
            trains: self.trains.without_stroke(),
            base: self.base,
            ..Self::new(rate, noise, now)
        }
    }

    pub(super) fn rate(&self) -> u64 {
        self.rate
    }

    /// Neither slower nor faster than the path is believed to be.
    pub(super) fn is_holding(&self) -> bool {
        matches!(self.stage, Stage::Hold)
    }

    /// Bytes per second.
    pub(super) fn pace(&self, now: Instant) -> u64 {
        let gain = match self.stage {
            Stage::Hold => self.gain,
            Stage::Dip { gain } => gain,
            Stage::Pulse(pulse) => pulse.pace(now),
        };
        scaled(self.rate, gain)
    }

    /// Bytes in flight: what the path and the queue hold, what ACKs bring late, and more while the queue is short.
    pub(super) fn window(&self, path: &Path, mtu: u64) -> u64 {
        let base = path.base();
        let spare = if path.queue_least() > self.high(mtu) {
            base / 8
        } else {
            base / 2
        };
        let spare = spare.max(path.step());
        let pulse = if let Stage::Pulse(pulse) = self.stage {
            pulse.queue_if_full()
        } else {
            Duration::ZERO
        };
        bytes_in(self.rate, base + self.target(mtu) * 2 + spare + pulse) + 4 * mtu
    }

    pub(super) fn on_ack(
        &mut self,
        ack: &AckSample,
        path: &mut Path,
        losses: &mut Losses,
        mtu: u64,
    ) {
        let mut queue = path.queue_least();
        self.watch(ack, queue, path, losses, mtu);
        if !path.noise().is_zero() {
            // A few ACKs do not tell.
            queue = Part::LastQueue.or(queue.min(self.last_queue), queue);
        }
        match self.stage {
            Stage::Pulse(mut pulse) => {
                if ack.app_limited || path.jumped_after(pulse.start()) {
                    return self.give_up();
                }
                let queue = path.queue(ack.rtt.unwrap_or_default());
                pulse.on_ack(ack.newest_sent, queue, ack.newly_acked);
                self.stage = Stage::Pulse(pulse);
                if pulse.is_answered(ack.newest_sent, path.base()) {
                    self.conclude(pulse, losses);
                }
            }
            Stage::Hold if !ack.app_limited => {
                if self.pulses.is_due()
                    && losses.are_seen()
                    && queue < self.target(mtu) / 3
                    && !self.is_shared()
                    && !self.trains.is_full(ack.now, self.rate, self.base)
                {
                    let pulse = self.pulses.begin(ack.now, queue, self.room, path, losses);
                    self.stage = Stage::Pulse(pulse);
                }
            }
            Stage::Hold | Stage::Dip { .. } => {}
        }
    }

    /// A long queue lowers the rate to that at which ACKs come since it stands, without waiting for the round's end.
    fn watch(
        &mut self,
        ack: &AckSample,
        queue: Duration,
        path: &mut Path,
        losses: &Losses,
        mtu: u64,
    ) {
        // Until a train tells of company, a long queue is taken for the doing of the path, which has to be answered at once.
        let shared = self.is_shared() && !self.trains.is_in_doubt();
        let most = if shared {
            self.limit(mtu)
        } else {
            self.high(mtu)
        };
        let alarming = Part::Alarm.or(queue > most.max(path.base() / 6), false);
        if self.alarm.on_ack(alarming) {
            let short = self.last_queue <= self.high(mtu);
            self.alarm.set_sudden(short);
            // A path that became longer shows as a gap between ACKs; the rate is what it was.
            path.forget_arrivals();
            if path.may_move() {
                self.trend.skip_at_least(GAP);
            }
        }
        // Once per round trip: what answers now was sent before the last cut. A queue that grew for a long one takes several
        // to drain, so that there a path that became slower by more than others' coming makes it does not wait.
        let answered = self.alarm.is_answered(ack.newest_sent);
        let soon = !shared && path.is_far() && self.alarm.is_pressing(ack.now, path.base());
        let soon = Part::AlarmAgain.or(soon, false);
        if alarming
            && is_busy(ack)
            && (answered || soon)
            && let Some(fresh) = path.fresh_rate()
        {
            let least = scaled(self.rate, SLOWEST);
            let fresh = sent(fresh, losses.baseline());
            if !answered && fresh > scaled(self.rate, MUCH_SLOWER) {
                return;
            }
            if fresh < scaled(self.rate, 1000 - FOLLOW) {
                // The path became slower at once: this is not this tunnel making room.
                if Part::ForgetPeak.or(true, false) {
                    self.company.forget_peak();
                }
                self.trains
                    .on_slower(fresh, self.rate, self.base, &mut self.share);
                self.pulses.on_slower();
            }
            self.rate = self.rate.min(fresh).max(least);
            self.alarm.cut(ack.now);
        }
    }

    /// A pulse was answered.
    fn conclude(&mut self, pulse: Pulse, losses: &Losses) {
        self.stage = Stage::Hold;
        self.gain = 1000;
        let policed = &mut self.policed;
        self.rate = self
            .pulses
            .conclude(pulse, self.rate, self.base, policed, losses);
    }

    /// A train is to leave now.
    pub(super) fn wants_train(&self, now: Instant, mtu: u64) -> bool {
        self.trains.is_due(now, self.rate, self.base, mtu)
    }

    pub(super) fn on_train(&mut self, now: Instant) {
        self.trains.on_train(now);
    }

    /// Takes what start-up knows of what the path carries.
    pub(super) fn set_capacity(&mut self, now: Instant, rate: Option<u64>) {
        self.trains.set_capacity(now, rate);
    }

    /// Takes the answer that a train arrived at `rate`, of a path that loses `lost` by itself.
    pub(super) fn on_capacity(&mut self, now: Instant, rate: u64, lost: f64) {
        let (told, eager) = (sent(rate, lost), self.pulses.is_eager());
        self.rate = self
            .trains
            .on_answer(now, told, self.rate, &mut self.share, eager);
    }

    /// Ends a pulse for which there was too little to send; the next does not come at once, or a sender that is nearly busy would always be in one.
    fn give_up(&mut self) {
        self.stage = Stage::Hold;
        self.pulses.wait(1);
    }

    /// A round ended that says nothing of the queue: the rate is what is known of the path, and more is a guess.
    pub(super) fn end_idle_round(&mut self) {
        self.gain = self.gain.min(1000);
    }

    /// A round ended in which the sender was busy.
    pub(super) fn end_round(
        &mut self,
        now: Instant,
        round: Round,
        path: &Path,
        losses: &mut Losses,
        mtu: u64,
    ) {
        if let Some(least) = round.rtt {
            let steady = !matches!(self.stage, Stage::Pulse(_));
            self.ceiling
                .end_round(least + round.spread, losses.was_congestion(), steady);
        }
        self.pulses.end_round();
        self.room = self.room.map(|room| room + room / SPACIOUS);
        self.base = path.base();
        if let Stage::Hold = self.stage {
            self.pulses.begin_small();
        }
        if let Stage::Dip { .. } = self.stage {
            losses.end_quiet(now);
            self.stage = Stage::Hold;
        }
        let queue = path.queue(round.rtt.unwrap_or(path.base()));
        self.last_queue = queue;
        self.policed
            .end_round(round.rate, queue >= self.target(mtu) / 2);
        self.company.end_round(queue, self.target(mtu));
        self.look_for_company(now, queue, path.may_move(), mtu);
        self.follow(queue, round, losses, mtu);
        self.shorten(queue, path, losses, mtu);
        self.company.remember(now, self.rate);
        self.gain = self.law(queue, path.base(), mtu, losses);
        self.dips.end_round();
        if Part::CommonDips.or(self.is_shared() && queue <= EMPTY, false) {
            self.dips.fall_in(self.base);
        }
        if self.is_holding() {
            self.dip_if_due(now, queue, round.rate, losses, mtu);
        }
    }

    /// Nothing was in flight.
    pub(super) fn rest(&mut self) {
        self.stage = Stage::Hold;
        self.gain = 1000;
        self.company.rest();
    }

    /// More was sent than the path takes.
    pub(super) fn lower(&mut self, rate: u64) {
        self.rate = self.rate.min(rate);
        self.pulses.start_over();
    }

    /// The path was found to lose this share by itself.
    pub(super) fn compensate(&mut self, lost: f64) {
        self.rate = sent(self.rate, lost);
    }

    /// The queue that lowered the rate was none.
    pub(super) fn restore(&mut self, rate: u64) {
        self.rate = self.rate.max(rate);
        self.gain = 1000;
    }

    /// Packets were marked behind `queue`: slower at once, and a shorter queue from now on.
    pub(super) fn on_mark(&mut self, queue: Duration, permille: u64) {
        if Part::MarkedRoom.or(true, false) {
            self.make_room(queue);
        }
        self.rate = scaled(self.rate, permille);
        self.gain = self.gain.min(1000);
        self.pulses.wait(PATIENCE);
        self.trend.skip(STALE);
        self.stage = Stage::Hold;
    }
}

/// What must be sent so that `rate` arrives.
pub(super) fn sent(rate: u64, lost: f64) -> u64 {
    whole(float(rate) / (1.0 - lost))
}
