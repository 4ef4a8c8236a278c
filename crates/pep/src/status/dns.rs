//! DNS that a client answers.

use std::fmt::{self, Display, Formatter};

use serde::{Deserialize, Serialize};

use super::format::{quantity, size};

/// DNS answered at the terminal; totals since the daemon started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dns {
    /// Queries of hosts.
    pub queries_total: u64,
    /// Of these, answered at once.
    pub local_total: u64,
    /// Of these, answered with what was past its TTL.
    pub stale_total: u64,
    /// Of these, answered with a failure, or not at all because the kernel could not be told of the addresses.
    pub failed_total: u64,
    /// Questions that crossed the link, prefetched ones among them.
    pub asked_total: u64,
    /// Questions asked before the answer at hand had expired.
    pub prefetched_total: u64,
    /// Answers withheld for a private address in them.
    #[serde(default)]
    pub withheld_total: u64,
    /// Questions given up for those of hosts that had fewer under way.
    #[serde(default)]
    pub evicted_total: u64,
    /// Answers in the cache now.
    pub cached_answers: u64,
    /// Memory of the cache now, bytes.
    pub cached_bytes: u64,
}

impl Display for Dns {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (queries, local, stale, failed) = (
            self.queries_total,
            self.local_total,
            self.stale_total,
            self.failed_total,
        );
        write!(
            f,
            "{queries} queries, {local} answered at once, {stale} with stale answers, {failed} failed; {} asked of \
             the server; {} of {} kept",
            self.asked_total,
            quantity(self.cached_answers, "answer"),
            size(self.cached_bytes)
        )?;
        if self.withheld_total > 0 {
            write!(
                f,
                "; {} withheld for private addresses",
                self.withheld_total
            )?;
        }
        match self.evicted_total {
            0 => Ok(()),
            evicted => write!(f, "; {evicted} of greedy hosts given up"),
        }
    }
}
