//! Counts of one client's pages, and its shares of what reading them costs.

use crate::reading::{ReadingMemory, ReadingTime};
use crate::status;

/// Counts of one client's pages.
#[derive(Default)]
pub(super) struct Account {
    /// Processor time for links.
    pub(super) reading: ReadingTime,
    /// Memory for decoders of pages.
    pub(super) memory: ReadingMemory,
    /// Pages that were read no further, for want of that time.
    pub(super) unread: u64,
    /// Pages whose objects are being fetched.
    pub(super) active: usize,
    pub(super) requests: u64,
    pub(super) pages: u64,
    pub(super) crowded: u64,
    pub(super) promised: u64,
    pub(super) failed: status::ObjectsFailed,
    /// Origins whose TLS was not believed.
    pub(super) refused: u64,
    /// Sessions of DSSL that are open.
    pub(super) hubs: usize,
    /// Sessions of DSSL whose K2 was asked for, and what was dropped of them.
    pub(super) sealed: status::SealedPages,
}

impl Account {
    /// The client's part of `status`.
    pub(super) fn report(&self) -> status::PagesAhead {
        status::PagesAhead {
            requests_total: self.requests,
            pages_total: self.pages,
            bounded: status::PagesBounded {
                crowded_total: self.crowded,
                unread_total: self.unread,
            },
            promised_total: self.promised,
            failed_total: self.failed.all(),
            failed_causes: self.failed,
            refused_total: self.refused,
            sealed: self.sealed,
            ..status::PagesAhead::default()
        }
    }
}
