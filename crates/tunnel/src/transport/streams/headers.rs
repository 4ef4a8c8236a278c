//! Streams of the peer's that have begun and not yet said what they are: OPEN, INBOUND or a query has to be whole in time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use quinn_proto::StreamId;

/// Time that a stream has from its first byte to the last of its OPEN, INBOUND or query (`PROTOCOL.md` §9). What was lost is
/// there after some round trips.
const PATIENCE: Duration = Duration::from_secs(10);

/// Deadlines of streams that have not said what they are. There are no more of them than flows and queries.
#[derive(Debug, Default)]
pub(in crate::transport) struct Headers {
    due: BTreeMap<StreamId, Instant>,
    order: BTreeSet<(Instant, StreamId)>,
}

impl Headers {
    /// A stream that has begun now, or before, is to say what it is.
    pub(in crate::transport) fn expect(&mut self, now: Instant, id: StreamId) {
        let due = *self.due.entry(id).or_insert(now + PATIENCE);
        self.order.insert((due, id));
    }

    /// The stream has said what it is, or is no more.
    pub(in crate::transport) fn forget(&mut self, id: StreamId) {
        if let Some(due) = self.due.remove(&id) {
            self.order.remove(&(due, id));
        }
    }

    /// Earliest deadline.
    pub(in crate::transport) fn first(&self) -> Option<Instant> {
        self.order.first().map(|(due, _)| *due)
    }

    /// Takes out a stream whose deadline has come.
    pub(in crate::transport) fn pop_due(&mut self, now: Instant) -> Option<StreamId> {
        let &(due, id) = self.order.first()?;
        (due <= now).then(|| {
            self.forget(id);
            id
        })
    }
}
