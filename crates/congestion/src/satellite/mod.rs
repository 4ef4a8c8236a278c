//! `satellite`: a controller that models the path instead of reacting to single losses.
//!
//! On the data path this is one of the controllers behind [`super::Controller`]: acknowledgements and losses go in, a
//! pacing rate and a window come out.
//!
//! ```text
//!  startup ──► drain ──► cruise ⇄ (dip, pulse)          a queue of a few milliseconds, at the path's rate
//!                          ▲ │ somebody fills the queue
//!                          │ ▼
//!                        compete                        CUBIC's window, until the queue is empty again
//! ```
//!
//! `docs/controller.md` explains all of it, top down. At the end of each round `belief.rs` decides whether another sender fills
//! the queue or the path became longer; the laws go by `Cruise::bottleneck` (alone, shared or policed) and by losses. On paths
//! with round trips below 6 ms BBRv3 sends instead (`nearby.rs`).
//!
//! `path.rs`, `noise.rs` and `jumps.rs` model the path; `losses.rs` tells the path's own losses from congestion;
//! `long_queue.rs` and `stuck.rs` tell whose queue stands; `knowledge.rs` holds what other connections learned; `rest.rs`
//! watches idle times; `capacity.rs`, `share.rs`, `company.rs` and `ceiling.rs` detect other senders; `common.rs` shares the
//! path with tunnels of the same kind; `phases.rs` changes phases.
//!
//! Round trips of 600 ms have these consequences:
//! - Nothing waits for several rounds to be sure: each phase reads the queue from the round-trip time of its own packets.
//! - No ProbeRTT: the dip empties a queue that is short anyway.
//! - Loss is compared with what the path loses below its rate instead of a fixed threshold.
//! - The rate survives idle: samples of an idle sender never lower it.
//!
//! It does not detect losses and does not touch packets.

mod belief;
mod capacity;
mod ceiling;
mod common;
mod company;
mod compete;
mod cruise;
mod jumps;
mod knowledge;
mod long_queue;
mod losses;
mod nearby;
mod noise;
mod path;
mod phases;
mod pulse;
mod rest;
mod share;
mod silence;
mod startup;
mod stuck;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use crate::ablation::Part;

use bentpipe_units::BitRate;

use super::{
    AckSample, Config, LossSample, MIN_RATE, RoundCounter, Saved, bytes_in, rate_of, scaled,
};
use compete::Compete;
use cruise::Cruise;
use knowledge::{Usage, begin};
use long_queue::LongQueue;
use losses::{Lesson, Losses};
use nearby::Nearby;
use path::Path;
use rest::Rest;
use silence::Silence;
use startup::Startup;

/// Smallest window in packets: two, and the ACKs of two more may be under way.
const MIN_WINDOW: u64 = 4;
/// Pacing is at least so many packets a round trip, the customary initial window (RFC 9002 §7.2).
const LEAST_PACKETS: u64 = 10;
/// Round trip from which on that holds: in a shorter one so many packets are more than most paths carry.
const LEAST_ROUND: Duration = Duration::from_millis(20);
/// Pacing of the drain after start-up, in permille of the rate; the second where start-up knew the rate before and left
/// a short queue.
const DRAIN: u64 = 750;
const SHALLOW_DRAIN: u64 = 950;
/// Share of the rate kept after a jump that met losses or a mark: half of what it proved (RFC 9959 §3.5).
const RETREAT: u64 = 500;
/// What a CE mark leaves of the rate, in permille (RFC 8511).
const MARKED: u64 = 850;
/// Share of a remembered rate at which to start, in permille, where the peer has seen the path carry that much just now: nobody
/// stretches a train, so it does not show what others leave free, but it shows that the path is the one that is remembered.
const CONFIRMED: u64 = 900;
/// Share of a rate that is used, in permille, where somebody seems to fill the path since it was last used, and where round trips are long.
const WARY: u64 = 200;
const WARY_FAR: u64 = 250;

/// A share of losses beyond the path's own that somebody else's packets take part in.
const OVERLOAD: f64 = 0.08;

/// State of one path's controller.
#[derive(Clone, Debug)]
pub struct Satellite {
    config: Config,
    mtu: u64,
    path: Path,
    losses: Losses,
    round: RoundCounter,
    phase: Phase,
    /// Sends instead of the phases while the path is nearby.
    nearby: Option<Nearby>,
    cruise: Cruise,
    long_queue: LongQueue,
    silence: Silence,
    usage: Usage,
    rest: Rest,
    /// What an earlier connection had of the path.
    remembered: Option<Saved>,
    /// Packets sent before are one congestion event.
    marked_at: Option<Instant>,
    now: Instant,
}

