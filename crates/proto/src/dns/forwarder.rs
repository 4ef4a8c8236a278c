//! What the terminal does with queries: answers from the cache, asks the server, and answers whatever happens.
//!
//! Equal questions cross once, however many ask. A query for which there is only a stale answer waits a moment for a better one
//! (RFC 8767 §5); without a tunnel it does not wait. Nobody waits for ever: at the end there is SERVFAIL, with a reason.
//! Names of the site's own zones go to their name servers and never cross. When all places are taken, the host with most
//! questions under way gives one up.
//! `A` is where an answer goes; what that means is the shell's business.

mod outcome;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use bentpipe_units::ByteCount;
use ipnet::IpNet;

use super::answer::Learned;
use super::cache::{Cache, Found};
use super::companions::Companions;
use super::query::{Key, Query, Refusal, Room};
use super::questions::{Asker, Due, QuestionRoom, Questions, Ticket};
use super::rebind::Rebinding;
use super::reply::{self, Extended};
use super::share::Host;
use super::zones::{self, Zones};
use super::{rcode, rtype, special};
use crate::tunnel::Families;
use outcome::{NO_TUNNEL, STALE_FOR};

/// Time for which a stale answer is held back for a fresh one (RFC 8767 §5, client response timer).
const STALE_PATIENCE: Duration = Duration::from_millis(1800);

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
    /// True if names in use are asked for again before their answers expire, and names that followed another along with that.
    pub prefetch: bool,
    /// True if the reverse zones of private addresses are answered here.
    pub local_zones: bool,
    /// True if [`Forwarder::poll_learned`] is of interest.
    pub learns: bool,
    /// Zones that name servers of the site answer.
    pub zones: Zones,
    /// Answers that are withheld for the addresses in them.
    pub rebinding: Rebinding,
}

/// Origin of a query.
#[derive(Clone, Debug)]
pub struct Source<A> {
    /// Goal of the answer.
    pub to: A,
    /// The host that asks.
    pub host: IpAddr,
    /// The router's own name server, if the query was meant for that: it knows the names of this site.
    pub router: Option<SocketAddr>,
}

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

