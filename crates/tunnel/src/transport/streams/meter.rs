//! How fast the peer has been able to send to us: the receiving half of the path's BDP.
//!
//! Sizes credit, nothing else. A maximum over round trips that decays by 2 % a round in which data
//! came, and not at all in silence: a warm tunnel stays warm.

use std::time::{Duration, Instant};

use bentpipe_proto::relay::Product;

const SHORTEST_ROUND: Duration = Duration::from_millis(20);

/// Received bytes per second, as a slowly decaying maximum.
#[derive(Debug, Default)]
pub(super) struct ReceiveMeter {
    round: Option<(Instant, u64)>,
    best: f64,
    /// Rate of the peer's train; 0 if there was none.
    train: f64,
}

impl ReceiveMeter {
    pub(super) fn on_received(&mut self, now: Instant, bytes: u64, rtt: Duration) {
        let (start, sum) = self.round.get_or_insert((now, 0));
        *sum += bytes;
        let elapsed = now.saturating_duration_since(*start);
        if elapsed >= rtt.max(SHORTEST_ROUND) {
            // A round that spans an idle time would only look slow; the maximum ignores it.
            let rate = *sum as f64 / elapsed.as_secs_f64();
            self.best = rate.max(self.best * 0.98);
            self.round = Some((now, 0));
        }
    }

    /// A train of packets came at `rate` bytes per second: so much the path can bring.
    pub(super) fn on_train(&mut self, rate: u64) {
        self.train = rate as f64;
    }

    /// Bytes that the path holds in one `rtt`.
    pub(super) fn product(&self, rtt: Duration) -> Product {
        // A start-up brings several times more in this round than in any before.
        let present = self.round.map_or(0, |(_, sum)| sum);
        let in_rtt = |rate: f64| (rate * rtt.as_secs_f64()) as u64;
        Product {
            measured: (self.best > 0.0).then_some(in_rtt(self.best).max(present)),
            hoped: (self.train > 0.0).then_some(in_rtt(self.train)),
        }
    }
}