#[derive(Clone, Debug)]
enum Phase {
    Startup(Startup),
    Drain {
        rounds: u32,
        /// Permille of the rate.
        pace: u64,
    },
    Cruise,
    Compete(Box<Compete>),
}

impl Satellite {
    /// A controller in start-up; at the provisioned rate at once, where there is one.
    pub fn new(config: &Config, now: Instant) -> Self {
        let mtu = u64::from(config.mtu.max(1));
        Self {
            config: *config,
            mtu,
            path: Path::new(config.initial_rtt, now),
            losses: Losses::new(mtu, now),
            round: RoundCounter::new(now),
            phase: Phase::Startup(begin(config, mtu, now)),
            nearby: None,
            cruise: Cruise::new(0, 0, now),
            long_queue: LongQueue::default(),
            silence: Silence::new(now),
            usage: Usage {
                delivered: 0,
                busy_at: now,
            },
            rest: Rest::default(),
            remembered: None,
            marked_at: None,
            now,
        }
    }

    /// Time passes: a pulse may end, or an idle time.
    pub fn on_sent(&mut self, now: Instant, bytes: u64, in_flight: u64) {
        self.now = now;
        if let Some(nearby) = &mut self.nearby {
            return nearby.on_sent(now, bytes, in_flight);
        }
        if in_flight > bytes {
            return;
        }
        self.silence.begin_flight(now);
        if let Phase::Startup(startup) = &mut self.phase {
            startup.begin_flight(now);
            self.path.rest(now);
        }
        // The path was idle, and idle drains.
        if let Phase::Drain { .. } = self.phase {
            self.phase = Phase::Cruise;
        }
        if let Phase::Cruise = self.phase {
            self.path.rest(now);
            self.cruise.rest();
            self.long_queue.forget_rounds();
            self.losses.give_up_quiet();
        }
    }

    /// Takes the sample into the model and moves between phases.
    pub fn on_ack(&mut self, ack: &AckSample) {
        self.now = ack.now;
        self.usage.delivered += ack.newly_acked;
        if let Some(rtt) = ack.rtt.filter(|_| self.path.measured().is_none()) {
            self.confirm(ack.now, rtt);
        }
        // A train's rate may be a burst's: what arrived before the gap helps to refute that, behind a policer for instance.
        if self.config.provisioned.is_some() && matches!(self.phase, Phase::Startup(_)) {
            self.path.end_gap(ack.now);
        }
        self.path.on_ack(ack);
        if self.is_nearby(ack) {
            return;
        }
        self.end_silence(ack);
        if self.path.is_filling() || self.losses.exceeds_share(self.losses.baseline(), OVERLOAD) {
            self.path.on_overload(ack.now);
        }
        let queued = self.path.queue_least() > self.cruise.empty(self.mtu);
        let lesson = self
            .losses
            .on_acked(ack.newly_acked, ack.newest_sent, queued);
        match lesson {
            // Until now the rate was that of arrival.
            Some(Lesson::Known) => self.cruise.compensate(self.losses.baseline()),
            Some(Lesson::Congested(rate)) => {
                let rate = cruise::sent(rate, self.losses.baseline());
                self.cruise.lower(rate);
            }
            None => {}
        }
        let ended = self.round.on_ack(ack.now, ack.newest_sent);
        let round = ended.then(|| {
            self.losses.end_round();
            self.path.end_round()
        });
        if round.is_some_and(|round| round.rate > 0) {
            self.rest.on_busy(self.path.base());
        }
        let few = LEAST_PACKETS * self.mtu;
        if self.listens() && self.rest.on_ack(ack, few) {
            return self.on_filled(ack);
        }
        let arriving = self.arriving();
        match &mut self.phase {
            Phase::Startup(startup) => {
                if let Some(end) = startup.on_ack(ack, round, &self.path, &self.losses, self.mtu) {
                    self.end_startup(ack, end, arriving);
                } else if ack.in_flight + ack.newly_acked > few {
                    self.return_to_others(ack.now);
                }
            }
            Phase::Drain { .. } => self.on_drain(ack, ended),
            Phase::Cruise => self.on_cruise(ack, round),
            Phase::Compete(compete) => {
                compete.on_ack(ack);
                if let Some(round) = round {
                    self.end_competing(ack, round);
                }
            }
        }
    }

    /// True if `ack` is that of a nearby path; the controller of such paths has taken it then.
    fn is_nearby(&mut self, ack: &AckSample) -> bool {
        if self.nearby.is_some() && nearby::is_left(&self.path, ack) {
            self.nearby = None;
            self.path = Path::new(self.path.rtt_least(), ack.now);
            self.start_up(ack.now);
        }
        if self.nearby.is_none() {
            self.nearby = nearby::enter(&self.path, &self.config, self.mtu, ack.now);
        }
        let Some(nearby) = &mut self.nearby else {
            return false;
        };
        nearby.on_ack(ack);
        true
    }

