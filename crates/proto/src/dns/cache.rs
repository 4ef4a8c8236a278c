//! Answers by question: bounded in bytes, the least used go first.
//!
//! Replacement is CLOCK ("second chance"): a hit sets a mark, and what is marked when its turn comes goes round once more.
//! An answer past its lifetime stays for a while, for the time when there is no other (RFC 8767). Answers grow older while the machine
//! sleeps and the clock that callers go by stands still.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};

use super::answer::{Answer, STALE_TTL};
use super::query::Key;

/// Bytes that an entry costs beside its key's and its answer's: tables, tree nodes, allocations.
const ENTRY_COST: usize = 400;

/// An answer is fetched anew in the last tenth of its life…
const LAST_PART: u32 = 10;

/// …if it was asked for so often since it came.
const IN_USE: u32 = 2;

/// Nothing shorter is worth it.
const SHORTEST_PREFETCHED: Duration = Duration::from_secs(10);

/// An answer that may be given out.
#[derive(Debug)]
pub enum Found<'a> {
    /// In its lifetime, so long after it came.
    Fresh(&'a Answer, Duration),
    /// Past it; true: the resolver has just failed, so that asking again can wait.
    Stale(&'a Answer, bool),
}

#[derive(Debug)]
struct Entry {
    answer: Answer,
    came: Instant,
    fresh_until: Instant,
    stale_until: Instant,
    /// After a failure: not to be asked for before.
    retry_at: Option<Instant>,
    prefetch_at: Option<Instant>,
    hits: u32,
    marked: bool,
}

/// Answers, as many as there is memory for.
#[derive(Debug)]
pub struct Cache {
    entries: HashMap<Key, Entry>,
    clock: VecDeque<Key>,
    prefetch: BTreeSet<(Instant, Key)>,
    bytes: usize,
    memory: usize,
    max_ttl: Duration,
    max_stale: Duration,
    /// Time for which the callers' clock has stood still.
    slept: Duration,
}

impl Cache {
    /// Holds `memory` bytes; nothing is fresh for longer than `max_ttl`, or given out for longer than `max_stale` after that.
    #[must_use]
    pub fn new(memory: usize, max_ttl: Duration, max_stale: Duration) -> Self {
        Self {
            entries: HashMap::new(),
            clock: VecDeque::new(),
            prefetch: BTreeSet::new(),
            bytes: 0,
            memory,
            max_ttl,
            max_stale,
            slept: Duration::ZERO,
        }
    }

    /// Notes that the callers' clock, which shows `now`, has stood still for `slept`: all that is here is older by that. What was to be
    /// fetched meanwhile is fetched when somebody asks, and not all at once.
    pub fn on_slept(&mut self, now: Instant, slept: Duration) {
        self.slept += slept;
        let now = now + self.slept;
        self.prefetch.retain(|(at, _)| *at > now);
    }

    /// Looks an answer up; `count`: on behalf of somebody who will use it.
    pub fn find(&mut self, now: Instant, key: &Key, count: bool) -> Option<Found<'_>> {
        let now = now + self.slept;
        let entry = self.entries.get_mut(key)?;
        if now >= entry.stale_until {
            return None;
        }
        if count {
            entry.marked = true;
            entry.hits = entry.hits.saturating_add(1);
        }
        Some(if now < entry.fresh_until {
            Found::Fresh(&entry.answer, now.saturating_duration_since(entry.came))
        } else {
            let waiting = entry.retry_at.is_some_and(|at| now < at);
            Found::Stale(&entry.answer, waiting)
        })
    }

    /// Keeps what has just come, if it may be kept. A failure does not displace what was known before.
    pub fn insert(&mut self, now: Instant, key: &Key, answer: Answer) {
        let now = now + self.slept;
        let known = self
            .entries
            .get_mut(key)
            .filter(|entry| !entry.answer.is_failure());
        if answer.is_failure()
            && let Some(entry) = known.filter(|entry| now < entry.stale_until)
        {
            entry.retry_at = Some(now + Duration::from_secs(STALE_TTL.into()));
            return;
        }
        self.remove(key);
        let Some(lifetime) = answer.lifetime() else {
            return;
        };
        let size = cost(key, &answer);
        if size > self.memory {
            return;
        }
        while self.bytes + size > self.memory && self.evict() {}
        let lifetime = lifetime.min(self.max_ttl);
        let fresh_until = now + lifetime;
        let stale = if answer.is_failure() {
            Duration::ZERO
        } else {
            self.max_stale
        };
        let prefetched = lifetime >= SHORTEST_PREFETCHED && !answer.is_failure();
        let prefetch_at = prefetched.then(|| fresh_until - lifetime / LAST_PART);
        if let Some(at) = prefetch_at {
            self.prefetch.insert((at, key.clone()));
        }
        self.bytes += size;
        self.clock.push_back(key.clone());
        let entry = Entry {
            answer,
            came: now,
            fresh_until,
            stale_until: fresh_until + stale,
            retry_at: None,
            prefetch_at,
            hits: 0,
            marked: false,
        };
        self.entries.insert(key.clone(), entry);
    }

    fn remove(&mut self, key: &Key) {
        if let Some(entry) = self.entries.remove(key) {
            self.bytes -= cost(key, &entry.answer);
            if let Some(at) = entry.prefetch_at {
                self.prefetch.remove(&(at, key.clone()));
            }
            // Its place in the clock is found empty later; an entry that comes back has two, which does no harm, but a table
            // of empty places would grow.
            if self.clock.len() > 2 * self.entries.len() + 64 {
                let mut seen = BTreeSet::new();
                let entries = &self.entries;
                self.clock
                    .retain(|key| entries.contains_key(key) && seen.insert(key.clone()));
            }
        }
    }

    /// False if there is nothing left.
    fn evict(&mut self) -> bool {
        while let Some(key) = self.clock.pop_front() {
            match self.entries.get_mut(&key) {
                Some(entry) if entry.marked => {
                    entry.marked = false;
                    self.clock.push_back(key);
                }
                Some(_) => {
                    self.remove(&key);
                    return true;
                }
                None => {}
            }
        }
        false
    }

    /// Instant at which [`Self::next_prefetch`] has something to look at.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let (at, _) = self.prefetch.first()?;
        Some(at.checked_sub(self.slept).unwrap_or(*at))
    }

    /// A question whose answer is in use and will soon be stale.
    pub fn next_prefetch(&mut self, now: Instant) -> Option<Key> {
        let now = now + self.slept;
        while let Some((at, key)) = self.prefetch.first()
            && *at <= now
        {
            let key = key.clone();
            self.prefetch.pop_first();
            let entry = self.entries.get_mut(&key)?;
            entry.prefetch_at = None;
            if entry.hits >= IN_USE {
                return Some(key);
            }
        }
        None
    }

    /// Answers held, and the bytes that they cost.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        (self.entries.len(), self.bytes)
    }
}

fn cost(key: &Key, answer: &Answer) -> usize {
    ENTRY_COST + key.len() + answer.memory()
}
