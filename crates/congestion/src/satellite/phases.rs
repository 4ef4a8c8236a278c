//! From phase to phase: when the drain is over, what a long queue means, when to compete and when no longer.
//!
//! The parts see, and this decides; what is seen comes from `mod.rs` with every ACK.

use std::time::{Duration, Instant};

use crate::ablation::Part;

use super::super::{AckSample, float, rate_of, scaled, time_of};
use super::belief::Bottleneck;
use super::compete::Compete;
use super::cruise;
use super::knowledge::begin;
use super::path::{NEAR, Round, is_busy};
use super::share::COMPANY;
use super::silence::Cause;
use super::startup::{End, Startup};
use super::{
    CONFIRMED, DRAIN, LEAST_PACKETS, MIN_WINDOW, Phase, SHALLOW_DRAIN, Satellite, WARY_FAR,
};

/// Rounds after which a drain is over in any case.
const MAX_DRAIN: u32 = 3;
/// A first flight that arrives at less than this, in permille of what the path carries, has company.
const CROWDED: u64 = 600;
/// No share of a path is smaller than this part of it, when it begins.
const FAR_OFF: u64 = 64;
/// What must be taken away of a seeming queue where the path's length never changed before.
const DOUBTFUL: Duration = Duration::from_millis(25);

impl Satellite {
    /// Sends at `pace` permille of `rate` for a while.
    pub(super) fn start_drain(&mut self, now: Instant, rate: u64, pace: u64) {
        self.cruise_at(now, rate);
        self.path.forget_jumps();
        self.losses.forget(now);
        let depth = 1.0 - float(pace) / 1000.0;
        self.losses.start_quiet(now, depth, rate);
        self.phase = Phase::Drain { rounds: 0, pace };
    }

    /// Cruises at `rate` from now on, over the path as it is known; nothing else of the last cruise is kept.
    fn cruise_at(&mut self, now: Instant, rate: u64) {
        // Some number that differs between tunnels.
        let noise = self.usage.delivered / self.mtu;
        self.cruise = self.cruise.over_same_path(rate, noise, now);
    }

    /// Notes that an ACK came. Start-up, which an outage has disturbed, begins anew.
    pub(super) fn end_silence(&mut self, ack: &AckSample) {
        let cause = self.silence.end(ack, self.path.base());
        let Phase::Startup(_) = self.phase else {
            return;
        };
        match cause {
            Cause::RoundTrip => {}
            Cause::Queue => self.silence.doubt(ack.now),
            Cause::Outage => self.start_anew(ack.now),
        }
    }

    /// Begins start-up anew after an outage: it would take the loss of a whole flight for the path's limit, and the few bytes
    /// that came through for its rate. Start-up may have ended with the answer that ended the outage.
    pub(super) fn start_anew(&mut self, now: Instant) {
        self.losses.forget(now);
        match &mut self.phase {
            Phase::Startup(startup) => {
                let window = self.config.initial_window.max(MIN_WINDOW * self.mtu);
                startup.restart(now, window, self.path.base());
            }
            _ => self.start_up(now),
        }
    }

    /// Begins start-up as on a path of which no more is known than what was sold.
    pub(super) fn start_up(&mut self, now: Instant) {
        self.phase = Phase::Startup(begin(&self.config, self.mtu, now));
    }

    /// Start-up is over, while ACKs come at `arriving`.
    pub(super) fn end_startup(&mut self, ack: &AckSample, end: End, arriving: u64) {
        let Phase::Startup(startup) = &self.phase else {
            return;
        };
        if startup.is_in_doubt() {
            return self.start_competing(ack.now, ack.in_flight + ack.newly_acked);
        }
        // A figure that is far off is not believed, and asked for again.
        let limit = startup.limit().filter(|limit| limit / FAR_OFF <= arriving);
        let met = startup.met_queue();
        let crowded = |limit| {
            let crowded = arriving.max(startup.rate()) < scaled(limit, CROWDED);
            Part::CrowdedFlight.or(crowded, false)
        };
        if self.path.base() >= NEAR && limit.is_some_and(|limit| met || crowded(limit)) {
            let rate = if met { arriving / 4 } else { arriving };
            // Losses without a queue may be a policer's.
            let shared = met || end == End::Queue;
            self.join(ack.now, rate, shared);
        } else {
            let seen = match end {
                End::Queue => {
                    // What was in flight went through in a round trip: the path carries that at least.
                    let through = ack.rate.map_or(0, |sample| sample.at_send.in_flight);
                    let rtt = ack.rtt.unwrap_or(self.path.base());
                    let shown = startup.shown(ack.newest_sent, self.path.queue(rtt));
                    rate_of(through, rtt).max(Part::Shown.or(shown, 0))
                }
                End::Loss | End::Plateau => startup.rate(),
            };
            let rate = arriving.max(seen);
            let rate = limit.map_or(rate, |limit| rate.min(limit));
            let pace = match end {
                End::Loss => startup.retreat(),
                _ if startup.is_as_measured(rate) => Part::ShallowDrain.or(SHALLOW_DRAIN, DRAIN),
                _ => DRAIN,
            };
            self.start_drain(ack.now, rate, pace);
        }
        self.cruise.set_capacity(ack.now, limit);
    }

