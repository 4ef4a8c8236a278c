//! What is seen of the path while nothing but small packets cross it: whether somebody fills it meanwhile.
//!
//! A rate that was known before a rest is used again at once, a whole round trip before anything comes back. Where round trips
//! are long, somebody may have filled the queue in the meantime, and twice what the path carries would arrive for as long. The
//! round-trip times of small packets tell, keep-alives' if nothing else left, any of the last half minute. They tell no more than
//! that: whose queue it is the first flight finds out, which is a part of what it would be.

use std::time::{Duration, Instant};

use crate::ablation::Part;

use super::super::AckSample;

/// What a packet showed is believed for so long: what fills the path does not always fill it.
const FRESH: Duration = Duration::from_secs(30);
/// A queue of so many eighths of a round trip is that of somebody who fills it; the ACK of a lone packet is late by one of them.
const FILLED: u32 = 3;

/// What was seen.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rest {
    /// Instant at which a small packet that crossed alone last found a long queue.
    filled_at: Option<Instant>,
    /// The round-trip time without a queue when the path was last busy.
    base: Option<Duration>,
}

impl Rest {
    /// True if another sender likely fills the path.
    pub(super) fn is_wary(&self, now: Instant) -> bool {
        let wary = self
            .filled_at
            .is_some_and(|at| now.saturating_duration_since(at) < FRESH);
        Part::Rest.or(wary, false)
    }

    /// A busy round ended; without a queue one takes `base`.
    pub(super) fn on_busy(&mut self, base: Duration) {
        self.base = Some(base);
    }

    /// A small packet that crossed alone took `rtt`. Who fills the path makes room now and then.
    pub(super) fn hear(&mut self, now: Instant, rtt: Duration) {
        if self.base.is_some_and(|base| is_filled(rtt, base)) {
            self.filled_at = Some(now);
        }
    }

    /// Round-trip time that the rest has shown.
    pub(super) fn base(&self) -> Option<Duration> {
        self.base
    }

    /// An ACK came, of a flight of no more than `few` bytes or of a larger one; true if that one met the queue that was expected.
    pub(super) fn on_ack(&mut self, ack: &AckSample, few: u64) -> bool {
        let (Some(rtt), Some(base)) = (ack.rtt, self.base) else {
            return false;
        };
        let lone = ack.in_flight + ack.newly_acked <= few;
        if lone {
            self.hear(ack.now, rtt);
            return false;
        }
        let filled = is_filled(rtt, base);
        let wary = self.is_wary(ack.now);
        self.filled_at = None;
        wary && filled
    }
}

fn is_filled(rtt: Duration, base: Duration) -> bool {
    rtt > base + base / 8 * FILLED
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "one base instant; all else is virtual"
)]
mod tests {
    use super::*;

    const BASE: Duration = Duration::from_millis(600);
    const FEW: u64 = 12_000;

    /// An ACK that came so many seconds after `start`, with this round-trip time in milliseconds and `in_flight` behind it.
    fn ack(start: Instant, at: u64, rtt: u64, in_flight: u64) -> AckSample {
        let (now, rtt) = (start + Duration::from_secs(at), Duration::from_millis(rtt));
        AckSample {
            now,
            newly_acked: 40,
            rtt: Some(rtt),
            newest_sent: now - rtt,
            in_flight,
            app_limited: in_flight == 0,
            rate: None,
        }
    }

    /// What becomes of a flight whose first packets take `rtt`, `later` seconds after a keep-alive that took `alive`: whether it was
    /// sent with caution, and whether it met the queue.
    fn flight(alive: u64, later: u64, rtt: u64) -> (bool, bool) {
        let (mut rest, start) = (Rest::default(), Instant::now());
        rest.on_busy(BASE);
        assert!(!rest.on_ack(&ack(start, 25, alive, 0), FEW), "not a flight");
        let wary = rest.is_wary(start + Duration::from_secs(25 + later));
        let met = rest.on_ack(&ack(start, 26 + later, rtt, 4 * FEW), FEW);
        assert!(
            !rest.is_wary(start + Duration::from_secs(26 + later)),
            "once"
        );
        (wary, met)
    }

    #[test]
    fn a_keep_alive_tells_of_somebody_who_fills_the_path() {
        assert_eq!(flight(675, 5, 620), (false, false), "an ACK is delayed");
        assert_eq!(flight(1000, 5, 1100), (true, true));
        assert_eq!(flight(1000, 5, 620), (true, false), "he has left");
        assert_eq!(flight(1000, 40, 1100), (false, false), "long ago");
        assert_eq!(flight(620, 5, 1100), (false, false), "nobody knew");
    }

    #[test]
    fn nothing_is_told_before_the_path_was_busy() {
        let (mut rest, start) = (Rest::default(), Instant::now());
        assert!(!rest.on_ack(&ack(start, 1, 5000, 0), FEW) && !rest.is_wary(start));
    }
}