    /// Counts; what single losses mean is decided at the end of the round.
    pub fn on_loss(&mut self, loss: &LossSample) {
        if let Some(nearby) = &mut self.nearby {
            return nearby.on_loss(loss);
        }
        if loss.ecn {
            return self.on_mark(loss);
        }
        if self.silence.was_outage(loss, self.path.base()) {
            return self.start_anew(loss.now);
        }
        self.losses.on_lost(loss.lost, loss.newest_sent);
        if let Phase::Compete(compete) = &mut self.phase {
            compete.on_loss(loss, &self.losses);
        }
    }

    fn on_mark(&mut self, loss: &LossSample) {
        if self.marked_at.is_some_and(|at| loss.newest_sent <= at) {
            return;
        }
        self.marked_at = Some(loss.now);
        match &mut self.phase {
            Phase::Startup(startup) => {
                let pace = startup.retreat();
                self.start_drain(loss.now, self.arriving(), pace);
            }
            Phase::Drain { .. } | Phase::Cruise => {
                self.cruise.on_mark(self.path.queue_least(), MARKED);
            }
            Phase::Compete(compete) => compete.on_loss(loss, &self.losses),
        }
    }

    /// Another train is wanted now: whether others are there is in doubt.
    pub fn wants_train(&self, now: Instant) -> bool {
        matches!(self.phase, Phase::Cruise)
            && self.nearby.is_none()
            && self.cruise.wants_train(now, self.mtu)
    }

    /// Records that a packet train is about to be sent.
    pub fn on_train(&mut self, now: Instant) {
        self.cruise.on_train(now);
    }

    /// The path's packet size changed; rates in bytes stay.
    pub fn on_mtu(&mut self, mtu: u16) {
        self.mtu = u64::from(mtu.max(1));
        if let Some(nearby) = &mut self.nearby {
            nearby.on_mtu(mtu);
        }
    }

    /// Bytes that may be in flight.
    pub fn window(&self) -> u64 {
        if let Some(nearby) = &self.nearby {
            return nearby.window();
        }
        let window = match &self.phase {
            Phase::Startup(startup) => startup.window(),
            Phase::Drain { .. } => {
                let base = self.path.base();
                bytes_in(self.cruise.rate(), base + base / 8)
            }
            Phase::Cruise => self.cruise.window(&self.path, self.mtu),
            Phase::Compete(compete) => compete.window(),
        };
        let rested = self.rest.base().filter(|_| self.is_wary());
        let window = match Part::WaryWindow.or(rested, None) {
            Some(base) => window.min(bytes_in(self.pacing_rate().as_u64() / 8, base)),
            None => window,
        };
        window.max(MIN_WINDOW * self.mtu)
    }

    /// The phase's rate, below the configured ceiling.
    pub fn pacing_rate(&self) -> BitRate {
        if let Some(nearby) = &self.nearby {
            return nearby.pacing_rate();
        }
        let rate = match &self.phase {
            Phase::Startup(startup) => scaled(startup.pace(self.path.base()), self.caution()),
            Phase::Drain { pace, .. } => scaled(self.cruise.rate(), *pace),
            Phase::Cruise => scaled(self.cruise.pace(self.now), self.caution()),
            Phase::Compete(compete) => compete.pace(),
        };
        let max = self.config.max_rate.map(|rate| rate.as_u64() / 8);
        // Requests must not wait for a pacer that bulk made slow, or that never saw bulk.
        let floor = rate_of(LEAST_PACKETS * self.mtu, self.path.base().max(LEAST_ROUND));
        let rate = Part::LeastPace.or(rate.max(floor), rate);
        let rate = max.map_or(rate, |max| rate.min(max));
        BitRate::bits_per_second(rate.saturating_mul(8).max(MIN_RATE))
    }

    /// True if small packets at rest are of use: their round-trip time tells if somebody fills the path meanwhile.
    pub fn listens(&self) -> bool {
        self.nearby.is_none() && !matches!(self.phase, Phase::Compete(_)) && !self.path.has_moved()
    }

    /// True if another sender seems to fill the path.
    fn is_wary(&self) -> bool {
        self.listens() && self.rest.is_wary(self.now)
    }

    /// What may be used of the rate, in permille.
    fn caution(&self) -> u64 {
        match (self.is_wary(), self.path.is_far()) {
            (true, true) => Part::FarCaution.or(WARY_FAR, WARY),
            (true, false) => WARY,
            (false, _) => 1000,
        }
    }

    /// The rate at which ACKs come, and never next to nothing.
    fn arriving(&self) -> u64 {
        let smallest = rate_of(MIN_WINDOW * self.mtu, self.path.base().max(LEAST_ROUND));
        self.path.fresh_rate().unwrap_or(0).max(smallest)
    }
}
