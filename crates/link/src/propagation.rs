//! What space does to a signal at an instant: how long it takes, and how much stands out of the noise.
//!
//! Both are functions of time alone, so that a frame's fate can be decided before it has arrived, and the same for
//! everybody who asks. Time counts from the link's start. Random losses are not here.

use std::time::Duration;

use bentpipe_units::Decibel;

use crate::channel::Way;
use crate::scenario::Orbit;

#[derive(Debug, Clone)]
pub(crate) struct Propagation {
    one_way_delay: Duration,
}

impl Propagation {
    pub(crate) const fn new(orbit: &Orbit) -> Self {
        let Orbit::Constant { one_way_delay } = orbit;
        Self {
            one_way_delay: one_way_delay.get(),
        }
    }

    /// The delay by which queues are sized where nothing else is said.
    pub(crate) const fn typical_one_way_delay(&self) -> Duration {
        self.one_way_delay
    }

    /// From the last bit sent at `at` to the last bit received.
    pub(crate) const fn one_way_delay(
        &self,
        _at: Duration,
        _terminal: usize,
        _way: Way,
    ) -> Duration {
        self.one_way_delay
    }

    /// Carrier to noise of what is *received* at `at`, all hops and the receiver's implementation loss included; `None`
    /// without a link budget, where noise is no matter.
    pub(crate) const fn cn_total(
        &self,
        _at: Duration,
        _terminal: usize,
        _way: Way,
    ) -> Option<Decibel> {
        None
    }
}
