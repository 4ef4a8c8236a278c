//! Pulses of cruising: when the queue is empty, a quarter of a round trip is sent faster.

use std::time::{Duration, Instant};

use crate::ablation::Part;

use super::super::super::scaled;
use super::super::losses::{Losses, MARGIN};
use super::super::path::{FAR, Path};
use super::super::pulse::{Found, Pulse};
use super::policed::Policed;
use super::{AS_SENT, SPREAD, sent};

/// How much faster a pulse is, in permille: the first, and at most after successes, each of which doubles it.
const FIRST_STEP: u64 = 250;
const MOST_STEP: u64 = 1000;
/// The queue that a pulse makes at most where the last one found the path full: requests wait behind it.
const DISCREET: Duration = Duration::from_millis(20);
/// Rounds after a pulse that found nothing.
pub(super) const PATIENCE: u64 = 8;
/// Rounds between pulses for some rounds after the path became slower: rain passes.
const SOON: u64 = 2;
const EAGER: u64 = 128;

/// When the next pulse is due, and how it is to be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pulses {
    /// Rounds until the next one.
    patience: u64,
    /// Rounds for which a path that became slower is expected to become faster again.
    eager: u64,
    /// How much faster the next one is, in permille.
    step: u64,
    /// The last one found no more than was known, and what it added stood in the queue.
    full: bool,
    /// Some number that differs between tunnels.
    noise: u64,
}

impl Pulses {
    /// `noise` is any number that differs between tunnels.
    pub(super) fn new(noise: u64) -> Self {
        Self {
            patience: 0,
            eager: 0,
            step: FIRST_STEP,
            full: false,
            noise,
        }
    }

    /// True if enough rounds have passed.
    pub(super) fn is_due(&self) -> bool {
        Part::Pulses.or(self.patience == 0, false)
    }

    /// True while the path is expected to become faster again.
    pub(super) fn is_eager(&self) -> bool {
        self.eager > 0
    }

    /// True if the last pulse found the path full.
    pub(super) fn found_full(&self) -> bool {
        self.full
    }

    /// Rounds by which what tunnels do every so many rounds is out of step.
    pub(super) fn spread(&self) -> u64 {
        self.noise % SPREAD
    }

    pub(super) fn end_round(&mut self) {
        self.patience = self.patience.saturating_sub(1);
        self.eager = self.eager.saturating_sub(1);
    }

    /// Forgets how large the last pulses were.
    pub(super) fn begin_small(&mut self) {
        self.step = FIRST_STEP;
    }

    /// Sends no pulse for `rounds` at least.
    pub(super) fn wait(&mut self, rounds: u64) {
        self.patience = self.patience.max(rounds);
    }

    /// Sends no pulse for as many rounds as after one that found nothing.
    pub(super) fn start_over(&mut self) {
        self.patience = PATIENCE;
    }

    /// Notes that the path became slower: rain passes.
    pub(super) fn on_slower(&mut self) {
        self.eager = Part::Eager.or(EAGER, 0);
    }

    /// The next quarter of a round trip, faster, behind the queue `before`, where there is `room` for one.
    pub(super) fn begin(
        &self,
        now: Instant,
        before: Duration,
        room: Option<Duration>,
        path: &Path,
        losses: &mut Losses,
    ) -> Pulse {
        let mut pulse =
            Pulse::new(now, self.step, before, path.base(), path.audible()).balanced(self.full);
        let discreet = self.full && self.eager == 0 && path.audible().is_zero();
        if Part::DiscreetPulse.or(discreet, false) {
            pulse = pulse.limited(DISCREET);
        }
        if let Some(room) = room {
            pulse = pulse.limited(room / 2);
        }
        losses.watch(now, pulse.end());
        pulse
    }

    /// Takes the answer to a pulse, while `rate` is sent on a path with round trips of `base`; returns the new rate.
    pub(super) fn conclude(
        &mut self,
        pulse: Pulse,
        rate: u64,
        base: Duration,
        policed: &mut Policed,
        losses: &Losses,
    ) -> u64 {
        let mut next = rate;
        let excess = losses.excess_of_pulse();
        let found = pulse.found(rate, excess, losses.surplus_of_pulse());
        let as_known = scaled(rate, 1000 + AS_SENT.max(pulse.doubt()));
        self.full = excess < MARGIN && matches!(found, Found::Part(rate) if rate <= as_known);
        match found {
            Found::All(rate) => {
                if policed.on_passed_pulse() {
                    next = next.max(rate);
                }
                if !policed.is_found() {
                    self.step = Part::GrowingPulse.or((self.step * 2).min(MOST_STEP), FIRST_STEP);
                }
                return next;
            }
            // Within what a pulse can tell: where round trips are long, a rate raised by its error would fill the queue for seconds.
            // Where the path loses packets, nothing else raises it as well.
            Found::Part(rate) if rate <= as_known && base >= FAR && losses.baseline() < MARGIN => {
                policed.forget();
            }
            Found::Part(rate) => {
                next = next.max(rate);
                policed.forget();
            }
            // Where a queue stood not long ago it would stand again: what was lost is the weather's.
            Found::Policed(_) if self.eager > 0 && !policed.is_found() => {}
            Found::Policed(delivered) => {
                // A pulse is short: its bytes are few, and some of them are what the policer saved.
                let passed = sent(delivered.max(policed.seen()), losses.baseline());
                next = policed.on_lost_pulse(rate, passed);
            }
        }
        self.step = FIRST_STEP;
        self.patience = if self.eager > 0 && !policed.is_found() {
            SOON + self.noise % SOON
        } else {
            policed.patience(PATIENCE) + self.noise % SPREAD
        };
        self.noise = self.noise / SPREAD + self.noise % 7919;
        next
    }
}
