//! The delay line: packets on their way through space.
//!
//! Keeps order: when the one-way delay shrinks, a packet is held until its predecessor has arrived. Has no capacity
//! limit; what is in flight is bounded by rate × delay.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bentpipe_units::ByteCount;

#[derive(Debug)]
pub(crate) struct DelayLine<P> {
    one_way_delay: Duration,
    /// No later packet arrives before this.
    latest: Instant,
    in_flight: VecDeque<(Instant, ByteCount, P)>,
}

impl<P> DelayLine<P> {
    pub(crate) const fn new(one_way_delay: Duration, now: Instant) -> Self {
        Self {
            one_way_delay,
            latest: now,
            in_flight: VecDeque::new(),
        }
    }

    /// When a packet that departs at `departure` arrives.
    pub(crate) fn arrival(&self, departure: Instant) -> Instant {
        self.latest.max(departure + self.one_way_delay)
    }

    pub(crate) fn push(&mut self, departure: Instant, size: ByteCount, packet: P) {
        self.latest = self.arrival(departure);
        self.in_flight.push_back((self.latest, size, packet));
    }

    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<(Instant, ByteCount, P)> {
        self.in_flight.pop_front_if(|(arrival, ..)| *arrival <= now)
    }

    pub(crate) fn next_arrival(&self) -> Option<Instant> {
        self.in_flight.front().map(|(arrival, ..)| *arrival)
    }

    pub(crate) const fn set_one_way_delay(&mut self, one_way_delay: Duration) {
        self.one_way_delay = one_way_delay;
    }
}
