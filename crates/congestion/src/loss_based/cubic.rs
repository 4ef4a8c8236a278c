//! CUBIC's window law (RFC 9438 §4): concave and convex growth, the Reno-friendly region and fast convergence.
//!
//! Called on the data path once per ACK frame in congestion avoidance, with time that the sender was busy rather than
//! the wall clock. It does not know slow start, rounds or which packets were lost.

use std::time::Duration;

use super::super::{float, whole};

/// C, in segments per second cubed (RFC 9438 §5).
const C: f64 = 0.4;
/// β: what remains of the window after a congestion event (RFC 9438 §4.6).
const BETA: f64 = 0.7;
/// Additive increase with Reno's average throughput under β (RFC 9438 §4.3).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// Growth since the last congestion event; windows in segments.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Epoch {
    /// Busy time since the epoch began.
    elapsed: Duration,
    /// W_max: where the last loss happened, or lower after fast convergence.
    plateau: f64,
    /// cwnd_prior: the window just before the last congestion event.
    prior: f64,
    /// K: seconds until the curve is back at the plateau.
    time_to_plateau: f64,
    /// W_est: the window that Reno would have.
    reno: f64,
}

impl Epoch {
    /// Slow start ended without a loss: the curve starts at its plateau (RFC 9438 §4.10).
    pub(super) fn start(&mut self, window: u64, mtu: u64) {
        let segments = ratio(window, mtu);
        *self = Self {
            plateau: segments,
            prior: segments,
            reno: segments,
            ..Self::default()
        };
    }

    /// The window after a congestion event at `window` (RFC 9438 §4.6, §4.7).
    pub(super) fn reduce(&mut self, window: u64, mtu: u64) -> u64 {
        let segments = ratio(window, mtu);
        // Fast convergence: a flow that lost ground since its last plateau leaves room for the newcomer.
        let converge = segments < self.plateau;
        let plateau = if converge {
            segments * (1.0 + BETA) / 2.0
        } else {
            segments
        };
        let start = segments * BETA;
        let time_to_plateau = ((plateau - start).max(0.0) / C).cbrt();
        *self = Self {
            elapsed: Duration::ZERO,
            plateau,
            prior: segments,
            time_to_plateau,
            reno: start,
        };
        bytes(start, mtu)
    }

    /// The window after `acked` bytes and `busy` time more (RFC 9438 §4.2 to §4.5).
    pub(super) fn grow(
        &mut self,
        window: u64,
        mtu: u64,
        acked: u64,
        busy: Duration,
        rtt: Duration,
    ) -> u64 {
        self.elapsed += busy;
        let segments = ratio(window, mtu);
        let share = ratio(acked, window);
        let alpha = if self.reno < self.prior { ALPHA } else { 1.0 };
        self.reno += alpha * share;
        if self.at(self.elapsed) < self.reno {
            return window.max(bytes(self.reno, mtu));
        }
        let target = self.at(self.elapsed + rtt).clamp(segments, segments * 1.5);
        window + bytes((target - segments) * share.min(1.0), mtu)
    }

    /// W_cubic(t) (RFC 9438 §4.2, figure 1).
    fn at(&self, time: Duration) -> f64 {
        C * (time.as_secs_f64() - self.time_to_plateau).powi(3) + self.plateau
    }
}

fn ratio(bytes: u64, unit: u64) -> f64 {
    float(bytes) / float(unit.max(1))
}

fn bytes(segments: f64, mtu: u64) -> u64 {
    whole(segments * float(mtu))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_curve_returns_to_its_plateau_after_k() {
        let mut epoch = Epoch::default();
        epoch.reduce(1_000_000, 1000);
        // K = cbrt(1000 × 0.3 / 0.4)
        let k = 750.0_f64.cbrt();
        assert!((epoch.time_to_plateau - k).abs() < 1e-9);
        assert!((epoch.at(Duration::ZERO) - 700.0).abs() < 1e-6);
        assert!((epoch.at(Duration::from_secs_f64(k)) - 1000.0).abs() < 1e-6);
    }

    #[test]
    fn fast_convergence_lowers_the_plateau_of_a_flow_that_lost_ground() {
        let mut epoch = Epoch::default();
        epoch.reduce(1_000_000, 1000);
        epoch.reduce(800_000, 1000);
        assert!((epoch.plateau - 680.0).abs() < 1e-6);
    }

    #[test]
    fn at_short_round_trips_growth_is_at_least_renos() {
        let mut epoch = Epoch::default();
        let rtt = Duration::from_millis(10);
        epoch.reduce(20_000, 1000);
        let mut window = 14_000;
        for _ in 0..20 {
            window = epoch.grow(window, 1000, window, rtt, rtt);
        }
        // 11.3 rounds × 0.529 segments from 14 to the old 20, then 8.7 rounds × 1.
        assert!((28_000..29_000).contains(&window), "{window}");
    }
}