    /// What is remembered of a path that carries much more was a share of it. As soon as a flight of it arrives, those who had the
    /// rest are likely to be back as well: after a restart of the gateway all are, and start-up would double what all of them have.
    pub(super) fn return_to_others(&mut self, now: Instant) {
        let (Phase::Startup(startup), Some(saved)) = (&self.phase, self.remembered) else {
            return;
        };
        let (limit, share) = (startup.limit(), saved.rate.as_u64() / 8);
        let less = limit.is_some_and(|limit| share < scaled(limit, COMPANY));
        if Part::Return.or(self.path.base() >= NEAR && less, false) {
            // As the flight was sent.
            self.join(now, scaled(share, CONFIRMED), true);
            self.cruise.set_capacity(now, limit);
        }
    }

    /// The path carries much more than what arrives at `rate`: goes on at that, without a drain that others would fill.
    fn join(&mut self, now: Instant, rate: u64, shared: bool) {
        self.cruise_at(now, rate);
        if shared {
            self.cruise.join();
        }
        self.path.forget_jumps();
        self.losses.forget(now);
        self.phase = Phase::Cruise;
    }

    /// The queue that start-up left runs out at the path's rate, and so shows it.
    pub(super) fn on_drain(&mut self, ack: &AckSample, ended: bool) {
        // What left in start-up may have left while there was no more to send, and queues all the same. Elsewhere than on a
        // thin path it may be the queue of others.
        let thin = cruise::is_thin(self.cruise.rate(), self.path.base(), self.mtu);
        let several = thin && ack.in_flight >= LEAST_PACKETS * self.mtu;
        let unseen = ack.rtt.filter(|_| several && !is_busy(ack));
        let unseen = Part::ThinDrain.or(unseen, None);
        // A single ACK may be late.
        let late = self.path.base() / 8;
        let queue = unseen.map_or(self.path.queue_least(), |rtt| {
            self.path.queue(rtt).saturating_sub(late)
        });
        let standing = queue > self.cruise.high(self.mtu);
        if Part::DrainFollows.or(standing, false)
            && let Some(fresh) = self.path.fresh_rate()
        {
            let rate = self.cruise.rate().max(fresh);
            self.cruise_at(ack.now, rate);
        }
        let Phase::Drain { rounds, pace } = &mut self.phase else {
            return;
        };
        *rounds += u32::from(ended);
        // The round trip that is sent slower begins with the next round.
        let least = if *pace == SHALLOW_DRAIN { 2 } else { 1 };
        if *rounds >= MAX_DRAIN || *rounds >= least && !standing {
            self.losses.end_quiet(ack.now);
            self.phase = Phase::Cruise;
        }
    }

    /// A flight after a rest met the queue that was expected. Where round trips are long it is that of somebody who fills it;
    /// elsewhere the path may have become longer just as well, and start-up finds out.
    pub(super) fn on_filled(&mut self, ack: &AckSample) {
        let window = ack.in_flight + ack.newly_acked;
        if self.path.is_far() {
            let rate = match &self.phase {
                Phase::Startup(startup) => startup.pace(self.path.base()),
                _ => self.cruise.rate(),
            };
            if let Some(base) = self.rest.base().filter(|base| *base < self.path.base()) {
                self.path.adopt(base, ack.now);
            }
            return self.join(ack.now, scaled(rate, WARY_FAR), true);
        }
        self.phase = Phase::Startup(Startup::behind(window, ack.rtt, ack.now));
    }

