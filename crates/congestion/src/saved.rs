//! What is worth knowing of a path when it is used again (Careful Resume, RFC 9959 §3).
//!
//! Filled from the ACK and loss samples that every controller gets, asked for when a tunnel ends, handed to the next
//! controller of the same path. Keeping it between processes, its expiry and the choice of the path are the engine's;
//! how fast to go on the strength of it is the controller's. It decides nothing itself.

use std::time::{Duration, Instant};

use bentpipe_units::{BitRate, Ratio};

use super::{AckSample, Config, LossSample, RoundCounter, float};

/// Fewer initial windows than this say nothing of the path (RFC 9959 §3.1).
pub(super) const MIN_WINDOWS: u64 = 4;
/// Busy rounds of which the rate is the median: a burst of ACKs does not make a fast path.
const ROUNDS: usize = 7;
/// Fewest of them.
const MIN_ROUNDS: usize = 3;
/// Bytes after which older losses count half.
const LOSS_SPAN: u64 = 8 << 20;

/// A path as it was found: what one controller leaves to the next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Saved {
    /// The rate that it delivered to a busy sender, in UDP payload.
    pub rate: BitRate,
    /// Smallest round-trip time.
    pub rtt: Duration,
    /// The share of packets that it loses by itself, as far as the controller can tell.
    pub loss: Ratio,
    /// Time since that was observed.
    pub age: Duration,
}

impl Saved {
    /// A round-trip time of `rtt` may be that of the same path (RFC 9959 §3.2).
    pub fn is_of_path(&self, rtt: Duration) -> bool {
        rtt >= self.rtt / 2 && rtt <= self.rtt * 10
    }
}

/// Gathers [`Saved`] for controllers that keep no model of the path themselves.
#[derive(Clone, Debug)]
pub struct Observed {
    round: RoundCounter,
    /// Highest rate of this round.
    round_rate: u64,
    /// Rates of the last busy rounds, in bit/s.
    rates: [u64; ROUNDS],
    rounds: usize,
    rtt: Option<Duration>,
    /// Bytes delivered to a busy sender and what makes them enough.
    delivered: u64,
    enough: u64,
    acked: u64,
    lost: u64,
    busy_at: Instant,
}

impl Observed {
    /// Nothing was observed yet.
    pub fn new(config: &Config, now: Instant) -> Self {
        Self {
            round: RoundCounter::new(now),
            round_rate: 0,
            rates: [0; ROUNDS],
            rounds: 0,
            rtt: None,
            delivered: 0,
            enough: MIN_WINDOWS * config.initial_window.max(1),
            acked: 0,
            lost: 0,
            busy_at: now,
        }
    }

    /// An ACK frame came.
    pub fn on_ack(&mut self, ack: &AckSample) {
        self.acked += ack.newly_acked;
        if let Some(rtt) = ack.rtt {
            self.rtt = Some(self.rtt.map_or(rtt, |least| least.min(rtt)));
        }
        if let Some(sample) = ack.rate.filter(|sample| !sample.app_limited) {
            self.busy_at = ack.now;
            self.delivered += ack.newly_acked;
            self.round_rate = self.round_rate.max(sample.rate.as_u64());
        }
        if self.round.on_ack(ack.now, ack.newest_sent) && self.round_rate > 0 {
            self.rates[self.rounds % ROUNDS] = std::mem::take(&mut self.round_rate);
            self.rounds += 1;
        }
        if self.acked > LOSS_SPAN {
            (self.acked, self.lost) = (self.acked / 2, self.lost / 2);
        }
    }

    /// Packets were declared lost.
    pub fn on_loss(&mut self, loss: &LossSample) {
        self.lost += loss.lost;
    }

    /// The path, if it was used enough to know it.
    pub fn saved(&self, now: Instant) -> Option<Saved> {
        if self.rounds < MIN_ROUNDS || self.delivered < self.enough {
            return None;
        }
        let mut rates = self.rates;
        let known = &mut rates[..self.rounds.min(ROUNDS)];
        known.sort_unstable();
        Some(Saved {
            rate: BitRate::bits_per_second(known[known.len() / 2]),
            rtt: self.rtt?,
            loss: share(self.lost, self.acked),
            age: now.saturating_duration_since(self.busy_at),
        })
    }
}

/// `lost` of `lost` + `acked`.
pub(super) fn share(lost: u64, acked: u64) -> Ratio {
    let share = float(lost) / float((lost + acked).max(1));
    Ratio::new(share).unwrap_or(Ratio::ZERO)
}
