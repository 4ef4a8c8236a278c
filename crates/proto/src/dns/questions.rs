//! Questions under way: who waits for each, when it is given up, and which leaves next.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::query::{Key, Query, Room};
use super::share::{Host, Shares};

/// After so long without an answer the resolver is taken to have failed: more than it takes over a satellite with the server's
/// own patience, less than a second attempt of most hosts.
const PATIENCE: Duration = Duration::from_secs(9);

/// How long a query waits for a tunnel: less than the 5 s after which hosts ask again.
const TUNNEL_PATIENCE: Duration = Duration::from_secs(4);

/// Questions under way: less than the 256 that a server takes from one tunnel, for it hears later than we of those that
/// were given up.
pub(super) const MAX_PENDING: usize = 240;

/// Most questions under way of one host: whoever floods leaves room for others from the start.
const MAX_PENDING_OF_HOST: usize = 160;

/// Hosts that wait for the same answer.
const MAX_ASKERS: usize = 64;

/// Queries of one host among these: more are repetitions.
const MAX_ASKERS_OF_HOST: usize = 8;

/// Questions under way for nobody: names in use, and the companions of a question.
const MAX_PREFETCHING: usize = 32;

/// Times that a question crosses whose stream or tunnel was lost.
const MAX_ATTEMPTS: u32 = 3;

/// Names a question that crosses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// A query that waits for an answer.
pub(super) struct Asker<A> {
    pub(super) to: A,
    pub(super) host: Host,
    pub(super) query: Query,
    pub(super) room: Room,
}

/// A question under way.
pub(super) struct Pending<A> {
    pub(super) key: Key,
    /// Query that crosses.
    pub(super) query: Query,
    pub(super) askers: Vec<Asker<A>>,
    /// Host that began it; `None`: a name in use is asked for anew.
    owner: Option<Host>,
    /// The name server of the site that is asked, instead of the tunnel.
    server: Option<SocketAddr>,
    begun: Instant,
    /// Instant at which somebody is served a stale answer.
    stale_at: Option<Instant>,
    /// In the tunnel, or on its way to `server`.
    sent: bool,
    attempts: u32,
    due: Instant,
}

impl<A> Pending<A> {
    /// True if a name server of the site is asked.
    pub(super) fn is_near(&self) -> bool {
        self.server.is_some()
    }

    /// True if nobody waits for it.
    fn is_idle(&self) -> bool {
        self.askers.is_empty()
    }
}

/// Questions under way, found by ticket, by what is asked and by the time that they are due.
pub(super) struct Questions<A> {
    pending: BTreeMap<Ticket, Pending<A>>,
    by_key: HashMap<Key, Ticket>,
    due: BTreeSet<(Instant, Ticket)>,
    next_ticket: u64,
    shares: Shares,
    /// Questions can cross now.
    usable: bool,
    transmits: VecDeque<Ticket>,
    near: VecDeque<Ticket>,
    cancelled: VecDeque<Ticket>,
}

impl<A> Default for Questions<A> {
    fn default() -> Self {
        Self {
            pending: BTreeMap::new(),
            by_key: HashMap::new(),
            due: BTreeSet::new(),
            next_ticket: 0,
            shares: Shares::default(),
            usable: false,
            transmits: VecDeque::new(),
            near: VecDeque::new(),
            cancelled: VecDeque::new(),
        }
    }
}

impl<A> Questions<A> {
    /// True if questions can cross now.
    pub(super) fn is_usable(&self) -> bool {
        self.usable
    }

    /// Sets whether questions can cross. Returns those that cross if that has changed: each is to be seen to.
    pub(super) fn set_usable(&mut self, usable: bool) -> Vec<Ticket> {
        if self.usable == usable {
            return Vec::new();
        }
        self.usable = usable;
        let crossing = self.pending.iter().filter(|(_, one)| !one.is_near());
        crossing.map(|(ticket, _)| *ticket).collect()
    }

    pub(super) fn get(&self, ticket: Ticket) -> Option<&Pending<A>> {
        self.pending.get(&ticket)
    }

