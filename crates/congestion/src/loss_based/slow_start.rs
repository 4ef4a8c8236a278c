//! The end of slow start: HyStart++ (RFC 9406), fitted to few ACKs and noisy round-trip times.
//!
//! Asked on the data path once per ACK frame while the window is below the threshold. It does not hold the window.
//!
//! Deviations from RFC 9406, chosen in the virtual-time runs of `tests.rs` of the crate:
//! - The receiver acknowledges eight to sixteen times per round trip, so N_RTT_SAMPLE = 8 per round may never be reached. A delay
//!   counts when the minimum of the last [`SAMPLES`] ACKs, whatever their round, exceeds the baseline; the baseline is
//!   the minimum of the whole slow start, which is short against any change of a satellite's path.
//! - The threshold is RTT/8 within 8 and 75 ms instead of 4 and 16 ms: ACK delay and scheduling noise on a loaded host
//!   reach 16 ms, and leaving a 600 ms link at a tenth of its rate costs half a minute.
//! - [`ROUNDS`] conservative rounds instead of 5: five are 3 s by GEO, in which the queue overflows.
//! - Only a whole round without delay takes back the conservative phase, instead of one sample: after idle the queue is
//!   empty, and a window that had filled it would be sent at the pace of slow start, twice what the link takes.

use std::time::Duration;

use super::AckSample;

/// ACKs whose minimum round-trip time must exceed the threshold.
const SAMPLES: usize = 2;
/// Conservative rounds before slow start is left (CSS_ROUNDS).
const ROUNDS: u32 = 2;
/// Slow start grows this many times faster than conservative slow start (CSS_GROWTH_DIVISOR).
const GROWTH_DIVISOR: u64 = 4;
const MIN_THRESHOLD: Duration = Duration::from_millis(8);
const MAX_THRESHOLD: Duration = Duration::from_millis(75);

/// How far slow start got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlowStartPhase {
    /// Doubling per round trip.
    SlowStart,
    /// The round-trip time rose: growing slowly until that is confirmed or refuted.
    Conservative,
    /// Left for congestion avoidance.
    Done,
}

/// State of HyStart++ from the first packet until slow start ends.
#[derive(Clone, Debug)]
pub(super) struct HyStart {
    phase: SlowStartPhase,
    baseline: Duration,
    recent: [Duration; SAMPLES],
    next: usize,
    rounds_left: u32,
    /// A delay was seen in the present conservative round.
    delayed: bool,
}

impl Default for HyStart {
    fn default() -> Self {
        let recent = [Duration::ZERO; SAMPLES];
        Self {
            phase: SlowStartPhase::SlowStart,
            baseline: Duration::MAX,
            recent,
            next: 0,
            rounds_left: ROUNDS,
            delayed: false,
        }
    }
}

impl HyStart {
    pub(super) fn phase(&self) -> SlowStartPhase {
        self.phase
    }

    pub(super) fn growth_divisor(&self) -> u64 {
        if self.phase == SlowStartPhase::SlowStart {
            1
        } else {
            GROWTH_DIVISOR
        }
    }

    pub(super) fn on_ack(&mut self, ack: &AckSample, round_ended: bool) {
        let Some(rtt) = ack.rtt else { return };
        self.baseline = self.baseline.min(rtt);
        self.recent[self.next] = rtt;
        self.next = (self.next + 1) % SAMPLES;
        let lowest = self.recent.into_iter().min().unwrap_or_default();
        let threshold = (self.baseline / 8).clamp(MIN_THRESHOLD, MAX_THRESHOLD);
        let delayed = lowest >= self.baseline + threshold;
        match self.phase {
            SlowStartPhase::SlowStart if delayed => {
                self.phase = SlowStartPhase::Conservative;
                self.rounds_left = ROUNDS;
                self.delayed = true;
            }
            SlowStartPhase::Conservative if round_ended => self.end_round(delayed),
            SlowStartPhase::Conservative => self.delayed |= delayed,
            SlowStartPhase::SlowStart | SlowStartPhase::Done => {}
        }
    }

    fn end_round(&mut self, delayed: bool) {
        if std::mem::replace(&mut self.delayed, delayed) {
            self.rounds_left = self.rounds_left.saturating_sub(1);
            if self.rounds_left == 0 {
                self.phase = SlowStartPhase::Done;
            }
        } else {
            self.phase = SlowStartPhase::SlowStart;
        }
    }
}
