//! Pulses of cruising: when the queue is empty, a quarter of a round trip is sent faster.

use std::time::{Duration, Instant};

use super::super::super::scaled;
use super::super::losses::Losses;
use super::super::path::Path;
use super::super::pulse::{Found, Pulse};
use super::crowd::FAR;
use super::{AS_SENT, Cruise, LOSS_MARGIN, SPREAD, Stage, sent};

/// How much faster a pulse is, in permille: the first, and at most after successes, each of which doubles it.
pub(super) const FIRST_STEP: u64 = 250;
const MOST_STEP: u64 = 1000;
/// The queue that a pulse makes at most where the last one found the path full: requests wait behind it.
const DISCREET: Duration = Duration::from_millis(20);
/// Rounds after a pulse that found nothing.
pub(super) const PATIENCE: u64 = 8;
/// The same for some rounds after the path became slower: rain passes.
const SOON: u64 = 2;
pub(super) const EAGER: u64 = 128;

impl Cruise {
    /// Sends the next quarter of a round trip faster, behind the queue `before`.
    pub(super) fn pulse(
        &mut self,
        now: Instant,
        before: Duration,
        path: &Path,
        losses: &mut Losses,
    ) {
        let mut pulse =
            Pulse::new(now, self.step, before, path.base(), path.audible()).balanced(self.full);
        if self.full && self.eager == 0 && path.audible().is_zero() {
            pulse = pulse.limited(DISCREET);
        }
        if let Some(room) = self.room {
            pulse = pulse.limited(room / 2);
        }
        losses.watch(now, pulse.end());
        self.stage = Stage::Pulse(pulse);
    }

    /// A pulse was answered.
    pub(super) fn conclude(&mut self, pulse: Pulse, losses: &Losses) {
        self.stage = Stage::Hold;
        self.gain = 1000;
        let excess = losses.excess_of_pulse();
        let found = pulse.found(self.rate, excess, losses.surplus_of_pulse());
        let as_known = scaled(self.rate, 1000 + AS_SENT.max(pulse.doubt()));
        self.full = excess < LOSS_MARGIN && matches!(found, Found::Part(rate) if rate <= as_known);
        match found {
            Found::All(rate) => {
                if self.policed.on_passed_pulse() {
                    self.rate = self.rate.max(rate);
                }
                if !self.policed.is_found() {
                    self.step = (self.step * 2).min(MOST_STEP);
                }
                return;
            }
            // Within what a pulse can tell: where round trips are long, a rate raised by its error would fill the queue for seconds.
            // Where the path loses packets, nothing else raises it as well.
            Found::Part(rate)
                if rate <= as_known && self.base >= FAR && losses.baseline() < LOSS_MARGIN =>
            {
                self.policed.forget();
            }
            Found::Part(rate) => {
                self.rate = self.rate.max(rate);
                self.policed.forget();
            }
            // Where a queue stood not long ago it would stand again: what was lost is the weather's.
            Found::Policed(_) if self.eager > 0 && !self.policed.is_found() => {}
            Found::Policed(delivered) => {
                // A pulse is short: its bytes are few, and some of them are what the policer saved.
                let passed = sent(delivered.max(self.policed.seen()), losses.baseline());
                self.rate = self.policed.on_lost_pulse(self.rate, passed);
            }
        }
        self.step = FIRST_STEP;
        self.patience = if self.eager > 0 && !self.policed.is_found() {
            SOON + self.noise % SOON
        } else {
            self.policed.patience(PATIENCE) + self.noise % SPREAD
        };
        self.noise = self.noise / SPREAD + self.noise % 7919;
    }
}
