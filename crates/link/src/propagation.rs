//! What space does to a signal at an instant: how long it takes, and how much stands out of the noise.
//!
//! Both are functions of time alone, so that a frame's fate can be decided before it has arrived, and the same for
//! everybody who asks. Time counts from the link's start. Random losses are not here.

use std::time::Duration;

use bentpipe_units::Decibel;

use crate::budget::Budget;
use crate::ids::Way;
use crate::orbit::{Path, PathState};

/// C/N of both directions, and what each terminal's hop lacks besides.
#[derive(Debug, Clone)]
pub(crate) struct Budgets {
    pub(crate) forward_link: Budget,
    pub(crate) return_link: Budget,
    /// Of each terminal.
    pub(crate) extra_attenuation: Vec<Decibel>,
}

#[derive(Debug, Clone)]
pub(crate) struct Propagation {
    /// Of each terminal.
    pub(crate) paths: Vec<Path>,
    /// Packets may overtake each other when the delay shrinks.
    pub(crate) allow_reordering: bool,
    pub(crate) budgets: Option<Budgets>,
}

impl Propagation {
    /// The delay by which queues are sized where nothing else is said.
    pub(crate) fn typical_one_way_delay(&self) -> Duration {
        self.state(Duration::ZERO, 0).one_way_delay
    }

    /// A delay that no terminal exceeds, at any time.
    pub(crate) fn longest_one_way_delay(&self) -> Duration {
        let delays = self.paths.iter().map(Path::longest_delay);
        delays.max().unwrap_or_default()
    }

    /// From the last bit sent at `at` to the last bit received.
    pub(crate) fn one_way_delay(&self, at: Duration, terminal: usize, _way: Way) -> Duration {
        self.state(at, terminal).one_way_delay
    }

    /// All about the way of a terminal.
    pub(crate) fn state(&self, at: Duration, terminal: usize) -> PathState {
        self.paths[terminal].at(at)
    }

    /// Carrier to noise of what is *received* at `at`, all hops and the receiver's implementation loss included; `None`
    /// without a link budget, where noise is no matter.
    pub(crate) fn cn_total(&self, at: Duration, terminal: usize, way: Way) -> Option<Decibel> {
        let budgets = self.budgets.as_ref()?;
        let extra = budgets.extra_attenuation[terminal];
        let cn = match way {
            Way::Forward => budgets.forward_link.cn(at, Decibel::ZERO, extra),
            Way::Return => budgets.return_link.cn(at, extra, Decibel::ZERO),
        };
        // To a millionth of a decibel: what is given as 3.1 dB must not miss a threshold of 3.1 dB by its last bit.
        Some(Decibel::new((cn.as_f64() * 1e6).round() / 1e6))
    }
}
