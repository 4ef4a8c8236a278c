//! Chains of firewalls of others that are closed to our device, as they were at the last look.

use std::io;
use std::time::Instant;

use bentpipe_sys::watch::{Change, Object};

use super::LastLook;
use crate::firewall::{Passage, closed_passages, is_ours};

/// Chains of other programs that are closed to our device. They are asked for when somebody has changed a table and once a minute,
/// because each answer takes a run of `nft` for each chain.
#[derive(Debug, Default)]
pub(crate) struct ClosedPassages(LastLook<Vec<Passage>>);

impl ClosedPassages {
    /// Notes changes that the kernel has told of.
    pub(crate) fn notice(&mut self, changes: &[Change]) {
        let is_of_others = |change: &Change| match &change.object {
            Object::Table(name) => !is_ours(name),
            Object::Unknown => true,
            _ => false,
        };
        if changes.iter().any(is_of_others) {
            self.0.spoil();
        }
    }

    /// Notes that a way was opened through a chain.
    pub(crate) fn forget(&mut self) {
        self.0.forget();
    }

    /// Chains that are closed.
    ///
    /// # Errors
    /// The privilege or `nft` is missing.
    pub(crate) fn see(&mut self, now: Instant) -> io::Result<&[Passage]> {
        self.0.see(now, closed_passages).map(Vec::as_slice)
    }
}