/// The terminal's DNS.
pub struct Forwarder<A> {
    config: Config,
    cache: Cache,
    companions: Companions,
    questions: Questions<A>,
    families: Families,
    /// Prefixes and addresses of this machine and its LANs.
    local: Vec<IpNet>,
    answers: VecDeque<(A, Vec<u8>)>,
    learned: VecDeque<Learned>,
    stats: Stats,
    /// The tunnel is waited for until then, as an answer is, before a stale one is given.
    patient_until: Option<Instant>,
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
            questions: Questions::default(),
            families: Families {
                ipv4: true,
                ipv6: true,
            },
            local: Vec::new(),
            answers: VecDeque::new(),
            learned: VecDeque::new(),
            stats: Stats::default(),
            patient_until: None,
        }
    }

    /// Notes whether questions can cross now, and which addresses the server reaches.
    pub fn set_tunnel(&mut self, now: Instant, usable: bool, families: Families) {
        self.families = families;
        for ticket in self.questions.set_usable(usable) {
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
        let host = Host::of(source.host);
        let zone = self.config.zones.server(&query);
        // The router's own name server knows the names that mean something here alone.
        let router = source.router.filter(|_| zone.is_none());
        let router = router.filter(|_| zones::is_private(&query));
        let (server, key) = (zone.or(router), query.key().at(router));
        let answer = self.without_resolver(&query, server.is_some()).or_else(|| {
            self.cached(
                now,
                &query,
                &key,
                room,
                self.may_answer_soon(now) || server.is_some(),
            )
        });
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
        // A name of this site, which a host has asked of a resolver far away, is not the answer to what others ask of the router.
        let near = self.config.zones.server(&query).is_some() || zones::is_private(&query);
        if !known && !near && self.without_resolver(&query, false).is_none() {
            self.prefetch(now, key.clone(), &query, None);
        }
    }

    /// Asks for nobody, if there is room for that.
    fn prefetch(&mut self, now: Instant, key: Key, query: &Query, server: Option<SocketAddr>) {
        if self.questions.may_prefetch(&key) {
            self.stats.prefetched += 1;
            self.questions.begin(now, key, query, None, server);
        }
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
        let ticket = match self.questions.find(key) {
            Some(ticket) => ticket,
            None if self.make_room(asker.host) => {
                let owner = Some(asker.host);
                self.questions
                    .begin(now, key.clone(), &asker.query, owner, server)
            }
            None => return self.turn_away(&asker.query),
        };
        let has_stale = matches!(self.cache.find(now, key, false), Some(Found::Stale(..)));
        let stale_at = has_stale.then(|| now + STALE_PATIENCE);
        match self.questions.join(ticket, asker, stale_at) {
            Ok(()) => None,
            Err(asker) => self.turn_away(&asker.query),
        }
    }

    /// True if there is a place for another question of `host`, be it that of one that is given up.
    fn make_room(&mut self, host: Host) -> bool {
        match self.questions.room(host) {
            QuestionRoom::Free => true,
            QuestionRoom::InsteadOf(ticket) => {
                self.stats.evicted += 1;
                self.refuse(ticket, BUSY);
                true
            }
            QuestionRoom::None => false,
        }
    }

    fn turn_away(&mut self, query: &Query) -> Option<Vec<u8>> {
        self.stats.failed += 1;
        Some(reply::bare(query, rcode::SERVFAIL, Some(BUSY)))
    }

    /// The tunnel came or went.
    fn on_tunnel(&mut self, now: Instant, ticket: Ticket) {
        self.questions.recall(ticket);
        if self.questions.is_usable() {
            self.questions.cross(ticket);
        } else {
            if self.questions.is_idle(ticket) {
                self.questions.end(ticket);
                return;
            }
            if !self.may_answer_soon(now) {
                self.serve_stale(now, ticket);
            }
        }
        self.questions.reschedule(ticket);
    }

    /// A question that is to cross now: the message is the query, the answer goes to [`Self::handle_answer`].
    pub fn poll_transmit(&mut self) -> Option<(Ticket, Vec<u8>)> {
        let question = self.questions.poll_transmit();
        self.stats.asked += u64::from(question.is_some());
        question
    }

    /// A question that a name server of the site is to be asked now, and that server; its answer goes to
    /// [`Self::handle_answer`] like those that cross.
    pub fn poll_near(&mut self) -> Option<(Ticket, SocketAddr, Vec<u8>)> {
        self.questions.poll_near()
    }

    /// A question that was asked and whose answer is of no use any more.
    pub fn poll_cancelled(&mut self) -> Option<Ticket> {
        self.questions.poll_cancelled()
    }

    /// An answer that a host has waited for.
    pub fn poll_answer(&mut self) -> Option<(A, Vec<u8>)> {
        self.answers.pop_front()
    }

    /// Addresses in the answers that the last call has made. Whoever goes by them takes them before he gives the answers out.
    pub fn poll_learned(&mut self) -> Option<Learned> {
        self.learned.pop_front()
    }

    /// Instant at which [`Self::handle_timeout`] has something to do.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let due = self.questions.poll_timeout();
        let prefetch = self.cache.poll_timeout().filter(|_| self.may_prefetch());
        [due, prefetch].into_iter().flatten().min()
    }

    fn may_prefetch(&self) -> bool {
        self.config.prefetch && self.questions.is_usable()
    }

    /// Answers those who have waited long enough, and asks for what is in use and will soon be stale.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some((ticket, due)) = self.questions.first_due(now) {
            match due {
                Due::Stale => {
                    self.serve_stale(now, ticket);
                    self.questions.reschedule(ticket);
                }
                Due::Silent => self.fail(now, ticket, Extended::Silent),
                Due::NoTunnel => self.fail(now, ticket, NO_TUNNEL),
            }
        }
        while self.may_prefetch()
            && let Some(key) = self.cache.next_prefetch(now)
        {
            let query = Query::of(&key);
            let server = self.config.zones.server(&query);
            // Nobody else is asked for what the router's own name server has said.
            if !key.is_at_router() {
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
