//! Round-trip time of a path whose MTU was forgotten: quinn begins both anew.

use std::time::Duration;

/// Round-trip times that were known when quinn forgot them.
pub(super) struct KeptRtt {
    /// Round-trip time that quinn supposes without a sample.
    supposed: Duration,
    smoothed: Duration,
    shortest: Duration,
}

impl KeptRtt {
    /// Keeps the `smoothed` and the `shortest` round-trip time; quinn says `supposed` until it has a sample.
    pub(super) fn new(supposed: Duration, smoothed: Duration, shortest: Duration) -> Self {
        Self {
            supposed,
            smoothed,
            shortest,
        }
    }

    /// Smoothed round-trip time, of which quinn says that it is `rtt`.
    pub(super) fn smoothed(&self, rtt: Duration) -> Duration {
        if rtt == self.supposed {
            self.smoothed
        } else {
            rtt
        }
    }

    /// Shortest round-trip time, of which quinn says that it is `rtt`.
    pub(super) fn shortest(&self, rtt: Duration) -> Duration {
        if rtt == self.supposed {
            self.shortest
        } else {
            rtt.min(self.shortest)
        }
    }
}