    pub(super) fn on_cruise(&mut self, ack: &AckSample, round: Option<Round>) {
        let spacing = time_of(self.mtu, self.cruise.rate());
        self.path.set_spacing(spacing);
        self.path.set_shared(self.cruise.is_shared());
        self.path
            .hold(self.path.is_far() && self.cruise.is_suspicious());
        let limit = self.cruise.limit(self.mtu);
        if self.path.queue_least() > limit {
            self.long_queue.on_ack(ack.in_flight + ack.newly_acked);
        }
        if self.is_stuck(ack) {
            self.path.adopt(self.path.rtt_least(), ack.now);
            self.long_queue.forget_rounds();
            self.cruise.restore(self.long_queue.rate_before());
        }
        self.cruise
            .on_ack(ack, &mut self.path, &mut self.losses, self.mtu);
        let Some(round) = round else {
            return;
        };
        if round.rate == 0 {
            return self.cruise.end_idle_round();
        }
        self.usage.busy_at = ack.now;
        self.path.compare(round, self.cruise.is_holding());
        self.cruise
            .end_round(ack.now, round, &self.path, &mut self.losses, self.mtu);
        let rtt = round.rtt.unwrap_or(self.path.base());
        let long = self.path.queue(rtt) > limit;
        match self.believe(ack, round.rate, rtt, long) {
            Bottleneck::Alone | Bottleneck::Shared | Bottleneck::Policed => {}
            Bottleneck::Longer => {
                self.path.adopt(rtt, ack.now);
                self.cruise.restore(self.long_queue.rate_before());
            }
            Bottleneck::Filled { window } => self.start_competing(ack.now, window),
        }
    }

    /// Weighs what a round has shown at whose end `ack` came: `rate` was delivered, `rtt` was its smallest round-trip time, and its
    /// queue `was_long` for what the rate was until then.
    fn believe(&mut self, ack: &AckSample, rate: u64, rtt: Duration, was_long: bool) -> Bottleneck {
        let (in_flight, most) = (ack.in_flight, self.long_queue.most_in_flight());
        let evidence = self
            .cruise
            .evidence(rtt, was_long, &self.path, in_flight, most);
        let long = self.path.queue(rtt) > self.cruise.limit(self.mtu);
        let (watch, cruising) = (&mut self.long_queue, self.cruise.rate());
        let verdict = evidence.weigh(|| {
            if !long {
                watch.end_short_round(cruising);
                return None;
            }
            watch.end_long_round(rtt, ack.in_flight, rate)
        });
        if verdict != Bottleneck::Longer {
            return verdict;
        }
        if evidence.never_empty.is_some() {
            self.cruise.clear_crowd();
        }
        // A path that becomes longer again and again is a queue that somebody fills.
        let (round, base) = (self.round.count(), self.path.base());
        let before = self.long_queue.on_longer(round, base);
        let Some(before) = Part::LongerTwice.or(before, None) else {
            return verdict;
        };
        self.path.adopt(before, ack.now);
        let window = evidence.most_in_flight;
        Bottleneck::Filled { window }
    }

    /// What looks like a queue does not answer to what is sent: the path became longer.
    fn is_stuck(&mut self, ack: &AckSample) -> bool {
        let queue = self.path.queue_least();
        let changes = self.path.is_in_doubt() && !self.cruise.is_shared();
        let Some(sample) = ack.rate.filter(|_| changes) else {
            return false;
        };
        // Where the path's length is known to change a short one is worth the question, and little is believed.
        let moves = self.path.moves();
        let (times, enough) = if moves {
            (1, queue / 5)
        } else if self.path.has_jumped() {
            (1, (queue / 5).max(DOUBTFUL))
        } else {
            (2, (queue / 2).max(DOUBTFUL))
        };
        if queue <= self.cruise.target(self.mtu) * times {
            self.long_queue.forget_acks();
            return false;
        }
        let rate = self.cruise.rate();
        let (rtt, in_flight) = (self.path.rtt_least(), sample.at_send.in_flight);
        let stuck = self
            .long_queue
            .is_stuck(rtt, in_flight, enough, rate, self.path.noise());
        Part::Stuck.or(stuck, false)
    }

    pub(super) fn start_competing(&mut self, now: Instant, window: u64) {
        self.long_queue.forget_rounds();
        if Part::Compete.or(false, true) {
            return;
        }
        self.path.hold(true);
        self.path.set_shared(self.cruise.is_shared());
        self.losses.give_up_quiet();
        self.phase = Phase::Compete(Box::new(Compete::new(
            &self.config,
            window,
            self.cruise.rate(),
            now,
        )));
    }

    pub(super) fn end_competing(&mut self, ack: &AckSample, round: Round) {
        let rtt = round.rtt.unwrap_or(self.path.base());
        let queue = self.path.queue(rtt);
        let empty = self.cruise.empty(self.mtu);
        let Phase::Compete(compete) = &mut self.phase else {
            return;
        };
        let losing = compete
            .is_losing(round.rate)
            .filter(|_| queue <= self.path.base() / 6);
        if compete.end_round(round, empty, &self.path) || losing.is_some() {
            let seen = cruise::sent(round.rate, self.losses.share());
            let rate = losing.unwrap_or(seen);
            self.cruise_at(ack.now, rate);
            self.cruise.beware();
            self.phase = Phase::Cruise;
        }
    }
}
