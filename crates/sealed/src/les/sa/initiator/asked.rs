//! An association that was asked for and not answered: what A has of it meanwhile.

use std::time::Instant;

use super::super::granting::Granting;
use super::super::message::{PepKey, Proposal};
use crate::Exporter;
use crate::les::{EndSender, EndToken};

/// Association that B has not answered yet.
pub(super) struct Asked {
    pub(super) count: u32,
    pub(super) peps: Vec<PepKey>,
    pub(super) progress: Progress,
}

/// Stage of an association that was asked for.
pub(super) enum Progress {
    /// A has the keys; the sender waits where the association before still stands.
    Short {
        granting: Granting,
        sender: Option<EndSender>,
        token: EndToken,
    },
    /// A has its half of the keys' inputs.
    Exchange {
        proposal: Proposal,
        exporter: Exporter,
        /// Moment at which Q1 is sent again, if nothing else does that.
        again: Option<Instant>,
    },
}

impl Asked {
    /// Moment at which Q1 is sent again.
    pub(super) fn again(&self) -> Option<Instant> {
        match self.progress {
            Progress::Exchange { again, .. } => again,
            Progress::Short { .. } => None,
        }
    }

    /// K2, where A has it already.
    pub(super) fn granting(&mut self) -> Option<&mut Granting> {
        match &mut self.progress {
            Progress::Short { granting, .. } => Some(granting),
            Progress::Exchange { .. } => None,
        }
    }
}
