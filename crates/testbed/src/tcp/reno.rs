//! Congestion avoidance of NewReno (RFC 5681 §3.1): one segment a round trip, half after a loss.

use super::Acked;

/// NewReno keeps nothing but its window.
#[derive(Debug)]
pub(super) struct Reno;

impl Reno {
    #[expect(clippy::unused_self, reason = "the same shape as CUBIC")]
    pub(super) fn on_ack(&self, window: &mut f64, acked: &Acked) {
        *window += acked.count as f64 / *window;
    }

    #[expect(clippy::unused_self, reason = "the same shape as CUBIC")]
    pub(super) fn on_congestion(&self, window: f64) -> f64 {
        window / 2.0
    }
}
