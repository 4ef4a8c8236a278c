//! HyStart++ (RFC 9406): ends slow start when the RTT rises.

use std::time::Duration;

use super::Acked;

const MIN_RISE: Duration = Duration::from_millis(4);
const MAX_RISE: Duration = Duration::from_millis(16);
/// Samples of a round before it is judged.
const SAMPLES: u32 = 8;
/// Conservative slow start grows by a quarter, for five rounds.
const DIVISOR: f64 = 4.0;
const ROUNDS: u32 = 5;

/// The state of slow start.
#[derive(Debug, Default)]
pub(super) struct HyStart {
    /// The round ends when a transmission above this is acknowledged.
    round_end: u64,
    last_min: Option<Duration>,
    current_min: Option<Duration>,
    samples: u32,
    /// In conservative slow start: the smallest RTT at its beginning, and its rounds.
    conservative: Option<(Duration, u32)>,
}

impl HyStart {
    /// Growth per segment that arrived; `None` once slow start is over.
    pub(super) fn on_ack(&mut self, acked: &Acked) -> Option<f64> {
        if acked.newest >= self.round_end {
            self.round_end = acked.sent;
            self.last_min = self.current_min.take();
            self.samples = 0;
            if let Some((_, rounds)) = &mut self.conservative {
                *rounds += 1;
            }
        }
        self.samples += 1;
        let current = self.current_min.map_or(acked.rtt, |min| min.min(acked.rtt));
        self.current_min = Some(current);
        match self.conservative {
            Some((_, rounds)) if rounds >= ROUNDS => return None,
            // The rise was noise: back to slow start.
            Some((baseline, _)) if self.samples >= SAMPLES && current < baseline => {
                self.conservative = None;
            }
            None if self.samples >= SAMPLES => {
                let rose = self
                    .last_min
                    .is_some_and(|last| current >= last + (last / 8).clamp(MIN_RISE, MAX_RISE));
                self.conservative = rose.then_some((current, 0));
            }
            _ => {}
        }
        Some(if self.conservative.is_some() {
            1.0 / DIVISOR
        } else {
            1.0
        })
    }
}
