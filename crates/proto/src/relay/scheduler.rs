//! Whose turn it is to write into its stream: least attained service first, round robin among
//! equals.
//!
//! New and short flows (a request, a page's objects) pass bulk transfers, which have already been
//! served much; one write in eight goes to the class that has waited longest, so that nothing starves.

use std::collections::BTreeMap;

/// A flow's place in the queue; returned to [`Scheduler::remove`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket {
    class: usize,
    number: u64,
}

/// Service after which a flow falls into the next class, in bytes. A request and its answer stay in
/// the first, a page's objects in the first two, everything above 1 MB is bulk.
const CLASS_LIMITS: [u64; 2] = [64_000, 1_000_000];

const CLASSES: usize = CLASS_LIMITS.len() + 1;

/// Every how many turns the class that was served longest ago goes before the first. Of two that wait this is the last one, and
/// of three each of the others in turn.
const FAIR_SHARE: u64 = 8;

/// Queue of flows that have something to write. `K` names a flow.
#[derive(Debug)]
pub struct Scheduler<K> {
    waiting: BTreeMap<Ticket, K>,
    tickets: u64,
    /// Turns taken so far, and in which of them each class was served last.
    turn: u64,
    served: [u64; CLASSES],
}

impl<K> Default for Scheduler<K> {
    fn default() -> Self {
        Self {
            waiting: BTreeMap::new(),
            tickets: 0,
            turn: 0,
            served: [0; CLASSES],
        }
    }
}

impl<K: Copy> Scheduler<K> {
    /// Queues `key`, which has been served `attained` bytes so far, behind its equals.
    pub fn add(&mut self, key: K, attained: u64) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket {
            class: class(attained),
            number: self.tickets,
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
        let mut heads = (0..CLASSES).filter_map(|class| self.head(class));
        let ticket = if (self.turn + 1).is_multiple_of(FAIR_SHARE) {
            heads.min_by_key(|ticket| self.served[ticket.class])?
        } else {
            heads.next()?
        };
        self.turn += 1;
        self.served[ticket.class] = self.turn;
        self.waiting.remove(&ticket)
    }

    /// Next ticket of a class.
    fn head(&self, class: usize) -> Option<Ticket> {
        let mut from = self.waiting.range(Ticket { class, number: 0 }..);
        let ticket = *from.next()?.0;
        (ticket.class == class).then_some(ticket)
    }

    /// True if a flow that has been served `attained` bytes is bulk, and so are all that wait.
    pub fn is_bulk(&self, attained: u64) -> bool {
        let last = CLASSES - 1;
        let first = self.waiting.first_key_value();
        class(attained) == last && first.is_none_or(|(ticket, _)| ticket.class == last)
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

    /// A flow of each class.
    const SHORT: u64 = 0;
    const MIDDLE: u64 = 64_000;
    const BULK: u64 = 10_000_000;

    /// How many turns of `turns` each of these flows has, all of which always have something.
    fn shares(flows: &[u64], turns: usize) -> Vec<usize> {
        let mut s = Scheduler::default();
        for (flow, &attained) in flows.iter().enumerate() {
            s.add(flow, attained);
        }
        let mut served = vec![0; flows.len()];
        for _ in 0..turns {
            let flow = s.pop().expect("all wait");
            served[flow] += 1;
            s.add(flow, flows[flow]);
        }
        served
    }

    #[test]
    fn the_later_of_two_classes_has_one_turn_in_eight() {
        for flows in [[SHORT, BULK], [SHORT, MIDDLE], [MIDDLE, BULK]] {
            assert_eq!(shares(&flows, 800), [700, 100], "{flows:?}");
        }
        assert_eq!(shares(&[SHORT, BULK, SHORT, BULK], 800), [350, 50, 350, 50]);
    }

    #[test]
    fn no_class_starves_between_two_others() {
        assert_eq!(shares(&[BULK, MIDDLE, SHORT], 800), [50, 50, 700]);
        let crowd = [&[SHORT; 40], &[MIDDLE; 40][..], &[BULK]].concat();
        let served = shares(&crowd, 80 * 80);
        assert_eq!(served[80], 400, "bulk, however many others wait");
        assert!(served[40..80].iter().all(|turns| *turns == 10));
    }

    /// Turns are counted, not flows that queue: these come all at once, and end with their turn.
    #[test]
    fn a_crowd_that_comes_at_once_does_not_put_bulk_first() {
        let mut s = Scheduler::default();
        let crowd = [BULK, BULK, BULK, BULK, BULK, SHORT, SHORT, SHORT];
        for attained in crowd {
            s.add(attained, attained);
        }
        let order: Vec<_> = std::iter::from_fn(|| s.pop()).collect();
        assert_eq!(order, [[SHORT; 3].as_slice(), &[BULK; 5]].concat());
    }

    /// Flows that come and go keep their place among flows that go on.
    #[test]
    fn short_flows_that_come_and_go_are_first_and_starve_nobody() {
        let mut s = Scheduler::default();
        s.add('m', MIDDLE);
        s.add('b', BULK);
        let (mut turns, mut longest) = ([0_u32; 2], 0);
        for _ in 0..400 {
            s.add('s', SHORT);
            let mut waited = 0;
            while let Some(other) = s.pop().filter(|flow| *flow != 's') {
                let bulk = other == 'b';
                turns[usize::from(bulk)] += 1;
                s.add(other, if bulk { BULK } else { MIDDLE });
                waited += 1;
            }
            longest = longest.max(waited);
        }
        assert_eq!(longest, 1, "turns that a short flow waits for others");
        assert!(turns.iter().all(|turns| *turns > 25), "{turns:?}");
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
