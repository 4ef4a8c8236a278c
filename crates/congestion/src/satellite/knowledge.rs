//! Knowledge of the path from elsewhere: from an earlier connection, from the peer's word about a train; and what of this
//! connection's is saved for the next one.

use std::time::{Duration, Instant};

use crate::ablation::Part;

use bentpipe_units::{BitRate, Ratio};

use super::super::saved::MIN_WINDOWS;
use super::super::{Config, Saved, bytes_in, scaled};
use super::rest::Rest;
use super::startup::Startup;
use super::{CONFIRMED, MIN_WINDOW, Phase, Satellite};

/// Share of a remembered rate at which to start, in permille (RFC 9959 §3).
const JUMP: u64 = 500;
/// Share of a rate that only a train has shown.
const MEASURED: u64 = 750;
/// Fewest initial windows in what the path holds for which a measured rate makes a difference.
const WORTHWHILE: u64 = 2;

/// Use of the path by this connection: what is learned of one that was hardly used, or long ago, says little.
#[derive(Clone, Copy, Debug)]
pub(super) struct Usage {
    /// Bytes that arrived since the connection began.
    pub(super) delivered: u64,
    /// Instant at which the path was last busy for a round.
    pub(super) busy_at: Instant,
}

impl Satellite {
    /// Starts at half of what the path had (RFC 9959 §3), or at all of it where that much was sold; false when the
    /// path is already known better, or is another one by its round-trip time.
    pub fn resume(&mut self, now: Instant, saved: Saved) -> bool {
        if self.nearby.is_some() || Part::Memory.or(false, true) {
            return false;
        }
        let sold = self.sold();
        let Phase::Startup(startup) = &mut self.phase else {
            return false;
        };
        let measured = self.path.measured();
        if measured.is_some_and(|rtt| !saved.is_of_path(rtt)) {
            return false;
        }
        // The handshake's packets tell of a queue like those of a rest.
        self.rest.on_busy(saved.rtt);
        if let Some(rtt) = measured {
            self.rest.hear(now, rtt);
        }
        let rtt = measured.unwrap_or(saved.rtt);
        let rate = saved.rate.as_u64() / 8;
        let jump = if sold >= rate { 1000 } else { JUMP };
        startup.jump(now, scaled(rate, jump), rtt);
        startup.narrow(rate.max(sold), rtt);
        self.remembered = Some(saved);
        true
    }

    /// Bytes per second that were sold, 0 if nobody said.
    fn sold(&self) -> u64 {
        self.config.provisioned.map_or(0, |sold| sold.as_u64() / 8)
    }

    /// The first round-trip time tells whether the path is the one that is remembered (RFC 9959 §3.2), and how much a path holds of
    /// which no more is known than what was sold.
    pub(super) fn confirm(&mut self, now: Instant, rtt: Duration) {
        if self
            .remembered
            .take_if(|saved| !saved.is_of_path(rtt))
            .is_some()
        {
            self.rest = Rest::default();
            self.start_up(now);
        }
        let sold = self.sold();
        if sold > 0
            && self.remembered.is_none()
            && let Phase::Startup(startup) = &mut self.phase
        {
            startup.narrow(sold, rtt);
        }
    }

    /// True if the rate at which a train arrives matters: in start-up, on a path that is not known to be thin.
    pub fn wants_hint(&self) -> bool {
        let remembered = self.remembered.map(|saved| saved.rate.as_u64() / 8);
        let sold = Some(self.sold()).filter(|sold| *sold > 0);
        let thin = remembered
            .max(sold)
            .is_some_and(|rate| self.is_filled_anyway(rate));
        matches!(self.phase, Phase::Startup(_)) && self.nearby.is_none() && !thin
    }

    /// The initial window fills a path of `rate` bytes per second, or nearly so.
    fn is_filled_anyway(&self, rate: u64) -> bool {
        bytes_in(rate, self.path.base()) < WORTHWHILE * self.config.initial_window
    }

    /// Goes on, while in start-up, from what the path was just measured to carry. Where the path is remembered, its rate
    /// was this tunnel's share, so no more than that; and only half of it still if the round-trip time is longer than it
    /// was, for somebody fills the queue.
    pub fn hint(&mut self, now: Instant, rate: BitRate) -> bool {
        if self.nearby.is_some() {
            return false;
        }
        let rtt = self.path.base();
        let rate = self.config.max_rate.map_or(rate, |max| rate.min(max));
        let rate = rate.as_u64() / 8;
        let filled = Part::FirstTrain.or(self.is_filled_anyway(rate), true);
        let sold = self.sold();
        let Phase::Startup(startup) = &mut self.phase else {
            self.cruise.on_capacity(now, rate, self.losses.baseline());
            return true;
        };
        if filled {
            return false;
        }
        let jump = match self.remembered {
            Some(saved) if rtt > saved.rtt + saved.rtt / 8 => 0,
            Some(saved) => scaled(saved.rate.as_u64() / 8, CONFIRMED).min(scaled(rate, CONFIRMED)),
            None => scaled(rate, MEASURED),
        };
        startup.jump(now, jump, rtt);
        startup.measured(rate.max(sold));
        true
    }

    /// Figures of the path that the next connection is to begin with, once it was busy for long enough (RFC 9959 §3.1).
    pub fn saved(&self, now: Instant) -> Option<Saved> {
        if let Some(nearby) = &self.nearby {
            return nearby.saved(now);
        }
        let enough = MIN_WINDOWS * self.config.initial_window;
        let rate = match &self.phase {
            // In start-up any rate is too low, but for one that agrees with what was measured.
            Phase::Startup(startup) => Some(startup.rate()).filter(|r| startup.is_as_measured(*r)),
            Phase::Drain { .. } | Phase::Cruise | Phase::Compete(_) => Some(self.cruise.rate()),
        };
        let rate = rate.filter(|_| self.usage.delivered >= enough)?;
        Some(Saved {
            rate: BitRate::bits_per_second(rate.saturating_mul(8)),
            // Small packets of a rest may have met the queue of others.
            rtt: self.rest.base().unwrap_or(self.path.base()),
            loss: Ratio::new(self.losses.baseline()).unwrap_or(Ratio::ZERO),
            age: now.saturating_duration_since(self.usage.busy_at),
        })
    }
}

/// Start-up on a path of which no more is known than what was sold.
pub(super) fn begin(config: &Config, mtu: u64, now: Instant) -> Startup {
    let mut startup = Startup::new(config.initial_window.max(MIN_WINDOW * mtu), now);
    if let Some(rate) = config.provisioned {
        startup.jump(now, rate.as_u64() / 8, config.initial_rtt);
    }
    startup
}
