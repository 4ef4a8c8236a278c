//! What carries the bits: the seam between the queues and a standard.
//!
//! A carrier knows when the next frame may begin and how much fits into it. It holds no packets.

use std::time::Instant;

use bentpipe_units::{BitRate, Seed};

use super::Way;
use super::bursts::Bursts;
use crate::dvbs2::{PlFrames, PlFramesConfig};
use crate::mahimahi::{Opportunities, OpportunityClock};
use crate::rate::Serialiser;
use crate::rcs2::AccessModel;
use crate::space::Space;

/// Way in which a direction carries bits, as configured.
#[derive(Debug, Clone)]
pub(crate) enum Carriage {
    /// A constant IP-layer bit rate.
    Constant(BitRate),
    /// DVB-S2.
    PlFrames(PlFramesConfig),
    /// DVB-RCS2, and the rate by which queues are sized.
    Bursts(Box<AccessModel>, BitRate),
    /// Opportunities as mahimahi records them.
    Opportunities(Opportunities),
}

impl Carriage {
    /// The rate by which queues are sized where nothing else is said.
    pub(crate) fn nominal_rate(&self) -> BitRate {
        match self {
            Self::Constant(rate) => *rate,
            Self::PlFrames(config) => config.rate(config.best),
            Self::Bursts(_, rate) => *rate,
            Self::Opportunities(trace) => trace.mean_rate(),
        }
    }

    /// True if there are frames that noise can destroy.
    pub(crate) const fn is_framed(&self) -> bool {
        matches!(self, Self::PlFrames(_) | Self::Bursts(..))
    }
}

/// A carriage at work.
#[derive(Debug)]
pub(crate) enum Carrier {
    Constant(Serialiser),
    PlFrames(PlFrames),
    Bursts(Bursts),
    Opportunities(OpportunityClock),
}

impl Carrier {
    pub(crate) fn new(
        carriage: &Carriage,
        way: Way,
        terminals: usize,
        seed: Seed,
        space: Space<'_>,
    ) -> Self {
        let start = space.start;
        match carriage {
            Carriage::Constant(rate) => Self::Constant(Serialiser::new(*rate, start)),
            Carriage::PlFrames(config) => {
                Self::PlFrames(PlFrames::new(config, way, terminals, seed, start))
            }
            Carriage::Bursts(model, _) => Self::Bursts(Bursts::new(model, space.propagation, seed)),
            Carriage::Opportunities(trace) => {
                Self::Opportunities(OpportunityClock::new(trace, start))
            }
        }
    }

    /// Instant at which the next frame begins, if something waits since `ready`.
    pub(crate) fn next_start(&self, ready: Instant) -> Instant {
        match self {
            Self::Constant(clock) => clock.idle_at().max(ready),
            Self::PlFrames(frames) => frames.next_start(ready),
            Self::Opportunities(clock) => clock.idle_at().max(ready),
            // Bursts have a beginning each, which `advance_bursts` knows.
            Self::Bursts(_) => ready,
        }
    }

    /// The MODCOD that a terminal is sent to with.
    pub(crate) fn modcod(&self, terminal: usize) -> Option<u8> {
        match self {
            Self::Constant(_) | Self::Opportunities(_) => None,
            Self::PlFrames(frames) => Some(frames.modcod(terminal).id()),
            Self::Bursts(bursts) => bursts.latest(terminal).0,
        }
    }

    /// Modulation and code rate of that MODCOD or waveform.
    pub(crate) fn modcod_name(&self, terminal: usize) -> Option<String> {
        match self {
            Self::Constant(_) | Self::Opportunities(_) => None,
            Self::PlFrames(frames) => Some(frames.modcod(terminal).name().to_owned()),
            Self::Bursts(bursts) => bursts.waveform_name(terminal),
        }
    }

    /// Rate that the terminal would get alone, where its path has `share` of the configured bit rate.
    pub(crate) fn capacity(&self, terminal: usize, share: f64) -> BitRate {
        match self {
            Self::Constant(clock) => clock.rate_at(share),
            Self::PlFrames(frames) => frames.capacity(terminal),
            Self::Bursts(bursts) => bursts.latest(terminal).1,
            Self::Opportunities(clock) => clock.rate(),
        }
    }
}
