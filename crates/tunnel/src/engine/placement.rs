//! The shard of a new tunnel: the one that has fewest, and of several the least busy.
//!
//! Asked for Initial packets only, by whichever shard the kernel gave them to: what follows names its shard by the connection
//! ID. Until then a client sends with the ID that it has made up itself, perhaps several times; so that is remembered.
//!
//! One lock, taken when a tunnel begins and when it ends: two shards that asked at one instant would both choose the same.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use quinn_proto::ConnectionId;

/// A client's first packets come within this time of each other, or begin a new connection.
const REMEMBERED: Duration = Duration::from_secs(30);

/// A tunnel that was placed counts for so long before it has begun: a Retry takes a round trip.
const EXPECTED: Duration = Duration::from_secs(3);

/// First packets that are remembered. Strangers can send any number; beyond, the oldest are forgotten. A client whose first
/// packet is may get two answers, and takes one of them.
const MOST: usize = 4096;

/// Choice of the shard that a new tunnel goes to; one for all shards of a process.
pub struct Placement {
    began: Instant,
    /// By shard: the newest second in which it moved anything, and how many KiB in that or the one before.
    moved: Vec<AtomicU64>,
    book: Mutex<Book>,
}

/// Record of what has been placed.
struct Book {
    /// By shard: connections, handshakes included.
    open: Vec<usize>,
    /// By shard: tunnels that were placed there and have not begun.
    expected: Vec<usize>,
    placed: HashMap<ConnectionId, Place>,
    /// Oldest first: all that is in `placed`, and of that what was expected when it was placed.
    by_age: VecDeque<(Instant, ConnectionId)>,
    awaited: VecDeque<(Instant, ConnectionId)>,
}

struct Place {
    shard: u8,
    expected: bool,
}

impl Placement {
    /// `shards` of them, all idle.
    pub fn new(shards: usize, now: Instant) -> Self {
        Self {
            began: now,
            moved: (0..shards).map(|_| AtomicU64::new(0)).collect(),
            book: Mutex::new(Book {
                open: vec![0; shards],
                expected: vec![0; shards],
                placed: HashMap::new(),
                by_age: VecDeque::new(),
                awaited: VecDeque::new(),
            }),
        }
    }

    /// The one of `shards` for a client's first packet to `id`: if that came before, the same as then.
    pub fn place(&self, now: Instant, id: ConnectionId, shards: &[u8]) -> Option<u8> {
        let mut book = self.book();
        book.expire(now);
        if let Some(place) = book.placed.get(&id)
            && shards.contains(&place.shard)
        {
            return Some(place.shard);
        }
        let load = |shard: &u8| (book.tunnels(*shard), self.recent(now, *shard));
        let shard = shards.iter().copied().min_by_key(load)?;
        book.enter(now, id, shard);
        Some(shard)
    }

    /// A connection has begun on `shard` with a first packet to `id`.
    pub fn opened(&self, shard: u8, id: &ConnectionId) {
        let mut book = self.book();
        book.settle(id);
        if let Some(open) = book.open.get_mut(usize::from(shard)) {
            *open += 1;
        }
    }

    /// A connection of `shard` is gone.
    pub fn closed(&self, shard: u8) {
        if let Some(open) = self.book().open.get_mut(usize::from(shard)) {
            *open = open.saturating_sub(1);
        }
    }

    /// `shard` has moved bytes up to `now`: so many KiB in the present second or the one before, whichever was more.
    pub fn publish(&self, now: Instant, shard: u8, kib: u32) {
        if let Some(moved) = self.moved.get(usize::from(shard)) {
            moved.store(self.second(now) << 32 | u64::from(kib), Ordering::Relaxed);
        }
    }

