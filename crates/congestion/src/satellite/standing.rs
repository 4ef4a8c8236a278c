//! Whose queue stands? Ours shrinks when we send less; a longer path stays as long as it is; somebody else's grows on.
//!
//! Asked at the end of every round. It only watches.

use std::time::Duration;

/// Rounds of watching before a verdict.
const ROUNDS: u32 = 3;
/// A reduction that is worth a verdict.
const LEAST: Duration = Duration::from_millis(6);
/// Rounds after which a queue that we cannot move is somebody else's.
const ENDLESS: u32 = 8;
/// Share of a reduction that must show in the round-trip time if the queue is ours, and that may if the path is longer.
const OURS: f64 = 0.6;
const STILL: f64 = 0.2;

/// What stands behind a long round-trip time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Our own queue, on its way out.
    Ours,
    /// The path itself became longer.
    Longer,
    /// Another sender fills the queue.
    Shared,
}

/// A queue that is being watched.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Standing {
    rounds: u32,
    /// Most in flight when it was noticed.
    most: u64,
    /// In flight at the end of the first round, and the round-trip time of the second, which answers to it.
    in_flight: u64,
    rtt: Duration,
    last_in_flight: u64,
}

impl Standing {
    /// Bytes in flight when the queue began to stand.
    pub(super) fn most_in_flight(&self) -> u64 {
        self.most
    }

    /// No queue, or none that matters.
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }

    /// An ACK came behind a long queue, with `in_flight` bytes before it.
    pub(super) fn on_ack(&mut self, in_flight: u64) {
        if self.rounds == 0 {
            self.most = self.most.max(in_flight);
        }
    }

    /// A round ended behind a long queue: its smallest `rtt`, bytes `in_flight` at its end, and the `rate` of delivery.
    pub(super) fn end_round(
        &mut self,
        rtt: Duration,
        in_flight: u64,
        rate: u64,
    ) -> Option<Verdict> {
        // The round-trip times of a round answer to what was in flight at the end of the one before.
        let before = std::mem::replace(&mut self.last_in_flight, in_flight);
        self.rounds += 1;
        match self.rounds {
            1 => self.in_flight = in_flight,
            2 => self.rtt = rtt,
            _ => {}
        }
        if self.rounds < ROUNDS {
            return None;
        }
        let removed = self.in_flight.saturating_sub(before);
        let expected = super::super::time_of(removed, rate);
        if expected < LEAST.max(self.rtt / 32) {
            // Too small to make a difference: the queue is not ours.
            return (self.rounds >= ENDLESS).then_some(Verdict::Shared);
        }
        let answer = (self.rtt.as_secs_f64() - rtt.as_secs_f64()) / expected.as_secs_f64();
        Some(if answer > OURS {
            Verdict::Ours
        } else if answer.abs() < STILL {
            Verdict::Longer
        } else {
            Verdict::Shared
        })
    }
}
