//! What carries the bits: the seam between the queues and a standard.
//!
//! A carrier knows when the next frame may begin and how much fits into it. It holds no packets.

use std::time::Instant;

use bentpipe_units::{BitRate, Seed};

use super::Way;
use super::errors::Code;
use crate::dvbs2::{PlFrames, PlFramesConfig};
use crate::rate::Serialiser;

/// How a direction carries bits, as configured.
#[derive(Debug, Clone)]
pub(crate) enum Carriage {
    /// A constant IP-layer bit rate.
    Constant(BitRate),
    /// DVB-S2.
    PlFrames(PlFramesConfig),
}

impl Carriage {
    /// The rate by which queues are sized where nothing else is said.
    pub(crate) fn nominal_rate(&self) -> BitRate {
        match self {
            Self::Constant(rate) => *rate,
            Self::PlFrames(config) => config.rate(config.best),
        }
    }

    /// Whether there are frames that noise can destroy.
    pub(crate) const fn is_framed(&self) -> bool {
        !matches!(self, Self::Constant(_))
    }
}

/// A frame on the air.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Frame {
    /// When its last symbol leaves.
    pub(crate) end: Instant,
    pub(crate) code: Code,
}

/// A carriage at work.
#[derive(Debug)]
pub(crate) enum Carrier {
    Constant(Serialiser),
    PlFrames(PlFrames),
}

impl Carrier {
    pub(crate) fn new(
        carriage: &Carriage,
        way: Way,
        terminals: usize,
        seed: Seed,
        start: Instant,
    ) -> Self {
        match carriage {
            Carriage::Constant(rate) => Self::Constant(Serialiser::new(*rate, start)),
            Carriage::PlFrames(config) => {
                Self::PlFrames(PlFrames::new(config, way, terminals, seed, start))
            }
        }
    }

    /// When the next frame begins, if something waits since `ready`.
    pub(crate) fn next_start(&self, ready: Instant) -> Instant {
        match self {
            Self::Constant(clock) => clock.idle_at().max(ready),
            Self::PlFrames(frames) => frames.next_start(ready),
        }
    }

    /// The MODCOD that a terminal is sent to with.
    pub(crate) fn modcod(&self, terminal: usize) -> Option<u8> {
        match self {
            Self::Constant(_) => None,
            Self::PlFrames(frames) => Some(frames.modcod(terminal).id()),
        }
    }

    /// What the terminal would get alone.
    pub(crate) fn capacity(&self, terminal: usize) -> BitRate {
        match self {
            Self::Constant(clock) => BitRate::bits_per_second(clock.rate()),
            Self::PlFrames(frames) => frames.capacity(terminal),
        }
    }
}