    /// Whole seconds since the process began.
    pub fn second(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.began).as_secs()
    }

    /// Load that was published, unless that is old.
    fn recent(&self, now: Instant, shard: u8) -> u64 {
        let moved = self.moved.get(usize::from(shard));
        let moved = moved.map_or(0, |moved| moved.load(Ordering::Relaxed));
        match (moved >> 32) + 1 >= self.second(now) {
            true => moved & u64::from(u32::MAX),
            false => 0,
        }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Book {
    fn tunnels(&self, shard: u8) -> usize {
        let of = |counts: &[usize]| counts.get(usize::from(shard)).copied().unwrap_or(0);
        of(&self.open) + of(&self.expected)
    }

    fn enter(&mut self, now: Instant, id: ConnectionId, shard: u8) {
        if self.by_age.len() >= MOST {
            self.forget_oldest();
        }
        let expected = true;
        self.placed.insert(id, Place { shard, expected });
        self.by_age.push_back((now, id));
        self.awaited.push_back((now, id));
        if let Some(count) = self.expected.get_mut(usize::from(shard)) {
            *count += 1;
        }
    }

    /// The tunnel is expected no more.
    fn settle(&mut self, id: &ConnectionId) {
        if let Some(place) = self.placed.get_mut(id)
            && std::mem::take(&mut place.expected)
            && let Some(count) = self.expected.get_mut(usize::from(place.shard))
        {
            *count -= 1;
        }
    }

    fn forget_oldest(&mut self) {
        if let Some((_, id)) = self.by_age.pop_front() {
            self.settle(&id);
            self.placed.remove(&id);
            // What was placed first was awaited first.
            self.awaited.pop_front_if(|(_, awaited)| *awaited == id);
        }
    }

    fn expire(&mut self, now: Instant) {
        let older = |since: Instant, than| now.saturating_duration_since(since) > than;
        while let Some((_, id)) = self
            .awaited
            .pop_front_if(|(since, _)| older(*since, EXPECTED))
        {
            self.settle(&id);
        }
        while self
            .by_age
            .front()
            .is_some_and(|(since, _)| older(*since, REMEMBERED))
        {
            self.forget_oldest();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> ConnectionId {
        ConnectionId::new(&number.to_be_bytes())
    }

    fn begin(placement: &Placement, now: Instant, number: u64) -> u8 {
        let shard = placement.place(now, id(number), &[0, 1]).expect("a shard");
        placement.opened(shard, &id(number));
        shard
    }

    fn now() -> Instant {
        // A fixed origin is enough: nothing here waits.
        #[expect(clippy::disallowed_methods, reason = "an origin for made-up instants")]
        Instant::now()
    }

    #[test]
    fn tunnels_are_shared_evenly_however_busy_they_are() {
        let now = now();
        let placement = Placement::new(2, now);
        placement.publish(now, 0, 9000);
        let mut tunnels = [0; 2];
        for number in 0..8 {
            // Half of them have not begun when the next one comes.
            let shard = match number % 2 {
                0 => begin(&placement, now, number),
                _ => placement.place(now, id(number), &[0, 1]).expect("a shard"),
            };
            tunnels[usize::from(shard)] += 1;
        }
        assert_eq!(tunnels, [4, 4]);
    }

    #[test]
    fn a_first_packet_that_comes_again_goes_where_it_went() {
        let mut now = now();
        let placement = Placement::new(3, now);
        let first = placement.place(now, id(1), &[0, 1]);
        placement.place(now, id(2), &[0, 1]);
        for _ in 0..5 {
            now += Duration::from_secs(4);
            assert_eq!(placement.place(now, id(1), &[0, 1]), first);
        }
        assert_eq!(
            placement.place(now, id(1), &[2]),
            Some(2),
            "not this address's"
        );
    }

    #[test]
    fn what_ends_and_what_never_begins_makes_room() {
        let mut now = now();
        let placement = Placement::new(2, now);
        let of: Vec<_> = (0..4).map(|n| begin(&placement, now, n)).collect();
        for shard in of.iter().filter(|shard| **shard == of[1]) {
            placement.closed(*shard);
        }
        assert_eq!(begin(&placement, now, 10), of[1]);
        assert_eq!(begin(&placement, now, 11), of[1]);
        let lost = placement.place(now, id(12), &[0, 1]).expect("a shard");
        assert_ne!(placement.place(now, id(13), &[0, 1]), Some(lost));
        now += EXPECTED + Duration::from_secs(1);
        let book = |placement: &Placement| placement.book().expected.clone();
        placement.place(now, id(12), &[0, 1]);
        assert_eq!(book(&placement), [0, 0]);
    }

    #[test]
    fn of_equals_the_less_busy_one_is_taken() {
        let mut now = now();
        let placement = Placement::new(2, now);
        placement.publish(now, 0, 10);
        assert_eq!(placement.place(now, id(1), &[0, 1]), Some(1));
        placement.place(now, id(2), &[0, 1]);
        now += Duration::from_secs(5);
        placement.publish(now, 1, 10);
        assert_eq!(placement.place(now, id(3), &[0, 1]), Some(0));
        placement.place(now, id(4), &[0, 1]);
        now += Duration::from_secs(5);
        assert_eq!(
            placement.place(now, id(5), &[0, 1]),
            Some(0),
            "both idle now"
        );
    }

    #[test]
    fn strangers_fill_a_bounded_table() {
        let now = now();
        let placement = Placement::new(2, now);
        for number in 0..3 * MOST as u64 {
            placement.place(now, id(number), &[0, 1]);
        }
        let book = placement.book();
        assert_eq!(book.placed.len(), MOST);
        assert_eq!((book.by_age.len(), book.awaited.len()), (MOST, MOST));
        assert_eq!(book.expected, [MOST / 2, MOST / 2]);
    }
}
