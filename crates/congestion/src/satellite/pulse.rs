//! A pulse: for a quarter of a round trip faster than the path is believed to be.
//!
//! `cruise.rs` sends one when the queue is empty. If the path is faster, nothing happens to it; if not, the queue that it
//! meets tells by its height how fast the path is. It does not change the rate itself.

use std::time::{Duration, Instant};

use crate::ablation::Part;

use super::super::{float, rate_of, scaled, whole};

/// Slowest pacing, in permille of the rate.
pub(super) const SLOWEST: u64 = 500;
/// Length: this share of a round trip, but so long that a queue shows.
const SHARE: u32 = 4;
const LEAST: Duration = Duration::from_millis(40);
/// Least length of a pulse, as a multiple of the variation of round-trip times, so that the pulse's queue can be told from that.
const AUDIBLE: u32 = 32;
/// A queue that round-trip times show without one.
const NOISE: Duration = Duration::from_millis(4);
/// Of what a pulse on a full path adds this part is not believed.
const DOUBT: u64 = 3;
/// No pulse is stronger, in permille.
const STRONGEST: u64 = 1000;
/// What is made of a rate that a queue's height told, in permille.
const CAUTION: u64 = 980;

/// A pulse under way, or waiting for its answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pulse {
    /// How much faster, in permille.
    step: u64,
    start: Instant,
    end: Instant,
    /// The newest packet acknowledged that left before it, the same of its own, and their bytes that arrived.
    preceding: Option<Instant>,
    newest: Option<Instant>,
    arrived: u64,
    /// Queue before it, and the highest that it met.
    before: Duration,
    most: Duration,
    /// What round-trip times differ by without a queue.
    noise: Duration,
    /// The queue after it, once it is answered.
    after: Option<Duration>,
    /// The path is known to be full: what the pulse adds is taken back at once.
    balanced: bool,
}

/// What a pulse found, in bytes per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The path takes all of it, and perhaps more.
    All(u64),
    /// The path takes this much.
    Part(u64),
    /// A policer drops what is more, without a queue; this much arrived.
    Policed(u64),
}

impl Pulse {
    /// `noise` is what round-trip times differ by without a queue.
    pub(super) fn new(
        now: Instant,
        step: u64,
        before: Duration,
        base: Duration,
        noise: Duration,
    ) -> Self {
        Self {
            step,
            start: now,
            end: now + (base / SHARE).max(LEAST).max(noise * AUDIBLE),
            preceding: None,
            newest: None,
            arrived: 0,
            before,
            noise,
            most: Duration::ZERO,
            after: None,
            balanced: false,
        }
    }

    /// On a path that is full, as far as is known. The queue behind it, which tells over a noisy path, has to stay.
    pub(super) fn balanced(mut self, full: bool) -> Self {
        self.balanced = Part::BalancedPulse.or(full && self.noise.is_zero(), false);
        self
    }

    /// No stronger than to make a queue of `most` if the path is full.
    pub(super) fn limited(mut self, most: Duration) -> Self {
        let step = proportion(most, self.end - self.start, 1000);
        self.step = self.step.min(step).min(STRONGEST);
        self
    }

    /// What a rate found by it may be above the one known and yet be the same, in permille: the queue of a weak pulse is not
    /// much higher than what packets in groups make, and a path known to be full has to be found otherwise by more than that.
    pub(super) fn doubt(&self) -> u64 {
        let doubt = if self.balanced { self.step / DOUBT } else { 0 };
        Part::PulseDoubt.or(doubt, 0)
    }

    /// How much longer the queue is after it than before.
    fn raised(&self) -> Duration {
        self.after.unwrap_or(self.most).saturating_sub(self.before)
    }

    /// Pacing, in permille of the rate. A balanced one is followed by as much less: were that to wait for the answer, the
    /// queue would stand for a round trip and more, and requests in it.
    pub(super) fn pace(&self, now: Instant) -> u64 {
        if now < self.end {
            1000 + self.step
        } else if self.balanced && now < self.end + (self.end - self.start) {
            1000u64.saturating_sub(self.step).max(SLOWEST)
        } else {
            1000
        }
    }

    pub(super) fn start(&self) -> Instant {
        self.start
    }

    pub(super) fn end(&self) -> Instant {
        self.end
    }

