//! Outcome of a question: an answer, one that is past its time, or a failure with its reason.

use std::time::{Duration, Instant};

use super::super::answer::{Answer, Learned, STALE_TTL};
use super::super::cache::Found;
use super::super::questions::{MAX_PENDING, Ticket};
use super::super::rcode;
use super::super::reply::{self, Extended};
use super::{Forwarder, STALE_PATIENCE};

/// Time for which hosts may use an answer that is past its own.
pub(super) const STALE_FOR: Duration = Duration::from_secs(STALE_TTL as u64);

/// Answers whose addresses nobody has fetched yet: no call makes more.
const MAX_LEARNED: usize = MAX_PENDING;

pub(super) const NO_TUNNEL: Extended = Extended::Network("bentpipe: the tunnel is down");

impl<A> Forwarder<A> {
    /// Notes that this machine has slept for so long until `now`: answers have aged meanwhile, and a tunnel that is in doubt for a round
    /// trip is no reason to give out stale ones.
    pub fn on_slept(&mut self, now: Instant, slept: Duration) {
        self.cache.on_slept(now, slept);
        self.patient_until = Some(now + STALE_PATIENCE);
    }

    /// True if a fresh answer may come soon enough: there is a tunnel, or there may be one in a moment.
    pub(super) fn may_answer_soon(&self, now: Instant) -> bool {
        self.questions.is_usable() || self.patient_until.is_some_and(|until| now < until)
    }

    /// Takes what came of a question; `None`: it was lost on the way.
    pub fn handle_answer(&mut self, now: Instant, ticket: Ticket, message: Option<&[u8]>) {
        // Nothing is under way for it any more.
        self.questions.recall(ticket);
        let Some(pending) = self.questions.get(ticket) else {
            return;
        };
        let Some(message) = message else {
            if !self.questions.retry(ticket) {
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
                self.questions.end(ticket);
            }
            Ok(answer) => {
                let answer = self.screened(ticket, answer);
                let ttl = answer.lifetime().unwrap_or_default();
                let pending = self.questions.get(ticket);
                let learned = pending.and_then(|one| answer.learned(&one.query, ttl));
                self.learn(learned);
                self.give(ticket, &answer);
                if let Some(pending) = self.questions.end(ticket) {
                    self.cache.insert(now, &pending.key, answer);
                }
            }
            Err(_) => self.fail(now, ticket, Extended::Other("bentpipe: malformed answer")),
        }
    }

    /// The answer as hosts may have it. The site's own name servers say what they like.
    fn screened(&mut self, ticket: Ticket, answer: Answer) -> Answer {
        let Some(pending) = self.questions.get(ticket) else {
            return answer;
        };
        let rebinding = &self.config.rebinding;
        let (query, reachable) = (&pending.query, answer.reachable());
        if pending.is_near()
            || !rebinding.withholds(query, answer.addresses(), reachable, &self.local)
        {
            return answer;
        }
        self.stats.withheld += 1;
        answer.withheld(query)
    }

    /// Gives those who wait what is past its time, if there is something.
    pub(super) fn serve_stale(&mut self, now: Instant, ticket: Ticket) -> bool {
        self.questions.end_stale(ticket);
        let Some(pending) = self.questions.get(ticket) else {
            return false;
        };
        let (key, query) = (&pending.key, &pending.query);
        let Some(Found::Stale(answer, _)) = self.cache.find(now, key, false) else {
            return false;
        };
        let learned = answer.learned(query, STALE_FOR);
        for asker in self.questions.take_askers(ticket) {
            self.stats.stale += 1;
            let bytes = answer.encode_stale(&asker.query, asker.room);
            self.answers.push_back((asker.to, bytes));
        }
        self.learn(learned);
        true
    }

    fn give(&mut self, ticket: Ticket, answer: &Answer) {
        for asker in self.questions.take_askers(ticket) {
            self.stats.failed += u64::from(answer.is_failure());
            let bytes = answer.encode(&asker.query, asker.room, Duration::ZERO);
            self.answers.push_back((asker.to, bytes));
        }
    }

    /// Ends the question of this ticket without an answer.
    pub(super) fn fail(&mut self, now: Instant, ticket: Ticket, why: Extended) {
        if why != NO_TUNNEL
            && let Some(pending) = self.questions.get(ticket)
        {
            let failure = Answer::failure(&pending.query);
            self.cache.insert(now, &pending.key, failure);
        }
        self.serve_stale(now, ticket);
        self.refuse(ticket, why);
    }

    /// Ends a question; who still waits hears why.
    pub(super) fn refuse(&mut self, ticket: Ticket, why: Extended) {
        if let Some(pending) = self.questions.end(ticket) {
            for asker in pending.askers {
                self.stats.failed += 1;
                let bytes = reply::bare(&asker.query, rcode::SERVFAIL, Some(why));
                self.answers.push_back((asker.to, bytes));
            }
        }
    }

    pub(super) fn learn(&mut self, learned: Option<Learned>) {
        if let Some(learned) = learned.filter(|_| self.config.learns) {
            if self.learned.len() >= MAX_LEARNED {
                self.learned.pop_front();
            }
            self.learned.push_back(learned);
        }
    }
}
