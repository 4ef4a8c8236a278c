//! Whose turn it is to write into its stream: least attained service first, round robin among
//! equals.
//!
//! New and short flows (a request, a page's objects) pass bulk transfers, which have already been
//! served much; one write in eight goes to whoever waits at the far end, so that nothing starves.

use std::collections::BTreeMap;

/// A flow's place in the queue; returned to [`Scheduler::remove`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket {
    class: u8,
    turn: u64,
}

/// Service after which a flow falls into the next class, in bytes. A request and its answer stay in
/// the first, a page's objects in the first two, everything above 1 MB is bulk.
const CLASS_LIMITS: [u64; 2] = [64_000, 1_000_000];

/// Every how many turns the last class is served before the first.
const FAIR_SHARE: u64 = 8;

/// Queue of flows that have something to write. `K` names a flow.
#[derive(Debug)]
pub struct Scheduler<K> {
    waiting: BTreeMap<Ticket, K>,
    turn: u64,
}

impl<K> Default for Scheduler<K> {
    fn default() -> Self {
        Self {
            waiting: BTreeMap::new(),
            turn: 0,
        }
    }
}

impl<K: Copy> Scheduler<K> {
    /// Queues `key`, which has been served `attained` bytes so far, behind its equals.
    pub fn add(&mut self, key: K, attained: u64) -> Ticket {
        self.turn += 1;
        let ticket = Ticket {
            class: u8::try_from(class(attained)).unwrap_or(u8::MAX),
            turn: self.turn,
        };
        self.waiting.insert(ticket, key);
        ticket
    }

    /// Takes a flow out of the queue.
    pub fn remove(&mut self, ticket: Ticket) {
        self.waiting.remove(&ticket);
    }

    /// The flow to serve now; it leaves the queue.
    pub fn pop(&mut self) -> Option<K> {
        let ticket = if self.turn.is_multiple_of(FAIR_SHARE) {
            let class = self.waiting.last_key_value()?.0.class;
            *self.waiting.range(Ticket { class, turn: 0 }..).next()?.0
        } else {
            *self.waiting.first_key_value()?.0
        };
        self.waiting.remove(&ticket)
    }

    /// True if a flow that has been served `attained` bytes is bulk, and so are all that wait.
    pub fn is_bulk(&self, attained: u64) -> bool {
        let last = CLASS_LIMITS.len();
        let first = self.waiting.first_key_value();
        class(attained) == last && first.is_none_or(|(ticket, _)| usize::from(ticket.class) == last)
    }

    /// True when no flow waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

/// The class of a flow that has been served so many bytes.
fn class(attained: u64) -> usize {
    let above = |limit: &&u64| attained >= **limit;
    CLASS_LIMITS.iter().take_while(above).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_flows_pass_bulk_and_bulk_is_not_starved() {
        let mut s = Scheduler::default();
        let mut attained = [10_000_000_u64, 0];
        for (flow, &served) in attained.iter().enumerate() {
            s.add(flow, served);
        }
        let mut served = [0_u32; 2];
        for _ in 0..800 {
            let flow = s.pop().expect("two flows wait");
            served[flow] += 1;
            if flow == 0 {
                attained[0] += 1000;
            }
            s.add(flow, attained[flow]);
        }
        assert_eq!(served[0], 100, "one turn in eight");
        assert_eq!(served[1], 700);
    }

    #[test]
    fn bulk_is_what_has_been_served_much() {
        let mut s = Scheduler::default();
        assert!(s.is_bulk(1_000_000) && !s.is_bulk(999_999), "nobody waits");
        s.add('a', 1_000_000);
        assert!(s.is_bulk(1_000_000));
        let b = s.add('b', 999_999);
        assert!(!s.is_bulk(1_000_000));
        s.remove(b);
        assert!(s.is_bulk(1_000_000) && !s.is_bulk(0));
    }

    #[test]
    fn equals_take_turns() {
        let mut s = Scheduler::default();
        s.add('a', 0);
        let b = s.add('b', 0);
        s.add('c', 0);
        s.remove(b);
        assert_eq!((s.pop(), s.pop(), s.pop()), (Some('a'), Some('c'), None));
    }
}
