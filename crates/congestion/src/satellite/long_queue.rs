//! A queue that stays long: whether it is ours, or the path became longer, or somebody else fills it.
//!
//! Ours shrinks when we send less; a longer path stays as long as it is; somebody else's grows on. Asked at the end of every round,
//! and of single ACKs in `stuck.rs`. What was cut while it stood is given back if it was none. It decides nothing: that is for
//! `belief.rs` and `phases.rs`.

use std::time::Duration;

use crate::ablation::Part;

use super::super::time_of;
use super::stuck::Stuck;

/// Rounds without a long queue after which the rate is not in doubt.
const CALM: u32 = 4;
/// A second "longer path" within so many rounds is somebody who fills the queue.
const SUSPICION: u64 = 24;
/// Rounds of watching before a verdict.
const ROUNDS: u32 = 3;
/// A reduction that is worth a verdict.
const LEAST: Duration = Duration::from_millis(6);
/// Rounds after which a queue that we cannot move is somebody else's.
const ENDLESS: u32 = 8;
/// Share of a reduction that must show in the round-trip time if the queue is ours, and that may if the path is longer.
const OURS: f64 = 0.6;
const STILL: f64 = 0.2;

/// Cause of a long round-trip time that is not our own queue on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The path itself became longer.
    Longer,
    /// Another sender fills the queue.
    Shared,
}

/// Rounds in a row behind a long queue.
#[derive(Clone, Copy, Debug, Default)]
struct Standing {
    rounds: u32,
    /// Most in flight when the queue was noticed.
    most: u64,
    /// In flight at the end of the first round, and the round-trip time of the second, which answers to it.
    in_flight: u64,
    rtt: Duration,
    last_in_flight: u64,
}

/// Watch over a queue that is longer than it should be.
#[derive(Clone, Debug, Default)]
pub(super) struct LongQueue {
    standing: Standing,
    stuck: Stuck,
    /// Rounds in a row without a long queue, and the rate when there were enough of them, in bytes per second.
    calm: u32,
    rate_before: u64,
    /// When the path was last taken to be longer (in rounds), and its round-trip time before.
    longer: Option<(u64, Duration)>,
}

impl LongQueue {
    /// Rate before the queue was long, in bytes per second; 0 if it always was.
    pub(super) fn rate_before(&self) -> u64 {
        self.rate_before
    }

    /// Bytes in flight, at most, when the queue began to be long.
    pub(super) fn most_in_flight(&self) -> u64 {
        self.standing.most
    }

    /// Notes an ACK behind a long queue, with `in_flight` bytes before it.
    pub(super) fn on_ack(&mut self, in_flight: u64) {
        if self.standing.rounds == 0 {
            self.standing.most = self.standing.most.max(in_flight);
        }
    }

    /// Forgets the rounds of a long queue.
    pub(super) fn forget_rounds(&mut self) {
        self.standing = Standing::default();
    }

    /// Forgets the ACKs of a long queue.
    pub(super) fn forget_acks(&mut self) {
        self.stuck.reset();
    }

    /// Takes a packet that left behind `in_flight` bytes at `rate` and took `rtt`. True if what looks like a queue cannot be one,
    /// since `enough` of it was taken away.
    pub(super) fn is_stuck(
        &mut self,
        rtt: Duration,
        in_flight: u64,
        enough: Duration,
        rate: u64,
        noise: Duration,
    ) -> bool {
        let rate = self.rate_before.max(rate);
        self.stuck.on_ack(rtt, in_flight, enough, rate, noise)
    }

    /// Ends a round at `rate` whose queue was short.
    pub(super) fn end_short_round(&mut self, rate: u64) {
        self.calm = if self.stuck.is_watching() {
            0
        } else {
            self.calm + 1
        };
        if self.calm >= CALM {
            self.rate_before = rate;
        }
        self.forget_rounds();
    }

    /// Ends a round behind a long queue: its smallest `rtt`, bytes `in_flight` at its end, and the `rate` of delivery. Returns the
    /// verdict, once there is one; the watch begins anew then, as it does if the queue is ours.
    pub(super) fn end_long_round(
        &mut self,
        rtt: Duration,
        in_flight: u64,
        rate: u64,
    ) -> Option<Verdict> {
        self.calm = 0;
        // The round-trip times of a round answer to what was in flight at the end of the one before.
        let before = std::mem::replace(&mut self.standing.last_in_flight, in_flight);
        self.standing.rounds += 1;
        match self.standing.rounds {
            1 => self.standing.in_flight = in_flight,
            2 => self.standing.rtt = rtt,
            _ => {}
        }
        if self.standing.rounds < ROUNDS {
            return None;
        }
        let Standing {
            rounds,
            in_flight: first,
            rtt: longest,
            ..
        } = self.standing;
        let expected = time_of(first.saturating_sub(before), rate);
        let shared = Part::StandingShared.or(Some(Verdict::Shared), None);
        if expected < LEAST.max(longest / 32) {
            // Too small to make a difference: the queue is not ours.
            if rounds < ENDLESS {
                return None;
            }
            self.forget_rounds();
            return shared;
        }
        self.forget_rounds();
        let answer = (longest.as_secs_f64() - rtt.as_secs_f64()) / expected.as_secs_f64();
        if answer > OURS {
            None
        } else if answer.abs() < STILL {
            Part::StandingLonger.or(Some(Verdict::Longer), None)
        } else {
            shared
        }
    }

    /// Notes that the path is taken to be longer in `round`, with `base` until then. If it was not long ago, somebody fills the
    /// queue: returns the round-trip time before that.
    pub(super) fn on_longer(&mut self, round: u64, base: Duration) -> Option<Duration> {
        let again = self.longer.filter(|(at, _)| round - at <= SUSPICION);
        if let Some((_, before)) = again {
            self.longer = None;
            return Some(before);
        }
        self.longer = Some((round, base));
        self.forget_rounds();
        self.stuck.reset();
        None
    }
}
