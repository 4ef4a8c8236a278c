//! What carries the bits: the seam between the queues and a standard.
//!
//! A carrier knows when the next frame may begin and how much fits into it. It holds no packets.

use std::time::Instant;

use bentpipe_units::BitRate;

use crate::rate::Serialiser;

/// How a direction carries bits, as configured.
#[derive(Debug, Clone)]
pub(crate) enum Carriage {
    /// A constant IP-layer bit rate.
    Constant(BitRate),
}

impl Carriage {
    /// The rate by which queues are sized where nothing else is said.
    pub(crate) const fn nominal_rate(&self) -> BitRate {
        match self {
            Self::Constant(rate) => *rate,
        }
    }
}

/// The same at work.
#[derive(Debug)]
pub(crate) enum Carrier {
    Constant(Serialiser),
}

impl Carrier {
    pub(crate) fn new(carriage: &Carriage, start: Instant) -> Self {
        match carriage {
            Carriage::Constant(rate) => Self::Constant(Serialiser::new(*rate, start)),
        }
    }

    /// When the next frame begins, if something waits since `ready`.
    pub(crate) fn next_start(&self, ready: Instant) -> Instant {
        match self {
            Self::Constant(clock) => clock.idle_at().max(ready),
        }
    }
}