    /// True if nobody waits for a question.
    pub(super) fn is_idle(&self, ticket: Ticket) -> bool {
        self.pending.get(&ticket).is_some_and(Pending::is_idle)
    }

    /// The question for `key`, if it is under way.
    pub(super) fn find(&self, key: &Key) -> Option<Ticket> {
        self.by_key.get(key).copied()
    }

    /// True if there is room for a question for nobody, and `key` is not asked for yet.
    pub(super) fn may_prefetch(&self, key: &Key) -> bool {
        let idle = self.pending.values().filter(|one| one.is_idle());
        let prefetching = idle.count();
        let room = prefetching < MAX_PREFETCHING && self.pending.len() < MAX_PENDING;
        room && !self.by_key.contains_key(key)
    }

    /// Room for another question of a host.
    pub(super) fn room(&self, host: Host) -> QuestionRoom {
        if self.shares.of(host) >= MAX_PENDING_OF_HOST {
            return QuestionRoom::None;
        }
        if self.pending.len() < MAX_PENDING {
            return QuestionRoom::Free;
        }
        let newest_of = |owner: Option<Host>| {
            let mut newest_first = self.pending.iter().rev();
            newest_first.find(|(_, one)| one.owner == owner)
        };
        let idle = newest_of(None).filter(|(_, one)| one.is_idle());
        let other = || newest_of(Some(self.shares.to_yield(host)?));
        match idle.or_else(other) {
            Some((ticket, _)) => QuestionRoom::InsteadOf(*ticket),
            None => QuestionRoom::None,
        }
    }

    /// Begins a question of `owner`, or of nobody, which `server` is asked, or the tunnel.
    pub(super) fn begin(
        &mut self,
        now: Instant,
        key: Key,
        query: &Query,
        owner: Option<Host>,
        server: Option<SocketAddr>,
    ) -> Ticket {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        let pending = Pending {
            key: key.clone(),
            query: query.clone(),
            askers: Vec::new(),
            owner,
            server,
            begun: now,
            stale_at: None,
            sent: false,
            attempts: 0,
            due: now + PATIENCE,
        };
        self.pending.insert(ticket, pending);
        self.by_key.insert(key, ticket);
        if let Some(owner) = owner {
            self.shares.take(owner);
        }
        self.reschedule(ticket);
        self.queue(ticket);
        ticket
    }

    /// Lets a question leave, if it can.
    fn queue(&mut self, ticket: Ticket) {
        match self.pending.get(&ticket).map(Pending::is_near) {
            Some(true) => self.near.push_back(ticket),
            Some(false) if self.usable => self.transmits.push_back(ticket),
            Some(false) | None => {}
        }
    }

    /// Lets `asker` wait for a question; from `stale_at` on for a stale answer as well.
    ///
    /// # Errors
    /// Too many wait; the asker comes back.
    pub(super) fn join(
        &mut self,
        ticket: Ticket,
        asker: Asker<A>,
        stale_at: Option<Instant>,
    ) -> Result<(), Asker<A>> {
        let Some(pending) = self.pending.get_mut(&ticket) else {
            return Err(asker);
        };
        let of_host = pending.askers.iter().filter(|one| one.host == asker.host);
        if pending.askers.len() >= MAX_ASKERS || of_host.count() >= MAX_ASKERS_OF_HOST {
            return Err(asker);
        }
        pending.askers.push(asker);
        pending.stale_at = pending.stale_at.or(stale_at);
        self.reschedule(ticket);
        Ok(())
    }

    /// Takes out those who wait for a question, to answer them.
    pub(super) fn take_askers(&mut self, ticket: Ticket) -> Vec<Asker<A>> {
        let pending = self.pending.get_mut(&ticket);
        pending.map_or_else(Vec::new, |one| std::mem::take(&mut one.askers))
    }

    /// Notes that nobody waits for a stale answer any more.
    pub(super) fn end_stale(&mut self, ticket: Ticket) {
        if let Some(pending) = self.pending.get_mut(&ticket) {
            pending.stale_at = None;
        }
    }

