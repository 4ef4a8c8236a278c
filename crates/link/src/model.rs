//! A scenario made ready to run: numbers checked, files read.

use bentpipe_units::Seed;

use crate::channel::ChannelModel;
use crate::propagation::Propagation;

/// What a [`crate::Link`] is built from; made by [`crate::Scenario::build`].
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
}
