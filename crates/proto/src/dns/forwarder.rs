//! What the terminal does with queries: answers from the cache, asks the server, and answers whatever happens.
//!
//! Equal questions cross once, however many ask. A query for which there is only a stale answer waits a moment for a better one
//! (RFC 8767 §5); without a tunnel it does not wait. Nobody waits for ever: at the end there is SERVFAIL, with a reason.
//! Names of the site's own zones go to their name servers and never cross. When all places are taken, the host with most
//! questions under way gives one up.
//! `A` is where an answer goes; what that means is the shell's business.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use bentpipe_units::ByteCount;
use ipnet::IpNet;

use super::answer::{Answer, Learned, STALE_TTL};
use super::cache::{Cache, Found};
use super::companions::Companions;
use super::query::{Key, Query, Refusal, Room};
use super::rebind::Rebinding;
use super::reply::{self, Extended};
use super::share::{Host, Shares};
use super::zones::{self, Zones};
use super::{rcode, rtype, special};
use crate::tunnel::Families;

/// How long a stale answer is held back for a fresh one (RFC 8767 §5, client response timer).
const STALE_PATIENCE: Duration = Duration::from_millis(1800);

/// After so long without an answer the resolver is taken to have failed: more than it takes over a satellite with the server's
/// own patience, less than a second attempt of most hosts.
const PATIENCE: Duration = Duration::from_secs(9);

/// How long a query waits for a tunnel: less than the 5 s after which hosts ask again.
const TUNNEL_PATIENCE: Duration = Duration::from_secs(4);

/// How long hosts may use what is past its time.
const STALE_FOR: Duration = Duration::from_secs(STALE_TTL as u64);

/// Questions under way: less than the 256 that a server takes from one tunnel, for it hears later than we of those that
/// were given up.
const MAX_PENDING: usize = 240;

/// Those of one host among these: whoever floods leaves room for others from the start.
const MAX_PENDING_OF_HOST: usize = 160;

/// Hosts that wait for the same answer.
const MAX_ASKERS: usize = 64;

/// Queries of one host among these: more are repetitions.
const MAX_ASKERS_OF_HOST: usize = 8;

/// Questions under way for nobody: names in use, and the companions of a question.
const MAX_PREFETCHING: usize = 32;

/// How often a question crosses whose stream or tunnel was lost.
const MAX_ATTEMPTS: u32 = 3;

/// Answers whose addresses nobody has fetched yet: no call makes more.
const MAX_LEARNED: usize = MAX_PENDING;

const NO_TUNNEL: Extended = Extended::Network("bentpipe: the tunnel is down");
const BUSY: Extended = Extended::Other("bentpipe: too many queries under way");
const NO_FAMILY: Extended =
    Extended::Other("bentpipe: the server does not reach this address family");

/// Settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Memory for answers.
    pub memory: ByteCount,
    /// Nothing is fresh for longer, whatever its TTL.
    pub max_ttl: Duration,
    /// For how long a stale answer may still be given out.
    pub max_stale: Duration,
    /// Whether names in use are asked for again before their answers expire, and names that followed another along with that.
    pub prefetch: bool,
    /// Whether the reverse zones of private addresses are answered here.
    pub local_zones: bool,
    /// Whether [`Forwarder::poll_learned`] is of interest.
    pub learns: bool,
    /// Zones that name servers of the site answer.
    pub zones: Zones,
    /// Which answers are withheld for the addresses in them.
    pub rebinding: Rebinding,
}

/// Where a query came from.
#[derive(Clone, Debug)]
pub struct Source<A> {
    /// Where the answer goes.
    pub to: A,
    /// The host that asks.
    pub host: IpAddr,
    /// The router's own name server, if the query was meant for that: it knows the names of this site.
    pub router: Option<SocketAddr>,
}

/// Names a question that crosses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// Counters for `status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Queries of hosts.
    pub queries: u64,
    /// Of these, answered at once: from the cache, or from what needs no resolver.
    pub local: u64,
    /// Of these, answered with what was past its TTL.
    pub stale: u64,
    /// Of these, answered with SERVFAIL for want of an answer.
    pub failed: u64,
    /// Questions that crossed, those for names in use among them.
    pub asked: u64,
    /// Questions asked for nobody yet: before the answer at hand had expired, or along with what they have followed before.
    pub prefetched: u64,
    /// Answers withheld for a private address in them.
    pub withheld: u64,
    /// Questions given up for those of hosts that had fewer under way.
    pub evicted: u64,
}

