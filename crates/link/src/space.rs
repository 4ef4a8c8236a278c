//! Propagation between the two ends of a direction, asked at instants instead of spans since the start.

use std::time::{Duration, Instant};

use bentpipe_units::Decibel;

use crate::ids::Way;
use crate::orbit::PathState;
use crate::propagation::Propagation;

/// Space between the two ends, with the instant from which its changes count.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Space<'a> {
    pub(crate) start: Instant,
    pub(crate) propagation: &'a Propagation,
}

impl Space<'_> {
    pub(crate) fn one_way_delay(self, at: Instant, terminal: usize, way: Way) -> Duration {
        let at = at.saturating_duration_since(self.start);
        self.propagation.one_way_delay(at, terminal, way)
    }

    /// The first instant from `at` on at which no handover holds back what `terminal` sends or receives.
    pub(crate) fn not_held(self, at: Instant, terminal: usize) -> Instant {
        let held_until = self.state(at, terminal).held_until;
        held_until.map_or(at, |until| self.start + until)
    }

    /// A delay that is never less.
    pub(crate) fn shortest_delay(self, terminal: usize) -> Duration {
        self.propagation.paths[terminal].shortest_delay()
    }

    /// All about the way of a terminal.
    pub(crate) fn state(self, at: Instant, terminal: usize) -> PathState {
        let since_start = at.saturating_duration_since(self.start);
        self.propagation.state(since_start, terminal)
    }

    pub(crate) fn cn_total(self, at: Instant, terminal: usize, way: Way) -> Option<Decibel> {
        let at = at.saturating_duration_since(self.start);
        self.propagation.cn_total(at, terminal, way)
    }
}
