//! The window of a sender, whatever its algorithm: slow start, then CUBIC or NewReno.

use super::cubic::Cubic;
use super::hystart::HyStart;
use super::reno::Reno;
use super::{Acked, Algorithm, Config};

/// No window is smaller after a loss.
const MIN_WINDOW: f64 = 2.0;

#[derive(Debug)]
enum Avoidance {
    Cubic(Cubic),
    Reno(Reno),
}

/// The congestion window, in segments.
#[derive(Debug)]
pub(super) struct Window {
    window: f64,
    threshold: f64,
    hystart: Option<HyStart>,
    avoidance: Avoidance,
}

impl Window {
    pub(super) fn new(config: &Config) -> Self {
        let (hystart, avoidance) = match config.algorithm {
            Algorithm::Cubic { hystart } => (hystart, Avoidance::Cubic(Cubic::default())),
            Algorithm::NewReno => (false, Avoidance::Reno(Reno)),
        };
        Self {
            window: f64::from(config.initial_window),
            threshold: f64::INFINITY,
            hystart: hystart.then(HyStart::default),
            avoidance,
        }
    }

    pub(super) fn size(&self) -> f64 {
        self.window
    }

    /// Segments arrived, outside of recovery.
    pub(super) fn on_ack(&mut self, acked: &Acked) {
        if self.window < self.threshold {
            let growth = match &mut self.hystart {
                Some(hystart) => hystart.on_ack(acked),
                None => Some(1.0),
            };
            match growth {
                Some(growth) => self.window += acked.count as f64 * growth,
                None => self.threshold = self.window,
            }
        } else {
            match &mut self.avoidance {
                Avoidance::Cubic(cubic) => cubic.on_ack(&mut self.window, acked),
                Avoidance::Reno(reno) => reno.on_ack(&mut self.window, acked),
            }
        }
    }

    /// Segments were lost or marked; at most once a round trip.
    pub(super) fn on_congestion(&mut self) {
        let reduced = match &mut self.avoidance {
            Avoidance::Cubic(cubic) => cubic.on_congestion(self.window),
            Avoidance::Reno(reno) => reno.on_congestion(self.window),
        };
        self.window = reduced.max(MIN_WINDOW);
        self.threshold = self.window;
    }

    /// Nothing came back for a retransmission timeout.
    pub(super) fn on_timeout(&mut self) {
        self.on_congestion();
        self.window = 1.0;
        if let Avoidance::Cubic(cubic) = &mut self.avoidance {
            cubic.restart();
        }
    }
}
