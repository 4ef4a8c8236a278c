//! Cruise and probe: at the path's rate, and now and then a little above it.
//!
//! A probe lasts one round; its effect shows in the next one. A probe that finds more is followed by a larger one at
//! once, so that a wrong estimate is mended in a few rounds; one that finds nothing is drained, and the next one waits.
//! It does not hold the rate.

use super::model::{Model, scaled};

/// First step above the rate, in permille: a tenth of a round trip of queue.
const FIRST_STEP: u64 = 100;
/// First step after start-up.
const EAGER_STEP: u64 = 250;
/// Largest step: doubling.
const MAX_STEP: u64 = 1000;
/// Rounds between probes, at least, and how many more at most: tunnels that share a link are not to probe in step.
const WAIT: u64 = 6;
const SPREAD: u64 = 4;

/// Where between two probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Rounds until the next probe.
    Wait(u64),
    /// Sending above the rate.
    Up,
    /// The probe's packets are being answered.
    Verify,
}

/// State of cruising.
#[derive(Clone, Debug)]
pub(super) struct Probe {
    stage: Stage,
    step: u64,
    /// Rate before the probe.
    before: u64,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Go on.
    Stay,
    /// The probe found nothing: empty its queue.
    Drain,
}

impl Probe {
    /// Cruises; `noise` is any number that differs between tunnels.
    pub(super) fn new(noise: u64) -> Self {
        Self {
            stage: Stage::Wait(WAIT + noise % SPREAD),
            step: FIRST_STEP,
            before: 0,
        }
    }

    /// Probes at once: what start-up found may be far from the path's rate.
    pub(super) fn eager(rate: u64) -> Self {
        Self {
            stage: Stage::Up,
            step: EAGER_STEP,
            before: rate,
        }
    }

    /// Pacing, in permille of the rate.
    pub(super) fn gain(&self) -> u64 {
        match self.stage {
            Stage::Up => 1000 + self.step,
            Stage::Wait(_) | Stage::Verify => 1000,
        }
    }

    /// Asked at the end of every round in which the sender was busy.
    pub(super) fn end_round(&mut self, model: &Model) -> Next {
        match self.stage {
            Stage::Wait(rounds @ 2..) => self.stage = Stage::Wait(rounds - 1),
            Stage::Wait(_) => {
                self.before = model.rate();
                self.stage = Stage::Up;
            }
            Stage::Up => self.stage = Stage::Verify,
            Stage::Verify if model.last_rate() > scaled(self.before, 1000 + self.step / 2) => {
                self.step = (self.step * 5 / 2).min(MAX_STEP);
                self.before = model.rate();
                self.stage = Stage::Up;
            }
            Stage::Verify => return Next::Drain,
        }
        Next::Stay
    }
}
