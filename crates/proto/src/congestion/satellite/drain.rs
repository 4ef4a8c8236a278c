//! Drain: sends below the path's rate until the queue that a probe or start-up built is gone.
//!
//! It is also the controller's experiment: what is still lost below the path's rate is not congestion (`losses.rs`), and
//! a delay that does not shrink although less is sent is not our queue. It does not know why it was started.

use std::time::Duration;

use super::model::{Model, scaled};

/// Rounds after which the queue is somebody else's.
const MAX_ROUNDS: u32 = 4;

/// State of a drain.
#[derive(Clone, Debug)]
pub(super) struct Drain {
    /// Pacing, in permille of the rate.
    pub(super) gain: u64,
    rounds: u32,
    /// Round-trip time when the drain began to show.
    before: Option<Duration>,
}

/// How a round of draining ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Not yet empty.
    Continue,
    /// The queue is gone, or is not ours.
    Done,
    /// The delay did not answer: the path itself became longer.
    Longer,
}

impl Drain {
    pub(super) fn new(gain: u64) -> Self {
        Self {
            gain,
            rounds: 0,
            before: None,
        }
    }

    /// Asked at the end of every round.
    pub(super) fn end_round(&mut self, model: &Model, in_flight: u64, bdp: u64) -> Outcome {
        self.rounds += 1;
        // What is acknowledged in the first round was sent before it.
        if self.rounds == 1 {
            self.before = model.last_round_rtt();
            return if in_flight <= bdp && !model.is_queued() {
                Outcome::Done
            } else {
                Outcome::Continue
            };
        }
        if !model.is_queued() {
            return Outcome::Done;
        }
        if self.rounds < MAX_ROUNDS {
            return Outcome::Continue;
        }
        let (Some(before), Some(after)) = (self.before, model.last_round_rtt()) else {
            return Outcome::Done;
        };
        // Each round below the rate takes its share of a round trip off our own queue.
        let expected =
            before * (self.rounds - 1) * u32::try_from(1000 - self.gain).unwrap_or(0) / 1000;
        if before.saturating_sub(after) < expected / 4 {
            Outcome::Longer
        } else {
            Outcome::Done
        }
    }

    /// Bytes in flight at which the queue is empty: a quarter more than the path holds, for ACKs come in batches.
    pub(super) fn window(&self, bdp: u64) -> u64 {
        scaled(bdp, 1250)
    }
}
