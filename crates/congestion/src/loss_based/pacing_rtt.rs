//! The round-trip time that pacing divides by.
//!
//! Fed by every ACK frame on the data path. It is neither the smoothed round-trip time of loss detection nor the path's
//! smallest one.

use std::time::Duration;

/// Samples over which the round-trip time for pacing is the minimum: half a round at an ACK per RTT/16.
const RTT_SAMPLES: usize = 8;

/// The minimum of recent samples, because a sample contains ACK delay. A lone packet's ACK is delayed in
/// full, so samples of an idle sender may lower it but never raise it: the first sample after idle cannot distort the
/// rate.
#[derive(Clone, Debug)]
pub(super) struct PacingRtt {
    recent: [Duration; RTT_SAMPLES],
    next: usize,
    measured: bool,
}

impl PacingRtt {
    pub(super) fn new(initial: Duration) -> Self {
        Self {
            recent: [initial; RTT_SAMPLES],
            next: 0,
            measured: false,
        }
    }

    pub(super) fn get(&self) -> Duration {
        self.recent
            .into_iter()
            .min()
            .unwrap_or_default()
            .max(Duration::from_micros(1))
    }

    pub(super) fn add(&mut self, sample: Duration, app_limited: bool) {
        if !self.measured {
            *self = Self {
                recent: [sample; RTT_SAMPLES],
                next: 0,
                measured: true,
            };
        } else if !app_limited || sample < self.get() {
            self.recent[self.next] = sample;
            self.next = (self.next + 1) % RTT_SAMPLES;
        }
    }
}