struct Asker<A> {
    to: A,
    host: Host,
    query: Query,
    room: Room,
}

struct Pending<A> {
    key: Key,
    /// What crosses.
    query: Query,
    askers: Vec<Asker<A>>,
    /// Who began it; `None`: a name in use is asked for anew.
    owner: Option<Host>,
    /// The name server of the site that is asked, instead of the tunnel.
    server: Option<SocketAddr>,
    begun: Instant,
    /// When somebody is served a stale answer.
    stale_at: Option<Instant>,
    /// In the tunnel, or on its way to `server`.
    sent: bool,
    attempts: u32,
    due: Instant,
}

impl<A> Pending<A> {
    /// Whether it can be asked now, given that the tunnel is `usable` or not.
    fn can_go(&self, usable: bool) -> bool {
        usable || self.server.is_some()
    }
}

/// The terminal's DNS.
pub struct Forwarder<A> {
    config: Config,
    cache: Cache,
    companions: Companions,
    pending: BTreeMap<Ticket, Pending<A>>,
    by_key: HashMap<Key, Ticket>,
    due: BTreeSet<(Instant, Ticket)>,
    next_ticket: u64,
    usable: bool,
    families: Families,
    /// Prefixes and addresses of this machine and its LANs.
    local: Vec<IpNet>,
    shares: Shares,
    transmits: VecDeque<Ticket>,
    near: VecDeque<Ticket>,
    cancelled: VecDeque<Ticket>,
    answers: VecDeque<(A, Vec<u8>)>,
    learned: VecDeque<Learned>,
    stats: Stats,
}

