//! A scenario made ready to run: numbers checked, files read.

use bentpipe_units::{BitRate, Seed};

use crate::channel::ChannelModel;
use crate::propagation::Propagation;

/// Parts that a [`crate::Link`] is built from; made by [`crate::Scenario::build`].
#[derive(Debug, Clone)]
pub struct Model {
    pub(crate) seed: Seed,
    pub(crate) terminals: Vec<String>,
    pub(crate) forward_link: ChannelModel,
    pub(crate) return_link: ChannelModel,
    pub(crate) propagation: Propagation,
}

impl Model {
    /// The terminals' names, in the order of their numbers.
    pub fn terminals(&self) -> &[String] {
        &self.terminals
    }

    /// IP-layer rates of forward and return link under the best conditions that the scenario allows, without what others use:
    /// what a customer of an operator has been sold.
    pub fn nominal_rates(&self) -> [BitRate; 2] {
        [&self.forward_link, &self.return_link].map(|link| link.carriage.nominal_rate())
    }
}
