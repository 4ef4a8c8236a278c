//! The terminal's part: how much capacity to ask for.
//!
//! Once a period it asks for the rate at which packets came in since the last request, and for as much more as empties
//! its queue within a period. With volume-based requests it asks for what is in the queue and has not been asked for yet.

use std::collections::VecDeque;
use std::time::Duration;

use bentpipe_units::{BitRate, ByteCount};

use super::controller::{Contract, Request};

/// Largest values that a capacity request can hold (SAC of EN 301 545-2, as OpenSAND fills it).
const MOST_RBDC: BitRate = BitRate::kilobits_per_second(16_320);
const MOST_VBDC: ByteCount = ByteCount::new(4080 * 125);

#[derive(Debug, Clone, Default)]
pub(crate) struct Agent {
    contract: Contract,
    /// Bytes of bursts that arrived packets will take, since the last request.
    arrived: u64,
    /// Volumes asked for and not granted yet, as far as the terminal can know.
    asked: VecDeque<(Duration, u64)>,
}

impl Agent {
    pub(crate) fn new(contract: Contract) -> Self {
        Self {
            contract,
            ..Self::default()
        }
    }

    /// Counts a packet that came in, as bytes of bursts.
    pub(crate) const fn arrived(&mut self, bytes: u64) {
        self.arrived = self.arrived.saturating_add(bytes);
    }

    /// The request to send at `now`, a `period` after the last, with a queue that takes `backlog` bytes of bursts; `None`
    /// if nothing is needed. Volumes count as granted `latency` after they were asked for.
    pub(crate) fn request(
        &mut self,
        now: Duration,
        period: Duration,
        latency: Duration,
        backlog: u64,
    ) -> Option<Request> {
        let arrived = std::mem::take(&mut self.arrived);
        if backlog == 0 {
            self.asked.clear();
        }
        while self
            .asked
            .pop_front_if(|(at, _)| *at + latency <= now)
            .is_some()
        {}
        let rbdc = self.rate(arrived.saturating_add(backlog), period);
        let carried = rbdc.bytes_in(period) + self.contract.cra.bytes_in(period);
        let pending: u64 = self.asked.iter().map(|(_, bytes)| bytes).sum();
        let vbdc = backlog
            .saturating_sub(carried.as_u64())
            .saturating_sub(pending);
        let vbdc = ByteCount::new(vbdc)
            .min(self.contract.vbdc_max)
            .min(MOST_VBDC);
        if vbdc > ByteCount::ZERO {
            self.asked.push_back((now, vbdc.as_u64()));
        }
        let request = Request { rbdc, vbdc };
        (request != Request::default()).then_some(request)
    }

    /// Rate of `bytes` per period, without what comes anyway, in whole kbit/s.
    fn rate(&self, bytes: u64, period: Duration) -> BitRate {
        let bits = bytes as f64 * 8.0 / period.as_secs_f64().max(1e-3);
        let kilobits = (bits - self.contract.cra.as_u64() as f64).max(0.0) / 1e3;
        let rate = BitRate::kilobits_per_second(kilobits.ceil() as u64);
        rate.min(self.contract.rbdc_max).min(MOST_RBDC)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const LATENCY: Duration = Duration::from_millis(600);

    fn agent(cra: u64, rbdc: u64, vbdc: u64) -> Agent {
        Agent::new(Contract {
            cra: BitRate::kilobits_per_second(cra),
            rbdc_max: BitRate::kilobits_per_second(rbdc),
            vbdc_max: ByteCount::new(vbdc),
            fca: false,
        })
    }

    #[test]
    fn a_rate_is_what_comes_in_and_what_waits() {
        let mut agent = agent(100, 5120, 0);
        assert_eq!(agent.request(SECOND, SECOND, LATENCY, 0), None);
        agent.arrived(125_000);
        let request = agent.request(SECOND * 2, SECOND, LATENCY, 25_000).unwrap();
        // 1 Mbit/s in, 200 kbit waiting, 100 kbit/s anyway.
        assert_eq!(request.rbdc, BitRate::kilobits_per_second(1100));
        assert_eq!(request.vbdc, ByteCount::ZERO);
        let request = agent
            .request(SECOND * 3, SECOND, LATENCY, 10_000_000)
            .unwrap();
        assert_eq!(request.rbdc, BitRate::kilobits_per_second(5120));
        // What is carried anyway needs no request.
        agent.arrived(6_000);
        assert_eq!(agent.request(SECOND * 4, SECOND, LATENCY, 6_000), None);
    }

    #[test]
    fn a_volume_is_asked_for_once() {
        let mut agent = agent(0, 0, 100_000);
        let half = SECOND / 2;
        let volume = |request: Option<Request>| request.map(|request| request.vbdc.as_u64());
        assert_eq!(
            volume(agent.request(half, half, LATENCY, 30_000)),
            Some(30_000)
        );
        assert_eq!(
            volume(agent.request(half * 2, half, LATENCY, 40_000)),
            Some(10_000)
        );
        // What was asked for first has been granted meanwhile, and yet as much waits.
        assert_eq!(
            volume(agent.request(half * 3, half, LATENCY, 40_000)),
            Some(30_000)
        );
        assert_eq!(
            volume(agent.request(half * 4, half, LATENCY, 900_000)),
            Some(100_000)
        );
    }
}
