//! Which connection is looked at next: by time, and in turn.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Instant;

use super::ConnectionId;

/// Timers of connections, one each at most.
#[derive(Default)]
pub(crate) struct Timers {
    order: BTreeSet<(Instant, ConnectionId)>,
    /// Each connection's entry in `order`.
    of: BTreeMap<ConnectionId, Instant>,
}

impl Timers {
    /// Sets the timer of a connection, or clears it, instead of the one that it had.
    pub(crate) fn set(&mut self, id: ConnectionId, due: Option<Instant>) {
        if let Some(old) = self.of.remove(&id) {
            self.order.remove(&(old, id));
        }
        if let Some(due) = due {
            self.order.insert((due, id));
            self.of.insert(id, due);
        }
    }

    /// Takes the earliest timer that is due at `now`, and returns its connection.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<ConnectionId> {
        let &(_, id) = self.order.first().filter(|(due, _)| *due <= now)?;
        self.set(id, None);
        Some(id)
    }

    /// Time of the earliest timer.
    pub(crate) fn earliest(&self) -> Option<Instant> {
        self.order.first().map(|(due, _)| *due)
    }
}

/// Connections that take turns.
#[derive(Default)]
pub(super) struct RoundRobin {
    waiting: BTreeSet<ConnectionId>,
    /// Connection that had the last turn.
    last: Option<ConnectionId>,
}

impl RoundRobin {
    pub(super) fn insert(&mut self, id: ConnectionId) {
        self.waiting.insert(id);
    }

    pub(super) fn remove(&mut self, id: ConnectionId) {
        self.waiting.remove(&id);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Connection whose turn is next, after that of the last turn.
    pub(super) fn next(&self) -> Option<ConnectionId> {
        let after = self.last.map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.waiting.range((after, Bound::Unbounded)).next();
        next.or_else(|| self.waiting.first()).copied()
    }

    /// Notes that a connection has had its turn.
    pub(super) fn end_turn(&mut self, id: ConnectionId) {
        self.last = Some(id);
    }

    /// Connections that wait, by their ids.
    pub(super) fn waiting(&self) -> Vec<ConnectionId> {
        self.waiting.iter().copied().collect()
    }
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "one base instant; all else is virtual"
)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_connection_has_one_timer() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut timers = Timers::default();
        timers.set(ConnectionId(1), Some(at(3)));
        timers.set(ConnectionId(2), Some(at(2)));
        timers.set(ConnectionId(1), Some(at(1)));
        assert_eq!(timers.earliest(), Some(at(1)));
        assert_eq!(timers.pop_due(start), None);
        timers.set(ConnectionId(2), None);
        assert_eq!(timers.pop_due(at(9)), Some(ConnectionId(1)));
        assert_eq!(timers.pop_due(at(9)), None);
        assert_eq!(timers.earliest(), None);
    }

    #[test]
    fn turns_go_round() {
        let mut turns = RoundRobin::default();
        assert_eq!(turns.next(), None);
        for id in [0, 1, 5] {
            turns.insert(ConnectionId(id));
        }
        let order: Vec<_> = (0..4)
            .map(|_| {
                let id = turns.next().expect("three wait");
                turns.end_turn(id);
                id.0
            })
            .collect();
        assert_eq!(order, [0, 1, 5, 0]);
        turns.remove(ConnectionId(1));
        assert_eq!(turns.next(), Some(ConnectionId(5)));
    }
}
