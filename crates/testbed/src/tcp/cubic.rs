//! Congestion avoidance of CUBIC (RFC 9438).

use std::time::Instant;

use super::Acked;

/// Segments per cubic second (§5).
const C: f64 = 0.4;
/// Share of the window that a loss leaves (§4.6).
const BETA: f64 = 0.7;
/// Growth of the window that NewReno would have with CUBIC's β (§4.3), segments a round trip.
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// The curve since the last loss.
#[derive(Debug, Default)]
pub(super) struct Cubic {
    /// Instant at which this stage of congestion avoidance began.
    epoch: Option<Instant>,
    /// W_max: the window before the last loss, or a bit less (fast convergence).
    w_max: f64,
    /// The window at the beginning of the epoch.
    start: f64,
    /// The window before the last loss.
    prior: f64,
    /// W_est: NewReno's window.
    estimate: f64,
}

impl Cubic {
    pub(super) fn on_ack(&mut self, window: &mut f64, acked: &Acked) {
        let epoch = *self.epoch.get_or_insert_with(|| {
            self.start = *window;
            self.estimate = *window;
            self.w_max = self.w_max.max(*window);
            acked.now
        });
        let k = ((self.w_max - self.start) / C).cbrt();
        let rtt = acked.smoothed_rtt.as_secs_f64();
        let elapsed = acked.now.saturating_duration_since(epoch).as_secs_f64();
        let curve = |t: f64| C * (t - k).powi(3) + self.w_max;
        let alpha = if self.estimate >= self.prior {
            1.0
        } else {
            ALPHA
        };
        self.estimate += alpha * acked.count as f64 / *window;
        if curve(elapsed) < self.estimate {
            *window = window.max(self.estimate);
        } else {
            let target = curve(elapsed + rtt).clamp(*window, 1.5 * *window);
            *window += (target - *window) / *window * acked.count as f64;
        }
    }

    pub(super) fn on_congestion(&mut self, window: f64) -> f64 {
        // Fast convergence (§4.7): who loses before reaching the last maximum makes room for others.
        self.w_max = if window < self.w_max {
            window * (1.0 + BETA) / 2.0
        } else {
            window
        };
        self.prior = window;
        self.epoch = None;
        window * BETA
    }

    /// After a timeout the curve begins at the window that slow start has reached (§4.8).
    pub(super) fn restart(&mut self) {
        self.epoch = None;
    }
}
