//! The delay line: packets on their way through space.
//!
//! Keeps order, unless told otherwise: when the one-way delay shrinks, a packet is held until its predecessor has
//! arrived. Has no capacity limit; what is in flight is bounded by rate × delay.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bentpipe_units::ByteCount;

#[derive(Debug)]
pub(crate) struct DelayLine<P> {
    one_way_delay: Duration,
    /// No later packet arrives before this, unless reordering is allowed.
    latest: Instant,
    allow_reordering: bool,
    in_flight: VecDeque<(Instant, ByteCount, P)>,
}

impl<P> DelayLine<P> {
    pub(crate) const fn new(one_way_delay: Duration, now: Instant) -> Self {
        Self {
            one_way_delay,
            latest: now,
            allow_reordering: false,
            in_flight: VecDeque::new(),
        }
    }

    /// Lets packets overtake each other when the delay shrinks.
    pub(crate) const fn allow_reordering(mut self, allow: bool) -> Self {
        self.allow_reordering = allow;
        self
    }

    /// Instant at which a packet that departs at `departure` arrives.
    pub(crate) fn arrival(&self, departure: Instant) -> Instant {
        let arrival = departure + self.one_way_delay;
        if self.allow_reordering {
            arrival
        } else {
            self.latest.max(arrival)
        }
    }

    pub(crate) fn push(&mut self, departure: Instant, size: ByteCount, packet: P) {
        let arrival = self.arrival(departure);
        self.latest = self.latest.max(arrival);
        let overtaken = self.in_flight.iter().rev();
        let overtaken = overtaken.take_while(|(other, ..)| *other > arrival).count();
        let place = self.in_flight.len() - overtaken;
        self.in_flight.insert(place, (arrival, size, packet));
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