    /// Sets anew when a question is due.
    pub(super) fn reschedule(&mut self, ticket: Ticket) {
        let Some(pending) = self.pending.get_mut(&ticket) else {
            return;
        };
        self.due.remove(&(pending.due, ticket));
        let patience = if self.usable || pending.is_near() {
            PATIENCE
        } else {
            TUNNEL_PATIENCE
        };
        let end = pending.begun + patience;
        pending.due = pending.stale_at.map_or(end, |at| at.min(end));
        self.due.insert((pending.due, ticket));
    }

    /// Notes that nothing is under way for a question any more.
    pub(super) fn recall(&mut self, ticket: Ticket) {
        if let Some(pending) = self.pending.get_mut(&ticket) {
            pending.sent = false;
        }
    }

    /// Lets a question leave, or leave once more; false if it has done so too often.
    pub(super) fn retry(&mut self, ticket: Ticket) -> bool {
        let spent = |one: &Pending<A>| one.attempts >= MAX_ATTEMPTS;
        if self.pending.get(&ticket).is_none_or(spent) {
            return false;
        }
        self.queue(ticket);
        true
    }

    /// Notes that the tunnel came: a question crosses, however often it has.
    pub(super) fn cross(&mut self, ticket: Ticket) {
        self.transmits.push_back(ticket);
    }

    /// Takes a question out.
    pub(super) fn end(&mut self, ticket: Ticket) -> Option<Pending<A>> {
        let pending = self.pending.remove(&ticket)?;
        self.by_key.remove(&pending.key);
        if pending.sent && pending.server.is_none() {
            self.cancelled.push_back(ticket);
        }
        if let Some(owner) = pending.owner {
            self.shares.give_back(owner);
        }
        self.due.remove(&(pending.due, ticket));
        Some(pending)
    }

    /// Next question that is to cross.
    pub(super) fn poll_transmit(&mut self) -> Option<(Ticket, Vec<u8>)> {
        while let Some(ticket) = self.transmits.pop_front() {
            if let Some(pending) = self.pending.get_mut(&ticket)
                && self.usable
                && !pending.sent
            {
                pending.sent = true;
                pending.attempts += 1;
                return Some((ticket, pending.query.encode()));
            }
        }
        None
    }

    /// Next question that a name server of the site is to be asked, and that server.
    pub(super) fn poll_near(&mut self) -> Option<(Ticket, SocketAddr, Vec<u8>)> {
        while let Some(ticket) = self.near.pop_front() {
            if let Some(pending) = self.pending.get_mut(&ticket)
                && let Some(server) = pending.server
                && !pending.sent
            {
                pending.sent = true;
                pending.attempts += 1;
                return Some((ticket, server, pending.query.encode()));
            }
        }
        None
    }

    /// Next question that has crossed and whose answer is of no use any more.
    pub(super) fn poll_cancelled(&mut self) -> Option<Ticket> {
        self.cancelled.pop_front()
    }

    /// Instant at which the next question is due.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// The question that is due first, if it is by `now`, and for what.
    pub(super) fn first_due(&self, now: Instant) -> Option<(Ticket, Due)> {
        let &(_, ticket) = self.due.first().filter(|(at, _)| *at <= now)?;
        let pending = self.pending.get(&ticket)?;
        let due = if pending.stale_at.is_some_and(|at| at <= now) {
            Due::Stale
        } else if self.usable || pending.is_near() {
            Due::Silent
        } else {
            Due::NoTunnel
        };
        Some((ticket, due))
    }
}

/// Room for another question.
pub(super) enum QuestionRoom {
    Free,
    /// If this one, of nobody or of the host that has most, is given up. It is its newest: its oldest are those that may yet be
    /// answered, for they came before it began to flood.
    InsteadOf(Ticket),
    None,
}

/// Action that is due for a question.
pub(super) enum Due {
    /// Hosts that wait have a stale answer.
    Stale,
    /// No answer has come in time.
    Silent,
    /// No tunnel was up within the time for an answer.
    NoTunnel,
}