impl<A> Forwarder<A> {
    /// Knows nothing yet; there is no tunnel.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let memory = usize::try_from(config.memory.as_u64()).unwrap_or(usize::MAX);
        Self {
            cache: Cache::new(memory, config.max_ttl, config.max_stale),
            config,
            companions: Companions::default(),
            pending: BTreeMap::new(),
            by_key: HashMap::new(),
            due: BTreeSet::new(),
            next_ticket: 0,
            usable: false,
            families: Families {
                ipv4: true,
                ipv6: true,
            },
            local: Vec::new(),
            shares: Shares::default(),
            transmits: VecDeque::new(),
            near: VecDeque::new(),
            cancelled: VecDeque::new(),
            answers: VecDeque::new(),
            learned: VecDeque::new(),
            stats: Stats::default(),
        }
    }

    /// Whether questions can cross now, and which addresses the server reaches.
    pub fn set_tunnel(&mut self, now: Instant, usable: bool, families: Families) {
        self.families = families;
        if self.usable == usable {
            return;
        }
        self.usable = usable;
        let crossing = self.pending.iter().filter(|(_, one)| one.server.is_none());
        let tickets: Vec<_> = crossing.map(|(ticket, _)| *ticket).collect();
        for ticket in tickets {
            self.on_tunnel(now, ticket);
        }
    }

    /// Names the prefixes and addresses of this machine and its LANs: no public name leads there.
    pub fn set_local(&mut self, local: Vec<IpNet>) {
        self.local = local;
    }

    /// A message of a host. The answer, if there is one at once; else it comes from [`Self::poll_answer`], or never, if the message
    /// deserves none.
    pub fn handle_query(
        &mut self,
        now: Instant,
        source: Source<A>,
        message: &[u8],
        room: Room,
    ) -> Option<Vec<u8>> {
        let query = match Query::decode(message) {
            Ok(query) => query,
            Err(Refusal::Silence) => return None,
            Err(Refusal::Answer(answer)) => return Some(answer),
        };
        self.stats.queries += 1;
        let (host, key) = (Host::of(source.host), query.key());
        let server = self.server(&query, source.router);
        let answer = self
            .without_resolver(&query, server.is_some())
            .or_else(|| self.cached(now, &query, &key, room, self.usable || server.is_some()));
        let answer = if answer.is_some() {
            self.stats.local += 1;
            answer
        } else {
            let to = source.to;
            let asker = Asker {
                to,
                host,
                query,
                room,
            };
            self.wait(now, asker, &key, server)
        };
        // After the question itself, which crosses first.
        if self.may_prefetch() && server.is_none() {
            for companion in self.companions.on_question(now, host, &key) {
                self.ask_ahead(now, &companion);
            }
        }
        answer
    }

    /// Asks what a host will ask soon, unless that is known or on its way.
    fn ask_ahead(&mut self, now: Instant, key: &Key) {
        let query = Query::of(key);
        let known = matches!(self.cache.find(now, key, false), Some(Found::Fresh(..)));
        let near = self.config.zones.server(&query).is_some();
        if !known && !near && self.without_resolver(&query, false).is_none() {
            self.prefetch(now, key.clone(), &query, None);
        }
    }

    /// Asks for nobody, if there is room for that.
    fn prefetch(&mut self, now: Instant, key: Key, query: &Query, server: Option<SocketAddr>) {
        let idle = |pending: &&Pending<A>| pending.askers.is_empty();
        let prefetching = self.pending.values().filter(idle).count();
        let room = prefetching < MAX_PREFETCHING && self.pending.len() < MAX_PENDING;
        if room && !self.by_key.contains_key(&key) {
            self.stats.prefetched += 1;
            self.begin(now, key, query, None, server);
        }
    }

    /// The site's own name server for a question: that of its zone, or the router's for names that mean something here alone.
    fn server(&self, query: &Query, router: Option<SocketAddr>) -> Option<SocketAddr> {
        let zone = self.config.zones.server(query);
        zone.or_else(|| router.filter(|_| zones::is_private(query)))
    }

    /// `near`: a name server of the site knows the name, whatever families the tunnel has.
    fn without_resolver(&self, query: &Query, near: bool) -> Option<Vec<u8>> {
        if let Some(answer) = special::answer(query, self.config.local_zones && !near) {
            return Some(answer);
        }
        if near {
            return None;
        }
        let lacking = match query.rtype() {
            rtype::A => !self.families.ipv4 && self.families.ipv6,
            rtype::AAAA => !self.families.ipv6 && self.families.ipv4,
            _ => false,
        };
        lacking.then(|| reply::bare(query, rcode::NOERROR, Some(NO_FAMILY)))
    }

    /// `usable`: there may be a better answer than a stale one.
    fn cached(
        &mut self,
        now: Instant,
        query: &Query,
        key: &Key,
        room: Room,
        usable: bool,
    ) -> Option<Vec<u8>> {
        let learns = self.config.learns;
        let (answer, learned) = match self.cache.find(now, key, true)? {
            Found::Fresh(answer, age) => {
                let left = answer.lifetime().unwrap_or_default().saturating_sub(age);
                let learned = learns.then(|| answer.learned(query, left));
                (answer.encode(query, room, age), learned)
            }
            Found::Stale(answer, waiting) if waiting || !usable => {
                self.stats.stale += 1;
                let learned = learns.then(|| answer.learned(query, STALE_FOR));
                (answer.encode_stale(query, room), learned)
            }
            Found::Stale(..) => return None,
        };
        self.learn(learned.flatten());
        Some(answer)
    }

    /// Joins those who wait for the same; the answer, if nobody can wait.
    fn wait(
        &mut self,
        now: Instant,
        asker: Asker<A>,
        key: &Key,
        server: Option<SocketAddr>,
    ) -> Option<Vec<u8>> {
        let ticket = match self.by_key.get(key).copied() {
            Some(ticket) => ticket,
            None if self.make_room(asker.host) => {
                self.begin(now, key.clone(), &asker.query, Some(asker.host), server)
            }
            None => return self.turn_away(&asker.query),
        };
        let has_stale = matches!(self.cache.find(now, key, false), Some(Found::Stale(..)));
        let pending = self.pending.get_mut(&ticket)?;
        let of_host = pending.askers.iter().filter(|one| one.host == asker.host);
        if pending.askers.len() >= MAX_ASKERS || of_host.count() >= MAX_ASKERS_OF_HOST {
            return self.turn_away(&asker.query);
        }
        pending.askers.push(asker);
        if has_stale && pending.stale_at.is_none() {
            pending.stale_at = Some(now + STALE_PATIENCE);
        }
        self.reschedule(ticket);
        None
    }

    /// Whether there is a place for another question of `host`, which has not too many: a free one, one of nobody's, or the newest of the host
    /// that has most. (Its oldest are those that may yet be answered: they came before it began to flood.)
    fn make_room(&mut self, host: Host) -> bool {
        if self.shares.of(host) >= MAX_PENDING_OF_HOST {
            return false;
        }
        if self.pending.len() < MAX_PENDING {
            return true;
        }
        let newest_of = |owner: Option<Host>| {
            let mut newest_first = self.pending.iter().rev();
            newest_first.find(|(_, one)| one.owner == owner)
        };
        let idle = newest_of(None).filter(|(_, one)| one.askers.is_empty());
        let victim = idle.or_else(|| newest_of(Some(self.shares.to_yield(host)?)));
        let Some((&ticket, _)) = victim else {
            return false;
        };
        self.stats.evicted += 1;
        self.refuse(ticket, BUSY);
        true
    }

    fn turn_away(&mut self, query: &Query) -> Option<Vec<u8>> {
        self.stats.failed += 1;
        Some(reply::bare(query, rcode::SERVFAIL, Some(BUSY)))
    }

    fn begin(
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
        match server {
            Some(_) => self.near.push_back(ticket),
            None if self.usable => self.transmits.push_back(ticket),
            None => {}
        }
        ticket
    }

    fn reschedule(&mut self, ticket: Ticket) {
        let Some(pending) = self.pending.get_mut(&ticket) else {
            return;
        };
        self.due.remove(&(pending.due, ticket));
        let patience = if pending.can_go(self.usable) {
            PATIENCE
        } else {
            TUNNEL_PATIENCE
        };
        let end = pending.begun + patience;
        pending.due = pending.stale_at.map_or(end, |at| at.min(end));
        self.due.insert((pending.due, ticket));
    }

    /// The tunnel came or went.
    fn on_tunnel(&mut self, now: Instant, ticket: Ticket) {
        let Some(pending) = self.pending.get_mut(&ticket) else {
            return;
        };
        pending.sent = false;
        if self.usable {
            self.transmits.push_back(ticket);
        } else {
            if pending.askers.is_empty() {
                self.end(ticket);
                return;
            }
            self.serve_stale(now, ticket);
        }
        self.reschedule(ticket);
    }

    /// Gives those who wait what is past its time, if there is something.
    fn serve_stale(&mut self, now: Instant, ticket: Ticket) -> bool {
        let Some(pending) = self.pending.get_mut(&ticket) else {
            return false;
        };
        pending.stale_at = None;
        let Some(Found::Stale(answer, _)) = self.cache.find(now, &pending.key, false) else {
            return false;
        };
        for asker in pending.askers.drain(..) {
            self.stats.stale += 1;
            let bytes = answer.encode_stale(&asker.query, asker.room);
            self.answers.push_back((asker.to, bytes));
        }
        let learned = answer.learned(&pending.query, STALE_FOR);
        self.learn(learned);
        true
    }

    /// A question that is to cross now: the message is the query, the answer goes to [`Self::handle_answer`].
    pub fn poll_transmit(&mut self) -> Option<(Ticket, Vec<u8>)> {
        while let Some(ticket) = self.transmits.pop_front() {
            if let Some(pending) = self.pending.get_mut(&ticket)
                && self.usable
                && !pending.sent
            {
                pending.sent = true;
                pending.attempts += 1;
                self.stats.asked += 1;
                return Some((ticket, pending.query.encode()));
            }
        }
        None
    }

    /// A question that a name server of the site is to be asked now, and that server; its answer goes to
    /// [`Self::handle_answer`] like those that cross.
    pub fn poll_near(&mut self) -> Option<(Ticket, SocketAddr, Vec<u8>)> {
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

    /// A question that was asked and whose answer is of no use any more.
    pub fn poll_cancelled(&mut self) -> Option<Ticket> {
        self.cancelled.pop_front()
    }

    /// What came of a question; `None`: it was lost on the way.
    pub fn handle_answer(&mut self, now: Instant, ticket: Ticket, message: Option<&[u8]>) {
        let Some(pending) = self.pending.get_mut(&ticket) else {
            return;
        };
        // Nothing is under way for it any more.
        pending.sent = false;
        let Some(message) = message else {
            if pending.attempts < MAX_ATTEMPTS {
                match pending.server {
                    Some(_) => self.near.push_back(ticket),
                    None if self.usable => self.transmits.push_back(ticket),
                    None => {}
                }
            } else {
                self.fail(now, ticket, Extended::Silent);
            }
            return;
        };
        match Answer::decode(message, &pending.query) {
            Ok(answer) if answer.is_failure() => {
                let key = pending.key.clone();
                self.cache.insert(now, &key, answer.clone());
                if !self.serve_stale(now, ticket) {
                    self.give(ticket, &answer);
                }
                self.end(ticket);
            }
            Ok(answer) => {
                let answer = self.screened(ticket, answer);
                let ttl = answer.lifetime().unwrap_or_default();
                let pending = self.pending.get(&ticket);
                let learned = pending.and_then(|one| answer.learned(&one.query, ttl));
                self.learn(learned);
                self.give(ticket, &answer);
                if let Some(pending) = self.end(ticket) {
                    self.cache.insert(now, &pending.key, answer);
                }
            }
            Err(_) => self.fail(now, ticket, Extended::Other("bentpipe: malformed answer")),
        }
    }

    /// The answer as hosts may have it. The site's own name servers say what they like.
    fn screened(&mut self, ticket: Ticket, answer: Answer) -> Answer {
        let Some(pending) = self.pending.get(&ticket) else {
            return answer;
        };
        let rebinding = &self.config.rebinding;
        let (query, reachable) = (&pending.query, answer.reachable());
        if pending.server.is_some()
            || !rebinding.withholds(query, answer.addresses(), reachable, &self.local)
        {
            return answer;
        }
        self.stats.withheld += 1;
        answer.withheld(query)
    }

    fn give(&mut self, ticket: Ticket, answer: &Answer) {
        let Some(pending) = self.pending.get_mut(&ticket) else {
            return;
        };
        for asker in pending.askers.drain(..) {
            self.stats.failed += u64::from(answer.is_failure());
            let bytes = answer.encode(&asker.query, asker.room, Duration::ZERO);
            self.answers.push_back((asker.to, bytes));
        }
    }

    /// There will be no answer.
    fn fail(&mut self, now: Instant, ticket: Ticket, why: Extended) {
        if why != NO_TUNNEL
            && let Some(pending) = self.pending.get(&ticket)
        {
            let failure = Answer::failure(&pending.query);
            self.cache.insert(now, &pending.key, failure);
        }
        self.serve_stale(now, ticket);
        self.refuse(ticket, why);
    }

    /// Ends a question; who still waits hears why.
    fn refuse(&mut self, ticket: Ticket, why: Extended) {
        if let Some(pending) = self.end(ticket) {
            for asker in pending.askers {
                self.stats.failed += 1;
                let bytes = reply::bare(&asker.query, rcode::SERVFAIL, Some(why));
                self.answers.push_back((asker.to, bytes));
            }
        }
    }

    fn end(&mut self, ticket: Ticket) -> Option<Pending<A>> {
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

    fn learn(&mut self, learned: Option<Learned>) {
        if let Some(learned) = learned.filter(|_| self.config.learns) {
            if self.learned.len() >= MAX_LEARNED {
                self.learned.pop_front();
            }
            self.learned.push_back(learned);
        }
    }

    /// An answer that a host has waited for.
    pub fn poll_answer(&mut self) -> Option<(A, Vec<u8>)> {
        self.answers.pop_front()
    }

    /// Addresses in the answers that the last call has made. Whoever goes by them takes them before he gives the answers out.
    pub fn poll_learned(&mut self) -> Option<Learned> {
        self.learned.pop_front()
    }

    /// When [`Self::handle_timeout`] has something to do.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let due = self.due.first().map(|(at, _)| *at);
        let prefetch = self.cache.poll_timeout().filter(|_| self.may_prefetch());
        [due, prefetch].into_iter().flatten().min()
    }

    fn can_go(&self, ticket: Ticket) -> bool {
        let pending = self.pending.get(&ticket);
        pending.is_some_and(|one| one.can_go(self.usable))
    }

    fn may_prefetch(&self) -> bool {
        self.config.prefetch && self.usable
    }

    /// Answers those who have waited long enough, and asks for what is in use and will soon be stale.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(&(at, ticket)) = self.due.first()
            && at <= now
        {
            let stale = self.pending.get(&ticket).and_then(|p| p.stale_at);
            if stale.is_some_and(|at| at <= now) {
                self.serve_stale(now, ticket);
                self.reschedule(ticket);
            } else if self.can_go(ticket) {
                self.fail(now, ticket, Extended::Silent);
            } else {
                self.fail(now, ticket, NO_TUNNEL);
            }
        }
        while self.may_prefetch()
            && let Some(key) = self.cache.next_prefetch(now)
        {
            let query = Query::of(&key);
            let server = self.config.zones.server(&query);
            // The router's own server may have said so: nobody else is asked for names of this site.
            let router = server.is_none() && zones::is_private(&query);
            if !router {
                self.prefetch(now, key, &query, server);
            }
        }
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Answers held, and the bytes that they cost.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        self.cache.size()
    }
}