    /// An ACK of so many bytes came, whose newest packet left at `sent` and met `queue`.
    pub(super) fn on_ack(&mut self, sent: Instant, queue: Duration, bytes: u64) {
        if sent < self.start {
            self.preceding = Some(sent);
        } else if sent < self.end {
            self.newest = Some(sent);
            self.arrived += bytes;
        }
        if sent >= self.start {
            self.most = self.most.max(queue);
        }
        if sent >= self.end {
            self.after = Some(self.after.map_or(queue, |least| least.min(queue)));
        }
    }

    /// All of it was answered, and two ACKs more for what was lost last.
    pub(super) fn is_answered(&self, sent: Instant, base: Duration) -> bool {
        sent >= self.end + (base / 8).max(self.noise * AUDIBLE)
    }

    /// At what rate its packets arrived, taken over the time in which they left.
    fn delivered(&self) -> Option<u64> {
        let span = self.newest?.saturating_duration_since(self.preceding?);
        Some(rate_of(self.arrived, span))
    }

    /// The queue that it leaves if the path takes nothing of what is more.
    pub(super) fn queue_if_full(&self) -> Duration {
        (self.end - self.start) * u32::try_from(self.step).unwrap_or(0) / 1000
    }

    /// The share of its packets that is lost if the path takes nothing of what is more, and cannot queue it.
    pub(super) fn missing_if_full(&self) -> f64 {
        let extra = float(self.step) / 1000.0;
        extra / (1.0 + extra)
    }

    /// What it found, when the path was believed to take `rate`, of which the share `excess` was lost beyond the usual, and
    /// `surplus` beyond the path's own, which may be chance.
    pub(super) fn found(&self, rate: u64, excess: f64, surplus: f64) -> Found {
        let fast = scaled(rate, 1000 + self.step);
        let raised = if self.noise.is_zero() {
            self.most.saturating_sub(self.before)
        } else {
            self.raised()
        };
        let noise = NOISE.max(self.noise);
        let least = (self.queue_if_full() / 3).min((self.queue_if_full() / 8).max(noise));
        let lossy = excess > self.missing_if_full() / 4.0;
        if raised < least {
            // Losses without a queue are a policer's, who lets more pass for a while than in the long run.
            return if lossy || surplus > self.missing_if_full() / 2.0 {
                Found::Policed(self.delivered().unwrap_or(rate))
            } else {
                Found::All(fast)
            };
        }
        let length = self.end - self.start;
        let part = u128::from(fast) * length.as_nanos() / (length + raised).as_nanos().max(1);
        let part = scaled(u64::try_from(part).unwrap_or(u64::MAX), CAUTION);
        // What did not fit into the queue was lost.
        Found::Part(if lossy {
            share_of(part, 1.0 - excess)
        } else {
            part
        })
    }
}

/// A share of `rate`.
pub(super) fn share_of(rate: u64, share: f64) -> u64 {
    whole(float(rate) * share)
}

/// `strength` times `part`, as a share of `whole`, in whole numbers: with 1000, `part` in permille.
pub(super) fn proportion(part: Duration, whole: Duration, strength: u64) -> u64 {
    let share = part.as_nanos() * u128::from(strength) / whole.as_nanos().max(1);
    u64::try_from(share).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "one base instant; all else is virtual"
)]
mod tests {
    use super::*;

    const BASE: Duration = Duration::from_millis(60);

    /// What a pulse at 1000 finds whose packets, and those behind it, meet these queues in milliseconds.
    fn found(noise: Duration, during: &[u64], behind: &[u64]) -> Found {
        let start = Instant::now();
        let mut pulse = Pulse::new(start, 250, Duration::ZERO, BASE, noise);
        for queue in during {
            pulse.on_ack(start, Duration::from_millis(*queue), 0);
        }
        for queue in behind {
            pulse.on_ack(pulse.end(), Duration::from_millis(*queue), 0);
        }
        pulse.found(1000, 0.0, 0.0)
    }

    /// What comes and goes is no queue; what is still there behind the pulse is.
    #[test]
    fn a_pulse_over_a_noisy_path_looks_behind_itself() {
        let noise = Duration::from_millis(2);
        assert_eq!(found(noise, &[9, 1, 6], &[7, 1, 5]), Found::All(1250));
        let Found::Part(rate) = found(noise, &[4, 9, 16], &[18, 24, 16]) else {
            panic!("the path is full")
        };
        assert!((950..=1020).contains(&rate), "{rate}");
        let Found::Part(_) = found(Duration::ZERO, &[9, 1, 6], &[1]) else {
            panic!("without noise every queue counts")
        };
    }
}
